//! Handover: the proof of an epoch's end, and of the members of the next one.

use super::group::Digest;
use super::members::{Members, Membership};
use super::message::Stable;
use super::state::digest_of;

/// Proof that an epoch has ended with a checkpoint, and of the members behind it.
///
/// A quorum of the members that leave off have signed the digest of that state, and the members are
/// in it: so it convinces whoever knows the keys of the epoch that ends, whoever sends it. It is
/// all that a member, one that joins, one that was removed, or a client needs to go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handover {
    /// The checkpoint, and its proof by members of the epoch that ends.
    pub stable: Stable,
    /// The digest of the other parts of that state.
    pub parts: Digest,
    /// Members of the epoch that begins.
    pub members: Members,
}

impl Handover {
    /// The epoch that begins.
    pub fn epoch(&self) -> u64 {
        self.members.epoch
    }

    /// True when the state at the checkpoint has these members.
    pub(super) fn is_bound(&self) -> bool {
        let membership = Membership::of(self.members.clone());
        digest_of(membership.digest(), self.parts) == self.stable.checkpoint.digest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use convoke::NodeId;

    use super::*;
    use crate::core::{
        Checkpoint, Group, Keys, Member, Message, Refused, Scope, Sequence, Signed, Signer,
    };

    const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };

    fn signer(node: u8) -> Signer {
        Signer::stand_in([node; 32])
    }

    fn members(epoch: u64, nodes: std::ops::RangeInclusive<u8>) -> Members {
        let member = |node| Member { key: signer(node).checker(), addresses: Vec::new() };
        let nodes = nodes.map(|node| (NodeId::new(node.into()), member(node))).collect();
        Members { epoch, nodes }
    }

    fn keys() -> Keys {
        let of = members(1, 1..=4);
        let checkers = of.nodes.into_iter().map(|(node, member)| (node, member.key)).collect();
        let group = Group::new((1..=4).map(NodeId::new)).unwrap();
        Keys::new(SCOPE, group, checkers, BTreeMap::new())
    }

    /// The end of an epoch, as these have signed it.
    fn handover(scope: Scope, to: Members, by: &[u8]) -> Handover {
        let parts = Digest([3; 32]);
        let digest = digest_of(Membership::of(to.clone()).digest(), parts);
        let checkpoint = Checkpoint { sequence: Sequence(16), digest };
        let sign = |by: &u8| {
            let node = NodeId::new((*by).into());
            let signed = signer(*by).sign(scope, node, Message::Checkpoint(checkpoint));
            (node, signed.signature)
        };
        let signatures = by.iter().map(sign).collect();
        Handover { stable: Stable { checkpoint, signatures }, parts, members: to }
    }

    #[test]
    fn only_a_quorum_of_the_epoch_that_ends_proves_the_next_one() {
        let (keys, next) = (keys(), || members(2, 2..=5));
        let proof = || handover(SCOPE, next(), &[1, 2, 3]);
        let refused = |handover| keys.open_handover(handover).unwrap_err();
        assert!(keys.open_handover(proof()).is_ok());
        let two = handover(SCOPE, next(), &[1, 2]);
        assert_eq!(refused(two), Refused::Certificate);
        let of_the_next = handover(SCOPE, next(), &[2, 3, 5]);
        assert_eq!(refused(of_the_next), Refused::Certificate);
        let later = handover(Scope { epoch: 2, ..SCOPE }, next(), &[1, 2, 3]);
        assert_eq!(refused(later), Refused::Certificate);
        let elsewhere = handover(Scope { cluster: 8, ..SCOPE }, next(), &[1, 2, 3]);
        assert_eq!(refused(elsewhere), Refused::Certificate);
        let changed = Handover { members: members(2, 3..=6), ..proof() };
        assert_eq!(refused(changed), Refused::Certificate);
        let mut unsigned = proof();
        unsigned.stable.signatures.clear();
        assert_eq!(refused(unsigned), Refused::Certificate);
        assert_eq!(refused(handover(SCOPE, members(3, 2..=5), &[1, 2, 3])), Refused::Epoch);
    }

    #[test]
    fn words_count_in_their_epoch_alone() {
        let first = keys();
        let second = first.after(&handover(SCOPE, members(2, 2..=5), &[1, 2, 3])).unwrap();
        let from = NodeId::new(2);
        let claim = Checkpoint { sequence: Sequence(20), digest: Digest([1; 32]) };
        let said = |keys: &Keys| keys.sign(&signer(2), from, Message::Checkpoint(claim));
        for (of, other) in [(&first, &second), (&second, &first)] {
            let words = said(of).into_inner();
            assert!(of.open(from, words.clone()).is_ok());
            assert_eq!(other.open(from, words.clone()), Err(Refused::Epoch));
            let renamed = Signed { epoch: other.scope().epoch, ..words };
            assert_eq!(other.open(from, renamed), Err(Refused::Signature));
        }
        let left = NodeId::new(1);
        let gone = second.sign(&signer(1), left, Message::Checkpoint(claim)).into_inner();
        assert_eq!(second.open(left, gone), Err(Refused::Stranger));
    }
}
