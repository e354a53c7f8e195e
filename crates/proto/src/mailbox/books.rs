//! Bytes that wait, by who said what takes them.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::mutant::{self, Mutant};

/// Bytes of each sender in all mailboxes. A sender may have at most as much as is free, as in all
/// pools that peers share (`trust.md` B2): one greedy member gets a half, `n` of them `1/(n + 1)`
/// each, and as much stays for the others.
#[derive(Debug)]
pub(super) struct Books {
    of: BTreeMap<NodeId, usize>,
    used: usize,
    max: usize,
}

impl Books {
    pub(super) fn new(max: usize) -> Self {
        Self { of: BTreeMap::new(), used: 0, max }
    }

    pub(super) fn may_take(&self, sender: NodeId, bytes: usize) -> bool {
        let free = self.max.saturating_sub(self.used);
        let of_sender = match mutant::is(Mutant::CastsWithoutShares) {
            true => 0,
            false => self.of.get(&sender).copied().unwrap_or(0),
        };
        // It holds of what is free afterwards.
        of_sender + 2 * bytes <= free
    }

    pub(super) fn take(&mut self, sender: NodeId, bytes: usize) {
        self.used += bytes;
        *self.of.entry(sender).or_default() += bytes;
    }

    pub(super) fn give(&mut self, sender: NodeId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.used -= bytes;
        if let Some(of_sender) = self.of.get_mut(&sender) {
            *of_sender -= bytes;
            if *of_sender == 0 {
                self.of.remove(&sender);
            }
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    #[cfg(test)]
    pub(super) fn of(&self) -> &BTreeMap<NodeId, usize> {
        &self.of
    }
}
