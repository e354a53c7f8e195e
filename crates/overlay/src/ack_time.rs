//! Times that receivers take to acknowledge what goes a certain way, and how long to wait on that
//! account.

use std::collections::VecDeque;
use std::time::Duration;

/// The last measurements of one way.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckTime {
    samples: VecDeque<Duration>,
    p99: Option<Duration>,
    fresh: usize,
    /// Number of times that the timer was too short, or the way failed, since the last measurement.
    back_offs: u32,
}

/// Measurements kept: the p99 of 128 is the second largest, so that one outlier does not decide.
const SAMPLES: usize = 128;

/// Measurements before they count.
const SAMPLES_MIN: usize = 8;

/// And between two looks at them.
const SAMPLES_FRESH: usize = 8;

/// Most doublings of the timer.
const BACK_OFFS_MAX: u32 = 6;

impl AckTime {
    /// Takes a measurement, of a frame that was sent once only. (Karn and Partridge, SIGCOMM 1987)
    pub(crate) fn sample(&mut self, time: Duration) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(time);
        self.back_offs = 0;
        self.fresh += 1;
        let is_beyond = self.p99.is_some_and(|p99| time > p99);
        if self.samples.len() >= SAMPLES_MIN && (is_beyond || self.fresh >= SAMPLES_FRESH) {
            self.fresh = 0;
            self.p99 = Some(p99(&self.samples));
        }
    }

    /// 99 of 100 measurements are not above it; none before there are a few.
    pub(crate) fn p99(&self) -> Option<Duration> {
        self.p99
    }

    /// Time to wait: twice p99, at least `margin` more; `initial` as long as too little was
    /// measured.
    pub(crate) fn timer(&self, initial: Duration, margin: Duration, max: Duration) -> Duration {
        let timer = self.p99.map_or(initial, |p99| p99 + margin.max(p99));
        timer.saturating_mul(1 << self.back_offs).min(max)
    }

    /// The timer doubles until there is a new measurement: what is sent twice measures nothing, so
    /// a way that has become slower would never be waited for otherwise.
    pub(crate) fn back_off(&mut self) {
        self.back_offs = (self.back_offs + 1).min(BACK_OFFS_MAX);
    }
}

fn p99(samples: &VecDeque<Duration>) -> Duration {
    let mut sorted: Vec<Duration> = samples.iter().copied().collect();
    sorted.sort_unstable();
    sorted[(sorted.len() * 99).div_ceil(100) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Duration = Duration::from_millis(25);

    fn timer(time: &AckTime) -> Duration {
        time.timer(Duration::from_secs(1), MARGIN, Duration::from_secs(5))
    }

    #[test]
    fn the_timer_follows_what_was_measured_with_a_margin() {
        let mut time = AckTime::default();
        (0..7).for_each(|_| time.sample(Duration::from_millis(40)));
        assert_eq!(timer(&time), Duration::from_secs(1));
        time.sample(Duration::from_millis(40));
        assert_eq!(timer(&time), Duration::from_millis(80));
        (0..200).for_each(|_| time.sample(Duration::from_millis(400)));
        assert_eq!(timer(&time), Duration::from_millis(800));
        (0..200).for_each(|_| time.sample(Duration::from_secs(60)));
        assert_eq!(timer(&time), Duration::from_secs(5));
    }

    #[test]
    fn a_timer_that_was_too_short_doubles_until_something_is_measured() {
        let mut time = AckTime::default();
        (0..8).for_each(|_| time.sample(Duration::from_millis(40)));
        time.back_off();
        time.back_off();
        assert_eq!(timer(&time), Duration::from_millis(320));
        time.sample(Duration::from_millis(40));
        assert_eq!(timer(&time), Duration::from_millis(80));
    }

    #[test]
    fn one_outlier_of_many_does_not_count() {
        let mut time = AckTime::default();
        (0..127).for_each(|_| time.sample(Duration::from_millis(40)));
        time.sample(Duration::from_secs(4));
        assert_eq!(time.p99(), Some(Duration::from_millis(40)));
        time.sample(Duration::from_secs(4));
        assert_eq!(time.p99(), Some(Duration::from_secs(4)));
    }
}
