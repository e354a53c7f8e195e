//! The command line: what `compare` and `compare-counted` do, which differ in their allocator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use console::{Closed, Output, Progress, say};

use crate::attack;
use crate::bencher::Effort;
use crate::control::Control;
use crate::drive::Quota;
use crate::flavour::Flavour;
use crate::lab;
use crate::output::{open, tell};
use crate::pin::Pin;
use crate::plan::{Case, Plan, select};
use crate::report::{self, Report, Row, ensure_measured, rows, table};
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
    #[arg(long, default_value = "0.25", value_parser = seconds)]
    seconds: Duration,
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
    let (cases, effort) = (select(&run.only)?, effort(run));
    let (program, delay) = (program()?, Duration::ZERO);
    let (json, picture) = (open(run.json.as_deref())?, open(run.svg.as_deref())?);
    let plan = Plan { program, cases, effort, rounds: run.rounds, delay, pin: run.pin };
    let begun = report::Run::begin(&effort, run.rounds);
    let rows = measure(&plan)?;
    let mut text = table(&rows);
    if rows.iter().any(|row| row.allocs_per_op.is_some()) {
        text += "\ncounting took time: rates and processor times are those of `compare`.\n";
    }
    let drawn = draw_to(picture, &rows, TITLE);
    let report = Report { run: Some(begun), rows };
    let told = tell(json, &report, &text);
    ensure_measured(&report.rows).and(drawn).and(told)
}

fn draw_to(picture: Option<Output>, rows: &[Row], title: &str) -> Result<()> {
    picture.map_or(Ok(()), |picture| picture.write(&svg(rows, title)))
}

fn draw(arguments: &Draw) -> Result<()> {
    let file = arguments.rows.display();
    let text = std::fs::read_to_string(&arguments.rows);
    let text = text.with_context(|| format!("cannot read the rows of {file}"))?;
    let report = Report::read(&text);
    let rows = report.with_context(|| format!("{file} has no rows of `compare`"))?.rows;
    let is_meant = |row: &Row| {
        arguments.only.is_empty() || arguments.only.iter().any(|part| row.bench.contains(part))
    };
    let meant: Vec<Row> = rows.iter().filter(|row| is_meant(row)).cloned().collect();
    if meant.is_empty() {
        let mut benches: Vec<&str> = rows.iter().map(|row| row.bench.as_str()).collect();
        benches.dedup();
        bail!("{file} has no such bench; it has {}", benches.join(", "));
    }
    draw_to(open(arguments.svg.as_deref())?, &meant, TITLE)?;
    say(table(&meant).trim_end())
}

fn roo(arguments: &Roo) -> Result<()> {
    let cases = roo_cases(System::ConvokeTcp, arguments.runtime);
    ensure!(!cases.is_empty(), "--runtime {} is for one server", arguments.runtime);
    let quota = |operations| Quota { time: Duration::MAX, operations };
    // A tenth is enough to connect and to fill caches.
    let runs = arguments.runs.max(1);
    let effort = Effort { warm_up: quota(runs.div_ceil(10)), measured: quota(runs) };
    let delays = if arguments.delay_ms.is_empty() { &[2.0, 0.0] } else { &arguments.delay_ms[..] };
    let json = open(arguments.json.as_deref())?;
    let prepare = |&delay_ms: &f64| {
        let delay = Duration::try_from_secs_f64(delay_ms / 1e3);
        let delay = delay.with_context(|| format!("{delay_ms} ms are no time"))?;
        let picture = arguments.svg.as_deref().map(|path| with_delay(path, delay_ms));
        anyhow::Ok((delay_ms, delay, open(picture.as_deref())?))
    };
    let prepared = delays.iter().map(prepare).collect::<Result<Vec<_>>>()?;
    let (mut all, mut told) = (Vec::new(), Ok(()));
    for (delay_ms, delay, picture) in prepared {
        let (program, cases) = (program()?, cases.clone());
        let (rounds, pin) = (arguments.rounds, arguments.pin);
        let plan = Plan { program, cases, effort, rounds, delay, pin };
        let rows = measure(&plan)?;
        let title = format!("Hops and fan-out, every frame {delay_ms} ms on its way");
        let drawn = draw_to(picture, &rows, &title);
        let rows = roo_rows(&plan.cases, rows, delay_ms);
        let text = format!("every frame {delay_ms} ms on its way:\n{}", roo_table(&rows));
        told = told.and(drawn).and(say(text));
        all.extend(rows);
    }
    let legend = "ratio: median latency against the client-driven form; predicted: trips alone.";
    let told = told.and(tell(json, &all, legend));
    ensure_measured(all.iter().map(|row| &row.row)).and(told)
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
    });
    drop(progress);
    Ok(rows(&plan.cases, &samples, plan.pin))
}

fn effort(run: &Run) -> Effort {
    Effort {
        warm_up: Quota { time: run.seconds / 4, operations: run.operations.div_ceil(4) },
        measured: Quota { time: run.seconds, operations: run.operations },
    }
}

/// An argument in seconds, for something that takes some time, and a day at most.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero() && *time <= Duration::from_secs(86_400))
        .ok_or_else(|| "it takes some time, in seconds, and a day at most".to_owned())
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
