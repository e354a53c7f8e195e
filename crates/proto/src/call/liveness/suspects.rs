//! Branches that fail when a grace is over, unless their nodes are heard of before.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::id::Path;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    NodeDown,
    Orphaned,
}

/// Branches and the ends of their graces. The next one is asked for after each input of the call:
/// of thousands of branches all may be suspected, when their node ends.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    by_path: BTreeMap<Path, (Timestamp, Suspicion)>,
    /// The same by time.
    due: BTreeSet<(Timestamp, Path)>,
}

impl Suspects {
    /// Suspects a branch until `at`. An earlier suspicion of it stands.
    pub(super) fn insert(&mut self, path: &Path, at: Timestamp, suspicion: Suspicion) {
        if let Entry::Vacant(entry) = self.by_path.entry(path.clone()) {
            entry.insert((at, suspicion));
            self.due.insert((at, path.clone()));
        }
    }

    pub(super) fn remove(&mut self, path: &Path) {
        if let Some((at, _)) = self.by_path.remove(path) {
            self.due.remove(&(at, path.clone()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Time at which the next grace is over.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes those whose grace is over, in the order of their paths.
    pub(super) fn take_due(&mut self, now: Timestamp) -> BTreeMap<Path, Suspicion> {
        let mut taken = BTreeMap::new();
        while self.next_due().is_some_and(|at| at <= now) {
            let (_, path) = self.due.pop_first().expect("one is due");
            let (_, suspicion) = self.by_path.remove(&path).expect("it is there by both");
            taken.insert(path, suspicion);
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
        fn the_next_grace_to_end_is_the_one_that_a_scan_of_all_finds(
            steps in proptest::collection::vec((0..4u8, 0..12u32, 0..20u64), 0..200),
        ) {
            let mut suspects = Suspects::default();
            let mut scanned = BTreeMap::<Path, (Timestamp, Suspicion)>::new();
            for (step, branch, nanos) in steps {
                let (path, at) = (root_path(branch), Timestamp::from_nanos(nanos));
                let suspicion =
                    if nanos % 2 == 0 { Suspicion::NodeDown } else { Suspicion::Orphaned };
                match step {
                    0 => {
                        suspects.remove(&path);
                        scanned.remove(&path);
                    }
                    1 => {
                        let is_due = |(_, (due, _)): &(&Path, &(Timestamp, _))| *due <= at;
                        let due = scanned.iter().filter(is_due);
                        let due: BTreeMap<_, _> =
                            due.map(|(path, (_, kind))| (path.clone(), *kind)).collect();
                        scanned.retain(|path, _| !due.contains_key(path));
                        prop_assert_eq!(suspects.take_due(at), due);
                    }
                    _ => {
                        suspects.insert(&path, at, suspicion);
                        scanned.entry(path).or_insert((at, suspicion));
                    }
                }
                let next = scanned.values().map(|(at, _)| *at).min();
                prop_assert_eq!(suspects.next_due(), next);
                prop_assert_eq!(suspects.is_empty(), scanned.is_empty());
            }
        }
    }
}
