//! `graph demo`: every query in all three forms over real processes, measured in turn.

mod shown;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use console::Progress;
use serde::Serialize;

use crate::choose::{Sample, samples};
use crate::forms::{Client, Form};
use crate::node::usage;
use crate::processes::{Processes, Setup};
use crate::proto::{GraphClient, UsageReport, UsageRequest};
use crate::query::Query;

pub use self::shown::{figure, sentence, table};

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The query.
    pub query: Query,
    /// Property that its ids have in common; empty when every step changes the shard.
    pub ids: &'static str,
    /// The form, by who walks.
    pub form: Form,
    /// Time that every frame is held back, in milliseconds.
    pub delay_ms: f64,
    /// One-way hops from the question to the last fact, mean over the runs.
    pub hops: f64,
    /// Frames of all processes for one query, mean.
    pub frames: f64,
    /// Median latency, in microseconds.
    pub median_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Processor time of all processes for one query, in microseconds.
    pub cpu_us: f64,
    /// Queries measured.
    pub runs: usize,
    /// Median latency against the client-driven form of the same ids.
    pub ratio: f64,
    /// The ratio that the hops alone predict.
    pub predicted: f64,
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Queries of each sample and form.
    pub runs: usize,
}

impl Effort {
    /// Time that a demo takes with frames of this delay, as far as it can be known before.
    pub fn estimate(self, delay: Duration) -> Duration {
        let runs = self.runs.div_ceil(TURN).saturating_mul(TURN);
        let runs = u32::try_from(runs).unwrap_or(u32::MAX);
        let hop = delay.saturating_add(HOP);
        START.saturating_add(hop.saturating_mul(HOPS_PER_RUN).saturating_mul(runs))
    }
}

/// Hops of one run of every sample in every form: 40 runs with 2 ms and without took 36 s, and 60
/// took 49.
const HOPS_PER_RUN: u32 = 285;

/// Time of a hop without a distance, and until the shards have their data, about.
const HOP: Duration = Duration::from_micros(150);
const START: Duration = Duration::from_secs(5);

/// Queries of one form before it is the next one's turn, so that noise falls on all alike.
const TURN: usize = 20;

/// Starts the shards of `setup`, measures, stops them. Hands back the rows of all samples that were
/// measured, and beside them the reason why these are not all: the shards cannot be started, or a
/// query fails.
pub async fn demo(setup: &Setup, effort: Effort) -> (Vec<Row>, Result<()>) {
    let mut rows = Vec::new();
    let done = demo_into(&mut rows, setup, effort).await;
    (rows, done)
}

async fn demo_into(rows: &mut Vec<Row>, setup: &Setup, effort: Effort) -> Result<()> {
    let graph = setup.source().graph()?;
    let samples = samples(&graph, setup.sharding);
    let processes = Processes::start(setup).await?;
    let (count, mut progress) = (samples.len(), Progress::new());
    for (index, sample) in samples.iter().enumerate() {
        progress.tell(format_args!("[{}/{count}] {} {}", index + 1, sample.query, sample.name));
        let measured = measure(processes.client(), sample, effort).await?;
        rows.extend(measured.rows(sample, setup.delay));
    }
    drop(progress);
    processes.stop().await
}

#[derive(Clone, Debug, Default)]
struct Tally {
    latencies_us: Vec<f64>,
    hops: u64,
    frames: u64,
    cpu_us: u64,
}

struct Measured([Tally; 3]);

async fn measure(client: &Client, sample: &Sample, effort: Effort) -> Result<Measured> {
    let mut tallies: [Tally; 3] = Default::default();
    // The first queries of a form make connections and fill caches: they do not count.
    for form in Form::ALL {
        take_turn(client, sample, form, 0, &mut Tally::default()).await?;
    }
    let turns = effort.runs.div_ceil(TURN);
    for turn in 0..turns {
        for (form, tally) in Form::ALL.into_iter().zip(&mut tallies) {
            take_turn(client, sample, form, turn * TURN, tally).await?;
        }
    }
    Ok(Measured(tallies))
}

async fn take_turn(
    client: &Client,
    sample: &Sample,
    form: Form,
    from: usize,
    tally: &mut Tally,
) -> Result<()> {
    let before = total_usage(client).await?;
    for run in from..from + TURN {
        let id = sample.ids[run % sample.ids.len()];
        let start = Instant::now();
        let answered = client.ask(form, sample.query, id).await;
        let elapsed = start.elapsed();
        let answered = answered.with_context(|| format!("{} id {id} as {form}", sample.query))?;
        if let Some(failure) = answered.failures.first() {
            anyhow::bail!("{} id {id} as {form}: {failure}", sample.query);
        }
        tally.latencies_us.push(elapsed.as_secs_f64() * 1e6);
        tally.hops += u64::from(form.hops(answered.depth));
    }
    let after = total_usage(client).await?;
    tally.cpu_us += after.cpu_us - before.cpu_us;
    // Between the two counts this process has also asked for the first, and each shard answered it.
    let counting = 2 * client.peers().len() as u64;
    tally.frames += after.frames_sent - before.frames_sent - counting;
    Ok(())
}

/// Of all shards and this process. Its own requests are not in it: those before the count are in
/// both, the others in neither.
async fn total_usage(client: &Client) -> Result<UsageReport> {
    let graph = GraphClient::new(client.endpoint());
    let own_before = usage(client.endpoint());
    let mut total = UsageReport::default();
    for peer in client.peers() {
        let report = graph.usage(UsageRequest {}).to(peer).await?;
        total.cpu_us += report.cpu_us;
        total.frames_sent += report.frames_sent;
    }
    let own_after = usage(client.endpoint());
    total.cpu_us += own_after.cpu_us;
    total.frames_sent += own_before.frames_sent;
    Ok(total)
}

impl Measured {
    fn rows(self, sample: &Sample, delay: Duration) -> Vec<Row> {
        let medians: Vec<f64> =
            self.0.iter().map(|tally| quantile(&tally.latencies_us, 0.5)).collect();
        let hops = |tally: &Tally| tally.hops as f64 / tally.latencies_us.len() as f64;
        let client = 1;
        let row = |(index, form): (usize, Form)| {
            let tally = &self.0[index];
            let runs = tally.latencies_us.len();
            Row {
                query: sample.query,
                ids: sample.name,
                form,
                delay_ms: delay.as_secs_f64() * 1e3,
                hops: hops(tally),
                frames: tally.frames as f64 / runs as f64,
                median_us: medians[index],
                p99_us: quantile(&tally.latencies_us, 0.99),
                cpu_us: tally.cpu_us as f64 / runs as f64,
                runs,
                ratio: medians[index] / medians[client],
                predicted: hops(tally) / hops(&self.0[client]),
            }
        };
        Form::ALL.into_iter().enumerate().map(row).collect()
    }
}

fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of values"
    )]
    let index = ((sorted.len() - 1) as f64 * at).round() as usize;
    sorted[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_runs_as_there_are_numbers_take_a_time() {
        let effort = Effort { runs: usize::MAX };
        assert!(effort.estimate(Duration::MAX) >= effort.estimate(Duration::ZERO));
    }
}
