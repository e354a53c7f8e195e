//! The best of a window of samples, without believing the very best ones.

use std::collections::VecDeque;
use std::time::Duration;

use convoke_core::time::Timestamp;

/// Number of samples that must agree: as many less one may be wrong without effect.
pub(super) const AGREEING: usize = 3;

/// Most samples kept; of more, the oldest are forgotten early.
const SAMPLES_MAX: usize = 256;

/// The value that [`AGREEING`] samples of a window reach.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    window: Duration,
    better: fn(&u64, &u64) -> std::cmp::Ordering,
    samples: VecDeque<(Timestamp, u64)>,
    best: Option<u64>,
}

impl Filter {
    /// For a value whose evidence is the largest sample, such as a capacity.
    pub(super) fn largest(window: Duration) -> Self {
        Self::new(window, |a, b| b.cmp(a))
    }

    /// For a value whose evidence is the smallest sample, such as a latency.
    pub(super) fn smallest(window: Duration) -> Self {
        Self::new(window, u64::cmp)
    }

    fn new(window: Duration, better: fn(&u64, &u64) -> std::cmp::Ordering) -> Self {
        Self { window, better, samples: VecDeque::new(), best: None }
    }

    /// Adds a sample, and forgets those that are older than the window: only what is newer makes
    /// them old, so that a value stays while nothing speaks against it.
    pub(super) fn add(&mut self, now: Timestamp, value: u64) {
        let is_old = |(at, _): &(Timestamp, u64)| now.since(*at) > self.window;
        while self.samples.len() >= SAMPLES_MAX || self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
        self.samples.push_back((now, value));
        self.agree();
    }

    /// Forgets all but the last few samples.
    pub(super) fn keep_last(&mut self, count: usize) {
        self.samples.drain(..self.samples.len().saturating_sub(count));
        self.agree();
    }

    fn agree(&mut self) {
        let mut values: Vec<u64> = self.samples.iter().map(|(_, value)| *value).collect();
        if values.len() >= AGREEING {
            self.best = Some(*values.select_nth_unstable_by(AGREEING - 1, self.better).1);
        }
    }

    /// Value that the samples agree on; none before there were enough.
    pub(super) fn best(&self) -> Option<u64> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(count: u64) -> Timestamp {
        Timestamp::from_nanos(count * 1_000_000_000)
    }

    #[test]
    fn two_samples_of_a_window_may_be_anything() {
        let mut filter = Filter::largest(Duration::from_secs(10));
        for (at, value) in [(0, 5), (1, u64::MAX), (2, 6), (3, u64::MAX), (4, 4), (5, 0)] {
            filter.add(second(at), value);
        }
        assert_eq!(filter.best(), Some(6));
    }

    #[test]
    fn old_samples_count_until_there_are_enough_new_ones() {
        let mut filter = Filter::smallest(Duration::from_secs(10));
        (0..3).for_each(|at| filter.add(second(at), 5));
        filter.add(second(100), 9);
        filter.add(second(101), 9);
        assert_eq!(filter.best(), Some(5));
        filter.add(second(102), 8);
        assert_eq!(filter.best(), Some(9));
    }

    #[test]
    fn it_keeps_a_bounded_number_of_samples() {
        let mut filter = Filter::largest(Duration::MAX);
        (0..10_000).for_each(|at| filter.add(second(at), at));
        assert_eq!((filter.samples.len(), filter.best()), (SAMPLES_MAX, Some(9_997)));
    }
}
