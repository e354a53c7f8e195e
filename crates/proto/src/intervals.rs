//! The calls of an origin that are known to be settled, and the tags of a view that are closed:
//! sets of numbers, kept as intervals.
//!
//! Statements come late, twice and in any order, and settled is for ever, so all that is done with
//! them is to unite them (`settlement.md` S6, S8). What finds no room is not learnt, which costs
//! memory elsewhere and breaks nothing.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// Intervals of one origin: about 2 MiB at most, and one for every call that is open when 16,384
/// are.
pub(crate) const INTERVALS_MAX: usize = 16_384;

/// A set of numbers.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    /// From the first number of each interval to the one behind its last. They neither touch nor
    /// overlap.
    of: BTreeMap<u64, u64>,
    /// The end of the last.
    end: u64,
}

impl Intervals {
    #[inline]
    pub(crate) fn contains(&self, number: u64) -> bool {
        // Most that is asked about is new.
        number < self.end && self.at_or_below(number).is_some_and(|(_, end)| number < end)
    }

    /// Adds `[from, to)`. False when all of it is known, or when it joins no interval and there
    /// are too many.
    pub(crate) fn add(&mut self, mut from: u64, mut to: u64) -> bool {
        if from >= to {
            return false;
        }
        // Most often the last one grows.
        if let Some(mut last) = self.of.last_entry()
            && (*last.key()..=self.end).contains(&from)
        {
            let is_news = to > self.end;
            if is_news {
                self.end = to;
                *last.get_mut() = to;
            }
            return is_news;
        }
        if let Some((start, end)) = self.at_or_below(from)
            && end >= from
        {
            if end >= to {
                return false;
            }
            from = start;
        }
        let joined = self.of.range(from..=to).map(|(start, end)| (*start, *end));
        let joined: SmallVec<[(u64, u64); 2]> = joined.collect();
        if joined.is_empty() && self.of.len() >= INTERVALS_MAX {
            return false;
        }
        for (start, end) in joined {
            self.of.remove(&start);
            to = to.max(end);
        }
        self.of.insert(from, to);
        self.end = self.end.max(to);
        true
    }

    /// Forgets all numbers below this one.
    pub(crate) fn forget_below(&mut self, number: u64) {
        let cut = self.at_or_below(number).filter(|(_, end)| *end > number);
        self.of = self.of.split_off(&number);
        if let Some((_, end)) = cut {
            self.of.insert(number, end);
        }
        if self.of.is_empty() {
            self.end = 0;
        }
    }

    /// The end of the last interval that begins at or below `number`: where to ask on from. 0
    /// without one.
    pub(crate) fn known_below(&self, number: u64) -> u64 {
        self.at_or_below(number).map_or(0, |(_, end)| end.min(number))
    }

    /// The lowest number that is not in it.
    pub(crate) fn first_missing(&self) -> u64 {
        self.of.get(&0).copied().unwrap_or(0)
    }

    /// Number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    fn at_or_below(&self, number: u64) -> Option<(u64, u64)> {
        self.of.range(..=number).next_back().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_are_the_set_of_what_was_added(
            added in prop::collection::vec((0..60_u64, 0..12_u64), 0..40),
        ) {
            let (mut intervals, mut set) = (Intervals::default(), BTreeSet::new());
            for (from, len) in added {
                intervals.add(from, from + len);
                set.extend(from..from + len);
                for number in 0..80 {
                    prop_assert_eq!(intervals.contains(number), set.contains(&number));
                }
                let starts = set.iter().filter(|n| **n == 0 || !set.contains(&(**n - 1)));
                prop_assert_eq!(intervals.len(), starts.count());
            }
        }
    }

    #[test]
    fn asks_on_from_the_end_of_what_is_known_below() {
        let mut intervals = Intervals::default();
        assert_eq!(intervals.known_below(7), 0);
        intervals.add(0, 5);
        intervals.add(8, 10);
        assert_eq!([4, 5, 7, 8, 20].map(|n| intervals.known_below(n)), [4, 5, 5, 8, 10]);
    }

    #[test]
    fn learns_no_more_than_it_may() {
        let mut intervals = Intervals::default();
        (0..INTERVALS_MAX as u64 + 10).for_each(|n| {
            intervals.add(2 * n, 2 * n + 1);
        });
        assert_eq!(intervals.len(), INTERVALS_MAX);
        // What joins two makes one of them.
        intervals.add(1, 2);
        assert_eq!(intervals.len(), INTERVALS_MAX - 1);
    }
}
