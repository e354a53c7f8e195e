//! `paxos bench --workload a|b|c|d`: proposers at nodes of their own.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use console::say;
use node_kit::cluster::LedgerForm;
use paxos::client::Shape;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::super::Local;
use super::super::client::{READ_WITHIN, connect};
use super::super::proposing::{Course, Proposed, Proposers, Times, lost};
use super::{Place, form};
use crate::args::{BenchArgs, Transport, Workload};

/// Pause of a proposer between two proposals: that of the paper, section 3.1.
const EVERY: Duration = Duration::from_secs(1);

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    workload: Workload,
    transport: Transport,
    shape: Shape,
    nodes: usize,
    ledger: LedgerForm,
    payload_bytes: usize,
    /// Between nodes, one way.
    delay_ms: u64,
    every_ms: u128,
    seconds: u64,
    /// The first is at the node that leads.
    proposers: Vec<Told>,
    /// Of workload C: from the end of the first machine until a proposal of another was chosen, if
    /// one was.
    went_on_after_ms: Option<u128>,
    /// Proposals that were chosen, and read back in the end.
    present: usize,
    lost: usize,
    /// A write of 512 bytes and a sync, without a ledger, before the run: the median.
    raw_sync_us: u64,
}

#[derive(Debug, Serialize)]
struct Told {
    node: u64,
    #[serde(flatten)]
    times: Times,
    failed: u64,
    complaint: Option<String>,
}

/// Measures each transport and shape, on a cluster of its own. Code 1 when a proposal is lost, or
/// when the others do not go on without the first machine.
pub(super) async fn run(args: &BenchArgs) -> Result<ExitCode> {
    let of_kv = [
        ("--clients", !args.clients.is_empty()),
        ("--rate", args.rate.is_some()),
        ("--reads", args.reads > 0),
        ("--keys", args.keys.is_some()),
        ("--fill", args.fill),
        ("--lost", args.lost > 0),
        ("--restarts", args.restarts > 0),
        ("--svg", args.svg.is_some()),
    ];
    let given = of_kv.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name);
    let given: Vec<&str> = given.collect();
    if !given.is_empty() {
        bail!("of the workload kv alone, so leave it out: {}", given.join(", "));
    }
    if args.proposers.is_some() && args.workload != Workload::D {
        bail!("--proposers is of the workload d alone, so leave it out");
    }
    let mut rows = Vec::new();
    for transport in &args.transport {
        for shape in &args.shape {
            let row = measure(args, *transport, *shape).await?;
            print(&row)?;
            rows.push(row);
        }
    }
    super::write_json(args, &rows)?;
    let is_good = |row: &Row| row.lost == 0 && row.has_gone_on();
    Ok(if rows.iter().all(is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(args: &BenchArgs, transport: Transport, shape: Shape) -> Result<Row> {
    let place = Place::new(args)?;
    let mut local = Local::new(place.folder(), form(args, transport)).await?;
    local.start_all().await?;
    let course = Course {
        proposers: proposers(args),
        every: args.every_ms.map_or(EVERY, Duration::from_millis),
        time: Duration::from_secs(args.seconds),
        payload: args.payload,
        shape,
    };
    let proposers = Proposers::start(&local, course, "decree").await?;
    let mut died = None;
    if args.workload == Workload::C {
        sleep(course.time / 2).await;
        proposers.die(0);
        local.kill(proposers.nodes[0]).await?;
        died = Some(Instant::now());
    }
    let proposed = proposers.end().await?;
    let mut reader = connect(local.cluster(), None, READ_WITHIN).await?;
    let lost = lost(&mut reader, &proposed, args.payload).await?;
    local.stop().await?;
    let all: usize = proposed.iter().map(|proposed| proposed.keys.len()).sum();
    Ok(Row {
        workload: args.workload,
        transport,
        shape,
        nodes: args.nodes,
        ledger: args.ledger.form(),
        payload_bytes: args.payload,
        delay_ms: args.delay_ms,
        every_ms: course.every.as_millis(),
        seconds: args.seconds,
        went_on_after_ms: died.and_then(|died| gap(died, &proposed)),
        proposers: proposed.into_iter().map(Told::of).collect(),
        present: all - lost,
        lost,
        raw_sync_us: place.raw_sync_us,
    })
}

/// Proposers of a workload: one; two; two, of which one dies; or one less than nodes.
fn proposers(args: &BenchArgs) -> usize {
    match args.workload {
        Workload::A | Workload::Kv => 1,
        Workload::B | Workload::C => 2,
        Workload::D => args.proposers.unwrap_or(args.nodes.saturating_sub(1).max(1)),
    }
}

/// From the end of the first machine until a proposal of another was chosen.
fn gap(died: Instant, proposed: &[Proposed]) -> Option<u128> {
    let others = proposed.iter().skip(1);
    let ends = others.flat_map(|proposed| &proposed.ended).filter(|ended| **ended > died);
    ends.min().map(|first| (*first - died).as_millis())
}

impl Row {
    fn has_gone_on(&self) -> bool {
        self.workload != Workload::C || self.went_on_after_ms.is_some()
    }
}

impl Told {
    fn of(proposed: Proposed) -> Self {
        let Proposed { node, times_us, failed, complaint, .. } = proposed;
        Self { node, times: Times::of(times_us), failed, complaint }
    }
}

fn print(row: &Row) -> Result<()> {
    say(format_args!(
        "workload {:?}, {:?}, {}, {} nodes, {} ms apart, ledger {:?}, {} B, every {} ms",
        row.workload,
        row.transport,
        row.shape,
        row.nodes,
        row.delay_ms,
        row.ledger,
        row.payload_bytes,
        row.every_ms
    ))?;
    for Told { node, times, failed, complaint } in &row.proposers {
        let Times { count, min_us, p50_us, p90_us, max_us } = times;
        let complaint = complaint.as_ref().map_or_else(String::new, |complaint| {
            format!(", {failed} failed (the first: {complaint})")
        });
        say(format_args!(
            "node {node}: {count} chosen, µs min {min_us} p50 {p50_us} p90 {p90_us} max {max_us}\
             {complaint}"
        ))?;
    }
    if let Some(gap) = row.went_on_after_ms {
        say(format_args!("after the end of the first machine the next was chosen in {gap} ms"))?;
    } else if !row.has_gone_on() {
        say("FAILED: nobody went on after the first machine had died")?;
    }
    say(format_args!(
        "{} present, {} lost; raw sync of 512 B: {} us",
        row.present, row.lost, row.raw_sync_us
    ))
}
