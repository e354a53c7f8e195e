//! A set of indices that mostly fills from 0 up: replies received, children drained.

use std::collections::BTreeMap;

/// Indices held as "everything below `filled`" and the few runs beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet {
    filled: u32,
    /// First and last index of each run.
    beyond: BTreeMap<u32, u32>,
    len: u32,
}

impl IndexSet {
    /// Adds `index`; whether it was new.
    pub fn insert(&mut self, index: u32) -> bool {
        if self.contains(index) {
            return false;
        }
        let behind = index.checked_add(1).and_then(|next| self.beyond.remove(&next));
        let last = behind.unwrap_or(index);
        let before = self.beyond.range_mut(..index).next_back();
        if index == self.filled {
            self.filled = last.saturating_add(1);
        } else if let Some((_, end)) = before.filter(|(_, end)| **end + 1 == index) {
            *end = last;
        } else {
            self.beyond.insert(index, last);
        }
        self.len += 1;
        true
    }

    /// True when `index` is in it.
    pub fn contains(&self, index: u32) -> bool {
        let run = || self.beyond.range(..=index).next_back();
        index < self.filled || run().is_some_and(|(_, last)| index <= *last)
    }

    /// Number of indices in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The greatest of them.
    pub fn last(&self) -> Option<u32> {
        self.beyond.last_key_value().map(|(_, last)| *last).or(self.filled.checked_sub(1))
    }

    /// Number of indices that are not in it while the next one is: each takes memory.
    pub fn gap_count(&self) -> usize {
        self.beyond.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

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
            let is_gap = |index: &&u32| **index > 0 && !model.contains(&(**index - 1));
            prop_assert_eq!(set.gap_count(), model.iter().filter(is_gap).count());
        }
    }
}
