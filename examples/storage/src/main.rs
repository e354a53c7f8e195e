//! `storage`: a replicated register with echo phases. `storage help` lists the commands.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};
use console::{Output, about, say};
use node_kit::signals::StopSignal;
use storage::bench::{Effort, Only, Row, Wanted, bench, choices, rows, sentence, table};
use storage::client::Client;
use storage::cluster::{self, Cluster};
use storage::demo;
use storage::form::{Form, Phases};
use storage::lanes;
use storage::life::Life;
use storage::processes::run_child;
use storage::replica::Fate;
use storage::serve::Server;
use storage::svg::figures;
use tokio::runtime::Builder;

/// A replicated register whose replicas echo each write among themselves.
#[derive(Debug, Parser)]
#[command(name = "storage", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play the executions that the paper draws: no crash, one crash, a majority crashed.
    Demo,
    /// Measure writes with no, one and two echo phases, in three forms.
    Bench(Bench),
    /// Draw a write frame by frame over lanes of time: casts beside nested quorum calls.
    Lanes(Lanes),
    /// Run one replica of a cluster file: once, since what it stores is in memory alone.
    Node(Node),
    /// Write to the replicas of a cluster file, and read from them.
    Client(Ask),
    /// One replica of a demo or a bench: started by it.
    #[command(hide = true)]
    Replica(Child),
}

#[derive(Debug, Args)]
struct Bench {
    /// How long a run is, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Runs of each case.
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Cases to measure: n=4, phases=1, form=echo, in_flight=32, loop=closed, share=0.8 (of an open
    /// loop). May be given several times: a case must have all properties, of two values of one
    /// either. Default: all.
    #[arg(long)]
    only: Vec<Wanted>,
    /// Print every load, and the columns of the 99th percentile, of frames and of writes that were
    /// not begun. Default: what 32 writes in flight reach.
    #[arg(long)]
    all: bool,
    /// Write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write figures 4 to 7 of the paper to this folder, as far as there are rows for them.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Lanes {
    /// Replicas.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=16))]
    replicas: u64,
    /// Echo phases: 0, 1 or 2.
    #[arg(long, default_value = "1")]
    phases: Phases,
    /// Forms of the write: echo, nested or client. May be given several times. Default: echo and
    /// nested.
    #[arg(long)]
    form: Vec<Form>,
    /// Time of each frame on its way, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    delay_ms: u32,
    /// Also draw it to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Node {
    /// The cluster file.
    #[arg(long)]
    config: PathBuf,
    /// Id of its replica that this is.
    #[arg(long)]
    id: u64,
}

#[derive(Debug, Args)]
struct Ask {
    /// The cluster file.
    #[arg(long)]
    config: PathBuf,
    /// End the operation within this time, in milliseconds: with an answer, or with who is missing.
    #[arg(long, default_value_t = 10_000)]
    deadline_ms: u64,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a value.
    Write {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Form of the write, by who leads the echo phases: echo, nested or client.
        #[arg(long, default_value = "echo")]
        form: Form,
        /// How many there are: 0, 1 or 2.
        #[arg(long, default_value = "1")]
        phases: Phases,
    },
    /// Read the newest value.
    Read {
        /// The key.
        key: String,
    },
}

#[derive(Debug, Args)]
struct Child {
    #[arg(long)]
    id: u64,
    #[arg(long)]
    replicas: u64,
    #[arg(long)]
    crash: bool,
}

/// Longest run: a day.
const SECONDS_MAX: f64 = 86_400.0;

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| "error".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let mut runtime = Builder::new_current_thread();
    runtime.enable_all().start_paused(matches!(cli.command, Command::Lanes(_)));
    let runtime = runtime.build().expect("the system has room for a runtime");
    console::end("storage", runtime.block_on(run(cli)))
}

async fn run(cli: Cli) -> Result<bool> {
    match cli.command {
        Command::Bench(args) => return run_bench(args).await,
        Command::Demo => run_demo().await?,
        Command::Node(args) => run_node(args).await?,
        Command::Client(args) => run_client(args).await?,
        Command::Lanes(args) => run_lanes(args).await?,
        Command::Replica(args) => run_replica(args).await?,
    }
    Ok(true)
}

async fn run_demo() -> Result<()> {
    say("A client writes to its replicas, each a process, with one echo phase among them, while \
         none of them, a few or too many crash. It takes a few seconds.\n")?;
    let mut scenes = demo::figures().await?;
    #[cfg(unix)]
    scenes.push(demo::stopped().await?);
    for scene in &scenes {
        say(scene)?;
    }
    say(demo::sentence(&scenes))
}

/// True when no write failed.
async fn run_bench(args: Bench) -> Result<bool> {
    let is_time = (0.0..=SECONDS_MAX).contains(&args.seconds);
    ensure!(is_time, "--seconds {} is not a time from 0 s to a day", args.seconds);
    let time = Duration::from_secs_f64(args.seconds);
    ensure!(args.runs > 0, "--runs 0 measures nothing");
    let effort = Effort { time, runs: args.runs, only: Only::new(args.only) };
    let cases = effort.only.count();
    ensure!(
        cases > 0,
        "no case has all of the properties that --only asks for: there are {}",
        choices()
    );
    // Sooner than after minutes of measuring.
    let json = args.json.as_deref().map(Output::open).transpose()?;
    if let Some(folder) = &args.svg {
        let made = std::fs::create_dir_all(folder);
        made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let told = say(format_args!(
        "Writes with no, one and two echo phases in three forms, {cases} cases in {} runs each. \
         It takes {}.",
        args.runs,
        about(effort.estimate()),
    ));
    // Where nobody reads, the files are what is wanted.
    if json.is_none() && args.svg.is_none() {
        told?;
    }
    let (measured, done) = bench(&effort).await;
    let rows = rows(&measured);
    if rows.is_empty() {
        return done.map(|()| true);
    }
    // First to the files, for nobody may read what is said; and what was measured before something
    // failed is as good as the rest.
    let written = write_rows(&rows, json, args.svg.as_deref());
    let told = say(table(&rows, args.all).trim_end()).and_then(|()| say(sentence(&rows)));
    done?;
    written?;
    let is_good = rows.iter().all(|row| row.failed == 0);
    if is_good {
        told?;
    }
    Ok(is_good)
}

fn write_rows(rows: &[Row], json: Option<Output>, svg: Option<&Path>) -> Result<()> {
    if let Some(json) = json {
        json.write(&serde_json::to_string_pretty(rows)?)?;
    }
    if let Some(folder) = svg {
        for figure in figures(rows) {
            write(&folder.join(format!("{}.svg", figure.name)), &figure.svg)?;
        }
    }
    Ok(())
}

async fn run_lanes(args: Lanes) -> Result<()> {
    let forms = if args.form.is_empty() { vec![Form::Echo, Form::Nested] } else { args.form };
    let one_way = Duration::from_millis(args.delay_ms.into());
    let (svg, lines) = lanes::picture(args.replicas, &forms, args.phases, one_way).await?;
    for line in lines {
        say(line)?;
    }
    args.svg.map_or(Ok(()), |path| write(&path, &svg))
}

async fn run_node(args: Node) -> Result<()> {
    let cluster = Cluster::read(&args.config)?;
    let at = cluster.node(args.id).with_context(|| args.config.display().to_string())?;
    let (members, mut stop) = (cluster::members(&cluster)?, StopSignal::listen()?);
    let life = Life::begin(&at.folder, cluster.id(), args.id)?;
    let server = match Server::start(at, cluster.id(), &members, Fate::Lives).await {
        Ok(server) => server,
        Err(error) => {
            life.take_back();
            return Err(error);
        }
    };
    let membership = server.join(&cluster)?;
    let (id, count) = (args.id, cluster.nodes().len());
    // It has one life, which does not end because nobody reads that.
    let _ = say(format_args!(
        "replica {id} of {count} listens at {}\n\
         what it stores is in memory: once it has ended, it does not start again in this cluster",
        server.address()
    ));
    stop.received().await;
    drop(membership);
    server.stop().await;
    Ok(())
}

async fn run_client(args: Ask) -> Result<()> {
    let cluster = Cluster::read(&args.config)?;
    let members = cluster::members(&cluster)?;
    let endpoint = convoke::endpoint().peers(&members).start().await?;
    let client = Client::new(&endpoint, cluster.id(), members);
    let client = client.deadline(Duration::from_millis(args.deadline_ms));
    match args.what {
        What::Write { key, value, form, phases } => {
            let version = client.write(form, phases, &key, value.as_bytes()).await?;
            say(format_args!("{key} = {value}, timestamp {}", version.timestamp))?;
        }
        What::Read { key } => {
            let value = client.read(&key).await?;
            if value.timestamp == 0 {
                say(format_args!("{key} was never written"))?;
            } else {
                let text = String::from_utf8_lossy(&value.value);
                say(format_args!("{key} = {text}, timestamp {}", value.timestamp))?;
            }
        }
    }
    endpoint.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

async fn run_replica(args: Child) -> Result<()> {
    let fate = if args.crash { Fate::CrashesOnWrite } else { Fate::Lives };
    run_child(args.id, args.replicas, fate).await
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
