//! The truth about a log, whatever its nodes believe, and the properties that must hold.

use std::collections::{BTreeMap, BTreeSet};

use convoke::NodeId;

use crate::core::{
    Answer, Ask, Ballot, Life, Members, Membership, Part, Slot, Standing, Token, Value,
};

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
    /// Majorities have voted for two values in one slot, or for another than was applied there.
    #[error("a majority votes for {second:?} in slot {slot}, where {first:?} was chosen before")]
    TwoChosen {
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
    /// A leader opens a slot beyond the window: nobody knows yet who votes for it.
    #[error(
        "{node} proposes in slot {slot} with slot {applied} applied, which is beyond the window"
    )]
    Beyond {
        /// The node.
        node: NodeId,
        /// The slot.
        slot: Slot,
        /// Applied by the node.
        applied: Slot,
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

#[derive(Debug, Default)]
pub(super) struct Truth {
    values: BTreeMap<Slot, Value>,
    proposed: BTreeSet<Vec<u8>>,
    /// Last slot that each node has applied in this run of it.
    applied: BTreeMap<NodeId, Slot>,
    votes: BTreeMap<(Slot, Ballot), BTreeSet<(NodeId, Life)>>,
    /// The value that each ballot asks for.
    asked: BTreeMap<(Slot, Ballot), Value>,
    /// Values for which a majority has voted, whoever knows it.
    voted: BTreeMap<Slot, Value>,
    /// Slots that are chosen by votes, behind the last that a client can know to be chosen.
    ahead: BTreeSet<Slot>,
    membership: Option<Membership>,
    /// Members by their first slots.
    members: BTreeMap<Slot, Members>,
    /// Members that were proposed.
    changes: Vec<Members>,
    /// The last slot that a client can know to be chosen.
    known: Slot,
    reads: BTreeMap<Token, Slot>,
}

impl Truth {
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
        let first = self.values.get(&slot).or_else(|| self.voted.get(&slot));
        if let Some(first) = first.filter(|first| *first != value) {
            let (first, second) = (first.clone(), value.clone());
            return Err(Violation::TwoValues { node, slot, first, second });
        }
        if self.values.insert(slot, value.clone()).is_none() {
            self.learn_members(slot, value);
        }
        Ok(())
    }

    /// A node proposes a new value in a slot with this much applied, in a ballot that it took when
    /// all up to `chosen` was chosen.
    pub(super) fn proposes(
        &self,
        node: NodeId,
        slot: Slot,
        applied: Slot,
        chosen: Slot,
    ) -> Result<(), Violation> {
        if applied < chosen {
            return Err(Violation::Early { node, applied, chosen });
        }
        match &self.membership {
            Some(membership) if slot.since(applied) > membership.window => {
                Err(Violation::Beyond { node, slot, applied })
            }
            _ => Ok(()),
        }
    }

    /// A node begins anew.
    pub(super) fn crashed(&mut self, node: NodeId) {
        self.applied.remove(&node);
    }

    /// A client got an answer for what it had proposed.
    pub(super) fn acknowledged(&mut self, slot: Slot) {
        self.known = self.known.max(slot);
    }

    fn learn_members(&mut self, slot: Slot, value: &Value) {
        Membership::learn(&mut self.membership, slot, value);
        let Some(membership) = &self.membership else { return };
        self.members.entry(membership.since).or_insert_with(|| membership.now.clone());
        if let Some((since, members)) = &membership.next {
            self.members.entry(*since).or_insert_with(|| members.clone());
        }
    }

    /// Changes that are in force.
    pub(super) fn changes(&self) -> u64 {
        self.membership.as_ref().map_or(0, |membership| membership.now.epoch - 1)
    }

    /// True for members, and for all while there are none.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        self.membership.as_ref().is_none_or(|membership| membership.contains(node))
    }

    /// A node proposes other members.
    pub(super) fn proposes_members(&mut self, members: Members) {
        self.changes.push(members);
    }

    /// True for nodes that vote, or may come to by what is proposed.
    pub(super) fn may_vote(&self, node: NodeId) -> bool {
        let Some(membership) = &self.membership else { return true };
        let next = membership.next.iter().map(|(_, members)| members);
        let later = self.changes.iter().filter(|members| members.epoch > membership.now.epoch);
        let mut all = [&membership.now].into_iter().chain(next).chain(later);
        all.any(|members| matches!(members.part(node), Some(Part::Voter(_) | Part::Joining)))
    }

    /// A leader asks others.
    pub(super) fn asks(&mut self, ask: &Ask) {
        if let Ask::Accept { ballot, first, values, .. } = ask {
            let slots = (first.0..).map(|slot| (Slot(slot), *ballot));
            self.asked.extend(slots.zip(values.iter().cloned()));
        }
    }

    /// A vote leaves its node: a client that counts votes may see it.
    pub(super) fn left(&mut self, node: NodeId, answer: &Answer) -> Result<(), Violation> {
        let Answer::Accepted { ballot, life, first, count, .. } = answer else { return Ok(()) };
        let Some(membership) = &self.membership else { return Ok(()) };
        let decided = Slot(self.chosen().0 + membership.window);
        for slot in (first.0..first.0 + count).map(Slot) {
            let votes = self.votes.entry((slot, *ballot)).or_default();
            votes.insert((node, *life));
            // Of later slots nobody knows yet who votes.
            let members = self.members.range(..=slot).next_back().filter(|_| slot <= decided);
            let is_chosen = |members: &Members| {
                let counted = members.voters().filter(|voter| votes.contains(voter)).count();
                2 * counted > members.voters().count()
            };
            if members.is_some_and(|(_, members)| is_chosen(members)) {
                self.ahead.insert(slot);
                self.know();
                let Some(second) = self.asked.get(&(slot, *ballot)) else { continue };
                let first = self.voted.entry(slot).or_insert_with(|| second.clone());
                if first != second {
                    let (first, second) = (first.clone(), second.clone());
                    return Err(Violation::TwoChosen { slot, first, second });
                }
            }
        }
        Ok(())
    }

    /// Takes what a client can know to be chosen now. It counts votes of a slot only where those of
    /// all open slots before it have the same voters, so these are chosen, too. Voters of later
    /// members may choose a slot before those of now have chosen the one before: nobody knows then
    /// what comes of it, and no read has to see it.
    fn know(&mut self) {
        loop {
            let next = self.known.next();
            if !self.ahead.remove(&next) && !self.values.contains_key(&next) {
                return;
            }
            self.known = next;
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
