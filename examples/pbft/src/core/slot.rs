//! One place of the order: what is proposed for it, who has voted, what is proved.

use std::collections::{BTreeMap, BTreeSet};

use convoke::NodeId;

use super::group::{Digest, View};
use super::message::{Prepared, Signatures};
use super::signature::Signature;
use crate::mutant::{self, Mutant};

/// Votes of one phase of one view: the first of each member counts.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Tally {
    votes: BTreeMap<NodeId, (Digest, Signature)>,
    /// Members that have voted for another batch, too.
    liars: BTreeSet<NodeId>,
}

/// A second vote of a member, for another batch than its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// The first vote.
    pub(super) first: (Digest, Signature),
    /// It has not contradicted itself here before.
    pub(super) is_new: bool,
}

impl Tally {
    /// Takes a vote.
    ///
    /// # Errors
    /// [`Contradiction`]: it does not count.
    pub(super) fn add(
        &mut self,
        by: NodeId,
        digest: Digest,
        signature: Signature,
    ) -> Result<(), Contradiction> {
        let by = match mutant::is(Mutant::VotesWithoutSender) && self.votes.contains_key(&by) {
            true => NodeId::new(by.get() + 1_000 * self.votes.len() as u64),
            false => by,
        };
        let first = *self.votes.entry(by).or_insert((digest, signature));
        if first.0 == digest {
            return Ok(());
        }
        Err(Contradiction { first, is_new: self.liars.insert(by) })
    }

    pub(super) fn of(&self, by: NodeId) -> Option<(Digest, Signature)> {
        self.votes.get(&by).copied()
    }

    /// The count of members for a batch.
    pub(super) fn count(&self, digest: Digest) -> usize {
        self.votes.values().filter(|(of, _)| *of == digest).count()
    }

    /// Signatures of so many members for a batch, this one's among them if it is for it.
    pub(super) fn signatures(&self, digest: Digest, count: usize, with: NodeId) -> Signatures {
        let of = self.votes.iter().filter(|(_, (of, _))| *of == digest);
        let its = of.clone().filter(|(by, _)| **by == with);
        let others = of.filter(|(by, _)| **by != with);
        let all = its.chain(others).map(|(by, (_, signature))| (*by, *signature));
        all.take(count).collect()
    }
}

/// A place of the order.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Slot {
    /// The batch that the primary of this view proposes, once its proposal was taken.
    pub(super) proposal: Option<Digest>,
    /// The proposal is in the ledger, together with its batch.
    pub(super) is_accepted: bool,
    /// Votes to prepare; the primary's is its proposal.
    pub(super) prepares: Tally,
    pub(super) commits: Tally,
    /// Proof of the latest view in which it was prepared.
    pub(super) prepared: Option<Prepared>,
    /// The latest view in which it was committed, and the batch.
    pub(super) committed: Option<(View, Digest)>,
}

impl Slot {
    /// Forgets what a view has said and not proved.
    pub(super) fn begin_view(&mut self) {
        let Self { prepared, committed, .. } = std::mem::take(self);
        *self = Self { prepared, committed, ..Self::default() };
    }

    pub(super) fn is_prepared_in(&self, view: View) -> bool {
        self.prepared.as_ref().is_some_and(|prepared| prepared.view == view)
    }

    pub(super) fn is_committed_in(&self, view: View) -> bool {
        self.committed.is_some_and(|(of, _)| of == view)
    }

    /// Batches that have to be kept for the place.
    pub(super) fn needed(&self) -> impl Iterator<Item = Digest> {
        let prepared = self.prepared.iter().map(|prepared| prepared.digest);
        let committed = self.committed.iter().map(|(_, of)| *of);
        self.proposal.into_iter().chain(prepared).chain(committed)
    }

    /// The proposed batch, when it is there and a quorum votes to prepare it, the primary's
    /// proposal counted once, as its vote.
    pub(super) fn agreed(&self, quorum: usize) -> Option<Digest> {
        let digest = self.proposal.filter(|_| self.is_accepted)?;
        let again = usize::from(mutant::is(Mutant::PrimaryCountedTwice));
        (self.prepares.count(digest) + again >= quorum).then_some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_counts_once_and_the_first_counts() {
        let mut tally = Tally::default();
        let (one, other, signature) = (Digest([1; 32]), Digest([2; 32]), Signature([0; 64]));
        assert_eq!(tally.add(NodeId::new(1), one, signature), Ok(()));
        assert_eq!(tally.add(NodeId::new(1), one, signature), Ok(()));
        for is_new in [true, false] {
            let contradiction = Contradiction { first: (one, signature), is_new };
            assert_eq!(tally.add(NodeId::new(1), other, signature), Err(contradiction));
        }
        assert_eq!((tally.count(one), tally.count(other)), (1, 0));
        assert_eq!(tally.signatures(one, 3, NodeId::new(1)).len(), 1);
    }

    #[test]
    fn a_proof_has_no_more_than_a_quorum_and_the_primary_among_it() {
        let mut tally = Tally::default();
        let (digest, signature) = (Digest([1; 32]), Signature([0; 64]));
        for by in 1..=7 {
            tally.add(NodeId::new(by), digest, signature).unwrap();
        }
        let proof = tally.signatures(digest, 5, NodeId::new(6));
        let members: Vec<u64> = proof.keys().map(|node| node.get()).collect();
        assert_eq!(members, [1, 2, 3, 4, 6]);
    }
}
