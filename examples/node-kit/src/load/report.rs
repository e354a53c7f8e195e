//! The result of a run.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::Tallies;
use super::{Pace, Plan};

/// Result of a run, for people and as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The rule by which requests came.
    #[serde(flatten)]
    pub pace: Pace,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Seconds before anything was counted.
    pub warm_up_seconds: f64,
    /// Seconds that were counted.
    pub seconds: f64,
    /// Requests that were done within them.
    pub completed: u64,
    /// The same, a second.
    pub per_second: f64,
    /// Requests that did not take effect.
    pub failed: u64,
    /// Requests of which nobody knows.
    pub unknown: u64,
    /// Requests of an open loop that found no free client until the end.
    pub not_begun: u64,
    /// The longest time in which nothing was done, in milliseconds.
    pub gap_ms_max: f64,
    /// Latencies of those that were done.
    pub latency_us: Latencies,
    /// The first failure, in words.
    pub complaint: Option<String>,
}

/// Latencies, in microseconds: `p99` is not exceeded by 99 in 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// The shortest.
    pub min: u64,
    /// The mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// Not exceeded by 9 in 10.
    pub p90: u64,
    /// Not exceeded by 99 in 100.
    pub p99: u64,
    /// Not exceeded by 999 in 1,000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Latencies {
    /// Of a histogram of nanoseconds; all 0 where it is empty.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) / 1000;
        Self {
            min: histogram.min() / 1000,
            mean: micros(Duration::from_secs_f64(histogram.mean() / 1e9)),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() / 1000,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Report {
    pub(super) fn new(plan: &Plan, clients: usize, tallies: &Tallies) -> Self {
        let total = tallies.total();
        let time = if plan.requests.is_some() { tallies.completed_at() } else { plan.time };
        let per_second = total.completed as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        Self {
            pace: plan.pace,
            clients,
            warm_up_seconds: plan.warm_up.as_secs_f64(),
            seconds: time.as_secs_f64(),
            completed: total.completed,
            per_second,
            failed: total.failed,
            unknown: total.unknown,
            not_begun: tallies.not_begun_count(),
            gap_ms_max: tallies.gap_max(time).as_secs_f64() * 1e3,
            latency_us: Latencies::of(&total.latencies),
            complaint: total.complaint,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latencies { p50, p90, p99, p999, max, .. } = self.latency_us;
        write!(f, "{} clients, {:.1} s: {:.0}/s", self.clients, self.seconds, self.per_second)?;
        write!(f, ", µs p50 {p50} p90 {p90} p99 {p99} p99.9 {p999} max {max}")?;
        write!(f, ", longest gap {:.0} ms", self.gap_ms_max)?;
        let others =
            [(self.failed, "failed"), (self.unknown, "unknown"), (self.not_begun, "not begun")];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        self.complaint.iter().try_for_each(|complaint| write!(f, " (the first: {complaint})"))
    }
}
