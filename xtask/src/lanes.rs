//! The lanes of `cargo xtask test`: each plans what to run, one loop runs them all.

mod ahead;
mod beside;
mod book;
mod deny;
mod features;
mod graph;
mod lean;
mod leftovers;
mod licences;
mod links;
mod minimal;
mod miri;
mod msrv;
mod package;
mod platforms;
mod rdma;
mod semver;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use self::ahead::Ahead;
use self::beside::Beside;
use crate::features::all_portable;
use crate::programs::Programs;
use crate::report::{Outcome, Report};
use crate::step::Step;
use crate::workspace::Workspace;

/// Time after which a command hangs: well above the longest one, that of the lane `test`, which takes
/// half an hour on two processors of its own and 35 minutes on such as others keep busy.
pub(crate) const HANGS: Duration = Duration::from_secs(52 * 60);

/// One named check.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// Summary of its checks, for `--list`.
    about: &'static str,
    plan: fn(&Workspace) -> anyhow::Result<Plan>,
}

/// Action of a lane, here and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Runs these, in order; passes when all succeed.
    Run(Vec<Step>),
    /// Runs these likewise; the rest of the lane cannot run, for this reason.
    Partly(Vec<Step>, String),
    /// Has looked for itself and complains of these; passes when there are none.
    Found(Vec<String>),
    /// Cannot run, for this reason.
    Skip(String),
}

/// Lanes to run, and how far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// By name; all when empty.
    pub(crate) only: Vec<String>,
    /// Stop at the first failing command.
    pub(crate) fail_fast: bool,
}

/// All lanes in the order they run: what is quick to tell comes first.
pub(crate) const LANES: &[Lane] = &[
    Lane { name: "fmt", about: "the code is formatted", plan: fmt },
    Lane { name: "leftovers", about: "nothing unfinished is left behind", plan: leftovers::plan },
    Lane { name: "licences", about: "deny.toml allows every licence", plan: licences::plan },
    Lane { name: "links", about: "no link of a page leads nowhere", plan: links::plan },
    LEAN,
    PACKAGE,
    Lane { name: "clippy", about: "no lint complains, all targets and features", plan: clippy },
    Lane {
        name: "test",
        about: "unit, property, conformance, compile-fail, doc tests",
        plan: test,
    },
    Lane { name: "features", about: "each published feature builds alone", plan: features::plan },
    Lane { name: "msrv", about: "the oldest supported Rust builds it", plan: msrv::plan },
    Lane { name: "docs", about: "the documentation builds without a warning", plan: docs },
    PLATFORMS,
    SEMVER,
    DENY,
    Lane { name: "sim", about: "seeds of the simulators: calls, Paxos, PBFT", plan: sim },
    Lane { name: "graph", about: "graph answers the benchmark's queries", plan: graph::plan },
    Lane { name: "counts", about: "no call takes more instructions than its bound", plan: counts },
    Lane { name: "fuzz", about: "30 s of hostile bytes for every decoder", plan: fuzz },
    Lane { name: "miri", about: "the unsafe code, interpreted by Miri", plan: miri::plan },
    Lane {
        name: "grpc-foreign",
        about: "gRPC of Python and Go calls the edge",
        plan: grpc_foreign,
    },
    Lane { name: "rdma", about: "the RDMA transport on a verbs device", plan: rdma::plan },
];

/// The lanes of `cargo xtask release`, in the order they run.
pub(crate) const RELEASE: &[Lane] = &[
    LEAN,
    PACKAGE,
    Lane {
        name: "verify",
        about: "each package builds from what is in it",
        plan: package::plan_with_verification,
    },
    MINIMAL,
    PLATFORMS,
    SEMVER,
    DENY,
    Lane { name: "book", about: "the guides build as a book", plan: book::plan },
];

const DENY: Lane =
    Lane { name: "deny", about: "cargo-deny: licences, bans, sources", plan: deny::plan };
const LEAN: Lane =
    Lane { name: "lean", about: "the default build: few crates, no C compiler", plan: lean::plan };
const MINIMAL: Lane =
    Lane { name: "minimal", about: "the oldest dependencies allowed do", plan: minimal::plan };
const PACKAGE: Lane =
    Lane { name: "package", about: "packages hold what they must, no more", plan: package::plan };
const PLATFORMS: Lane =
    Lane { name: "platforms", about: "Windows and macOS can build it", plan: platforms::plan };
const SEMVER: Lane =
    Lane { name: "semver", about: "nothing breaks the last release", plan: semver::plan };

fn fmt(_: &Workspace) -> anyhow::Result<Plan> {
    one(Step::cargo(["fmt", "--all", "--check"]))
}

fn clippy(workspace: &Workspace) -> anyhow::Result<Plan> {
    let clippy = Step::cargo(["clippy", "--workspace", "--all-targets"]);
    one(clippy.args(all_portable(workspace)?).args(["--", "-D", "warnings"]))
}

/// Tutorials are not built here: clippy looks at them, and the test `examples_run` runs them all.
fn test(workspace: &Workspace) -> anyhow::Result<Plan> {
    let features = all_portable(workspace)?;
    let test = |targets: &[&str]| {
        let step = Step::cargo(["test", "--workspace", "--no-fail-fast"]);
        step.args(targets.iter().copied()).args(features.clone())
    };
    Ok(Plan::Run(vec![test(&["--lib", "--bins", "--tests"]), test(&["--doc"])]))
}

fn docs(workspace: &Workspace) -> anyhow::Result<Plan> {
    let doc = Step::cargo(["doc", "--workspace", "--no-deps"]).args(all_portable(workspace)?);
    one(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The same seeds each time, so that what it says is of the commit. Fresh ones: `sim --seconds`.
///
/// Cores of node programs run many more seeds in a second than whole nodes with their clients. Each
/// step of a program takes less than a minute on two processors.
fn sim(workspace: &Workspace) -> anyhow::Result<Plan> {
    let programs = Programs::build(workspace)?;
    let run = |program, arguments: &[&str], seeds| {
        let step = programs.run(program)?.args(arguments.iter().copied());
        Ok(step.args(["--seeds", seeds, "--start-seed", "4000000000000"]))
    };
    let steps = [
        run("sim", &[], "2000"),
        run("paxos", &["sim", "--core"], "600"),
        run("paxos", &["sim"], "250"),
        run("pbft", &["sim", "--part", "world"], "250"),
    ];
    steps.into_iter().collect::<anyhow::Result<_>>().map(Plan::Run)
}

fn counts(_: &Workspace) -> anyhow::Result<Plan> {
    let counts = Plan::Run(vec![Step::cargo(["xtask", "counts"])]);
    Ok(crate::counts::reason_to_skip().map_or(counts, Plan::Skip))
}

fn fuzz(_: &Workspace) -> anyhow::Result<Plan> {
    one(fuzz_test().args(["--", "--nocapture"]).env("CONVOKE_FUZZ_SECONDS", "30"))
}

fn fuzz_test() -> Step {
    Step::cargo(["test", "--release", "-p", "convoke-proto", "--test", "fuzz_decoders"])
}

/// Built with the features of the lane `test`, so that it is there already; the variable has it do
/// something. A test whose language is not there tests nothing.
fn grpc_foreign(workspace: &Workspace) -> anyhow::Result<Plan> {
    let test = Step::cargo(["test", "--workspace", "--test", "foreign"]);
    let test = test.args(all_portable(workspace)?).args(["--", "--nocapture"]);
    let test = test.env("CONVOKE_FOREIGN_GRPC", "1");
    let has = |program, question| workspace.output_of(program, &[question]).is_ok();
    let has_python = has("python3", "--version") || has("python", "--version");
    Ok(plan_foreign(test, has_python, has("go", "version")))
}

fn plan_foreign(test: Step, has_python: bool, has_go: bool) -> Plan {
    match (has_python, has_go) {
        (true, true) => Plan::Run(vec![test]),
        (true, false) => Plan::Partly(vec![test], "there is no go".to_owned()),
        (false, true) => Plan::Partly(vec![test], "there is no python3".to_owned()),
        (false, false) => Plan::Skip("there is neither python3 nor go".to_owned()),
    }
}

/// A plan of a single command, which nothing can keep from being made.
#[allow(clippy::unnecessary_wraps, reason = "it is the tail of functions that return a result")]
fn one(step: Step) -> anyhow::Result<Plan> {
    Ok(Plan::Run(vec![step]))
}

/// The lanes with what each checks, a line each.
pub(crate) fn list() -> String {
    LANES.iter().map(|lane| format!("{:12}  {}\n", lane.name, lane.about)).collect()
}

/// Runs the selected lanes, printing as it goes.
pub(crate) fn run(workspace: &Workspace, selection: &Selection) -> Report {
    run_lanes(workspace, LANES, selection)
}

/// Runs those of these lanes that are selected, printing as it goes.
pub(crate) fn run_lanes(workspace: &Workspace, lanes: &[Lane], selection: &Selection) -> Report {
    run_lanes_by(workspace, lanes, selection, &|step| step.run_within(HANGS, workspace.root()))
}

/// Runs a step; true when it succeeded.
type Runner<'a> = &'a dyn Fn(&Step) -> anyhow::Result<bool>;

fn run_lanes_by(
    workspace: &Workspace,
    lanes: &[Lane],
    selection: &Selection,
    runner: Runner<'_>,
) -> Report {
    let mut report = Report::default();
    let only = selection.only.clone();
    let is_selected = move |name: &str| only.is_empty() || only.iter().any(|x| x == name);
    let beside = RefCell::new(None);
    let runner = |step: &Step| {
        let begun = beside.borrow_mut().take_if(|begun: &mut Beside| begun.is(step));
        begun.map_or_else(|| runner(step), Beside::end)
    };
    for lane in lanes.iter().filter(|lane| is_selected(lane.name)) {
        let start = Instant::now();
        let outcome = if selection.fail_fast && report.has_failures() {
            Outcome::Skipped("an earlier lane failed, and --fail-fast was given".to_owned())
        } else {
            println!("\n== {}: {}", lane.name, lane.about);
            let ahead = Ahead::begin(lane.name, workspace, is_selected.clone(), HANGS);
            // Where the first failure ends all, nothing is to run on behind it.
            if !selection.fail_fast
                && let Some(begun) = Beside::begin(lane.name, workspace, &is_selected, HANGS)
            {
                beside.replace(Some(begun));
            }
            let outcome = (lane.plan)(workspace).map_or_else(
                |error| Outcome::Failed(format!("{error:#}")),
                |plan| carry_out(lane.name, plan, selection.fail_fast, &runner),
            );
            ahead.end();
            outcome
        };
        let (word, reason) = outcome.words();
        println!("{}", format!("== {} {word}  {reason}", lane.name).trim_end());
        report.add(lane.name, outcome, start.elapsed());
    }
    if let Some(begun) = beside.take() {
        let _ = begun.end(); // Its lane could not be planned again, and says so.
    }
    report
}

fn carry_out(lane: &str, plan: Plan, fail_fast: bool, runner: Runner<'_>) -> Outcome {
    match plan {
        Plan::Run(steps) => run_steps(&steps, fail_fast, runner),
        Plan::Partly(steps, reason) => match run_steps(&steps, fail_fast, runner) {
            Outcome::Passed => Outcome::Partly(reason),
            failed => failed,
        },
        Plan::Found(complaints) => {
            println!("$ cargo xtask test --only {lane}");
            complaints.iter().for_each(|complaint| println!("{complaint}"));
            match complaints.len() {
                0 => Outcome::Passed,
                count => Outcome::Failed(format!("{count} found, listed above")),
            }
        }
        Plan::Skip(reason) => Outcome::Skipped(reason),
    }
}

/// Runs all steps even after one failed, unless told otherwise: each tells something new.
fn run_steps(steps: &[Step], fail_fast: bool, runner: Runner<'_>) -> Outcome {
    let mut failed = Vec::new();
    for step in steps {
        println!("$ {step}");
        match runner(step) {
            Ok(true) => continue,
            Ok(false) => failed.push(step.to_string()),
            Err(error) => failed.push(format!("{step} ({error:#})")),
        }
        if fail_fast {
            break;
        }
    }
    match &failed[..] {
        [] => Outcome::Passed,
        [only] => Outcome::Failed(only.clone()),
        [first, ..] => Outcome::Failed(format!("{} commands, first {first}", failed.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAKES: &[Lane] = &[
        Lane { name: "clean", about: "", plan: |_| Ok(Plan::Found(Vec::new())) },
        Lane { name: "dirty", about: "", plan: |_| Ok(Plan::Found(vec!["a:1: bad".to_owned()])) },
        Lane { name: "stuck", about: "", plan: |_| anyhow::bail!("no plan") },
        Lane { name: "absent", about: "", plan: |_| Ok(Plan::Skip("no tool".to_owned())) },
        Lane { name: "broken", about: "", plan: |_| one(Step::cargo(["bad"])) },
    ];

    /// Fails the commands `bad`, cannot start `absent`, and succeeds at others.
    fn fake(step: &Step) -> anyhow::Result<bool> {
        match step.to_string().as_str() {
            "cargo absent" => anyhow::bail!("not found"),
            line => Ok(line != "cargo bad"),
        }
    }

    fn last_line(selection: &Selection) -> String {
        let report = run_lanes_by(&Workspace::at("."), FAKES, selection, &fake).to_string();
        report.lines().last().unwrap_or_default().to_owned()
    }

    fn outcome_of(commands: &[&str], fail_fast: bool) -> Outcome {
        let steps: Vec<_> = commands.iter().map(|&command| Step::cargo([command])).collect();
        run_steps(&steps, fail_fast, &fake)
    }

    #[test]
    fn a_lane_passes_when_all_its_commands_do() {
        assert_eq!(outcome_of(&["good", "fine"], false), Outcome::Passed);
    }

    #[test]
    fn a_lane_that_ran_in_part_says_why_unless_that_part_failed() {
        let outcome = |command: &str| {
            let plan = Plan::Partly(vec![Step::cargo([command])], "no library".to_owned());
            carry_out("features", plan, false, &fake)
        };
        assert_eq!(outcome("good"), Outcome::Partly("no library".to_owned()));
        assert_eq!(outcome("bad"), Outcome::Failed("cargo bad".to_owned()));
    }

    #[test]
    fn a_command_that_cannot_start_fails_with_the_reason() {
        let expected = Outcome::Failed("cargo absent (not found)".to_owned());
        assert_eq!(outcome_of(&["absent", "good"], false), expected);
    }

    #[test]
    fn commands_go_on_after_a_failure_unless_told_otherwise() {
        let both = Outcome::Failed("2 commands, first cargo bad".to_owned());
        assert_eq!(outcome_of(&["bad", "good", "absent"], false), both);
        let first = Outcome::Failed("cargo bad".to_owned());
        assert_eq!(outcome_of(&["bad", "good", "absent"], true), first);
    }

    #[test]
    fn a_failing_lane_does_not_stop_the_later_ones() {
        assert_eq!(last_line(&Selection::default()), "1 passed, 3 failed, 1 skipped");
    }

    #[test]
    fn fail_fast_skips_all_lanes_after_the_first_failure() {
        let selection = Selection { fail_fast: true, ..Selection::default() };
        assert_eq!(last_line(&selection), "1 passed, 1 failed, 3 skipped");
    }

    #[test]
    fn only_the_selected_lanes_run() {
        let only = vec!["absent".to_owned(), "clean".to_owned()];
        let selection = Selection { only, ..Selection::default() };
        assert_eq!(last_line(&selection), "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn foreign_clients_need_a_language_of_theirs() {
        let test = Step::cargo(["test"]);
        let plan = |has_python, has_go| plan_foreign(test.clone(), has_python, has_go);
        assert_eq!(plan(true, true), Plan::Run(vec![test.clone()]));
        let without = |reason: &str| Plan::Partly(vec![test.clone()], reason.to_owned());
        assert_eq!(plan(true, false), without("there is no go"));
        assert_eq!(plan(false, true), without("there is no python3"));
        assert!(matches!(plan(false, false), Plan::Skip(_)));
    }

    #[test]
    fn lane_names_are_unique_and_fit_the_list() {
        for lanes in [LANES, RELEASE] {
            for (index, lane) in lanes.iter().enumerate() {
                assert!(lanes[..index].iter().all(|earlier| earlier.name != lane.name));
                assert!(lane.name.len() <= 12, "{} does not fit its column", lane.name);
            }
        }
    }
}
