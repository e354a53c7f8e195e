//! `cargo xtask counts`: the instructions and allocations of a call, client and servers together,
//! beside the most that they may be.
//!
//! Callgrind counts the instructions of a whole program. What a call takes is the difference of
//! two runs, one with more calls than the other, so that start and end drop out. The program is
//! `benches/profile`, a package of its own: built as a bench of the library, it would have every
//! feature that the library's tests turn on.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};

use crate::programs::executables;
use crate::step::{CANNOT_RUN, Step};
use crate::workspace::Workspace;

/// Calls of one kind, and the most that one of them may take.
struct Row {
    /// Kind of call, as the program names it.
    kind: &'static str,
    callers: u32,
    /// Calls, or items, of the shorter run; the longer one makes twice as many.
    calls: u32,
    /// Above what was last measured by what the choice of compiler and machine changes.
    instructions_max: u64,
    allocations_max: f64,
}

/// All rows, the most ordinary call first.
const ROWS: [Row; 8] = [
    row("unary", 64, 9_600, 10_500, 0.1),
    row("unary", 1, 1_000, 23_500, 0.1),
    row("quorum", 16, 1_600, 42_900, 4.6),
    row("tree", 32, 3_200, 48_500, 1.0),
    row("hops", 32, 3_200, 54_100, 0.5),
    row("fan", 16, 1_600, 126_000, 36.5),
    row("items", 1, 10_000, 5_350, 0.1),
    row("replies", 1, 10_000, 6_000, 0.1),
];

/// The kind of call that has to take less than another, the other, and the part of it that it may
/// take at most in one run: servers that hand a call on spare its caller one for each.
const LESS: (&str, &str, f64) = ("tree", "hops", 0.95);

/// The program that is counted, and its package.
const PROGRAM: &str = "profile";

/// The feature of the program that builds in what no call of it uses.
const EVERYTHING: &str = "everything";

/// Its rows: what the features of the library cost a call that has no need of them.
const EVERYTHING_ROWS: [Row; 1] = [row("unary", 64, 9_600, 11_500, 0.1)];

const fn row(
    kind: &'static str,
    callers: u32,
    calls: u32,
    instructions_max: u64,
    allocations_max: f64,
) -> Row {
    Row { kind, callers, calls, instructions_max, allocations_max }
}

/// Times that a row over its bound is counted again.
const AGAIN_MAX: usize = 3;

/// End of the line of a row that is over its bound.
const MORE: &str = "  MORE";

/// Counts of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    instructions: u64,
    allocations: f64,
}

/// Reason why nothing can be counted here, with the remedy.
pub(crate) fn reason_to_skip() -> Option<String> {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    let is_there = version.is_ok_and(|status| status.success());
    (!is_there).then(|| "valgrind is missing: install the package valgrind".to_owned())
}

/// Builds the program with these features on top of the default ones, counts, and prints the table.
/// Without any it is built as users have it, and then with [`EVERYTHING`], and the command fails
/// when a call takes more than it may; with others that are named it may take what it takes.
///
/// # Errors
/// The program cannot be built or run, or prints what nobody understands.
pub(crate) fn run(workspace: &Workspace, features: &[String]) -> anyhow::Result<ExitCode> {
    if let Some(reason) = reason_to_skip() {
        eprintln!("nothing can be counted: {reason}");
        return Ok(ExitCode::from(CANNOT_RUN));
    }
    let mut over = count(workspace, features, &ROWS)?;
    if features.is_empty() {
        over.extend(count(workspace, &[EVERYTHING.to_owned()], &EVERYTHING_ROWS)?);
        if !over.is_empty() {
            let rows = over.join("\n");
            bail!("a call takes more than it may; xtask/src/counts.rs has the bounds:\n{rows}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the program with these features, counts these rows, and prints them. Gives the lines of
/// those that are over their bound.
fn count(workspace: &Workspace, features: &[String], rows: &[Row]) -> anyhow::Result<Vec<String>> {
    let built = executables(workspace, build(features))?;
    let program = built.into_iter().find(|(target, _)| target.name == PROGRAM);
    let (_, program) = program.with_context(|| format!("cargo built no {PROGRAM}"))?;
    println!("kind     callers   instructions  at most  allocations at most");
    let (mut over, mut counted) = (Vec::new(), Vec::new());
    for row in rows {
        let mut counts = row.count(&program)?;
        // On a busy machine batches of calls are smaller, and timers run that no call needs.
        for _ in 0..AGAIN_MAX {
            if row.is_over(counts) {
                counts = row.count(&program)?;
            }
        }
        let line = row.line(counts);
        println!("{line}");
        over.extend(line.ends_with(MORE).then_some(line));
        counted.push((row.kind, counts));
    }
    if let Some(line) = compared(&counted) {
        println!("{line}");
        over.extend(line.ends_with(MORE).then_some(line));
    }
    Ok(over)
}

/// The line of the two kinds of [`LESS`], if both were counted.
fn compared(counted: &[(&str, Counts)]) -> Option<String> {
    let (less, than, part_max) = LESS;
    let of = |kind| counted.iter().find(|(of, _)| *of == kind).map(|(_, counts)| counts);
    let part = of(less)?.instructions as f64 / of(than)?.instructions as f64;
    let mark = if part > part_max { MORE } else { "" };
    Some(format!("{:31}{part:5.3} {part_max:9.3}{mark}", format!("{less} / {than}")))
}

/// Builds that counting begins with.
pub(crate) fn builds() -> [Step; 2] {
    [build(&[]), build(&[EVERYTHING.to_owned()])]
}

/// Builds the program that is counted, with these features on top of the default ones.
fn build(features: &[String]) -> Step {
    Step::cargo(["build", "--release", "-p", PROGRAM]).args(with(features))
}

/// The argument of cargo that turns these on.
fn with(features: &[String]) -> Vec<String> {
    let named = [String::from("--features"), features.join(",")];
    named.into_iter().filter(|_| !features.is_empty()).collect()
}

impl Row {
    fn count(&self, program: &Path) -> anyhow::Result<Counts> {
        let (short, long) = (self.measure(program, 1)?, self.measure(program, 2)?);
        self.per_call(short, long)
    }

    /// Counts of one call, of those of the shorter run and of the longer.
    ///
    /// # Errors
    /// The longer run took no more: then it has not made its calls, and nothing was counted.
    fn per_call(&self, short: Counts, long: Counts) -> anyhow::Result<Counts> {
        let more = long.instructions.checked_sub(short.instructions).filter(|more| *more > 0);
        let (kind, calls) = (self.kind, u64::from(self.calls));
        let more = more.with_context(|| {
            let (short, long) = (short.instructions, long.instructions);
            format!("{kind}: {long} instructions with {calls} calls more, {short} without")
        })?;
        Ok(Counts { instructions: more / calls, ..long })
    }

    /// Runs with so many times its calls: all instructions, and the allocations of a call.
    fn measure(&self, program: &Path, times: u32) -> anyhow::Result<Counts> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
        command.args([self.kind.to_owned(), self.callers.to_string()]);
        let output = command.arg((self.calls * times).to_string()).output();
        let output = output.context("valgrind could not be started")?;
        let (said, counted) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{} failed: {counted}", program.display());
        Ok(Counts {
            instructions: number(&counted, "Collected : ")?,
            allocations: number(&said, "writes, ")?,
        })
    }

    fn is_over(&self, counts: Counts) -> bool {
        counts.instructions > self.instructions_max || counts.allocations > self.allocations_max
    }

    fn line(&self, counts: Counts) -> String {
        let mark = if self.is_over(counts) { MORE } else { "" };
        format!(
            "{:8} {:7} {:14} {:8} {:12.2} {:6.1}{mark}",
            self.kind,
            self.callers,
            counts.instructions,
            self.instructions_max,
            counts.allocations,
            self.allocations_max,
        )
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number after these words.
fn number<N: std::str::FromStr>(text: &str, after: &str) -> anyhow::Result<N> {
    let found = text.split_once(after).and_then(|(_, rest)| rest.split_whitespace().next());
    let found = found.and_then(|word| word.parse().ok());
    found.with_context(|| format!("no number after `{after}` in: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = row("unary", 64, 9_600, 6_000, 2.1);

    #[test]
    fn numbers_are_read_where_the_programs_print_them() {
        let counted = "==7== Events    : Ir\n==7== Collected : 271828182\n";
        assert_eq!(number::<u64>(counted, "Collected : ").ok(), Some(271_828_182));
        let said = "unary: 12.67 us, 0.016 writes, 2.07 allocations\n";
        assert_eq!(number::<f64>(said, "writes, ").ok(), Some(2.07));
        let error = number::<u64>("Killed", "Collected : ");
        assert!(error.expect_err("no number").to_string().contains("Killed"));
    }

    #[test]
    fn a_row_that_grew_says_so() {
        let fits = Counts { instructions: 6_000, allocations: 2.1 };
        assert!(!ROW.is_over(fits) && !ROW.line(fits).contains("MORE"));
        let slow = Counts { instructions: 6_001, ..fits };
        let hungry = Counts { allocations: 2.2, ..fits };
        assert!(ROW.line(slow).ends_with("MORE") && ROW.is_over(hungry));
    }

    #[test]
    fn a_tree_that_takes_nearly_as_much_as_its_hops_says_so() {
        let line = |tree| {
            let counted = [("tree", tree), ("hops", 50_000), ("items", 5_000)];
            let of = |instructions| Counts { instructions, allocations: 0.5 };
            compared(&counted.map(|(kind, instructions)| (kind, of(instructions))))
        };
        assert!(line(44_500).is_some_and(|line| !line.contains("MORE") && line.contains("0.890")));
        assert!(line(47_600).is_some_and(|line| line.ends_with("MORE")));
        assert_eq!(compared(&[]), None, "of kinds that are not counted nothing is said");
    }

    #[test]
    fn a_longer_run_that_took_no_more_is_an_error() {
        let of = |instructions| Counts { instructions, allocations: 2.0 };
        let counted = ROW.per_call(of(1_000), of(1_000 + 9_600 * 6_000));
        assert_eq!(counted.ok(), Some(of(6_000)));
        for long in [1_000, 999, 0] {
            let error = ROW.per_call(of(1_000), of(long)).expect_err("nothing was counted");
            assert!(error.to_string().starts_with(&format!("unary: {long} instr")), "{error}");
        }
    }

    #[test]
    fn features_are_named_only_where_there_are_some() {
        assert!(with(&[]).is_empty());
        assert_eq!(with(&["a".to_owned(), "b".to_owned()]), ["--features", "a,b"]);
    }
}
