//! A bound on how often something that strangers cause is logged.

use std::time::Duration;

use tokio::time::Instant;

/// Lets one event through in each period, and counts those that it leaves out.
#[derive(Debug)]
pub struct Seldom {
    period: Duration,
    /// The last one let through.
    last: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// With this time between two events that are let through; the first one always is.
    pub fn new(period: Duration) -> Self {
        Self { period, last: None, left_out: 0 }
    }

    /// Lets an event through, with how many before it were left out, or leaves it out.
    pub fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.period) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_period_passes_and_tells_how_many_did_not() {
        let (period, begun) = (Duration::from_secs(1), Instant::now());
        let mut seldom = Seldom::new(period);
        let passed: Vec<_> = (0..25).filter_map(|i| seldom.pass(begun + period * i / 10)).collect();
        assert_eq!(passed, [0, 9, 9]);
        assert_eq!(seldom.pass(begun + 10 * period), Some(4));
    }
}
