//! Sequence numbers as ranges, so that what a peer says of many at once costs no more than of one.

use std::collections::BTreeMap;

/// A set of sequence numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// The number after the last of each range, by its first. None touches another.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds all from `from` to before `to`.
    pub(super) fn insert(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (mut first, mut end) = (from, to);
        if let Some((before, its_end)) = self.ends.range(..=from).next_back()
            && *its_end >= from
        {
            first = *before;
        }
        while let Some((next, its_end)) = self.ends.range(first..=end).next() {
            let next = *next;
            end = end.max(*its_end);
            self.ends.remove(&next);
        }
        self.ends.insert(first, end);
    }

    /// Takes out all below `seq`, and what follows on it without a gap. The first number after
    /// them.
    pub(super) fn advance(&mut self, seq: u64) -> u64 {
        let mut next = seq;
        while let Some(first) = self.ends.first_entry().filter(|first| *first.key() <= next) {
            next = next.max(first.remove());
        }
        next
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.ends.range(..=seq).next_back().is_some_and(|(_, end)| seq < *end)
    }

    /// Ranges that are not in it, of those from `from` to before `to`. Nothing in it is below
    /// `from`.
    pub(super) fn gaps(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut at = from;
        let stops = self.ends.range(..to).map(|(first, end)| (*first, *end)).chain([(to, to)]);
        stops.filter_map(move |(first, end)| {
            let gap = (at, first);
            at = end;
            (gap.0 < gap.1).then_some(gap)
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.ends.iter().flat_map(|(first, end)| *first..*end)
    }

    /// The number after the last.
    pub(super) fn end(&self) -> Option<u64> {
        self.ends.last_key_value().map(|(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A FLOOR of a few bytes names as many as a window has, as often as its sender likes.
    #[test]
    fn what_is_named_again_and_again_is_one_range() {
        let mut ranges = Ranges::default();
        (0..1_000).for_each(|_| ranges.insert(1, 16_385));
        assert_eq!(ranges.ends.len(), 1);
        ranges.insert(5, 9);
        assert_eq!((ranges.ends.len(), ranges.end()), (1, Some(16_385)));
    }

    proptest! {
        #[test]
        fn they_are_the_set_of_their_numbers(
            inserts in proptest::collection::vec((1..60_u64, 0..9_u64), 0..30),
            to in 0..80_u64, seq in 0..80_u64,
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (from, len) in inserts {
                ranges.insert(from, from + len);
                set.extend(from..from + len);
                prop_assert!(ranges.iter().eq(set.iter().copied()));
                let mut pairs = ranges.ends.iter().zip(ranges.ends.keys().skip(1));
                prop_assert!(pairs.all(|((_, end), next)| end < next));
            }
            prop_assert!((0..80).all(|it| ranges.contains(it) == set.contains(&it)));
            prop_assert_eq!(ranges.end(), set.last().map(|last| last + 1));
            let gaps = ranges.gaps(0, to).flat_map(|(from, to)| from..to);
            prop_assert!(gaps.eq((0..to).filter(|it| !set.contains(it))));
            let next = (seq..).find(|it| !set.contains(it)).unwrap();
            prop_assert_eq!(ranges.advance(seq), next);
            prop_assert!(ranges.iter().eq(set.range(next..).copied()));
        }
    }
}
