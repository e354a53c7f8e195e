//! `paxos figures`: the figures of *RAM-ified Part-Time Parliament* (sections 4.1.1 to 4.2.2), as
//! far as processes of one machine show them.
//!
//! All points of clusters that differ in their ledger alone are measured in rounds, ledger by ledger
//! in turn, so that what else the machine does meets both.

mod draw;
mod plan;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::say;
use node_kit::program::ledger;
use node_kit::program::local::Form;
use paxos::client::Shape;
use paxos::settings::Settings;
use serde::Serialize;

use self::plan::{Case, Kind, Scale};
use super::Local;
use super::bench::{folder_in, timeout_ms};
use super::proposing::{Course, Proposers, Times};
use crate::args::{FiguresArgs, Ledger, Workload};

/// A point of a line: proposals of one node.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    /// 0 for the node that leads, 1 for the other.
    proposer: usize,
    #[serde(flatten)]
    times: Times,
    /// Medians of the rounds, in order.
    round_p50_us: Vec<u64>,
    failed: u64,
    every_ms: u64,
    /// A write of as many bytes and a sync, without a ledger, between the points of a round: the
    /// median of the medians of all rounds.
    raw_sync_us: u64,
    /// Medians of the rounds, in order.
    round_raw_us: Vec<u64>,
}

pub(crate) async fn run(args: &FiguresArgs) -> Result<ExitCode> {
    let scale = if args.quick { Scale::QUICK } else { Scale::WHOLE };
    let figures = plan::figures(&args.only)?;
    let mut rows = Vec::new();
    for (kind, cases) in plan::by_kind(&figures, &scale) {
        say(format_args!("{kind}: {} points, {} rounds", cases.len(), args.rounds))?;
        let measured = measure(args, kind, &cases).await.with_context(|| kind.to_string())?;
        measured.iter().try_for_each(print)?;
        rows.extend(measured);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&rows)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{}", path.display()))?;
    }
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        for figure in &figures {
            let path = folder.join(format!("{}.svg", figure.name));
            let text = draw::figure(figure, &scale, &rows);
            std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures all cases of a kind, on a cluster for each ledger.
async fn measure(args: &FiguresArgs, kind: Kind, cases: &[Case]) -> Result<Vec<Row>> {
    let folder = folder_in(args.folder.as_deref())?;
    let mut clusters = BTreeMap::new();
    for case in cases {
        if let Entry::Vacant(place) = clusters.entry(case.ledger) {
            let folder = folder.path().join(format!("{:?}", case.ledger).to_lowercase());
            std::fs::create_dir_all(&folder)?;
            let mut local = Local::new(&folder, form(kind, case.ledger)).await?;
            local.start_all().await?;
            place.insert(local);
        }
    }
    let mut rounds: BTreeMap<(Case, usize), Vec<Proposals>> = BTreeMap::new();
    let mut raw: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for round in 0..args.rounds {
        for case in cases {
            let synced = raw.entry(case.payload_bytes).or_default();
            if synced.len() == round {
                let time = ledger::raw_sync_of(folder.path(), case.payload_bytes, RAW_SYNCS)?;
                synced.push(u64::try_from(time.as_micros())?);
            }
            let local = clusters.get(&case.ledger).context("a cluster was started above")?;
            let name = format!("{round}/{:?}/{}", case.workload, case.payload_bytes);
            let proposers = Proposers::start(local, course(args, case)?, &name).await?;
            for (proposer, proposed) in proposers.end().await?.into_iter().enumerate() {
                let of_round = Proposals { times_us: proposed.times_us, failed: proposed.failed };
                rounds.entry((*case, proposer)).or_default().push(of_round);
            }
        }
    }
    for local in clusters.into_values() {
        local.stop().await?;
    }
    let row = |((case, proposer), rounds): ((Case, usize), _)| {
        let round_raw_us = raw.get(&case.payload_bytes).cloned().unwrap_or_default();
        Row::of((case, proposer), rounds, args.every_ms, round_raw_us)
    };
    Ok(rounds.into_iter().map(row).collect())
}

/// Raw syncs of each size in a round, of which the median counts.
const RAW_SYNCS: usize = 21;

/// Proposals of a node in a round.
struct Proposals {
    times_us: Vec<u64>,
    failed: u64,
}

impl Row {
    fn of(
        (case, proposer): (Case, usize),
        rounds: Vec<Proposals>,
        every_ms: u64,
        round_raw_us: Vec<u64>,
    ) -> Self {
        let failed = rounds.iter().map(|round| round.failed).sum();
        let round_p50_us =
            rounds.iter().map(|round| Times::of(round.times_us.clone()).p50_us).collect();
        let times = Times::of(rounds.into_iter().flat_map(|round| round.times_us).collect());
        let raw_sync_us = Times::of(round_raw_us.clone()).p50_us;
        Self { case, proposer, times, round_p50_us, failed, every_ms, raw_sync_us, round_raw_us }
    }
}

fn course(args: &FiguresArgs, case: &Case) -> Result<Course> {
    Ok(Course {
        proposers: if case.workload == Workload::A { 1 } else { 2 },
        every: Duration::from_millis(args.every_ms),
        time: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        payload: case.payload_bytes,
        shape: Shape::Gather,
    })
}

/// Snapshots are left out, of which the paper has none: they would meet large proposals alone.
fn form(kind: Kind, ledger: Ledger) -> Form<Settings> {
    let settings = Settings {
        ledger: ledger.form(),
        election_timeout_ms: timeout_ms(kind.delay_ms),
        snapshot_mib: 1 << 20,
        ..Settings::default()
    };
    let links = (kind.delay_ms > 0).then_some(Duration::from_millis(kind.delay_ms));
    let scheme = kind.transport.scheme();
    Form { scheme, links, ..Form::plain(kind.nodes, settings) }
}

fn print(row: &Row) -> Result<()> {
    let Row { case, proposer, times, round_p50_us, failed, raw_sync_us, .. } = row;
    say(format_args!(
        "{case}, proposer {proposer}: {} chosen, {failed} failed, µs p50 {} p90 {}, medians of \
         the rounds {round_p50_us:?}; a raw write and sync {raw_sync_us}",
        times.count, times.p50_us, times.p90_us
    ))
}
