//! Sizes of the words with which a view begins: those of a quorum have to fit one message.

use std::sync::Arc;

use convoke::NodeId;

use super::keys::Signed;
use super::message::{Prepared, ViewChange};
use super::signature::Signature;
use crate::wire::Wire;

/// Bytes of all words of a quorum: what a message may have by `convoke::Limits`, less what is
/// around them.
const CHANGES_BYTES_MAX: usize = (4 << 20) - 256;

/// Bytes of a signature in a proof, with whose it is.
const SIGNATURE_BYTES: usize = NodeId::LEAST + Signature::LEAST;

/// Bytes that one replica's word may take where a quorum is so large. A liar could take along each
/// place since the first, and no view would begin with that.
fn change_bytes_max(quorum: usize) -> usize {
    CHANGES_BYTES_MAX / quorum
}

/// Places that are open above a checkpoint, at most, so that the word of a replica that has
/// prepared all of them is small enough. The proof of the checkpoint may be another's, who has
/// put signatures of all members into it: of fewer than two quorums.
pub(super) fn window_max(quorum: usize) -> u64 {
    let place = Prepared::LEAST + quorum * SIGNATURE_BYTES;
    let places = change_bytes_max(quorum).saturating_sub(change_bytes(2 * quorum, [])) / place;
    places as u64
}

/// True where a view can begin with this word of one replica, and those of others of a quorum.
pub(super) fn is_small(change: &ViewChange, quorum: usize) -> bool {
    let prepared = change.prepared.iter().map(|prepared| prepared.signatures.len());
    change_bytes(change.stable.signatures.len(), prepared) <= change_bytes_max(quorum)
}

/// Bytes of a signed word, whose proofs have so many signatures.
fn change_bytes(stable: usize, prepared: impl IntoIterator<Item = usize>) -> usize {
    let place = |signatures| Prepared::LEAST + signatures * SIGNATURE_BYTES;
    let places: usize = prepared.into_iter().map(place).sum();
    Signed::<Arc<ViewChange>>::LEAST + stable * SIGNATURE_BYTES + places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        Checkpoint, Digest, Group, Message, NewView, Sequence, Signatures, Stable, View,
    };
    use crate::proto::{Words, words};
    use crate::wire;

    fn signatures(quorum: usize) -> Signatures {
        (1..=quorum as u64).map(|node| (NodeId::new(node), Signature::NONE)).collect()
    }

    fn change(quorum: usize, places: u64) -> ViewChange {
        let (view, digest, signatures) = (View(7), Digest([1; 32]), signatures(quorum));
        let prepared = |place| Prepared {
            view,
            sequence: Sequence(place),
            digest,
            signatures: signatures.clone(),
        };
        let checkpoint = Checkpoint { sequence: Sequence(0), digest };
        let stable = Stable { checkpoint, signatures: self::signatures(2 * quorum) };
        ViewChange { view, stable, prepared: (1..=places).map(prepared).collect() }
    }

    fn signed<T>(body: T) -> Signed<T> {
        Signed { epoch: 1, by: NodeId::new(1), body, signature: Signature::NONE }
    }

    #[test]
    fn a_view_begins_by_one_message_however_many_members_prepared_all_open_places() {
        use prost::Message as _;

        for members in [4, 16, 64] {
            let group = Group::new((1..=members).map(NodeId::new)).unwrap();
            let (quorum, window) = (group.quorum(), group.window_max());
            assert!(!is_small(&change(quorum, window + 1), quorum));
            let change = change(quorum, window);
            assert!(is_small(&change, quorum));
            let changes = vec![signed(Arc::new(change)); quorum];
            let new_view = Message::NewView(Arc::new(NewView { view: View(8), changes }));
            let said = words::Words::Said(wire::encode(&signed(new_view)));
            let bytes = Words { words: Some(said) }.encoded_len();
            let limit = convoke::Limits::default().message_bytes_max;
            assert!(bytes <= limit && bytes > limit * 9 / 10, "{members}: {bytes}");
        }
    }
}
