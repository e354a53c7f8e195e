//! Bytes that wait, by who said what takes them.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::ledger::{self, Ledger, Part};
use crate::mutant::{self, Mutant};

/// Bytes of each sender in all mailboxes. A sender may have at most as much as is free, as in all
/// pools that peers share (`trust.md` B2): one greedy member gets a half, `n` of them `1/(n + 1)`
/// each, and as much stays for the others. What it has in other cores of the node counts, as far as
/// that was heard.
#[derive(Debug)]
pub(super) struct Books {
    /// Kept while there is anything to know of them.
    of: BTreeMap<NodeId, Part<1>>,
    total: Part<1>,
    max: usize,
    /// Difference from which on the ledger is to be told; none for the only core of a node.
    step: Option<usize>,
    /// Senders that differ by a step, or have nothing left of what the ledger has of them.
    due: Vec<NodeId>,
}

/// The only amount of a part.
const BYTES: usize = 0;

impl Books {
    /// Of one of so many cores.
    pub(super) fn new(max: usize, cores: usize) -> Self {
        Self {
            of: BTreeMap::new(),
            total: Part::default(),
            max,
            step: (cores > 1).then(|| ledger::step(max, cores)),
            due: Vec::new(),
        }
    }

    pub(super) fn may_take(&self, sender: NodeId, bytes: usize) -> bool {
        let free = self.max.saturating_sub(self.total.in_all(BYTES));
        let of_sender = match mutant::is(Mutant::CastsWithoutShares) {
            true => 0,
            false => self.of.get(&sender).map_or(0, |sender| sender.in_all(BYTES)),
        };
        // It holds of what is free afterwards.
        of_sender + 2 * bytes <= free
    }

    pub(super) fn take(&mut self, sender: NodeId, bytes: usize) {
        self.total.take(BYTES, bytes);
        self.of.entry(sender).or_default().take(BYTES, bytes);
        self.note_change(sender);
    }

    pub(super) fn give(&mut self, sender: NodeId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.total.give(BYTES, bytes);
        if let Some(of_sender) = self.of.get_mut(&sender) {
            of_sender.give(BYTES, bytes);
            if of_sender.is_blank() {
                self.of.remove(&sender);
            }
        }
        self.note_change(sender);
    }

    /// The amount of a sender has changed.
    fn note_change(&mut self, name: NodeId) {
        let Some(step) = self.step else { return };
        self.total.becomes_due(BYTES, step);
        if self.of.get_mut(&name).is_some_and(|sender| sender.becomes_due(BYTES, step)) {
            self.due.push(name);
        }
    }

    pub(super) fn used(&self) -> usize {
        self.total.taken()[BYTES]
    }

    /// True when the ledger is to be told.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.total.is_due() || !self.due.is_empty()
    }

    /// Tells the ledger what has changed by enough.
    pub(super) fn tell(&mut self, ledger: &mut Ledger) {
        let casts = ledger.casts_mut();
        casts.note_total(&mut self.total);
        for name in self.due.drain(..) {
            if let Some(sender) = self.of.get_mut(&name) {
                casts.note(&name, sender);
                if sender.is_blank() {
                    self.of.remove(&name);
                }
            }
        }
    }

    /// Looks up what the other cores have, in all and of a sender.
    pub(super) fn hear(&mut self, name: NodeId, ledger: &Ledger) {
        self.total.hear(ledger.casts().total());
        let all = ledger.casts().of(&name);
        if all != [0] {
            self.of.entry(name).or_default().hear(all);
        } else {
            self.forget_elsewhere(name);
        }
    }

    /// A sender has no connection any more by which it would be heard of.
    pub(super) fn forget_elsewhere(&mut self, name: NodeId) {
        if let Some(sender) = self.of.get_mut(&name) {
            sender.forget_elsewhere();
            if sender.is_blank() {
                self.of.remove(&name);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn of(&self) -> impl Iterator<Item = usize> {
        self.of.values().map(|sender| sender.taken()[BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node keeps a half for one greedy sender and a quarter for the next, whatever its cores
    /// are, and knows nothing of either once all is read.
    #[test]
    fn cores_that_tell_each_other_bound_a_sender_as_one_does() {
        const MAX: usize = 100_000;
        let (mut ledger, cores) = (Ledger::default(), 4);
        let mut all: Vec<Books> = (0..cores).map(|_| Books::new(MAX, cores)).collect();
        let senders = [1, 2].map(NodeId::new);
        let mut taken = [0_usize; 2];
        for (sender, taken) in senders.into_iter().zip(&mut taken) {
            let mut is_refused = false;
            while !is_refused {
                is_refused = true;
                for books in &mut all {
                    books.hear(sender, &ledger);
                    if books.may_take(sender, 100) {
                        books.take(sender, 100);
                        (*taken, is_refused) = (*taken + 100, false);
                    }
                    if books.has_news() {
                        books.tell(&mut ledger);
                    }
                }
            }
        }
        let slack = cores * (ledger::step(MAX, cores) + 200);
        for (taken, part) in taken.into_iter().zip([MAX / 2, MAX / 4]) {
            assert!(taken.abs_diff(part) <= slack, "{taken} of {part}");
        }
        for books in &mut all {
            for sender in senders {
                let has = books.of.get(&sender).map_or(0, |sender| sender.taken()[BYTES]);
                books.give(sender, has);
                books.forget_elsewhere(sender);
            }
            books.tell(&mut ledger);
        }
        assert!(all.iter().all(|books| books.of.is_empty() && books.used() == 0));
        assert_eq!((ledger.casts().total(), ledger.casts().of(&senders[0])), ([0], [0]));
    }
}
