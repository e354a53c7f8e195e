//! A set of indices that mostly fills from 0 up: replies received, children drained.

use std::collections::BTreeSet;

/// Indices held as "everything below `filled`" and the few beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet {
    filled: u32,
    beyond: BTreeSet<u32>,
}

impl IndexSet {
    /// Adds `index`; whether it was new.
    pub fn insert(&mut self, index: u32) -> bool {
        if index < self.filled || !self.beyond.insert(index) {
            return false;
        }
        while self.beyond.remove(&self.filled) {
            self.filled += 1;
        }
        true
    }

    /// True when `index` is in it.
    pub fn contains(&self, index: u32) -> bool {
        index < self.filled || self.beyond.contains(&index)
    }

    /// Number of indices in it.
    pub fn len(&self) -> u32 {
        self.filled + u32::try_from(self.beyond.len()).unwrap_or(u32::MAX)
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The greatest of them.
    pub fn last(&self) -> Option<u32> {
        self.beyond.last().copied().or(self.filled.checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_plain_set(indices in prop::collection::vec(0_u32..40, 0..60)) {
            let (mut set, mut model) = (IndexSet::default(), BTreeSet::new());
            for index in indices {
                prop_assert_eq!(set.insert(index), model.insert(index));
                prop_assert_eq!(set.len() as usize, model.len());
                prop_assert_eq!(set.last(), model.last().copied());
            }
            for index in 0..50 {
                prop_assert_eq!(set.contains(index), model.contains(&index));
            }
        }
    }
}
