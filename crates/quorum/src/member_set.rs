//! A set of members by their index, as a row of bits.

use std::cmp::Ordering;
use std::fmt;

/// A set of the members, by index. Up to 128 need no heap.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MemberSet {
    /// The first 128, which are all in most sets.
    low: [u64; LOW],
    /// The others. Without trailing zeros, so that equal sets are equal.
    rest: Vec<u64>,
}

/// Words that need no heap.
const LOW: usize = 2;

impl MemberSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first `count` members.
    pub fn first(count: usize) -> Self {
        let (full, bit) = place(count);
        let word = |at: usize| match at.cmp(&full) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => bit - 1,
            Ordering::Greater => 0,
        };
        let mut set = Self { low: std::array::from_fn(word), rest: Vec::new() };
        set.rest.extend((LOW..=full).map(word));
        set.trim();
        set
    }

    /// Adds a member. True when it was not in yet.
    pub fn insert(&mut self, index: usize) -> bool {
        let (at, bit) = place(index);
        let word = match self.low.get_mut(at) {
            Some(word) => word,
            None => {
                self.rest.resize(self.rest.len().max(at - LOW + 1), 0);
                &mut self.rest[at - LOW]
            }
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Takes a member out. True when it was in.
    pub fn remove(&mut self, index: usize) -> bool {
        let (at, bit) = place(index);
        let word = match self.low.get_mut(at) {
            Some(word) => Some(word),
            None => self.rest.get_mut(at - LOW),
        };
        let Some(word) = word.filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        self.trim();
        true
    }

    /// True when a member is in.
    pub fn contains(&self, index: usize) -> bool {
        let (at, bit) = place(index);
        self.word(at) & bit != 0
    }

    /// Number of members in it.
    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// True when no member is in it.
    pub fn is_empty(&self) -> bool {
        self.low == [0; LOW] && self.rest.is_empty()
    }

    /// The indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words().enumerate().flat_map(|(at, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// Those of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// Those of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    fn combine(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let word = |at| with(self.word(at), other.word(at));
        let len = LOW + self.rest.len().max(other.rest.len());
        let mut set = Self { low: std::array::from_fn(word), rest: Vec::new() };
        set.rest.extend((LOW..len).map(word));
        set.trim();
        set
    }

    fn word(&self, at: usize) -> u64 {
        let word = self.low.get(at).or_else(|| self.rest.get(at - LOW));
        word.copied().unwrap_or(0)
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.low.iter().chain(&self.rest).copied()
    }

    fn trim(&mut self) {
        while self.rest.last() == Some(&0) {
            self.rest.pop();
        }
    }
}

const fn place(index: usize) -> (usize, u64) {
    (index / 64, 1 << (index % 64))
}

impl FromIterator<usize> for MemberSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::new();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

impl fmt::Debug for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn indices() -> impl Strategy<Value = BTreeSet<usize>> {
        prop::collection::btree_set(0_usize..200, 0..20)
    }

    proptest! {
        #[test]
        fn the_first_are_all_below_a_number(count in 0_usize..300) {
            prop_assert_eq!(MemberSet::first(count), (0..count).collect::<MemberSet>());
        }

        #[test]
        fn it_is_a_set(a in indices(), b in indices(), index in 0_usize..200) {
            let set = |of: &BTreeSet<usize>| of.iter().copied().collect::<MemberSet>();
            let mut changed = set(&a);
            prop_assert_eq!(changed.len(), a.len());
            prop_assert!(changed.iter().eq(a.iter().copied()));
            prop_assert_eq!(set(&a).union(&set(&b)), set(&(&a | &b)));
            prop_assert_eq!(set(&a).intersection(&set(&b)), set(&(&a & &b)));
            prop_assert_eq!(changed.insert(index), !a.contains(&index));
            prop_assert!(changed.contains(index) && changed.remove(index));
            prop_assert!(!changed.contains(index) && !changed.remove(index));
            let without: BTreeSet<usize> = a.into_iter().filter(|i| *i != index).collect();
            prop_assert_eq!(changed, set(&without));
        }
    }
}
