//! `cargo xtask rdma`: everything that needs a verbs device, run where there is none.
//!
//! A virtual machine of a stock kernel has a soft-RoCE device and no disk; it works off a plan of
//! tests and benches and says line by line what comes of them:
//!
//! ```text
//! packages ── kernel ─┐
//! programs ── plan ───┴─ image ── machine ── results ── figures ── chart
//! ```

mod chart;
mod cpio;
mod figures;
mod host;
mod image;
mod kernel;
mod machine;
mod modules;
mod packages;
mod plan;
mod programs;
mod replicated;
mod results;
mod run;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum as _};

use self::packages::{Apt, Readiness, Standing};
use self::plan::{Choice, Kind, Mode};
use self::results::Results;
use self::run::Run;
use crate::step::{CANNOT_RUN, Step};
use crate::workspace::Workspace;

/// Choice of what to run, and where.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Run these kinds of programs only (comma-separated).
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    only: Vec<Kind>,
    /// Run only what has this in the name of its program or case.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Boot these machines only (comma-separated).
    #[arg(long, value_enum, value_name = "MODE", value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Run as `cargo xtask test` does: one machine, shorter programs, each bench once, and one more
    /// machine for a few hundred requests of the replicated benchmark.
    #[arg(long)]
    quick: bool,
    /// Make ten times as many requests in the replicated benchmark: 10^5 at each window.
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Use the RDMA device of this host instead of a virtual machine.
    #[arg(long, conflicts_with_all = ["mode", "kvm"])]
    host: bool,
    /// With --host: the device, if it is not the first.
    #[arg(long, requires = "host")]
    device: Option<String>,
    /// With --host: the address of the device, if it has several or does not know it.
    #[arg(long, requires = "host")]
    address: Option<Ipv4Addr>,
    /// Let the processor run the machines; never the one whose clock counts instructions.
    #[arg(long)]
    kvm: bool,
    /// Keep the images that were booted and the programs in them.
    #[arg(long)]
    keep: bool,
    /// Stop machines, or with --host the programs, that still run so long after the start.
    /// Downloads and builds count, but are not stopped.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=1_440)
    )]
    minutes: u64,
}

impl Options {
    fn kinds(&self) -> Vec<Kind> {
        if !self.only.is_empty() {
            return self.only.clone();
        }
        vec![Kind::Unit, Kind::Conformance, Kind::Fault, Kind::Bench, Kind::Replicated]
    }

    fn modes(&self) -> Vec<Mode> {
        match (&self.mode[..], self.quick) {
            ([], true) => vec![Mode::Det],
            ([], false) => vec![Mode::Det, Mode::Smp, Mode::Pair],
            (modes, _) => modes.to_vec(),
        }
    }

    fn choice(&self) -> Choice {
        let bench_rounds = if self.quick || self.host { 1 } else { BENCH_ROUNDS };
        Choice { kinds: self.kinds(), name: self.name.clone().unwrap_or_default(), bench_rounds }
    }
}

/// Enough to see whether times repeat.
const BENCH_ROUNDS: usize = 3;

/// Runs what was chosen and says what came of it.
///
/// # Errors
/// Something around the programs fails: the network, the disk, the build.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + Duration::from_secs(60 * options.minutes);
    let mut apt = Apt::default();
    if let Some(reason) = prepare(options, &mut apt)? {
        eprintln!("cannot run here: {reason}");
        return Ok(ExitCode::from(CANNOT_RUN));
    }
    let run = Run::prepare(workspace, options, deadline)?;
    let results = if options.host { run.on_host()? } else { run.in_machines(&mut apt)? };
    let failures = conclude(&run, &results, options)?;
    for failure in &failures {
        println!("FAILED  {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reason why `cargo xtask test` may not run this here, or `None`.
///
/// Packages are installed unasked in CI alone: elsewhere it is someone's machine.
pub(crate) fn reason_to_skip(is_ci: bool) -> Option<String> {
    match Standing::look(&packages_for(false)).readiness() {
        Readiness::Ready => None,
        Readiness::Installable(_) if is_ci => None,
        Readiness::Installable(missing) => Some(format!(
            "missing: {}; `cargo xtask rdma` installs them, and so does this lane where CI is set",
            missing.join(" ")
        )),
        Readiness::Impossible(reason) => Some(reason),
    }
}

/// Installs what is missing here, if that may be; what needs it complains.
pub(crate) fn install() {
    if let Readiness::Installable(missing) = Standing::look(&packages_for(false)).readiness() {
        let _ = Apt::default().install(&missing);
    }
}

/// Builds the programs that [`run()`] runs in machines but the replicated benchmark.
///
/// # Errors
/// `cargo metadata` fails.
pub(crate) fn build_programs(workspace: &Workspace) -> anyhow::Result<Option<Step>> {
    programs::build_step(workspace, Kind::value_variants())
}

/// The packages that are missing here to build what uses verbs; all of them where nobody can tell.
pub(crate) fn missing_to_build() -> Vec<&'static str> {
    Standing::look(&packages::BUILD).missing
}

/// Installs what is missing; hands back why that cannot be.
fn prepare(options: &Options, apt: &mut Apt) -> anyhow::Result<Option<String>> {
    let standing = Standing::look(&packages_for(options.host));
    if options.host {
        if let Err(error) = host::Device::find(options.device.as_deref(), options.address) {
            return Ok(Some(format!("{error:#}")));
        }
        if standing.system != "debian" {
            // Other systems name their packages otherwise; the build says what it does not find.
            return Ok(None);
        }
    }
    match standing.readiness() {
        Readiness::Ready => Ok(None),
        Readiness::Installable(missing) => apt.install(&missing).map(|()| None),
        Readiness::Impossible(reason) => Ok(Some(reason)),
    }
}

fn packages_for(host: bool) -> Vec<&'static str> {
    let machine: &[&str] = if host { &[] } else { &packages::MACHINE };
    [&packages::BUILD, machine].concat()
}

/// Writes the figures down and collects what failed.
fn conclude(run: &Run<'_>, results: &[Results], options: &Options) -> anyhow::Result<Vec<String>> {
    let mut failures: Vec<String> = results.iter().flat_map(Results::failures).collect();
    let printed: Vec<_> = results.iter().flat_map(|results| results.figures().to_vec()).collect();
    let rows = figures::rows(&printed)?;
    if !rows.is_empty() {
        print!("\n{}", figures::table(&rows));
        run.write("figures.json", &figures::json(&rows))?;
        for (name, svg) in chart::charts(&rows) {
            run.write(&name, &svg)?;
        }
        failures.extend(figures::complaints(&rows, options.choice().bench_rounds));
    }
    for (name, text) in results.iter().flat_map(Results::files) {
        replicated::write(run.folder(), name, text)?;
    }
    println!();
    results.iter().for_each(|results| println!("{}", results.summary()));
    println!("logs and figures are in {}", run.folder().display());
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        let line = Line::try_parse_from([&["rdma"], arguments].concat());
        line.map(|line| line.options).expect("it is understood")
    }

    #[test]
    fn by_default_all_runs_in_every_mode_and_benches_repeat() {
        let options = options(&[]);
        assert_eq!(options.modes(), [Mode::Det, Mode::Smp, Mode::Pair]);
        assert_eq!((options.kinds().len(), options.choice().bench_rounds), (5, 3));
    }

    #[test]
    fn the_lane_tests_in_one_mode() {
        let options = options(&["--quick", "--only", "unit,bench"]);
        assert_eq!(options.modes(), [Mode::Det]);
        assert_eq!(options.kinds(), [Kind::Unit, Kind::Bench]);
        assert_eq!(options.choice().bench_rounds, 1);
        assert_eq!(self::options(&["--quick"]).kinds(), self::options(&[]).kinds());
    }

    #[test]
    fn a_run_has_a_minute_to_a_day() {
        assert_eq!(options(&["--minutes", "1440"]).minutes, 1_440);
        for refused in ["0", "1441", "18446744073709551615"] {
            assert!(Line::try_parse_from(["rdma", "--minutes", refused]).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_host_has_no_modes_and_a_machine_no_device() {
        for refused in
            [&["--host", "--mode", "smp"][..], &["--host", "--kvm"], &["--device", "mlx5_0"]]
        {
            assert!(Line::try_parse_from([&["rdma"], refused].concat()).is_err(), "{refused:?}");
        }
    }
}
