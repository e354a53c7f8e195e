//! Numbers that look random and are the same for the same seed, on every machine and forever.

use crate::store::mix;

/// The SplitMix64 generator (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number from 0 to below `end`, which is not 0. That the lowest are a hair likelier does no
    /// harm here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Like [`Self::below`], but skewed: half of the numbers are in the lowest fifth, a quarter of
    /// `end` is the mean.
    pub(super) fn low_below(&mut self, end: u64) -> u64 {
        let bound = self.below(end) + 1;
        self.below(bound)
    }

    /// A span of time from 1 millisecond to `days` days; short ones are likelier.
    pub(super) fn millis_within_days(&mut self, days: u64) -> i64 {
        (self.low_below(days * MILLIS_PER_DAY) + 1).cast_signed()
    }

    /// Yes in `percent` of 100 cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len() as u64);
        &from[usize::try_from(index).expect("it is below a length")]
    }

    /// One of several; the first ones are likelier.
    pub(super) fn pick_early<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.low_below(from.len() as u64);
        &from[usize::try_from(index).expect("it is below a length")]
    }

    fn next(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        number
    }
}

pub(super) const MILLIS_PER_DAY: u64 = 24 * 60 * 60 * 1000;
