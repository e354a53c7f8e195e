//! The truth about a log, whatever its nodes believe, and the properties that must hold.

use std::collections::{BTreeMap, BTreeSet};

use convoke::NodeId;

use crate::core::{Answer, Ballot, Lives, Slot, Standing, Token, Value};

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two nodes, or one at two times, took two values for one slot.
    #[error("{node} applies {second:?} in slot {slot}, where {first:?} was applied before")]
    TwoValues {
        /// The second node.
        node: NodeId,
        /// The slot.
        slot: Slot,
        /// The first value.
        first: Value,
        /// The second value.
        second: Value,
    },
    /// A value that nobody proposed.
    #[error("{node} applies {value:?} in slot {slot}, which nobody proposed")]
    NotProposed {
        /// The node.
        node: NodeId,
        /// The slot.
        slot: Slot,
        /// The value.
        value: Value,
    },
    /// A gap in what a node applies.
    #[error("{node} applies slot {slot} after slot {before}")]
    Gap {
        /// The node.
        node: NodeId,
        /// The slot.
        slot: Slot,
        /// The one before.
        before: Slot,
    },
    /// A read that does not see what was known to be chosen when it began.
    #[error("{node} answers a read with slot {applied}, and slot {needed} was known to be chosen")]
    Stale {
        /// The node.
        node: NodeId,
        /// Applied by the node.
        applied: Slot,
        /// Known to a client before.
        needed: Slot,
    },
    /// A leader takes new values before it knows what was chosen before it led.
    #[error("{node} proposes with slot {applied} applied; all up to {chosen} was chosen before")]
    Early {
        /// The node.
        node: NodeId,
        /// Applied by the node.
        applied: Slot,
        /// Applied somewhere when it took its ballot.
        chosen: Slot,
    },
    /// Leaders take turns, though nothing is broken any more.
    #[error("{leaders} nodes begin to lead in a few seconds in which nothing breaks")]
    Unstable {
        /// Their count.
        leaders: u64,
    },
    /// No progress, though nothing is broken any more.
    #[error("nothing happens after all has healed: {0}")]
    Stuck(String),
}

#[derive(Debug)]
pub(super) struct Truth {
    needed: usize,
    values: BTreeMap<Slot, Value>,
    proposed: BTreeSet<Vec<u8>>,
    /// Last slot that each node has applied in this run of it.
    applied: BTreeMap<NodeId, Slot>,
    votes: BTreeMap<(Slot, Ballot), BTreeSet<NodeId>>,
    /// The last slot that a client can know to be chosen.
    known: Slot,
    reads: BTreeMap<Token, Slot>,
}

impl Truth {
    pub(super) fn new(nodes: u64) -> Self {
        Self {
            needed: usize::try_from(nodes / 2 + 1).unwrap_or(usize::MAX),
            values: BTreeMap::new(),
            proposed: BTreeSet::new(),
            applied: BTreeMap::new(),
            votes: BTreeMap::new(),
            known: Slot::default(),
            reads: BTreeMap::new(),
        }
    }

    pub(super) fn proposed(&mut self, value: &Value) {
        if let Value::Commands(commands) = value {
            self.proposed.insert(commands.to_vec());
        }
    }

    pub(super) fn applied(
        &mut self,
        node: NodeId,
        slot: Slot,
        value: &Value,
    ) -> Result<(), Violation> {
        let before = self.applied.insert(node, slot).unwrap_or_default();
        // The first value behind a snapshot follows nothing.
        let last = self.values.keys().next_back().copied().unwrap_or_default();
        if slot > last.next() || (slot <= before && before > Slot::default()) {
            return Err(Violation::Gap { node, slot, before });
        }
        if let Value::Commands(commands) = value
            && !self.proposed.contains(&commands[..])
        {
            return Err(Violation::NotProposed { node, slot, value: value.clone() });
        }
        match self.values.get(&slot) {
            Some(first) if first != value => {
                let (first, second) = (first.clone(), value.clone());
                Err(Violation::TwoValues { node, slot, first, second })
            }
            Some(_) => Ok(()),
            None => {
                self.values.insert(slot, value.clone());
                Ok(())
            }
        }
    }

    /// A node proposes a new value with this much applied, in a ballot that it took when all up to
    /// `chosen` was chosen.
    pub(super) fn proposes(
        &self,
        node: NodeId,
        applied: Slot,
        chosen: Slot,
    ) -> Result<(), Violation> {
        if applied < chosen {
            return Err(Violation::Early { node, applied, chosen });
        }
        Ok(())
    }

    /// A node begins anew.
    pub(super) fn crashed(&mut self, node: NodeId) {
        self.applied.remove(&node);
    }

    /// A client got an answer for what it had proposed.
    pub(super) fn acknowledged(&mut self, slot: Slot) {
        self.known = self.known.max(slot);
    }

    /// A vote leaves its node: a client that counts votes may see it.
    pub(super) fn left(&mut self, node: NodeId, answer: &Answer) {
        let Answer::Accepted { ballot, life, first, count, .. } = answer else { return };
        let is_counted = match self.values.get(&Slot::FIRST) {
            Some(Value::Formation(lives)) => Lives::get(lives, &node) == Some(life),
            _ => return,
        };
        for slot in (first.0..first.0 + count).map(Slot).filter(|_| is_counted) {
            let votes = self.votes.entry((slot, *ballot)).or_default();
            votes.insert(node);
            if votes.len() >= self.needed {
                self.known = self.known.max(slot);
            }
        }
    }

    pub(super) fn begin_read(&mut self, token: Token) {
        self.reads.insert(token, self.known);
    }

    pub(super) fn forget_read(&mut self, token: Token) {
        self.reads.remove(&token);
    }

    pub(super) fn read(
        &mut self,
        node: NodeId,
        token: Token,
        applied: Slot,
    ) -> Result<(), Violation> {
        let needed = self.reads.remove(&token).unwrap_or_default();
        if applied < needed { Err(Violation::Stale { node, applied, needed }) } else { Ok(()) }
    }

    /// The last slot that anybody has applied.
    pub(super) fn chosen(&self) -> Slot {
        self.values.keys().next_back().copied().unwrap_or_default()
    }

    pub(super) fn stuck(&self, nodes: impl Iterator<Item = (Slot, Standing)>) -> Violation {
        let nodes: Vec<String> =
            nodes.map(|(applied, standing)| format!("{standing:?} at {applied}")).collect();
        Violation::Stuck(format!("{} with {} slots", nodes.join(", "), self.chosen()))
    }
}
