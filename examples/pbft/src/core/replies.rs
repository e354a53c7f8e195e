//! Replies of one replica under one signature.
//!
//! A signature takes as long as all else that an answer needs. So a replica signs those of one turn
//! together: the root of a tree of digests (Merkle) over them. Each client gets its own reply, the
//! signature, and the digests beside the way from its reply up to the root.
//!
//! ```text
//!            root                 signed once
//!          /      \
//!      [a b]      [c]             c goes up alone: it has no other beside it
//!      /   \       |
//!     a     b      c              digests of replies; b's way is a, [c]
//! ```

use convoke::NodeId;

use super::group::Digest;
use super::keys::Scope;
use super::message::Reply;
use super::signature::{Signature, Signer};
use super::text::{Text, Words as _, signed_root};

/// A reply, and its way to the root that its replica has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedReply {
    /// The epoch of its members.
    pub epoch: u64,
    /// The replica.
    pub by: NodeId,
    /// Its reply.
    pub reply: Reply,
    /// Digests beside the way to the root, the lowest first.
    pub way: Vec<Beside>,
    /// The replica's signature under the root.
    pub signature: Signature,
}

/// The other digest of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// True when it stands to the left.
    pub is_left: bool,
    /// The digest.
    pub digest: Digest,
}

impl SignedReply {
    /// A reply that the connection proves by which it comes.
    pub(super) fn unsigned(epoch: u64, by: NodeId, reply: Reply) -> Self {
        Self { epoch, by, reply, way: Vec::new(), signature: Signature::NONE }
    }

    /// The bytes under the signature, as this reply and its way have it.
    pub(super) fn text(&self, scope: Scope) -> Text {
        let leaf = self.reply.text(scope, self.by).digest();
        let root = self.way.iter().fold(leaf, |below, beside| match beside.is_left {
            true => pair(beside.digest, below),
            false => pair(below, beside.digest),
        });
        signed_root(scope, self.by, root)
    }
}

impl Signer {
    /// Signs answers to clients, all at once.
    pub fn sign_replies(
        &self,
        scope: Scope,
        by: NodeId,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Vec<SignedReply> {
        let unsigned = |reply| SignedReply::unsigned(scope.epoch, by, reply);
        let mut signed: Vec<SignedReply> = replies.into_iter().map(unsigned).collect();
        // The nodes of a level: their digests, and the replies below each.
        let leaf = |(place, signed): (usize, &SignedReply)| {
            (signed.reply.text(scope, by).digest(), place..place + 1)
        };
        let mut level: Vec<_> = signed.iter().enumerate().map(leaf).collect();
        while level.len() > 1 {
            let mut above = Vec::with_capacity(level.len().div_ceil(2));
            for nodes in level.chunks(2) {
                let [(left, below_left), (right, below_right)] = nodes else {
                    above.extend_from_slice(nodes);
                    continue;
                };
                let beside = |is_left, digest| Beside { is_left, digest };
                for reply in &mut signed[below_left.clone()] {
                    reply.way.push(beside(false, *right));
                }
                for reply in &mut signed[below_right.clone()] {
                    reply.way.push(beside(true, *left));
                }
                above.push((pair(*left, *right), below_left.start..below_right.end));
            }
            level = above;
        }
        if let [(root, _)] = level[..] {
            let signature = self.sign_text(&signed_root(scope, by, root));
            signed.iter_mut().for_each(|reply| reply.signature = signature);
        }
        signed
    }
}

/// Digests of a way, at most: no turn has more replies.
pub(super) const WAY_MAX: usize = 32;

/// The digest of two: its text begins with words that no reply begins with.
fn pair(left: Digest, right: Digest) -> Digest {
    let mut text = Text::named("pair of replies");
    text.put_digest(left);
    text.put_digest(right);
    text.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Checker, ClientId, Group, Keys, Outcome, Refused, View};
    use std::collections::BTreeMap;

    const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };
    const BY: NodeId = NodeId::new(1);

    fn reply(number: u64) -> Reply {
        let outcome = Outcome::Done(number.to_le_bytes().to_vec().into());
        Reply { client: ClientId(number), number, view: View(0), outcome }
    }

    fn keys(checker: Checker) -> Keys {
        let group = Group::new((1..=4).map(NodeId::new)).unwrap();
        Keys::new(SCOPE, group, BTreeMap::from([(NodeId::new(1), checker)]), BTreeMap::new())
    }

    #[test]
    fn each_reply_is_proven_by_its_own_way_alone() {
        let signer = Signer::stand_in([3; 32]);
        let keys = keys(signer.checker());
        for count in 0..20 {
            let signed = signer.sign_replies(SCOPE, NodeId::new(1), (0..count).map(reply));
            assert_eq!(signed.len() as u64, count);
            for (number, signed) in (0..).zip(&signed) {
                assert_eq!(signed.reply, reply(number));
                assert!(signed.way.len() <= 5, "{count}: {}", signed.way.len());
                keys.open_reply(BY, signed.clone()).unwrap();
                let lie = SignedReply { reply: reply(100), ..signed.clone() };
                assert_eq!(keys.open_reply(BY, lie), Err(Refused::Signature));
                for step in 0..signed.way.len() {
                    let mut other = signed.clone();
                    other.way[step].is_left = !other.way[step].is_left;
                    assert_eq!(keys.open_reply(BY, other), Err(Refused::Signature));
                    let mut shorter = signed.clone();
                    shorter.way.remove(step);
                    assert_eq!(keys.open_reply(BY, shorter), Err(Refused::Signature));
                }
            }
        }
    }
}
