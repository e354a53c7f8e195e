//! Membership: who votes for which slot, as the log itself has decided.
//!
//! A [`Membership`] is a function of the log. A change that is chosen in slot k is in force from
//! slot k + [`window`](Membership::window) on, and no slot further ahead than the window is ever
//! proposed: so a node that knows the log up to a slot knows the voters of every slot that can be
//! open behind it. Until a change is in force another one has no effect.
//!
//! ```text
//!   slot      k          k + window
//!   ──────────●──────────┬──────────────▶
//!          a change      │ it is in force: its voters choose the values of these slots
//!          is chosen     └ until here those before do
//! ```

use std::collections::BTreeMap;

use convoke::NodeId;

use super::ballot::{Life, Lives, Slot, Value};
use crate::mutant::{self, Mutant};

/// A node's part in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// It votes, with the ledger of this number.
    Voter(Life),
    /// It learns, and is to vote once it has caught up.
    Joining,
    /// It learns.
    Learner,
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its part.
    pub part: Part,
    /// Addresses at which it is dialled. None where the cluster files of all nodes have them.
    pub addresses: Vec<String>,
}

impl Member {
    /// A voter whose addresses are in the cluster files.
    pub fn voter(life: Life) -> Self {
        Self { part: Part::Voter(life), addresses: Vec::new() }
    }
}

/// All members at a time: a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    /// Number of the configuration: 1 for the first, one more with each change.
    pub epoch: u64,
    /// Members by their ids.
    pub nodes: BTreeMap<NodeId, Member>,
}

impl Members {
    /// The first configuration: voters with these ledgers.
    pub fn formed(lives: &Lives) -> Self {
        let voter = |(node, life): (&NodeId, &Life)| (*node, Member::voter(*life));
        Self { epoch: 1, nodes: lives.iter().map(voter).collect() }
    }

    /// The part of a node, if it has one.
    pub fn part(&self, node: NodeId) -> Option<Part> {
        self.nodes.get(&node).map(|member| member.part)
    }

    /// True when what this ledger of a node says counts.
    pub fn counts(&self, node: NodeId, life: Life) -> bool {
        match self.part(node) {
            Some(Part::Voter(counted)) => counted == life || mutant::is(Mutant::WipedNodeVotes),
            _ => false,
        }
    }

    /// Voters, with their ledgers.
    pub fn voters(&self) -> impl Iterator<Item = (NodeId, Life)> {
        self.nodes.iter().filter_map(|(node, member)| match member.part {
            Part::Voter(life) => Some((*node, life)),
            Part::Joining | Part::Learner => None,
        })
    }

    /// Bytes they take in messages and in memory, about.
    pub fn size(&self) -> usize {
        let size = |member: &Member| 32 + member.addresses.iter().map(String::len).sum::<usize>();
        16 + self.nodes.values().map(size).sum::<usize>()
    }

    /// True when those voters are a majority for which `has` is true.
    pub fn is_majority(&self, has: impl Fn(NodeId, Life) -> bool) -> bool {
        let all = self.voters().count();
        let count = self.voters().filter(|(node, life)| has(*node, *life)).count();
        count >= majority(all)
    }
}

/// The least count of these voters of which any two sets share one.
pub fn majority(voters: usize) -> usize {
    if mutant::is(Mutant::HalfIsEnough) { (voters / 2).max(1) } else { voters / 2 + 1 }
}

/// The members that the log has decided on: those of the next slot, and those that come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// Slots that may be proposed beyond what is chosen, at most; a change takes effect so many
    /// slots behind its own. Decided when the cluster is formed, so that all nodes have the same.
    pub window: u64,
    /// Members of the slot behind the last that is known to be chosen.
    pub now: Members,
    /// The first slot of theirs.
    pub since: Slot,
    /// Members from a slot on, if a change is under way.
    pub next: Option<(Slot, Members)>,
}

impl Membership {
    /// Members of a cluster that is formed.
    pub fn new(window: usize, now: Members) -> Self {
        Self { window: window.max(1) as u64, now, since: Slot::FIRST, next: None }
    }

    /// Takes the value of the next slot of a log. True when something has changed.
    pub fn learn(membership: &mut Option<Self>, slot: Slot, value: &Value) -> bool {
        let Some(known) = membership else {
            let Value::Formation(formed) = value else { return false };
            *membership = Some((**formed).clone());
            return true;
        };
        let is_taken = match value {
            Value::Change(members) => known.take(slot, members),
            _ => false,
        };
        known.reach(slot.next()) | is_taken
    }

    /// Takes a change that is chosen in a slot, if it is one of the members of now.
    fn take(&mut self, slot: Slot, members: &Members) -> bool {
        let overlaps = self.next.is_some() && !mutant::is(Mutant::WindowsOverlap);
        if overlaps || members.epoch != self.now.epoch + 1 || members.voters().next().is_none() {
            return false;
        }
        self.next = Some((Slot(slot.0.saturating_add(self.window)), members.clone()));
        true
    }

    /// The next slot is this one.
    fn reach(&mut self, slot: Slot) -> bool {
        match self.next.take_if(|(first, _)| *first <= slot) {
            Some((first, members)) => {
                (self.since, self.now) = (first, members);
                true
            }
            None => false,
        }
    }

    /// Members of a slot that is not known to be chosen.
    pub fn at(&self, slot: Slot) -> &Members {
        match &self.next {
            Some((first, members)) if slot >= *first => members,
            _ => &self.now,
        }
    }

    /// All members, of now and of the change under way.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        let next = self.next.iter().flat_map(|(_, members)| &members.nodes);
        let is_new = |node: &NodeId| !self.now.nodes.contains_key(node);
        let next = next.filter(move |(node, _)| is_new(node));
        self.now.nodes.iter().chain(next).map(|(node, member)| (*node, member))
    }

    /// True for all members, of now and of the change under way.
    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes().any(|(member, _)| member == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(epoch: u64, voters: &[u64]) -> Members {
        let lives = voters.iter().map(|node| (NodeId::new(*node), *node)).collect();
        Members { epoch, ..Members::formed(&lives) }
    }

    fn formed(window: usize) -> Option<Membership> {
        let mut membership = None;
        let formed = Membership::new(window, members(1, &[1, 2, 3]));
        let formation = Value::Formation(formed.into());
        assert!(Membership::learn(&mut membership, Slot::FIRST, &formation));
        membership
    }

    #[test]
    fn a_change_is_in_force_a_window_behind_its_slot() {
        let mut membership = formed(3);
        let change = Value::Change(members(2, &[3, 4, 5]));
        assert!(Membership::learn(&mut membership, Slot(2), &change));
        for slot in [3, 4] {
            let known = membership.as_ref().unwrap();
            let epochs = [3, 4, 5, 6].map(|slot| known.at(Slot(slot)).epoch);
            assert_eq!((epochs, known.nodes().count()), ([1, 1, 2, 2], 5), "behind {slot}");
            let has_changed = Membership::learn(&mut membership, Slot(slot), &Value::Noop);
            assert_eq!(has_changed, slot == 4);
        }
        let known = membership.unwrap();
        assert_eq!((known.now.epoch, known.next.clone()), (2, None));
        assert!(known.contains(NodeId::new(5)) && !known.contains(NodeId::new(1)));
    }

    #[test]
    fn a_change_has_no_effect_while_another_is_under_way_or_when_it_is_of_others() {
        let mut membership = formed(2);
        let nobody = Value::Change(Members { epoch: 2, ..Members::default() });
        assert!(!Membership::learn(&mut membership, Slot(2), &nobody));
        let late = Value::Change(members(3, &[4]));
        assert!(!Membership::learn(&mut membership, Slot(3), &late));
        assert!(Membership::learn(&mut membership, Slot(4), &Value::Change(members(2, &[1]))));
        let second = Value::Change(members(2, &[5]));
        assert!(Membership::learn(&mut membership, Slot(5), &second)); // the first is in force
        assert_eq!(membership.clone().unwrap().now, members(2, &[1]));
        let third = Value::Change(members(3, &[5]));
        assert!(Membership::learn(&mut membership, Slot(6), &third));
        assert_eq!(membership.unwrap().next, Some((Slot(8), members(3, &[5]))));
    }

    #[test]
    fn a_majority_is_of_voters_with_their_ledgers() {
        let mut members = members(1, &[1, 2, 3, 4]);
        members.nodes.insert(NodeId::new(5), Member { part: Part::Joining, addresses: vec![] });
        let of = |nodes: &'static [u64]| move |node: NodeId, _| nodes.contains(&node.get());
        assert!(members.is_majority(of(&[1, 2, 4])) && !members.is_majority(of(&[1, 2, 5])));
        assert!(members.counts(NodeId::new(1), 1) && !members.counts(NodeId::new(1), 2));
        assert!(!members.counts(NodeId::new(5), 5));
    }
}
