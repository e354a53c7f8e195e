//! Counts of operations and latencies, kept while a client works.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Operations of one client, or of several callers together.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Of those that succeeded, in nanoseconds.
    latencies: Histogram<u64>,
    /// How many failed.
    pub failed: u64,
    /// The first failure, in words.
    pub complaint: Option<String>,
}

/// Shorter and longer latencies count as these. The range and its three digits decide how much
/// memory a tally takes.
const LATENCY_NS: (u64, u64) = (8, 60_000_000_000);

impl Default for Tally {
    fn default() -> Self {
        let (low, high) = LATENCY_NS;
        let latencies = Histogram::new_with_bounds(low, high, 3).expect("the bounds are in order");
        Self { latencies, failed: 0, complaint: None }
    }
}

impl Tally {
    /// An operation took this long.
    pub fn succeeded(&mut self, latency: Duration) {
        self.latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// An operation failed.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.failed += 1;
        self.complaint.get_or_insert_with(|| format!("{error:#}"));
    }

    /// Operations that succeeded.
    pub fn succeeded_count(&self) -> u64 {
        self.latencies.len()
    }

    /// Operations that ended, either way.
    pub fn ended_count(&self) -> u64 {
        self.succeeded_count() + self.failed
    }

    /// The latency that the part `quantile` of the operations did not exceed, in microseconds;
    /// `None` when there were none: a client that got nothing has not been fast.
    pub fn latency_us(&self, quantile: f64) -> Option<f64> {
        let latency = Duration::from_nanos(self.latencies.value_at_quantile(quantile));
        (self.succeeded_count() > 0).then_some(latency.as_secs_f64() * 1e6)
    }

    /// All of what several callers counted.
    pub fn sum(tallies: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        tallies.into_iter().for_each(|tally| all.absorb(tally));
        all
    }

    /// Counts what another caller counted.
    ///
    /// # Panics
    /// Never: all tallies have the same bounds.
    pub fn absorb(&mut self, other: Self) {
        self.latencies.add(other.latencies).expect("all tallies have the same bounds");
        self.failed += other.failed;
        self.complaint = self.complaint.take().or(other.complaint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_but_have_no_latency() {
        let mut tally = Tally::default();
        tally.succeeded(Duration::from_micros(10));
        tally.failed(&anyhow::anyhow!("reset"));
        tally.failed(&anyhow::anyhow!("gone"));
        assert_eq!((tally.succeeded_count(), tally.ended_count()), (1, 3));
        assert_eq!(tally.complaint.as_deref(), Some("reset"));
    }

    #[test]
    fn failures_alone_have_no_latency_at_all() {
        let mut tally = Tally::default();
        tally.failed(&anyhow::anyhow!("reset"));
        assert_eq!(tally.latency_us(0.99), None);
    }

    #[test]
    fn a_quantile_is_within_a_five_hundredth() {
        let (mut all, mut slow) = (Tally::default(), Tally::default());
        for _ in 0..99 {
            all.succeeded(Duration::from_micros(20));
        }
        slow.succeeded(Duration::from_secs(3_600));
        all.absorb(slow);
        let median = all.latency_us(0.5).unwrap();
        assert!((median / 20.0 - 1.0).abs() < 2e-3, "{median}");
        assert!(all.latency_us(1.0).unwrap() >= 59e6);
    }
}
