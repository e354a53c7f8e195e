//! A set of members by their index, as a row of bits.

use std::fmt;

use smallvec::SmallVec;

/// A set of the members, by index. Up to 128 need no heap.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MemberSet {
    /// Without trailing zeros, so that equal sets are equal.
    words: SmallVec<[u64; 2]>,
}

impl MemberSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first `count` members.
    pub fn first(count: usize) -> Self {
        let (full, bit) = place(count);
        let mut words = SmallVec::from_elem(u64::MAX, full);
        words.extend((bit > 1).then_some(bit - 1));
        Self { words }
    }

    /// Adds a member. True when it was not in yet.
    pub fn insert(&mut self, index: usize) -> bool {
        let (word, bit) = place(index);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Takes a member out. True when it was in.
    pub fn remove(&mut self, index: usize) -> bool {
        let (word, bit) = place(index);
        let was_in = self.contains(index);
        if was_in {
            self.words[word] &= !bit;
            self.trim();
        }
        was_in
    }

    /// True when a member is in.
    pub fn contains(&self, index: usize) -> bool {
        let (word, bit) = place(index);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Number of members in it.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True when no member is in it.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
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
        let word = |set: &Self, index: usize| set.words.get(index).copied().unwrap_or(0);
        let len = self.words.len().max(other.words.len());
        let words = (0..len).map(|index| with(word(self, index), word(other, index))).collect();
        let mut set = Self { words };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
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
