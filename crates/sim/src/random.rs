//! Numbers that a seed alone decides: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).

use std::ops::Range;
use std::time::Duration;

/// A stream of numbers. The algorithm is fixed, so that a seed means the same run for ever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of `seed` for one purpose: independent of those for others.
    pub fn of(seed: u64, purpose: u64) -> Self {
        let mut base = Self(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(base.draw())
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `range`; its start if the range is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.draw() % range.end.saturating_sub(range.start).max(1)
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.within(0..len as u64)).unwrap_or(0)
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.within(0..100) < u64::from(percent)
    }

    /// True `per_mille` times of a thousand.
    pub fn per_mille(&mut self, per_mille: u32) -> bool {
        self.within(0..1000) < u64::from(per_mille)
    }

    /// True when something of this probability, from 0 to 1, happens. Draws nothing when it cannot.
    pub fn happens(&mut self, probability: f64) -> bool {
        // 53 bits are what the fraction of an f64 holds.
        probability > 0.0 && ((self.draw() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    /// A time from zero to `longest`. Draws nothing when that is zero.
    pub fn up_to(&mut self, longest: Duration) -> Duration {
        match u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX) {
            0 => Duration::ZERO,
            nanos => Duration::from_nanos(self.draw() % nanos.saturating_add(1)),
        }
    }

    /// A time in `range`, in microseconds.
    pub fn micros(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.within(range))
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.index(items.len())) }
    }
}

/// A digest of bytes: FNV-1a, 64 bits. For traces and for comparing payloads.
pub fn digest(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Start value of a digest.
pub const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_names_the_same_numbers_for_ever() {
        let mut random = Random::new(0);
        assert_eq!(random.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.draw(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn numbers_stay_within_their_range() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| (5..9).contains(&random.within(5..9))));
        assert_eq!(random.within(3..3), 3);
        assert_eq!(random.pick::<u8>(&[]), None);
    }

    #[test]
    fn probabilities_are_kept() {
        let mut random = Random::new(7);
        assert!((0..1_000).all(|_| random.happens(1.0) && !random.happens(0.0)));
        let count = (0..10_000).filter(|_| random.happens(0.25)).count();
        assert!((2_300..2_700).contains(&count), "{count} of 10,000");
    }

    #[test]
    fn durations_stay_within_the_longest() {
        let mut random = Random::new(7);
        let longest = Duration::from_nanos(3);
        let drawn: BTreeSet<_> = (0..100).map(|_| random.up_to(longest).as_nanos()).collect();
        assert!(drawn.into_iter().eq(0..=3));
        assert_eq!(random.up_to(Duration::ZERO), Duration::ZERO);
        for longest in [Duration::from_nanos(u64::MAX), Duration::MAX] {
            assert!(random.up_to(longest) <= longest);
        }
    }
}
