//! Pacing: a token bucket, so that a link carries what the plan gives it and no more.
//!
//! Without it the connections share an uplink by round-trip time, the near ones getting several
//! times as much as the far ones, whatever the plan says.

use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::wire::WHOLE_BYTES_MAX;

/// A token bucket. A frame may leave while it is not empty, and may take it below zero: so no size
/// is unsendable, and the rate holds on average.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// kbit/s; none: not paced.
    rate: Option<u64>,
    burst: Duration,
    /// Millionths of a bit: kbit/s times nanoseconds.
    tokens: i128,
    filled_at: Timestamp,
}

/// Millionths of a bit in a byte.
const BYTE: i128 = 8_000_000;

impl Bucket {
    /// A full bucket for `rate` kbit/s, at least 1; without a rate it is never empty. It holds what
    /// passes in `burst`, and one frame of 64 KiB more.
    pub fn new(now: Timestamp, rate: Option<u64>, burst: Duration) -> Self {
        let mut bucket = Self { rate: None, burst, tokens: 0, filled_at: now };
        bucket.set_rate(now, rate);
        bucket.tokens = bucket.size();
        bucket
    }

    /// Changes the rate from now on.
    pub fn set_rate(&mut self, now: Timestamp, rate: Option<u64>) {
        self.fill(now);
        self.rate = rate.map(|rate| rate.max(1));
        self.tokens = self.tokens.min(self.size());
    }

    /// The rate, kbit/s.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// True when a frame may leave.
    pub fn is_open(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.rate.is_none() || self.tokens > 0
    }

    /// A frame left.
    pub fn spend(&mut self, now: Timestamp, bytes: usize) {
        self.fill(now);
        if self.rate.is_some() {
            self.tokens -= bytes as i128 * BYTE;
        }
    }

    /// When it opens, as of the last time it was looked at; then or before if it is open.
    pub fn opens_at(&self) -> Timestamp {
        match self.rate {
            Some(rate) if self.tokens <= 0 => {
                let nanos = (1 - self.tokens + i128::from(rate) - 1) / i128::from(rate);
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                self.filled_at + Duration::from_nanos(nanos)
            }
            _ => self.filled_at,
        }
    }

    fn fill(&mut self, now: Timestamp) {
        let nanos = now.since(self.filled_at).as_nanos();
        let rate = self.rate.unwrap_or(0);
        let gained = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_mul(rate.into());
        self.tokens = self.tokens.saturating_add(gained).min(self.size());
        self.filled_at = self.filled_at.max(now);
    }

    fn size(&self) -> i128 {
        let nanos = i128::try_from(self.burst.as_nanos()).unwrap_or(i128::MAX);
        let burst = nanos.saturating_mul(self.rate.unwrap_or(0).into());
        burst.saturating_add(WHOLE_BYTES_MAX as i128 * BYTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BURST: Duration = Duration::from_millis(10);

    proptest! {
        #[test]
        fn what_leaves_is_the_rate_and_at_most_the_burst_and_a_frame_more(
            rate in 1..10_000_000u64, sizes in proptest::collection::vec(1..65_560usize, 1..200),
        ) {
            let mut now = Timestamp::from_nanos(5);
            let mut bucket = Bucket::new(now, Some(rate), BURST);
            let start = now;
            let mut sent = 0i128;
            for size in sizes {
                if !bucket.is_open(now) {
                    prop_assert!(bucket.opens_at() > now);
                    now = bucket.opens_at();
                    prop_assert!(bucket.is_open(now), "it opens when it said");
                }
                bucket.spend(now, size);
                sent += size as i128 * BYTE;
                let elapsed_ns = i128::try_from(now.since(start).as_nanos()).unwrap();
                let planned = elapsed_ns * i128::from(rate);
                prop_assert!(sent <= planned + bucket.size() + size as i128 * BYTE);
            }
        }
    }

    #[test]
    fn without_a_rate_it_is_always_open() {
        let mut bucket = Bucket::new(Timestamp::ZERO, None, BURST);
        bucket.spend(Timestamp::ZERO, usize::MAX);
        assert!(bucket.is_open(Timestamp::ZERO));
    }

    #[test]
    fn no_rate_and_no_time_overflows() {
        let mut bucket = Bucket::new(Timestamp::ZERO, Some(u64::MAX), Duration::MAX);
        bucket.spend(Timestamp::MAX, usize::MAX);
        assert!(bucket.is_open(Timestamp::MAX));
        let mut slow = Bucket::new(Timestamp::ZERO, Some(0), BURST);
        slow.spend(Timestamp::ZERO, usize::MAX >> 8);
        assert!(slow.opens_at() > Timestamp::ZERO);
    }
}
