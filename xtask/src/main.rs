//! The project's own commands, run as `cargo xtask COMMAND` from anywhere in the repository.
//!
//! `test` runs every lane of checks that CI runs, `fix` repairs what a tool can repair, `sim`
//! replays one simulation seed, `counts` counts the instructions of a call, `rdma` runs what needs
//! an RDMA device, `wan` measures over a WAN that it makes on this machine, and `release` checks
//! what has to hold before the crates are published. Each prints the commands it runs, so that any
//! of them can be repeated alone.
//!
//! The package has no `tests/` folder on purpose: with one, `cargo test --workspace` would relink
//! this very program while it runs, which Windows forbids.

#![forbid(unsafe_code)]

mod counts;
mod crates;
mod features;
mod guide;
mod lanes;
mod leftovers;
mod licences;
mod markdown;
mod programs;
mod published;
mod rdma;
mod release;
mod report;
mod rust_code;
mod step;
mod wan;
mod workspace;

use std::process::ExitCode;

use anyhow::bail;
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::lanes::{LANES, Lane, RELEASE, Selection};
use crate::report::Report;
use crate::step::{CANNOT_RUN, Step};
use crate::workspace::Workspace;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the lanes of checks that CI runs and prints a table of what passed.
    ///
    /// Lanes run one after another and a failing one does not stop the later ones. The last line
    /// counts lanes. The exit code is non-zero when any failed, and 77 when lanes were named and
    /// none of them could run, nor a part of one.
    Test {
        /// Run these lanes only (comma-separated).
        #[arg(long, value_name = "LANE", value_delimiter = ',', value_parser = lane_names(LANES))]
        only: Vec<String>,
        /// Stop at the first command that fails.
        #[arg(long)]
        fail_fast: bool,
        /// Print the lanes and what each checks, and run nothing.
        #[arg(long)]
        list: bool,
    },
    /// Applies what clippy can fix, then formats.
    Fix,
    /// Counts the instructions and allocations of a call, beside the most that they may be.
    ///
    /// It needs valgrind, and exits with 77 where that is missing.
    Counts {
        /// Build with these features of the package `profile` (comma-separated), such as
        /// `everything`, and compare with nothing.
        #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
        features: Vec<String>,
    },
    /// Runs what needs an RDMA device, in small virtual machines that have one.
    ///
    /// On Debian, as the superuser, it installs what is missing. The exit code is 77 where it
    /// cannot run at all, with what is missing by name.
    Rdma(rdma::Options),
    /// Checks what has to hold before the crates are published, and publishes nothing.
    ///
    /// Packages are built from what is in them, compared with the last release and audited. Tools
    /// that are missing are named; the exit code is 77 when nothing failed and not everything ran.
    Release {
        /// Run these lanes only (comma-separated).
        #[arg(long, value_name = "LANE", value_delimiter = ',', value_parser = lane_names(RELEASE))]
        only: Vec<String>,
        /// Install missing tools with cargo, which takes some minutes.
        #[arg(long)]
        install: bool,
    },
    /// Prints the published crates with those of them that each is built on, always and with a
    /// feature; and draws them.
    Crates(crates::Options),
    /// Replays one simulation seed and prints its trace.
    Sim {
        /// The seed, as a failing run printed it.
        seed: String,
        /// Further arguments for the simulator.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures over a WAN made on this machine, on Linux as root: broadcasts, direct and by
    /// overlay; or with `loss` calls over each transport while packets are lost.
    ///
    /// Sites are network namespaces; see `docs/wan-lab.md`. Exits with 77 when something is
    /// missing.
    #[command(disable_help_flag = true)]
    Wan {
        /// Arguments of the lab, such as --sites 5 --skew 1, or loss --rtt-ms 40; it says more with
        /// --help.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return refuse(&error),
    };
    match run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::find()?;
    match command {
        Command::Test { list: true, .. } => {
            print!("{}", lanes::list());
            Ok(ExitCode::SUCCESS)
        }
        Command::Test { only, fail_fast, list: false } => {
            let is_named = !only.is_empty();
            let report = lanes::run(&workspace, &Selection { only, fail_fast });
            print!("\n{report}");
            Ok(code_of_test(&report, is_named))
        }
        Command::Crates(options) => {
            crates::run(&workspace, &options)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Fix => run_all(
            &workspace,
            &[
                Step::cargo(["clippy", "--fix", "--allow-dirty", "--allow-staged"])
                    .args(["--workspace", "--all-targets"])
                    .args(features::all_portable(&workspace)?),
                Step::cargo(["fmt", "--all"]),
            ],
        ),
        Command::Counts { features } => counts::run(&workspace, &features),
        Command::Release { only, install } => release::run(&workspace, only, install),
        Command::Rdma(options) => rdma::run(&workspace, &options),
        Command::Sim { seed, arguments } => run_all(
            &workspace,
            &[Step::cargo(["run", "--release", "-p", "convoke-sim", "--bin", "sim", "--"])
                .args(["--seed".to_owned(), seed])
                .args(arguments)],
        ),
        Command::Wan { arguments } => wan::run(&workspace, arguments),
    }
}

/// The exit code of `test`: whoever names lanes wants to know of them, and takes an exit with 0 for
/// a pass.
fn code_of_test(report: &Report, is_named: bool) -> ExitCode {
    if report.has_failures() {
        ExitCode::FAILURE
    } else if is_named && report.is_all_skipped() {
        ExitCode::from(CANNOT_RUN)
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs the steps in order, up to the first that fails.
fn run_all(workspace: &Workspace, steps: &[Step]) -> anyhow::Result<ExitCode> {
    for step in steps {
        println!("$ {step}");
        if !step.run(workspace.root())? {
            bail!("`{step}` failed");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints why the command line was not understood; clap lists the lanes by itself, not the
/// commands.
fn refuse(error: &clap::Error) -> ExitCode {
    // A closed terminal is no reason to fail differently.
    let _ = error.print();
    if error.kind() == ErrorKind::InvalidSubcommand {
        let cli = Cli::command();
        let known: Vec<_> = cli.get_subcommands().map(clap::Command::get_name).collect();
        eprintln!("\nknown commands: {}", known.join(", "));
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn lane_names(lanes: &'static [Lane]) -> PossibleValuesParser {
    PossibleValuesParser::new(lanes.iter().map(|lane| lane.name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::Outcome;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_unknown_lane_is_refused_with_the_known_ones() {
        let refused = Cli::try_parse_from(["xtask", "test", "--only", "fmt,bogus"]);
        let message = refused.expect_err("there is no such lane").to_string();
        assert!(LANES.iter().all(|lane| message.contains(lane.name)), "{message}");
    }

    #[test]
    fn lanes_that_were_named_and_could_not_run_have_not_passed() {
        let of = |outcome: Outcome, is_named| {
            let mut report = Report::default();
            report.add("deny", outcome, Duration::ZERO);
            code_of_test(&report, is_named)
        };
        let reason = || "no tool".to_owned();
        let skipped = || Outcome::Skipped(reason());
        assert_eq!(of(skipped(), true), ExitCode::from(CANNOT_RUN));
        assert_eq!(of(skipped(), false), ExitCode::SUCCESS);
        assert_eq!(of(Outcome::Partly(reason()), true), ExitCode::SUCCESS);
        assert_eq!(of(Outcome::Failed(reason()), true), ExitCode::FAILURE);
    }

    #[test]
    fn several_lanes_are_chosen_by_comma() {
        let cli = Cli::try_parse_from(["xtask", "test", "--only", "docs,fmt"]);
        let Ok(Cli { command: Command::Test { only, .. } }) = cli else {
            panic!("not a test command: {cli:?}");
        };
        assert_eq!(only, ["docs", "fmt"]);
    }

    #[test]
    fn arguments_after_a_seed_reach_the_simulator() {
        let cli = Cli::try_parse_from(["xtask", "sim", "17", "--verbose"]);
        let Ok(Cli { command: Command::Sim { seed, arguments } }) = cli else {
            panic!("not a sim command: {cli:?}");
        };
        assert_eq!((seed.as_str(), arguments.as_slice()), ("17", &["--verbose".to_owned()][..]));
    }
}
