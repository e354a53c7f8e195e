//! Things by keys of which none is used again.

use crate::provider::Tag;

/// Things by their keys.
#[derive(Debug)]
pub(super) struct Keyed<T> {
    last: u32,
    /// In the order of their keys. New ones are the largest, so they mostly come last. Every
    /// completion looks for one, which takes fewer steps here than in a tree.
    entries: Vec<(Tag, T)>,
}

impl<T> Default for Keyed<T> {
    fn default() -> Self {
        Self { last: 0, entries: Vec::new() }
    }
}

impl<T> Keyed<T> {
    /// A key nobody has. After a billion of them they begin again; who is still there then keeps
    /// its own.
    pub(super) fn reserve(&mut self) -> Tag {
        loop {
            self.last = if self.last == Tag::MAX { 1 } else { self.last + 1 };
            let key = Tag::new(self.last).expect("not above the maximum");
            if self.place(key).is_err() {
                return key;
            }
        }
    }

    /// Adds something with a key that was reserved for it.
    pub(super) fn insert(&mut self, key: Tag, thing: T) {
        let place = self.place(key);
        debug_assert!(place.is_err(), "a key is reserved once");
        self.entries.insert(place.unwrap_or_else(|taken| taken), (key, thing));
    }

    pub(super) fn remove(&mut self, key: Tag) -> Option<T> {
        let place = self.place(key).ok()?;
        Some(self.entries.remove(place).1)
    }

    #[inline]
    pub(super) fn get(&self, key: Tag) -> Option<&T> {
        self.entries.get(self.place(key).ok()?).map(|(_, thing)| thing)
    }

    /// Place of an entry, or else the one where it would be.
    #[inline]
    fn place(&self, key: Tag) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Also where the keys begin again, and some of the first are still taken.
        #[test]
        fn everything_is_found_by_a_key_of_its_own(
            before in prop_oneof![Just(0), Tag::MAX - 20..Tag::MAX],
            taken in prop::collection::btree_set(1..20_u32, 0..8),
            ops in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..100),
        ) {
            let mut keyed = Keyed::default();
            let mut expected = BTreeMap::new();
            for number in taken {
                let key = Tag::new(number).unwrap();
                keyed.insert(key, number);
                expected.insert(key, number);
            }
            keyed.last = before;
            for (number, (is_added, index)) in (100..).zip(ops) {
                if is_added || expected.is_empty() {
                    let key = keyed.reserve();
                    keyed.insert(key, number);
                    prop_assert_eq!(expected.insert(key, number), None, "the key was taken");
                } else {
                    let key = *index.get(&expected.keys().collect::<Vec<_>>()).to_owned();
                    prop_assert_eq!(keyed.remove(key), expected.remove(&key));
                    prop_assert_eq!(keyed.get(key), None);
                }
                for (key, number) in &expected {
                    prop_assert_eq!(keyed.get(*key), Some(number));
                }
            }
        }
    }
}
