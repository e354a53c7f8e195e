//! Timers of many things, of which few fire: most are overtaken by an end or an earlier time.
//!
//! Each thing remembers for when it is armed and is entered again only for an earlier time. An
//! entry that fires and is not the one remembered is void. Void entries are swept out once they are
//! the most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Timestamp;

/// Void entries that are not worth a sweep.
const SPARE: usize = 64;

#[derive(Debug)]
pub(crate) struct Timers<K> {
    heap: BinaryHeap<Reverse<(Timestamp, K)>>,
}

impl<K: Ord> Timers<K> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new() }
    }

    pub(crate) fn push(&mut self, at: Timestamp, of: K) {
        self.heap.push(Reverse((at, of)));
    }

    /// The earliest entry, once its time has come.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, K)> {
        let is_due = self.next().is_some_and(|at| at <= now);
        if is_due { self.heap.pop().map(|Reverse(entry)| entry) } else { None }
    }

    /// When the earliest entry is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// True when [`Self::sweep`] is worth its cost with so many things alive.
    pub(crate) fn is_crowded(&self, alive: usize) -> bool {
        self.heap.len() > 2 * alive + SPARE
    }

    /// Keeps these entries only: one for each thing that is armed.
    pub(crate) fn sweep(&mut self, armed: impl Iterator<Item = (Timestamp, K)>) {
        self.heap.clear();
        self.heap.extend(armed.map(Reverse));
    }

    /// Entries, void ones too.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_leaves_what_is_armed() {
        let mut timers = Timers::new();
        let at = |n: u32| Timestamp::ZERO + std::time::Duration::from_millis(n.into());
        for n in 0..64 {
            timers.push(at(n), n);
        }
        assert!(!timers.is_crowded(0));
        timers.push(at(64), 64);
        assert!(timers.is_crowded(0));
        assert!(!timers.is_crowded(1));
        timers.sweep([(at(7), 7), (at(3), 3)].into_iter());
        assert_eq!((timers.len(), timers.next()), (2, Some(at(3))));
        assert_eq!(timers.pop_due(at(2)), None);
        assert_eq!(timers.pop_due(at(9)), Some((at(3), 3)));
        assert_eq!(timers.pop_due(at(9)), Some((at(7), 7)));
        assert_eq!(timers.pop_due(at(9)), None);
    }
}
