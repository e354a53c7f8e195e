//! Branches that fail at some time, unless something is heard of them before.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Path;
use crate::time::Timestamp;

/// Branches, why each may fail, and when. The next one is asked for after each input of the call:
/// of thousands of branches all may be due, when their node ends.
#[derive(Debug)]
pub(super) struct Dues<T> {
    by_path: BTreeMap<Path, (Timestamp, T)>,
    /// The same by time.
    due: BTreeSet<(Timestamp, Path)>,
}

impl<T> Default for Dues<T> {
    fn default() -> Self {
        Self { by_path: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<T> Dues<T> {
    /// Has a branch fail at some time. What was said of it before stands, unless that is later.
    pub(super) fn insert(&mut self, path: &Path, at: Timestamp, why: T) {
        if let Some((before, _)) = self.by_path.get(path) {
            if *before <= at {
                return;
            }
            self.due.remove(&(*before, path.clone()));
        }
        self.by_path.insert(path.clone(), (at, why));
        self.due.insert((at, path.clone()));
    }

    pub(super) fn remove(&mut self, path: &Path) -> Option<T> {
        let (at, why) = self.by_path.remove(path)?;
        self.due.remove(&(at, path.clone()));
        Some(why)
    }

    pub(super) fn get(&self, path: &Path) -> Option<&T> {
        self.by_path.get(path).map(|(_, why)| why)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Time at which the next one fails.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes those whose time has come, in the order of their paths.
    pub(super) fn take_due(&mut self, now: Timestamp) -> BTreeMap<Path, T> {
        let mut taken = BTreeMap::new();
        while self.next_due().is_some_and(|at| at <= now) {
            let (_, path) = self.due.pop_first().expect("one is due");
            let (_, why) = self.by_path.remove(&path).expect("it is there by both");
            taken.insert(path, why);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::root_path;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_one_due_is_the_one_that_a_scan_of_all_finds(
            steps in proptest::collection::vec((0..4u8, 0..12u32, 0..20u64), 0..200),
        ) {
            let mut dues = Dues::default();
            let mut scanned = BTreeMap::<Path, (Timestamp, u64)>::new();
            for (step, branch, nanos) in steps {
                let (path, at) = (root_path(branch), Timestamp::from_nanos(nanos));
                match step {
                    0 => {
                        let why = scanned.remove(&path).map(|(_, why)| why);
                        prop_assert_eq!(dues.get(&path).copied(), why);
                        prop_assert_eq!(dues.remove(&path), why);
                    }
                    1 => {
                        let is_due = |(_, (due, _)): &(&Path, &(Timestamp, _))| *due <= at;
                        let due = scanned.iter().filter(is_due);
                        let due: BTreeMap<_, _> =
                            due.map(|(path, (_, why))| (path.clone(), *why)).collect();
                        scanned.retain(|path, _| !due.contains_key(path));
                        prop_assert_eq!(dues.take_due(at), due);
                    }
                    _ => {
                        dues.insert(&path, at, nanos);
                        let before = scanned.entry(path).or_insert((at, nanos));
                        *before = (*before).min((at, nanos));
                    }
                }
                let next = scanned.values().map(|(at, _)| *at).min();
                prop_assert_eq!(dues.next_due(), next);
                prop_assert_eq!(dues.is_empty(), scanned.is_empty());
            }
        }
    }
}
