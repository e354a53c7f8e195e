//! `pbft bench`: processes of this machine under load.

mod chart;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use convoke_sim::random::Random;
use node_kit::cluster::LedgerForm;
use node_kit::load::{self, Outcome, Pace, Plan, Report, live};
use node_kit::program::ledger;
use node_kit::program::local::Form;
use pbft::client::{Client, ClientError, Options};
use pbft::proto::{Inspection, PbftClient};
use pbft::settings::{Auth, Proposals, Settings};
use serde::Serialize;

use super::client::is_to_all;
use super::floor::Signatures;
use super::inspect::inspect;
use super::local::Local;
use crate::args::{AuthName, BenchArgs, Ledger, Transport, Way};

/// The result of a run.
#[derive(Debug, Serialize)]
struct Row {
    replicas: usize,
    transport: &'static str,
    auth: Auth,
    path: &'static str,
    ledger: LedgerForm,
    payload_bytes: usize,
    batch_max: usize,
    in_flight: u64,
    #[serde(flatten)]
    load: Report,
    /// Processor time of all replicas.
    server_cpu_us_per_operation: f64,
    client_cpu_us_per_operation: f64,
    requests_per_batch: f64,
    /// Of all ledgers.
    sync_us: f64,
    /// A write of 512 bytes and a sync, without a ledger, before the run: the median.
    raw_sync_us: u64,
    /// Of one processor, before the run.
    signatures: Signatures,
    /// Time that signatures alone take of the replicas' time, where requests are signed.
    signature_floor_us_per_operation: Option<f64>,
    /// The last view: more than 0 where one has failed.
    views: u64,
}

/// Figures of the machine, measured before the run.
struct Machine {
    raw_sync_us: u64,
    signatures: Signatures,
}

/// Measures each transport and protection with each count of clients, on a cluster of its own.
pub(crate) async fn run(args: &BenchArgs) -> Result<ExitCode> {
    for (transport, auth) in pairs(args) {
        if (transport, auth) == (Transport::Tcp, AuthName::Channel) {
            bail!(
                "with --auth channel a connection has to prove who is at its other end, and tcp \
                 proves nobody: take --transport tls or quic"
            );
        }
        is_to_all(args.path, &Settings { auth: auth.into(), ..Settings::default() })?;
    }
    let mut rows = Vec::new();
    for (transport, auth) in pairs(args) {
        for clients in &args.clients {
            let row = measure_anew(args, (transport, auth), *clients).await?;
            print(&row);
            rows.push(row);
        }
    }
    if let Some(path) = &args.json {
        write(path, serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        write(&folder.join("throughput.svg"), chart::throughput(&rows))?;
        write(&folder.join("latency.svg"), chart::latency(&rows))?;
        write(&folder.join("processor.svg"), chart::processor(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn pairs(args: &BenchArgs) -> impl Iterator<Item = (Transport, AuthName)> + '_ {
    args.transport.iter().flat_map(|transport| args.auth.iter().map(|auth| (*transport, *auth)))
}

fn write(path: &Path, text: String) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{}", path.display()))
}

/// Measures a cluster that is started for it, in a folder of its own.
async fn measure_anew(
    args: &BenchArgs,
    (transport, auth): (Transport, AuthName),
    clients: u64,
) -> Result<Row> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("pbft-bench-");
    let folder = match &args.folder {
        Some(place) => folder.tempdir_in(place),
        None => folder.tempdir(),
    };
    let folder = folder.context("the folder of the ledgers")?;
    let machine = Machine {
        raw_sync_us: u64::try_from(ledger::raw_sync(folder.path())?.as_micros())?,
        signatures: Signatures::measure()?,
    };
    let form = match args.ledger {
        Ledger::Disk => LedgerForm::Disk,
        Ledger::Ram => LedgerForm::Ram,
    };
    let settings = Settings {
        ledger: form,
        auth: auth.into(),
        proposals: match args.path {
            Some(Way::All) => Proposals::Digests,
            Some(Way::Primary) | None => Proposals::Whole,
        },
        batch_max: args.batch,
        in_flight: args.in_flight,
        ..Settings::default()
    };
    let scheme = transport.scheme();
    let form = Form { scheme, ..Form::plain(args.replicas, settings) };
    let mut local = Local::new(folder.path(), clients, form).await?;
    local.processes.start_all().await?;
    let row = measure(args, scheme, &local, &machine).await?;
    local.stop().await?;
    Ok(row)
}

async fn measure(
    args: &BenchArgs,
    transport: &'static str,
    local: &Local,
    machine: &Machine,
) -> Result<Row> {
    let options = Options {
        attempt: Duration::from_secs(5),
        deadline: Duration::from_secs(30),
        is_to_all: is_to_all(args.path, local.processes.cluster().protocol())?,
    };
    let mut clients = local.clients(&options)?;
    let first = clients.first_mut().context("there has to be a client")?;
    first.put("begun", "yes").await.context("the replicas do not answer")?;
    let time = Duration::from_secs(args.seconds);
    let plan = Plan::new(Pace::Closed).warm_up(WARM_UP).time(time);
    let payload = Bytes::from(vec![b'v'; args.payload]);
    let caller =
        |(seed, client)| Caller { client, random: Random::new(seed), payload: payload.clone() };
    let callers: Vec<_> = (1..).zip(clients).map(caller).collect();
    let used = async {
        tokio::time::sleep(WARM_UP).await;
        let before = Used::now(local).await?;
        tokio::time::sleep(time).await;
        anyhow::Ok(Used::now(local).await?.since(&before))
    };
    let (load, used) = tokio::join!(load::run(&plan, callers, live()), used);
    let used = used?;
    let each = |sum: u64| sum as f64 / load.completed.max(1) as f64;
    let ratio = |over: u64, under: u64| over as f64 / under.max(1) as f64;
    let settings = local.processes.cluster().protocol();
    let requests_per_batch = ratio(used.nodes.batched, used.nodes.batches);
    let floor = machine.signatures.floor_us(args.replicas, requests_per_batch);
    Ok(Row {
        replicas: args.replicas,
        transport,
        auth: settings.auth,
        path: if options.is_to_all { "all" } else { "primary" },
        ledger: settings.ledger,
        payload_bytes: args.payload,
        batch_max: args.batch,
        in_flight: args.in_flight,
        server_cpu_us_per_operation: each(used.nodes.cpu_us),
        client_cpu_us_per_operation: each(used.own_cpu_us),
        requests_per_batch,
        sync_us: ratio(used.nodes.sync_us, used.nodes.syncs),
        raw_sync_us: machine.raw_sync_us,
        signatures: machine.signatures,
        signature_floor_us_per_operation: (settings.auth == Auth::Signed).then_some(floor),
        views: used.nodes.view,
        load,
    })
}

/// Time before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// Time for a look at one replica, which does not wait longer than requests do.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// Keys that are written.
const KEYS: u64 = 10_000;

/// One who writes.
struct Caller {
    client: Client,
    random: Random,
    payload: Bytes,
}

impl load::Client for Caller {
    async fn operate(&mut self) -> Outcome {
        let key = format!("key {:05}", self.random.within(0..KEYS));
        match self.client.put(key, self.payload.clone()).await {
            Ok(()) => Outcome::Done,
            Err(ClientError::OutcomeUnknown(why)) => Outcome::Unknown(why),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

/// Resources that all replicas together, and this process, have used, and their work.
struct Used {
    nodes: Inspection,
    own_cpu_us: u64,
}

impl Used {
    async fn now(local: &Local) -> Result<Self> {
        let client = PbftClient::new(local.endpoint());
        let mut nodes = Inspection::default();
        for node in local.processes.cluster().nodes() {
            let state = inspect(&client, node.id, false, LOOK_WITHIN).await?;
            nodes.cpu_us += state.cpu_us;
            nodes.batches += state.batches;
            nodes.batched += state.batched;
            nodes.sync_us += state.sync_us;
            nodes.syncs += state.syncs;
            nodes.view = nodes.view.max(state.view);
        }
        let own = cpu_time::ProcessTime::now().as_duration();
        Ok(Self { nodes, own_cpu_us: u64::try_from(own.as_micros())? })
    }

    fn since(self, before: &Self) -> Self {
        let nodes = Inspection {
            cpu_us: self.nodes.cpu_us - before.nodes.cpu_us,
            batches: self.nodes.batches - before.nodes.batches,
            batched: self.nodes.batched - before.nodes.batched,
            sync_us: self.nodes.sync_us - before.nodes.sync_us,
            syncs: self.nodes.syncs - before.nodes.syncs,
            view: self.nodes.view,
            ..Inspection::default()
        };
        Self { nodes, own_cpu_us: self.own_cpu_us - before.own_cpu_us }
    }
}

fn print(row: &Row) {
    println!(
        "{} replicas, {}, {:?}, by {}, ledger {:?}, {} B",
        row.replicas, row.transport, row.auth, row.path, row.ledger, row.payload_bytes
    );
    println!("{}", row.load);
    println!(
        "processor time per operation: replicas {:.1} us, clients {:.1} us",
        row.server_cpu_us_per_operation, row.client_cpu_us_per_operation
    );
    println!(
        "{:.1} requests a batch; a sync takes {:.0} us (raw, 512 B: {} us); views {}",
        row.requests_per_batch, row.sync_us, row.raw_sync_us, row.views
    );
    let Signatures { sign_us, check_us, check_of_64_us } = row.signatures;
    print!(
        "a signature takes {sign_us:.0} us, its check {check_us:.0} us, among 64 \
         {check_of_64_us:.0} us"
    );
    match row.signature_floor_us_per_operation {
        Some(floor) => println!("; an operation cannot take less than {floor:.0} us for them"),
        None => println!(),
    }
    match row.auth {
        Auth::Signed => {}
        Auth::Channel => println!("signed was what certificates are made of, and no request"),
        Auth::None => {
            println!("nothing was signed: this measures all else, and protects nothing");
        }
    }
}
