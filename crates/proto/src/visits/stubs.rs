//! Finished tasks whose initiator this node cannot ask, in a few bytes each: enough to refuse a
//! copy of their request (`settlement.md` S10).
//!
//! Another node's word that a call is over settles nothing by itself. It turns what that node asked
//! for into stubs, so a lie costs only the liar's own requests. A stub is of a
//! task, not of its call: other tasks of the call may still come.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::time::Timestamp;

/// The stubs of one ring.
#[derive(Debug, Default)]
pub(super) struct Stubs {
    /// By the second in which they go: number of the call and name of the task.
    until: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    count: usize,
    /// No stub has a higher number.
    seq_max: u64,
}

impl Stubs {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, seq: u64, name: u64) -> bool {
        // Most that is asked about is newer than all of them.
        seq <= self.seq_max && self.until.values().any(|stubs| stubs.contains(&(seq, name)))
    }

    pub(super) fn insert(&mut self, seq: u64, name: u64, until: Timestamp) {
        let is_new = self.until.entry(second_after(until)).or_default().insert((seq, name));
        self.count += usize::from(is_new);
        self.seq_max = self.seq_max.max(seq);
    }

    /// Drops those whose time has come. Returns how many there were.
    pub(super) fn expire(&mut self, now: Timestamp) -> usize {
        let before = self.count;
        while let Some(first) = self.until.first_entry()
            && at(*first.key()) <= now
        {
            self.count -= first.remove().len();
        }
        before - self.count
    }

    /// When the next ones go.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        self.until.first_key_value().map(|(second, _)| at(*second))
    }
}

fn second_after(time: Timestamp) -> u64 {
    time.as_nanos().div_ceil(1_000_000_000)
}

fn at(second: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_refuse_until_their_second_has_passed() {
        let (mut stubs, ms) = (Stubs::default(), Duration::from_millis);
        stubs.insert(7, 1, Timestamp::ZERO + ms(1_500));
        stubs.insert(5, 2, Timestamp::ZERO + ms(1_200));
        stubs.insert(9, 3, Timestamp::ZERO + ms(2_001));
        assert!(stubs.contains(5, 2) && stubs.contains(7, 1) && !stubs.contains(7, 2));
        assert_eq!(stubs.next_timeout(), Some(Timestamp::ZERO + ms(2_000)));
        assert_eq!(stubs.expire(Timestamp::ZERO + ms(1_999)), 0);
        assert_eq!(stubs.expire(Timestamp::ZERO + ms(2_000)), 2);
        assert!(!stubs.contains(5, 2) && stubs.contains(9, 3));
        assert_eq!((stubs.len(), stubs.next_timeout()), (1, Some(Timestamp::ZERO + ms(3_000))));
    }
}
