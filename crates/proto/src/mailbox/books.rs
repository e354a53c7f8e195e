//! Bytes that wait, by who said what takes them.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::ledger::{self, Ledger};
use crate::mutant::{self, Mutant};

/// Bytes of each sender in all mailboxes. A sender may have at most as much as is free, as in all
/// pools that peers share (`trust.md` B2): one greedy member gets a half, `n` of them `1/(n + 1)`
/// each, and as much stays for the others. What it has in other cores of the node counts, as far as
/// that was heard.
#[derive(Debug)]
pub(super) struct Books {
    of: BTreeMap<NodeId, Sender>,
    used: usize,
    max: usize,
    /// Amounts that the ledger has for this core, and for the others.
    said: [usize; 1],
    elsewhere: usize,
    /// Difference from which on the ledger is to be told; none for the only core of a node.
    step: Option<usize>,
    /// Senders that differ by a step, or have nothing left of what the ledger has of them.
    due: Vec<NodeId>,
    is_due: bool,
}

/// Bytes of one sender, kept while any of these is not 0.
#[derive(Debug, Default)]
struct Sender {
    taken: usize,
    said: [usize; 1],
    elsewhere: usize,
    is_due: bool,
}

impl Sender {
    fn is_blank(&self) -> bool {
        self.taken == 0 && self.said == [0] && self.elsewhere == 0
    }
}

impl Books {
    /// Of one of so many cores.
    pub(super) fn new(max: usize, cores: usize) -> Self {
        Self {
            of: BTreeMap::new(),
            used: 0,
            max,
            said: [0],
            elsewhere: 0,
            step: (cores > 1).then(|| ledger::step(max, cores)),
            due: Vec::new(),
            is_due: false,
        }
    }

    pub(super) fn may_take(&self, sender: NodeId, bytes: usize) -> bool {
        let free = self.max.saturating_sub(self.used + self.elsewhere);
        let of_sender = match mutant::is(Mutant::CastsWithoutShares) {
            true => 0,
            false => self.of.get(&sender).map_or(0, |sender| sender.taken + sender.elsewhere),
        };
        // It holds of what is free afterwards.
        of_sender + 2 * bytes <= free
    }

    pub(super) fn take(&mut self, sender: NodeId, bytes: usize) {
        self.used += bytes;
        self.of.entry(sender).or_default().taken += bytes;
        self.note_change(sender);
    }

    pub(super) fn give(&mut self, sender: NodeId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.used -= bytes;
        if let Some(of_sender) = self.of.get_mut(&sender) {
            of_sender.taken -= bytes;
            if of_sender.is_blank() {
                self.of.remove(&sender);
            }
        }
        self.note_change(sender);
    }

    /// The amount of a sender has changed.
    fn note_change(&mut self, name: NodeId) {
        let Some(step) = self.step else { return };
        self.is_due |= self.used.abs_diff(self.said[0]) >= step;
        let Some(sender) = self.of.get_mut(&name) else { return };
        let (taken, [said]) = (sender.taken, sender.said);
        let is_due = taken.abs_diff(said) >= step || (taken == 0 && said > 0);
        if is_due && !std::mem::replace(&mut sender.is_due, true) {
            self.due.push(name);
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// True when the ledger is to be told.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.is_due || !self.due.is_empty()
    }

    /// Tells the ledger what has changed by enough.
    pub(super) fn tell(&mut self, ledger: &mut Ledger) {
        self.is_due = false;
        let casts = ledger.casts_mut();
        casts.note_total(&[self.used], &mut self.said);
        for name in self.due.drain(..) {
            if let Some(sender) = self.of.get_mut(&name) {
                sender.is_due = false;
                casts.note(&name, &[sender.taken], &mut sender.said);
                if sender.is_blank() {
                    self.of.remove(&name);
                }
            }
        }
    }

    /// Looks up what the other cores have, in all and of a sender.
    pub(super) fn hear(&mut self, name: NodeId, ledger: &Ledger) {
        let ([total], [of_sender]) = (ledger.casts().total(), ledger.casts().of(&name));
        self.elsewhere = total - self.said[0];
        let said = self.of.get(&name).map_or(0, |sender| sender.said[0]);
        self.set_elsewhere(name, of_sender - said);
    }

    /// A sender has no connection any more by which it would be heard of.
    pub(super) fn forget_elsewhere(&mut self, name: NodeId) {
        self.set_elsewhere(name, 0);
    }

    fn set_elsewhere(&mut self, name: NodeId, elsewhere: usize) {
        if elsewhere > 0 {
            self.of.entry(name).or_default().elsewhere = elsewhere;
        } else if let Some(sender) = self.of.get_mut(&name) {
            sender.elsewhere = 0;
            if sender.is_blank() {
                self.of.remove(&name);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn of(&self) -> impl Iterator<Item = usize> {
        self.of.values().map(|sender| sender.taken)
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
                let has = books.of.get(&sender).map_or(0, |sender| sender.taken);
                books.give(sender, has);
                books.forget_elsewhere(sender);
            }
            books.tell(&mut ledger);
        }
        assert!(all.iter().all(|books| books.of.is_empty() && books.used() == 0));
        assert_eq!((ledger.casts().total(), ledger.casts().of(&senders[0])), ([0], [0]));
    }
}
