//! `paxos bench`: processes of this machine under load.

mod chart;
mod load;
mod restart;
mod workload;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use console::say;
use convoke::NodeId;
use node_kit::cluster::{LedgerForm, Rdma};
use node_kit::load::{Pace, Plan, Report, live};
use node_kit::program::ledger;
use node_kit::program::local::Form;
use paxos::client::{Client, Shape};
use paxos::proto::Inspection;
use paxos::settings::Settings;
use serde::Serialize;
use tempfile::TempDir;

use self::restart::Restart;
use super::client::{endpoint_for, leader, of_endpoint};
use super::{Cluster, Local};
use crate::args::{BenchArgs, Ledger, Transport, Workload};

/// The result of a run.
#[derive(Debug, Serialize)]
struct Row {
    transport: String,
    shape: Shape,
    nodes: usize,
    /// Followers that were killed before.
    lost: usize,
    ledger: LedgerForm,
    payload_bytes: usize,
    reads_percent: u32,
    pipeline: usize,
    batch_max: usize,
    /// Between nodes, one way.
    delay_ms: u64,
    #[serde(flatten)]
    load: Report,
    /// Processor time of all nodes.
    server_cpu_us_per_operation: f64,
    client_cpu_us_per_operation: f64,
    requests_per_batch: f64,
    /// Requests that votes may answer.
    by_votes_percent: f64,
    /// Of all ledgers.
    sync_us: f64,
    /// A write of 512 bytes and a sync, without a ledger, before the run: the median.
    raw_sync_us: u64,
    /// In the end.
    keys: u64,
    /// Of all nodes, within the run.
    snapshots: u64,
    /// The longest time in which a node did nothing else for a snapshot, from its start on.
    frozen_us_max: u64,
    restarts: Vec<Restart>,
}

/// Measures each transport and shape with each count of clients, on a cluster of its own.
pub(crate) async fn run(args: &BenchArgs) -> Result<ExitCode> {
    let has = |transport| args.transport.contains(&transport);
    if args.delay_ms > 0 && (has(Transport::Quic) || has(Transport::Rdma)) {
        bail!("--delay-ms is of links over TCP, which QUIC and RDMA do not use: leave one out");
    }
    if has(Transport::Rdma) {
        Rdma::default().check_host(args.host)?;
    }
    if args.restarts > 0 && args.ledger == Ledger::Ram {
        bail!("--restarts are of nodes that read their ledger, which one in memory has lost");
    }
    if args.lost > args.nodes.saturating_sub(1) / 2 {
        bail!("--lost {} leaves no majority of {} nodes", args.lost, args.nodes);
    }
    if args.workload != Workload::Kv {
        return workload::run(args).await;
    }
    if args.proposers.is_some() || args.every_ms.is_some() {
        bail!("--proposers and --every-ms are of the workloads a to d: leave them out");
    }
    let clients = if args.clients.is_empty() { &[CLIENTS][..] } else { &args.clients };
    let mut rows = Vec::new();
    for transport in &args.transport {
        for shape in &args.shape {
            for clients in clients {
                let row = measure_anew(args, *transport, *shape, *clients).await?;
                print(&row)?;
                rows.push(row);
            }
        }
    }
    write_json(args, &rows)?;
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        write(&folder.join("throughput.svg"), chart::throughput(&rows))?;
        write(&folder.join("latency.svg"), chart::latency(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Clients, where nobody says how many.
const CLIENTS: u64 = 64;

fn write_json(args: &BenchArgs, rows: &[impl Serialize]) -> Result<()> {
    let Some(path) = &args.json else { return Ok(()) };
    write(path, serde_json::to_string_pretty(rows)? + "\n")
}

fn write(path: &Path, text: String) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{}", path.display()))
}

/// Measures a cluster that is started for it, in a folder of its own.
async fn measure_anew(
    args: &BenchArgs,
    transport: Transport,
    shape: Shape,
    clients: u64,
) -> Result<Row> {
    let place = Place::new(args)?;
    let mut local = Local::new(place.folder(), form(args, transport)).await?;
    local.start_all().await?;
    let mut row = measure(args, (shape, clients), &mut local, place.raw_sync_us).await?;
    row.restarts = restart::several(args, (shape, clients), &mut local).await?;
    local.stop().await?;
    Ok(row)
}

/// A folder for the ledgers of a run, and the time of a sync in it.
struct Place {
    folder: TempDir,
    raw_sync_us: u64,
}

impl Place {
    fn new(args: &BenchArgs) -> Result<Self> {
        let folder = folder_in(args.folder.as_deref())?;
        let raw_sync_us = u64::try_from(ledger::raw_sync(folder.path())?.as_micros())?;
        Ok(Self { folder, raw_sync_us })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A folder for ledgers, at a place or where temporary files are.
pub(super) fn folder_in(place: Option<&Path>) -> Result<TempDir> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("paxos-bench-");
    let folder = match place {
        Some(place) => folder.tempdir_in(place),
        None => folder.tempdir(),
    };
    folder.context("the folder of the ledgers")
}

fn form(args: &BenchArgs, transport: Transport) -> Form<Settings> {
    let ledger = args.ledger.form();
    let (pipeline, batch) = (args.pipeline, args.batch);
    let delay = Duration::from_millis(args.delay_ms);
    let usual = Settings::default();
    let election_timeout_ms = timeout_ms(args.delay_ms);
    let snapshot_mib = args.snapshot_mib;
    let settings = Settings { ledger, pipeline, batch, election_timeout_ms, snapshot_mib, ..usual };
    let links = (args.delay_ms > 0).then_some(delay);
    Form { scheme: transport.scheme(), host: args.host, links, ..Form::plain(args.nodes, settings) }
}

/// Election timeout of nodes that are so far apart: a round of messages has to be over long before
/// somebody misses a leader.
pub(super) fn timeout_ms(delay_ms: u64) -> u64 {
    Settings::default().election_timeout_ms + 8 * delay_ms
}

async fn measure(
    args: &BenchArgs,
    (shape, clients): (Shape, u64),
    local: &mut Local,
    raw_sync_us: u64,
) -> Result<Row> {
    let within = Duration::from_secs(30);
    let endpoint = endpoint_for(shape, local.client()?, local.cluster()).await?;
    let mut client = of_endpoint(&endpoint, local.cluster(), within)?;
    client.put("begun", "yes").await.context("no node leads")?;
    let left = lose(args.lost, local).await?;
    let pace = args.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second });
    let time = Duration::from_secs(args.seconds);
    let plan = Plan::new(pace).warm_up(WARM_UP).time(time);
    let callers = || load::Caller::all(args, (shape, clients), local.cluster(), &endpoint);
    if args.fill {
        load::Caller::fill(callers()?).await.context("writing all keys")?;
    }
    let callers = callers()?;
    let used = async {
        tokio::time::sleep(WARM_UP).await;
        let before = Used::now(&client, &left).await?;
        tokio::time::sleep(time).await;
        anyhow::Ok(Used::now(&client, &left).await?.since(&before))
    };
    let (load, used) = tokio::join!(node_kit::load::run(&plan, callers, live()), used);
    Ok(Row::of((args, shape), local.cluster(), raw_sync_us, load, &used?))
}

/// Kills so many followers. The nodes that are left.
async fn lose(count: usize, local: &mut Local) -> Result<Vec<NodeId>> {
    let mut nodes: Vec<u64> = local.ids().collect();
    if count > 0 {
        let leader = leader(local).await?;
        nodes.sort_by_key(|node| *node == leader); // it comes last
        for lost in nodes.drain(..count) {
            local.kill(lost).await?;
        }
    }
    nodes.into_iter().map(|node| Ok(NodeId::try_from(node)?)).collect()
}

impl Row {
    fn of(
        (args, shape): (&BenchArgs, Shape),
        cluster: &Cluster,
        raw_sync_us: u64,
        load: Report,
        used: &Used,
    ) -> Self {
        let each = |sum: u64| sum as f64 / load.completed.max(1) as f64;
        let ratio = |over: u64, under: u64| over as f64 / under.max(1) as f64;
        Self {
            transport: cluster.nodes()[0].listen[0].scheme().to_owned(),
            shape,
            nodes: args.nodes,
            lost: args.lost,
            ledger: cluster.protocol().ledger,
            payload_bytes: args.payload,
            reads_percent: args.reads,
            pipeline: args.pipeline,
            batch_max: args.batch,
            delay_ms: args.delay_ms,
            server_cpu_us_per_operation: each(used.nodes.cpu_us),
            client_cpu_us_per_operation: each(used.own_cpu_us),
            requests_per_batch: ratio(used.nodes.requests, used.nodes.batches),
            by_votes_percent: 100.0 * ratio(used.nodes.polled, used.nodes.requests),
            sync_us: ratio(used.nodes.sync_us, used.nodes.syncs),
            raw_sync_us,
            keys: used.nodes.keys,
            snapshots: used.nodes.snapshots,
            frozen_us_max: used.nodes.frozen_us_max,
            restarts: Vec::new(),
            load,
        }
    }
}

/// Time before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// Resources that all nodes together, and this process, have used, and their work.
struct Used {
    nodes: Inspection,
    own_cpu_us: u64,
}

impl Used {
    async fn now(client: &Client, running: &[NodeId]) -> Result<Self> {
        let mut nodes = Inspection::default();
        for node in running {
            let state = client.inspect(*node).await?;
            nodes.cpu_us += state.cpu_us;
            nodes.requests += state.requests;
            nodes.batches += state.batches;
            nodes.polled += state.polled;
            nodes.sync_us += state.sync_us;
            nodes.syncs += state.syncs;
            nodes.snapshots += state.snapshots;
            nodes.keys = nodes.keys.max(state.keys);
            nodes.frozen_us_max = nodes.frozen_us_max.max(state.frozen_us_max);
        }
        let own = cpu_time::ProcessTime::now().as_duration();
        Ok(Self { nodes, own_cpu_us: u64::try_from(own.as_micros())? })
    }

    fn since(self, before: &Self) -> Self {
        let nodes = Inspection {
            cpu_us: self.nodes.cpu_us - before.nodes.cpu_us,
            requests: self.nodes.requests - before.nodes.requests,
            batches: self.nodes.batches - before.nodes.batches,
            polled: self.nodes.polled - before.nodes.polled,
            sync_us: self.nodes.sync_us - before.nodes.sync_us,
            syncs: self.nodes.syncs - before.nodes.syncs,
            snapshots: self.nodes.snapshots - before.nodes.snapshots,
            ..self.nodes
        };
        Self { nodes, own_cpu_us: self.own_cpu_us - before.own_cpu_us }
    }
}

fn print(row: &Row) -> Result<()> {
    say(format_args!(
        "{}, {}, {} nodes, {} lost, {} ms apart, ledger {:?}, {} B, {} % reads, pipeline {}, \
         batches up to {}",
        row.transport,
        row.shape,
        row.nodes,
        row.lost,
        row.delay_ms,
        row.ledger,
        row.payload_bytes,
        row.reads_percent,
        row.pipeline,
        row.batch_max
    ))?;
    say(&row.load)?;
    say(format_args!(
        "processor time per operation: nodes {:.1} us, clients {:.1} us",
        row.server_cpu_us_per_operation, row.client_cpu_us_per_operation
    ))?;
    say(format_args!(
        "{:.1} requests a batch, {:.0} % for votes to answer; a sync takes {:.0} us (raw, 512 B: {} us)",
        row.requests_per_batch, row.by_votes_percent, row.sync_us, row.raw_sync_us
    ))?;
    say(format_args!(
        "{} keys; {} snapshots, for which a node did nothing else for {} us at most",
        row.keys, row.snapshots, row.frozen_us_max
    ))?;
    row.restarts.iter().try_for_each(say)
}
