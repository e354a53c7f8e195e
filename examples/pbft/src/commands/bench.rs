//! `pbft bench`: processes of this machine under load.

mod cases;
mod chart;
mod devices;
mod rounds;
mod traffic;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use console::say;
use convoke_sim::random::Random;
use node_kit::cluster::{Credits, LedgerForm, Rdma};
use node_kit::load::{self, Outcome, Pace, Plan, Report, live};
use node_kit::program::ledger;
use node_kit::program::local::Form;
use pbft::client::{Client, ClientError, Options};
use pbft::proto::{Inspection, PbftClient};
use pbft::settings::{Auth, Proposals, Settings};
use serde::Serialize;
use tempfile::TempDir;

use self::cases::{Case, cases};
use self::devices::receivers_not_ready;
use self::traffic::Carried;
use super::client::is_to_all;
use super::floor::Signatures;
use super::inspect::inspect;
use super::local::Local;
use crate::args::{BenchArgs, Ledger, Way};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
struct Row {
    round: u64,
    replicas: usize,
    transport: &'static str,
    auth: Auth,
    /// Over RDMA: messages of a peer that may be under way, and `counted` or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<&'static str>,
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
    /// Frames of all connections while requests were made, and those of them that have not come.
    frames_sent: u64,
    frames_lost: u64,
    /// Over RDMA: times that a device counted a receiver that was not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    receivers_not_ready: Option<u64>,
}

impl Row {
    /// True where the other has measured the same, perhaps in another round.
    fn is_of_case(&self, other: &Self) -> bool {
        let of = |row: &Self| {
            (row.transport, row.auth, row.window, row.credits, row.load.clients, row.path)
        };
        of(self) == of(other)
    }
}

/// Figures of the machine, measured before the run.
struct Machine {
    raw_sync_us: u64,
    signatures: Signatures,
}

impl Machine {
    fn measure(args: &BenchArgs) -> Result<Self> {
        let sync = ledger::raw_sync(folder(args)?.path())?;
        let signatures = Signatures::measure()?;
        Ok(Self { raw_sync_us: u64::try_from(sync.as_micros())?, signatures })
    }
}

/// Measures each case on a cluster of its own, in each round. Code 1 when a request has no result,
/// a frame was lost or a receiver was not ready, although messages wait for credit.
pub(crate) async fn run(args: &BenchArgs) -> Result<ExitCode> {
    let cases = cases(args)?;
    let machine = Machine::measure(args)?;
    let mut rows = Vec::new();
    for round in 1..=args.rounds {
        for case in &cases {
            let row = Row { round, ..measure_anew(args, case, &machine).await? };
            print(&row)?;
            rows.push(row);
        }
    }
    for (row, ratios) in rounds::of_credits(&rows) {
        let each: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        say(format_args!(
            "{}, window {}: credits leave {:.3} of the rate without, of rounds {}",
            rounds::name(&row),
            row.window.unwrap_or_default(),
            ratios[ratios.len() / 2],
            each.join(" ")
        ))?;
    }
    if let Some(path) = &args.json {
        write(path, serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        for (name, chart) in chart::charts(&rows) {
            write(&folder.join(name), chart)?;
        }
    }
    let failures = rounds::failures(&rows);
    failures.iter().for_each(|failure| eprintln!("FAILED  {failure}"));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A folder for ledgers, which goes when it is dropped.
fn folder(args: &BenchArgs) -> Result<TempDir> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("pbft-bench-");
    let folder = match &args.folder {
        Some(place) => folder.tempdir_in(place),
        None => folder.tempdir(),
    };
    folder.context("the folder of the ledgers")
}

fn write(path: &Path, text: String) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{}", path.display()))
}

/// Measures a cluster that is started for it, in a folder of its own.
async fn measure_anew(args: &BenchArgs, case: &Case, machine: &Machine) -> Result<Row> {
    let folder = folder(args)?;
    let form = match args.ledger {
        Ledger::Disk => LedgerForm::Disk,
        Ledger::Ram => LedgerForm::Ram,
    };
    let settings = Settings {
        ledger: form,
        auth: case.auth.into(),
        proposals: match args.path {
            Some(Way::All) => Proposals::Digests,
            Some(Way::Primary) | None => Proposals::Whole,
        },
        batch_max: args.batch,
        in_flight: args.in_flight,
        ..Settings::default()
    };
    let (scheme, rdma) = (case.transport.scheme(), case.rdma.unwrap_or_default());
    let arguments = case.rdma.map(arguments).unwrap_or_default();
    let form = Form::plain(args.replicas, settings);
    let form = Form { scheme, host: args.host, rdma, has_metrics: true, arguments, ..form };
    let mut local = Local::new(folder.path(), case.clients, form).await?;
    local.processes.start_all().await?;
    let row = measure(args, case, &local, machine).await?;
    local.stop().await?;
    Ok(row)
}

/// Arguments of a node that has these settings.
fn arguments(rdma: Rdma) -> Vec<String> {
    let (window, credits) = (rdma.window.to_string(), name_of(rdma.credits));
    ["--window", &window, "--credits", credits].map(str::to_owned).into()
}

fn name_of(credits: Credits) -> &'static str {
    match credits {
        Credits::Counted => "counted",
        Credits::Unlimited => "unlimited",
    }
}

async fn measure(args: &BenchArgs, case: &Case, local: &Local, machine: &Machine) -> Result<Row> {
    let options = Options {
        attempt: Duration::from_secs(5),
        deadline: Duration::from_secs(30),
        is_to_all: is_to_all(args.path, local.processes.cluster().protocol())?,
    };
    let mut clients = local.clients(&options)?;
    let first = clients.first_mut().context("there has to be a client")?;
    first.put("begun", "yes").await.context("the replicas do not answer")?;
    let plan = match args.requests {
        Some(count) => Plan::requests(count),
        None => Plan::new(Pace::Closed).time(Duration::from_secs(args.seconds)),
    };
    let payload = Bytes::from(vec![b'v'; args.payload]);
    let caller =
        |(seed, client)| Caller { client, random: Random::new(seed), payload: payload.clone() };
    let callers: Vec<_> = (1..).zip(clients).map(caller).collect();
    let (traffic, not_ready) = (Carried::settled(local).await?, receivers_not_ready());
    let before = async {
        tokio::time::sleep(WARM_UP).await;
        Used::now(local).await
    };
    let plan = plan.warm_up(WARM_UP);
    let (load, before) = tokio::join!(load::run(&plan, callers, live()), before);
    let used = Used::now(local).await?.since(&before?);
    let carried = Carried::settled(local).await?;
    let each = |sum: u64| sum as f64 / load.completed.max(1) as f64;
    let ratio = |over: u64, under: u64| over as f64 / under.max(1) as f64;
    let settings = local.processes.cluster().protocol();
    let requests_per_batch = ratio(used.nodes.batched, used.nodes.batches);
    let floor = machine.signatures.floor_us(args.replicas, requests_per_batch);
    Ok(Row {
        round: 1,
        replicas: args.replicas,
        transport: case.transport.scheme(),
        auth: settings.auth,
        window: case.rdma.map(|rdma| rdma.window),
        credits: case.rdma.map(|rdma| name_of(rdma.credits)),
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
        frames_sent: carried.sent - traffic.sent,
        frames_lost: carried.lost_since(&traffic),
        receivers_not_ready: case.rdma.map(|_| receivers_not_ready() - not_ready),
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
        let key = match self.payload.is_empty() {
            true => String::new(),
            false => format!("key {:05}", self.random.within(0..KEYS)),
        };
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

fn print(row: &Row) -> Result<()> {
    say(format_args!(
        "{} replicas, {}, by {}, ledger {:?}, {} B{}",
        row.replicas,
        rounds::name(row),
        row.path,
        row.ledger,
        row.payload_bytes,
        row.window.map(|window| format!(", window {window}")).unwrap_or_default()
    ))?;
    say(&row.load)?;
    say(format_args!(
        "processor time per operation: replicas {:.1} us, clients {:.1} us",
        row.server_cpu_us_per_operation, row.client_cpu_us_per_operation
    ))?;
    say(format_args!(
        "{:.1} requests a batch; a sync takes {:.0} us (raw, 512 B: {} us); views {}",
        row.requests_per_batch, row.sync_us, row.raw_sync_us, row.views
    ))?;
    let not_ready = row
        .receivers_not_ready
        .map(|count| format!("; a receiver was not ready {count} times"))
        .unwrap_or_default();
    say(format_args!("{} frames, {} lost{not_ready}", row.frames_sent, row.frames_lost))?;
    let Signatures { sign_us, check_us, check_of_64_us } = row.signatures;
    let floor = row
        .signature_floor_us_per_operation
        .map(|floor| format!("; an operation cannot take less than {floor:.0} us for them"))
        .unwrap_or_default();
    say(format_args!(
        "a signature takes {sign_us:.0} us, its check {check_us:.0} us, among 64 \
         {check_of_64_us:.0} us{floor}"
    ))?;
    match row.auth {
        Auth::Signed => Ok(()),
        Auth::Channel => say("signed was what certificates are made of, and no request"),
        Auth::None => say("nothing was signed: this measures all else, and protects nothing"),
    }
}
