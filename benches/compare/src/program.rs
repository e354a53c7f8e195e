//! The command line: what `compare` and `compare-counted` do, which differ in their allocator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use console::{Closed, Progress, say};

use crate::attack;
use crate::bencher::Effort;
use crate::control::Control;
use crate::drive::Quota;
use crate::flavour::Flavour;
use crate::lab;

use crate::pin::Pin;
use crate::plan::{Case, Plan, select};
use crate::report::{Row, complaints, rows, table};
use crate::roo::{cases as roo_cases, roo_rows, roo_table};
use crate::scale;
use crate::settle;
use crate::svg::svg;
use crate::system::System;

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
    /// Hops and fan-out in three forms, as the Roo paper measures them.
    Roo(Roo),
    /// Prints and draws rows that an earlier run has written.
    Draw(Draw),
    /// Memory of idle connections and of open calls.
    Scale(scale::Arguments),
    /// An honest client beside a hostile peer.
    Attack(attack::Arguments),
    /// The hostile process of `attack`: started by the others.
    #[command(hide = true)]
    AttackPart(attack::Part),
    /// Rate and memory beside calls that fail, are cancelled, stay open, or lose their server.
    Settle(settle::Arguments),
    /// One process of `scale`: started by the others.
    #[command(hide = true)]
    ScalePart(scale::Part),
    /// One endpoint that says what it holds: started by the others.
    #[command(hide = true)]
    Host(lab::Host),
    /// One server of a case: started by the others.
    #[command(hide = true)]
    Serve(Serve),
}

/// Title of a picture of all systems.
const TITLE: &str = "Convoke beside others";

#[derive(Debug, Args)]
struct Run {
    /// How long to measure each case in each round.
    #[arg(long, default_value_t = 0.25)]
    seconds: f64,
    /// How often to go through all cases. Figures are medians over the rounds.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also draw them.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Only cases with this in the name of their bench, system, form or runtime. May be given
    /// several times: of those that name one kind of thing one has to fit.
    #[arg(long)]
    only: Vec<String>,
    /// Processors of client and servers with a runtime of one thread: one for both, one for the
    /// client and another for the servers, or as the system likes. Default: one, on Linux.
    #[arg(long, default_value_t = Pin::usual())]
    pin: Pin,
    /// End each measurement after this many operations, too.
    #[arg(long, hide = true, default_value_t = u64::MAX)]
    operations: u64,
}

#[derive(Debug, Args)]
struct Roo {
    /// Hold every frame back for this long, in milliseconds, as a distance between the servers
    /// would. May be given several times. Default: 2 and 0.
    #[arg(long)]
    delay_ms: Vec<f64>,
    /// Calls of each bench and form in each round.
    #[arg(long, default_value_t = 40)]
    runs: u64,
    /// How often to go through all of them.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// The runtime of both sides.
    #[arg(long, default_value = "ct")]
    runtime: Flavour,
    /// Processors of client and servers with a runtime of one thread: one for both, one for the
    /// client and another for the servers, or as the system likes. Default: one, on Linux.
    #[arg(long, default_value_t = Pin::usual())]
    pin: Pin,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also draw them, a chart for each delay: the delay is put before the ending of the file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Draw {
    /// The rows, as `--json` of a run has written them.
    rows: PathBuf,
    /// File to draw them to.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Benches to draw, by parts of their names. May be given several times. Default: all.
    #[arg(long)]
    only: Vec<String>,
}

#[derive(Debug, Args)]
struct Serve {
    system: System,
    flavour: Flavour,
    #[arg(long, default_value_t = 0)]
    delay_us: u64,
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Runs the command line that this process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Roo(arguments)) => roo(&arguments),
        Some(Command::Draw(arguments)) => draw(&arguments),
        Some(Command::Scale(arguments)) => program().and_then(|own| scale::run(&own, &arguments)),
        Some(Command::Attack(arguments)) => program().and_then(|own| attack::run(&own, &arguments)),
        Some(Command::AttackPart(part)) => attack::be_hostile(&part),
        Some(Command::Settle(arguments)) => program().and_then(|own| settle::run(&own, &arguments)),
        Some(Command::ScalePart(part)) => program().and_then(|own| scale::be_part(&own, &part)),
        Some(Command::Host(host)) => lab::serve(&host),
        Some(Command::Serve(arguments)) => serve(&arguments),
        None => run(&cli.run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(run: &Run) -> Result<()> {
    let (cases, effort) = (select(&run.only)?, effort(run)?);
    let (program, delay) = (program()?, Duration::ZERO);
    let plan = Plan { program, cases, effort, rounds: run.rounds, delay, pin: run.pin };
    let rows = measure(&plan)?;
    say(table(&rows).trim_end())?;
    if rows.iter().any(|row| row.allocs_per_op.is_some()) {
        println!("\ncounting took time: rates and processor times are those of `compare`.");
    }
    if let Some(path) = &run.json {
        write(path, &serde_json::to_string_pretty(&rows)?)?;
    }
    if let Some(path) = &run.svg {
        write(path, &svg(&rows, TITLE))?;
    }
    Ok(())
}

fn draw(arguments: &Draw) -> Result<()> {
    let file = arguments.rows.display();
    let text = std::fs::read_to_string(&arguments.rows);
    let text = text.with_context(|| format!("cannot read the rows of {file}"))?;
    let rows: Vec<Row> =
        serde_json::from_str(&text).with_context(|| format!("{file} has no rows of `compare`"))?;
    let is_meant = |row: &Row| {
        arguments.only.is_empty() || arguments.only.iter().any(|part| row.bench.contains(part))
    };
    let meant: Vec<Row> = rows.iter().filter(|row| is_meant(row)).cloned().collect();
    if meant.is_empty() {
        let mut benches: Vec<&str> = rows.iter().map(|row| row.bench.as_str()).collect();
        benches.dedup();
        bail!("{file} has no such bench; it has {}", benches.join(", "));
    }
    say(table(&meant).trim_end())?;
    if let Some(path) = &arguments.svg {
        write(path, &svg(&meant, TITLE))?;
    }
    Ok(())
}

fn roo(arguments: &Roo) -> Result<()> {
    let cases = roo_cases(System::ConvokeTcp, arguments.runtime);
    ensure!(!cases.is_empty(), "--runtime {} is for one server", arguments.runtime);
    let quota = |operations| Quota { time: Duration::MAX, operations };
    // A tenth is enough to connect and to fill caches.
    let runs = arguments.runs.max(1);
    let effort = Effort { warm_up: quota(runs.div_ceil(10)), measured: quota(runs) };
    let delays = if arguments.delay_ms.is_empty() { &[2.0, 0.0] } else { &arguments.delay_ms[..] };
    let mut all = Vec::new();
    for &delay_ms in delays {
        let (program, cases) = (program()?, cases.clone());
        let delay = seconds(delay_ms / 1e3)?;
        let (rounds, pin) = (arguments.rounds, arguments.pin);
        let plan = Plan { program, cases, effort, rounds, delay, pin };
        let rows = measure(&plan)?;
        if let Some(path) = &arguments.svg {
            let title = format!("Hops and fan-out, every frame {delay_ms} ms on its way");
            write(&with_delay(path, delay_ms), &svg(&rows, &title))?;
        }
        let rows = roo_rows(&plan.cases, rows, delay_ms);
        say(format_args!("every frame {delay_ms} ms on its way:\n{}", roo_table(&rows)))?;
        all.extend(rows);
    }
    say("ratio: median latency against the client-driven form; predicted: trips alone.")?;
    if let Some(path) = &arguments.json {
        write(path, &serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

/// `chart.svg` becomes `chart-2ms.svg`.
fn with_delay(path: &Path, delay_ms: f64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{delay_ms}ms.svg"))
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().context("this program has no path")
}

fn measure(plan: &Plan) -> Result<Vec<Row>> {
    plan.pin.check()?;
    let (rounds, count, mut progress) = (plan.rounds, plan.cases.len(), Progress::new());
    let samples = plan.run(|round, index, case| {
        let (round, index, Case { bench, system, flavour, .. }) = (round + 1, index + 1, case);
        progress.tell(format_args!(
            "round {round}/{rounds} [{index}/{count}] {bench} {system} {flavour}"
        ));
    })?;
    drop(progress);
    for complaint in complaints(&plan.cases, &samples) {
        say(format_args!("failed: {complaint}"))?;
    }
    Ok(rows(&plan.cases, &samples, plan.pin))
}

fn seconds(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} s are no time"))
}

fn effort(run: &Run) -> Result<Effort> {
    let (warm_up, measured) = (seconds(run.seconds / 4.0)?, seconds(run.seconds)?);
    Ok(Effort {
        warm_up: Quota { time: warm_up, operations: run.operations.div_ceil(4) },
        measured: Quota { time: measured, operations: run.operations },
    })
}

fn serve(arguments: &Serve) -> Result<()> {
    let runtime = arguments.flavour.server_runtime()?;
    let delay = Duration::from_micros(arguments.delay_us);
    runtime.block_on(async {
        let (control, ended) = Control::start(arguments.listen.clone());
        tokio::select! {
            biased;
            () = ended.wait() => Ok(()),
            result = arguments.system.serve(control, delay) => result,
        }
    })
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it takes at least one".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
