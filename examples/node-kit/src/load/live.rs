//! A line about a run while it lasts.

use std::fmt;
use std::time::Duration;

use console::Progress;

use super::Latencies;
use super::tally::Tally;

/// A second of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// Time since counting began.
    pub elapsed: Duration,
    /// Requests that were done in it.
    pub completed: u64,
    /// Requests that failed in it, or of which nobody knows.
    pub failed: u64,
    /// Latencies of those that were done.
    pub latency_us: Latencies,
}

impl Moment {
    pub(super) fn new(elapsed: Duration, tally: &Tally) -> Self {
        Self {
            elapsed,
            completed: tally.completed,
            failed: tally.failed + tally.unknown,
            latency_us: Latencies::of(&tally.latencies),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latencies { p50, p99, max, .. } = self.latency_us;
        write!(f, "{:4} s  {:8}/s", self.elapsed.as_secs(), self.completed)?;
        write!(f, "  µs p50 {p50:6}  p99 {p99:7}  max {max:8}  failed {}", self.failed)
    }
}

/// Shows a run by a [`Progress`]: a line that changes on a terminal, elsewhere a line a minute.
pub fn live() -> impl FnMut(&Moment) {
    let mut progress = Progress::new();
    move |moment| progress.tell(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_second_and_the_counts() {
        let mut tally = Tally { completed: 2, unknown: 1, ..Tally::default() };
        tally.latencies.record(1_500_000).unwrap();
        let moment = Moment::new(Duration::from_secs(60), &tally);
        let line = moment.to_string();
        assert!(line.starts_with("  60 s         2/s  µs p50   1500"), "{line}");
        assert!(line.ends_with("failed 1"), "{line}");
    }
}
