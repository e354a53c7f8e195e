//! `graph`: a sharded social network, its queries as call trees. `graph help` lists the commands.

#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};
use console::{Output, about, say};
use convoke::Endpoint;
use graph::cluster::{self, Cluster};
use graph::demo::{Effort, Row, demo, figure, sentence, table};
use graph::forms::{Client, Form, is_told};
use graph::generate::Recipe;
use graph::processes::{Processes, Setup, run_child, this_program};
use graph::query::Query;
use graph::serve::{Server, Source, transport};
use graph::store::Sharding;
use graph::{check, choose, lanes, trace};
use node_kit::signals::StopSignal;
use tokio::runtime::Builder;

/// A sharded social network that answers the LDBC short queries as call trees.
#[derive(Debug, Parser)]
#[command(name = "graph", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Options of the demo, for who names no command.
    #[command(flatten)]
    demo: Demo,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure every query as a tree, client-driven and nested, over shard processes (the default).
    Demo(Demo),
    /// Compare the answers of shard processes with a file of expected ones.
    Check(Check),
    /// Run one shard of a cluster file.
    Serve(Serve),
    /// Ask the shards of a cluster file.
    Query(Ask),
    /// Draw the request tree that a query executes.
    Trace(Trace),
    /// Draw a query frame by frame over lanes of time: nested calls beside a tree.
    Lanes(Lanes),
    /// One shard of a demo: started by it.
    #[command(hide = true)]
    Shard(Child),
}

#[derive(Debug, Args)]
struct Data {
    /// The folder of an LDBC data set; without one a graph is made up.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Persons of a graph that is made up: at most 20,000.
    #[arg(
        long,
        default_value_t = Recipe::default().persons,
        value_parser = clap::value_parser!(u32).range(1..=20_000)
    )]
    persons: u32,
    /// Seed of a graph that is made up.
    #[arg(long, default_value_t = Recipe::default().seed)]
    seed: u64,
}

impl Data {
    fn recipe(&self) -> Recipe {
        Recipe { persons: self.persons, seed: self.seed }
    }

    fn source(&self) -> Source<'_> {
        self.data.as_deref().map_or(Source::Generated(self.recipe()), Source::Folder)
    }

    fn setup(&self, shards: NonZeroUsize, delay: Duration) -> Result<Setup> {
        Ok(Setup {
            program: this_program()?,
            data: self.data.clone(),
            recipe: self.recipe(),
            sharding: Sharding::over(shards),
            delay,
        })
    }
}

#[derive(Debug, Args)]
struct Demo {
    #[command(flatten)]
    data: Data,
    /// Shard processes.
    #[arg(long, default_value = "4", value_parser = shards)]
    shards: NonZeroUsize,
    /// Hold every frame back for this long, in milliseconds, as a distance between the shards
    /// would. May be given several times. Default: 2 and 0.
    #[arg(long)]
    delay_ms: Vec<f64>,
    /// Queries of each kind and form.
    #[arg(long, default_value_t = 40)]
    runs: usize,
    /// Print every form with its hops, frames and processor time.
    #[arg(long)]
    all: bool,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also draw the ratios beside what the hops predict, to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    data: Data,
    /// Expected answers, one JSON object a line.
    #[arg(long)]
    expected: PathBuf,
    /// Shard processes.
    #[arg(long, default_value = "4", value_parser = shards)]
    shards: NonZeroUsize,
    /// Form of the query, by who walks: tree, client or nested.
    #[arg(long, default_value = "tree")]
    form: Form,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    data: Data,
    /// The cluster file.
    #[arg(long)]
    cluster: PathBuf,
    /// Number of its shard that this is, from 0.
    #[arg(long)]
    shard: usize,
}

#[derive(Debug, Args)]
struct Ask {
    /// The cluster file.
    #[arg(long)]
    cluster: PathBuf,
    /// IS1 to IS7.
    query: Query,
    /// The person (IS1 to IS3) or the message (IS4 to IS7).
    #[arg(long)]
    id: i64,
    /// Form of the query, by who walks: tree, client or nested.
    #[arg(long, default_value = "tree")]
    form: Form,
    /// End the query within this time, in milliseconds: with an answer, or with what is missing.
    #[arg(long, default_value_t = 10_000)]
    deadline_ms: u64,
}

#[derive(Debug, Args)]
struct Trace {
    #[command(flatten)]
    data: Data,
    /// IS1 to IS7.
    query: Query,
    /// The person (IS1 to IS3) or the message (IS4 to IS7).
    #[arg(long)]
    id: i64,
    /// Shard processes.
    #[arg(long, default_value = "4", value_parser = shards)]
    shards: NonZeroUsize,
    /// Also draw it to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Lanes {
    #[command(flatten)]
    data: Data,
    /// IS1 to IS7.
    query: Query,
    /// The person (IS1 to IS3) or the message (IS4 to IS7). Default: one whose every step goes to
    /// another shard.
    #[arg(long)]
    id: Option<i64>,
    /// Shards.
    #[arg(long, default_value = "4", value_parser = shards)]
    shards: NonZeroUsize,
    /// Time of each frame on its way, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    delay_ms: u32,
    /// Also draw it to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Child {
    #[command(flatten)]
    data: Data,
    #[arg(long)]
    index: usize,
    #[arg(long)]
    shards: NonZeroUsize,
    #[arg(long)]
    delay_us: u64,
}

/// Each is a process, and has its part of the graph in memory: who makes a typing error is told.
const SHARDS_MAX: usize = 64;

/// A query has ten seconds, and goes up to ten hops.
const DELAY_MS_MAX: f64 = 1e3;

fn shards(text: &str) -> Result<NonZeroUsize, String> {
    let shards = text.parse().ok().filter(|shards: &NonZeroUsize| shards.get() <= SHARDS_MAX);
    shards.ok_or_else(|| format!("there may be 1 to {SHARDS_MAX} shards"))
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let mut runtime = Builder::new_current_thread();
    runtime.enable_all().start_paused(matches!(cli.command, Some(Command::Lanes(_))));
    runtime.build().expect("a runtime").block_on(run(cli))
}

async fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Some(Command::Demo(demo)) => run_demo(demo).await,
        Some(Command::Check(check)) => run_check(check).await,
        Some(Command::Serve(serve)) => run_serve(serve).await,
        Some(Command::Query(ask)) => run_query(ask).await,
        Some(Command::Trace(trace)) => run_trace(trace).await,
        Some(Command::Lanes(lanes)) => run_lanes(lanes).await,
        Some(Command::Shard(child)) => run_shard(child).await,
        None => run_demo(cli.demo).await,
    };
    console::end("graph", result)
}

async fn run_demo(args: Demo) -> Result<bool> {
    let delays = if args.delay_ms.is_empty() { vec![2.0, 0.0] } else { args.delay_ms };
    let delays = delays.into_iter().map(|ms| {
        let is_time = (0.0..=DELAY_MS_MAX).contains(&ms);
        ensure!(is_time, "--delay-ms {ms} is not a time from 0 to {DELAY_MS_MAX} ms");
        Ok(Duration::from_secs_f64(ms / 1e3))
    });
    let delays: Vec<Duration> = delays.collect::<Result<_>>()?;
    let effort = Effort { runs: args.runs.max(1) };
    // Sooner than after minutes of measuring.
    let [json, svg] = [&args.json, &args.svg].map(|path| path.as_deref().map(Output::open));
    let (json, svg) = (json.transpose()?, svg.transpose()?);
    let mut told = say(format_args!(
        "The short queries of a social network over {} shard processes, each asked in three \
         forms: as a call tree, step by step from the client, and nested. It takes {}.",
        args.shards,
        about(delays.iter().map(|delay| effort.estimate(*delay)).sum()),
    ));
    let (mut all, mut done): (Vec<Row>, _) = (Vec::new(), Ok(()));
    for delay in delays {
        let delay_ms = delay.as_secs_f64() * 1e3;
        told = told.and_then(|()| say(format_args!("\nEvery frame {delay_ms} ms on its way:")));
        // Where nobody reads any more, the files are what is wanted.
        if told.is_err() && json.is_none() && svg.is_none() {
            break;
        }
        let rows;
        (rows, done) = demo(&args.data.setup(args.shards, delay)?, effort).await;
        told = told.and_then(|()| say(table(&rows, args.all).trim_end()));
        all.extend(rows);
        if done.is_err() {
            break;
        }
    }
    if all.is_empty() {
        return done.and(told).map(|()| true);
    }
    // What was measured before something failed is as good as the rest.
    let written = write_rows(&all, json, svg);
    let ratio = "\nratio: median latency against the client-driven form; predicted: hops alone.";
    told = told.and_then(|()| say(ratio)).and_then(|()| say(sentence(&all)));
    done.and(written).and(told).map(|()| true)
}

fn write_rows(rows: &[Row], json: Option<Output>, svg: Option<Output>) -> Result<()> {
    if let Some(json) = json {
        json.write(&serde_json::to_string_pretty(rows)?)?;
    }
    svg.map_or(Ok(()), |svg| svg.write(&figure(rows)))
}

async fn run_check(args: Check) -> Result<bool> {
    let setup = args.data.setup(args.shards, Duration::ZERO)?;
    let checked = check::check(&setup, &args.expected, args.form).await?;
    for difference in &checked.differences {
        say(difference)?;
    }
    for failure in &checked.failures {
        say(failure)?;
    }
    say(format_args!("{} of {} answers match", checked.matches, checked.total))?;
    Ok(checked.is_good())
}

async fn run_serve(args: Serve) -> Result<bool> {
    let cluster = Cluster::read(&args.cluster)?;
    let Some(at) = cluster.nodes().get(args.shard) else {
        let (file, count) = (args.cluster.display(), cluster.nodes().len());
        anyhow::bail!(
            "{file} has {count} shards, numbered from 0: there is no shard {}",
            args.shard
        );
    };
    let sharding = cluster::sharding(&cluster);
    let (mut stop, source) = (StopSignal::listen()?, args.data.source());
    let server = Server::start(source, at, cluster.id(), sharding, Duration::ZERO).await?;
    server.join(&cluster)?;
    say(format_args!(
        "shard {} of {} listens at {}",
        args.shard,
        sharding.shards(),
        server.address()
    ))?;
    stop.received().await;
    server.stop().await;
    Ok(true)
}

async fn run_query(args: Ask) -> Result<bool> {
    let cluster = Cluster::read(&args.cluster)?;
    let endpoint = Endpoint::builder().transport(transport(Duration::ZERO)).start().await?;
    let peers = cluster::peers(&cluster, &endpoint)?;
    let client = Client::new(&endpoint, cluster.id(), peers, cluster::sharding(&cluster))
        .deadline(Duration::from_millis(args.deadline_ms));
    let answered = client.ask(args.form, args.query, args.id).await?;
    say(args.query.columns().join(" | "))?;
    for row in &answered.answer.rows {
        let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
        say(cells.join(" | "))?;
    }
    for failure in &answered.failures {
        say(format_args!("missing: {failure}"))?;
    }
    endpoint.shutdown(Duration::from_secs(1)).await;
    Ok(answered.failures.is_empty())
}

async fn run_trace(args: Trace) -> Result<bool> {
    let setup = args.data.setup(args.shards, Duration::ZERO)?;
    let processes = Processes::start(&setup).await?;
    let mut call = processes.client().open(args.query, args.id, true)?;
    let mut failures = Vec::new();
    while let Some(reply) = call.next().await {
        failures.extend(reply.err());
    }
    let tree = trace::tree(&call.trace());
    let outcome = call.outcome().await;
    if let Some(path) = args.svg {
        write(&path, &trace::svg(&tree, &format!("{} of {}", args.query, args.id)))?;
    }
    say(trace::text(&tree).trim_end())?;
    for failure in &failures {
        say(format_args!("missing: {failure}"))?;
    }
    processes.stop().await?;
    is_told(&outcome)?;
    Ok(failures.is_empty())
}

async fn run_lanes(args: Lanes) -> Result<bool> {
    let (graph, sharding) = (args.data.source().graph()?, Sharding::over(args.shards));
    let id = args.id.or_else(|| choose::deepest(&graph, sharding, args.query));
    let id = id.with_context(|| format!("the graph has nothing that {} asks for", args.query))?;
    let one_way = Duration::from_millis(args.delay_ms.into());
    let mut panels = Vec::new();
    for (form, title) in [
        (Form::Nested, "nested calls: each waits for the next"),
        (Form::Tree, "a call tree: who has the answer sends it to the client"),
    ] {
        let mut panel = lanes::record(&graph, sharding, (args.query, id), form, one_way).await?;
        say(format_args!("{form}: {} ms, {} frames", panel.end, panel.messages.len()))?;
        title.clone_into(&mut panel.title);
        panels.push(panel);
    }
    if let Some(path) = args.svg {
        let (query, delay) = (args.query, args.delay_ms);
        let title = format!("{query} of {id} over {} shards, {delay} ms a way", args.shards);
        write(&path, &charts::lanes(&title, "ms", "works or waits", &panels))?;
    }
    Ok(true)
}

async fn run_shard(args: Child) -> Result<bool> {
    let delay = Duration::from_micros(args.delay_us);
    run_child(args.data.source(), args.index, Sharding::over(args.shards), delay).await?;
    Ok(true)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
