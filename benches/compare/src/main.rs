//! `compare`: Convoke beside other RPC stacks and bare sockets. `compare --help` lists the arguments.

#![forbid(unsafe_code)]

use std::alloc::System as SystemAllocator;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use alloc_tracker::Allocator;
use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use compare::bencher::Effort;
use compare::control::Control;
use compare::drive::Quota;
use compare::flavour::Flavour;
use compare::plan::{Case, Plan, select};
use compare::report::{complaints, rows, table};
use compare::system::System;

/// Counts allocations, and leaves them to the system's allocator.
#[global_allocator]
static ALLOCATOR: Allocator<SystemAllocator> = Allocator::system();

/// Measures Convoke beside other RPC stacks and bare sockets.
#[derive(Debug, Parser)]
#[command(name = "compare", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One server of a case: started by the others.
    #[command(hide = true)]
    Serve(Serve),
}

#[derive(Debug, Args)]
struct Run {
    /// How long to measure each case in each round.
    #[arg(long, default_value_t = 0.25)]
    seconds: f64,
    /// How often to go through all cases. Figures are medians over the rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only cases with this in the name of their bench, system, form or runtime. May be given several times:
    /// of those that name one kind of thing one has to fit.
    #[arg(long)]
    only: Vec<String>,
    /// End each measurement after this many operations, too.
    #[arg(long, hide = true, default_value_t = u64::MAX)]
    operations: u64,
}

#[derive(Debug, Args)]
struct Serve {
    system: System,
    flavour: Flavour,
    #[arg(long, default_value_t = 0)]
    delay_us: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Serve(arguments)) => serve(&arguments),
        None => run(&cli.run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(run: &Run) -> Result<()> {
    let plan = Plan {
        program: std::env::current_exe().context("this program has no path")?,
        cases: select(&run.only)?,
        effort: effort(run)?,
        rounds: run.rounds.max(1),
        delay: Duration::ZERO,
    };
    let samples = plan.run(|round, index, case| progress(&plan, round, index, case))?;
    eprint!("\r{:80}\r", "");
    let rows = rows(&plan.cases, &samples);
    print!("{}", table(&rows));
    for complaint in complaints(&plan.cases, &samples) {
        println!("failed: {complaint}");
    }
    if let Some(path) = &run.json {
        write(path, &serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

fn effort(run: &Run) -> Result<Effort> {
    let seconds = |seconds: f64| {
        Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} s are no time"))
    };
    let quota = |time| Quota { time, operations: run.operations };
    let (warm_up, measured) = (seconds(run.seconds / 4.0)?, seconds(run.seconds)?);
    Ok(Effort { warm_up: quota(warm_up), measured: quota(measured) })
}

fn progress(plan: &Plan, round: usize, index: usize, case: &Case) {
    let (rounds, count) = (plan.rounds, plan.cases.len());
    let (index, name) = (index + 1, format!("{} {} {}", case.bench, case.system, case.flavour));
    eprint!("\rround {}/{rounds} [{index:3}/{count}] {name:60}", round + 1);
    // Progress that cannot be shown is no reason to stop.
    let _ = std::io::stderr().flush();
}

fn serve(arguments: &Serve) -> Result<()> {
    let runtime = arguments.flavour.runtime()?;
    let delay = Duration::from_micros(arguments.delay_us);
    runtime.block_on(async {
        let (control, ended) = Control::start();
        tokio::select! {
            biased;
            () = ended.wait() => Ok(()),
            result = arguments.system.serve(control, delay) => result,
        }
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
