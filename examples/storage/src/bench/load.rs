//! One run of a case: writes for some time, in a closed or an open loop, and what they cost.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::client::Client;
use crate::proto::{StorageClient, UsageReport, UsageRequest, Value};
use crate::replica::usage;
use crate::statistics::quantile;

use super::{Case, Load, Run};

/// Counts kept while writes ran.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Of those that succeeded, in microseconds.
    pub latencies_us: Vec<f64>,
    /// How many failed.
    pub failed: u64,
    /// How many an open loop did not begin, because too many were under way.
    pub not_begun: u64,
    /// The first failure, in words.
    pub complaint: Option<String>,
}

/// Runs a case for some time.
pub(super) async fn run(client: &Client, case: Case, time: Duration) -> Result<Run> {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let local = LocalSet::new();
    let before = total_usage(client).await?;
    let begun = Instant::now();
    match case.load {
        Load::Closed { in_flight } => {
            local.run_until(closed(client, case, &tally, in_flight, time)).await?;
        }
        Load::Open { per_second, .. } => {
            local.run_until(open(client, case, &tally, per_second, time)).await?;
        }
    }
    let elapsed = begun.elapsed();
    let after = total_usage(client).await?;
    let tally = tally.take();
    if let Some(complaint) = &tally.complaint {
        eprintln!("{case}: {} writes failed, the first: {complaint}", tally.failed);
    }
    Ok(tally.into_run(elapsed, &before, &after, client.members().len()))
}

/// Callers that each begin the next write when the one before is answered.
async fn closed(
    client: &Client,
    case: Case,
    tally: &Rc<RefCell<Tally>>,
    in_flight: usize,
    time: Duration,
) -> Result<()> {
    let end = Instant::now() + time;
    let mut callers = JoinSet::new();
    for index in 0..in_flight {
        let (client, tally) = (client.clone(), tally.clone());
        callers.spawn_local(async move {
            loop {
                let begun = Instant::now();
                write(&client, case, index as u64, begun, &tally).await;
                if Instant::now() >= end {
                    return;
                }
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.context("a caller panicked")?;
    }
    Ok(())
}

/// So many writes a second, whoever waits. Those of a millisecond begin together, since no timer is
/// finer, and count from then; where the client itself is late by more than that, from when they
/// should have begun.
async fn open(
    client: &Client,
    case: Case,
    tally: &Rc<RefCell<Tally>>,
    per_second: f64,
    time: Duration,
) -> Result<()> {
    let begun = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut writes, mut issued) = (JoinSet::new(), 0_u64);
    loop {
        let due: Instant = ticks.tick().await.into();
        if due >= begun + time {
            break; // Not by the clock: what was due in a stall of this client counts, too.
        }
        let now = Instant::now();
        let counts_from = if now - due > TICK { due } else { now };
        let wanted = per_second * (due + TICK).saturating_duration_since(begun).as_secs_f64();
        while (issued as f64) < wanted {
            issued += 1;
            if writes.len() >= UNDER_WAY_MAX {
                tally.borrow_mut().not_begun += 1;
                continue;
            }
            let (client, tally, key) = (client.clone(), tally.clone(), issued % KEYS);
            writes.spawn_local(async move {
                write(&client, case, key, counts_from, &tally).await;
            });
        }
        while writes.try_join_next().is_some() {}
    }
    while let Some(ended) = writes.join_next().await {
        ended.context("a write panicked")?;
    }
    Ok(())
}

const TICK: Duration = Duration::from_millis(1);

/// Writes of an open loop that may be under way: far more than pile up while the replicas keep up.
/// Beyond, all that is learnt is that they do not.
const UNDER_WAY_MAX: usize = 4096;

/// Keys of an open loop. A closed one has one for each caller.
const KEYS: u64 = 64;

thread_local! {
    /// Timestamps grow from write to write, over all runs.
    static TIMESTAMP: RefCell<u64> = const { RefCell::new(0) };
}

async fn write(client: &Client, case: Case, key: u64, begun: Instant, tally: &RefCell<Tally>) {
    let timestamp = TIMESTAMP.with_borrow_mut(|timestamp| {
        *timestamp += 1;
        *timestamp
    });
    let key = format!("key {key}");
    let value =
        Value { key, value: vec![7; VALUE_BYTES], timestamp, writer: 1, ..Value::default() };
    let written = client.put(case.form, case.phases, value).await;
    let mut tally = tally.borrow_mut();
    match written {
        Ok(()) => tally.latencies_us.push(begun.elapsed().as_secs_f64() * 1e6),
        Err(error) => tally.fail(|| error.to_string()),
    }
}

/// Size of the value written, beside key and version.
const VALUE_BYTES: usize = 16;

/// Of all replicas and this process. Its own requests are not in it: those before the count are in
/// both, the others in neither.
async fn total_usage(client: &Client) -> Result<UsageReport> {
    let storage = StorageClient::new(client.endpoint());
    let own_before = usage(client.endpoint());
    let mut total = UsageReport::default();
    for peer in client.members() {
        let report = storage.usage(UsageRequest {}).to(peer).await?;
        total.cpu_us += report.cpu_us;
        total.frames_sent += report.frames_sent;
    }
    total.cpu_us += usage(client.endpoint()).cpu_us;
    total.frames_sent += own_before.frames_sent;
    Ok(total)
}

impl Tally {
    fn fail(&mut self, why: impl FnOnce() -> String) {
        self.failed += 1;
        self.complaint.get_or_insert_with(why);
    }

    fn into_run(
        self,
        elapsed: Duration,
        before: &UsageReport,
        after: &UsageReport,
        members: usize,
    ) -> Run {
        let mut sorted = self.latencies_us;
        sorted.sort_by(f64::total_cmp);
        let operations = sorted.len() as u64;
        let each = |total: u64| (operations > 0).then(|| total as f64 / operations as f64);
        // Between the two counts this process has also asked for the first, and each replica
        // answered it.
        let counting = 2 * members as u64;
        let frames = after.frames_sent.saturating_sub(before.frames_sent + counting);
        Run {
            operations,
            failed: self.failed,
            not_begun: self.not_begun,
            median_us: quantile(&sorted, 0.5),
            p99_us: quantile(&sorted, 0.99),
            per_second: operations as f64 / elapsed.as_secs_f64(),
            cpu_us_per_op: each(after.cpu_us.saturating_sub(before.cpu_us)),
            frames_per_op: each(frames),
        }
    }
}
