//! Bodies that travel beside their requests: how a large message for many nodes takes another way
//! than one copy for each.
//!
//! ```text
//!  initiator                                    member
//!  REQUEST /0 with a reference ───────────────▶ task /0: waits for the body
//!  offer(body) ──▶ carrier ─ ─ other nodes ─ ─▶ carrier ──▶ its handler starts
//! ```
//! The request itself goes straight to its node, so who asks, what and until when is known as ever;
//! only the message is elsewhere. Where it does not come, or there is no carrier any more, the node
//! asks the sender of the request for it. A carrier of overlays is in the crate `convoke-overlay`.
//!
//! On the wire such a request has the payload `00 02 | reference`. No protobuf message begins with
//! the byte 0, the tag of a field 0, so that it cannot be taken for one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_proto::id::NodeId;

use crate::error::{Code, Status};
use crate::method::{Method, Request};
use crate::peer::Peer;
use crate::transport::BoxFuture;

/// The first bytes of a payload that is elsewhere.
const MARK: [u8; 2] = [0, 2];

/// Gives the message of a request by its reference, to whom the request was sent. Every endpoint
/// serves it, and its rule for callers is not asked: a node gets nothing by it but what it was
/// meant to get.
pub(crate) const GET: Method<Bytes, Bytes> = Method::new("convoke.Bodies/Get").read_only();

/// Smallest message that is offered to any carrier: below, the frame around it costs more than a
/// copy.
pub(crate) const BODY_BYTES_MIN: usize = 1_024;

/// Largest reference, in bytes.
pub const REFERENCE_BYTES_MAX: usize = 64;

/// Brings large bodies to several nodes at once. An endpoint has at most one; see
/// [`carry_bodies`](crate::seam::EndpointSeam::carry_bodies).
pub trait BodyCarrier: Send + Sync + fmt::Debug {
    /// Bodies of fewer bytes are not offered.
    fn body_bytes_min(&self) -> usize;

    /// Takes a body that is for each of these nodes, two or more, and begins to bring it to those
    /// that it can; `None` when it takes it for nobody. Called on the task of the caller, without a
    /// lock of the endpoint.
    fn offer(&self, to: &[NodeId], body: &Bytes) -> Option<Carried>;

    /// The body that `from` offered, by its reference as it came from there. Resolves when it is
    /// here; the endpoint drops the future at the deadline of the task.
    fn body(&self, from: NodeId, reference: Bytes) -> BoxFuture<Result<Bytes, CarryError>>;

    /// The body that was offered here under this reference, for `to`, whose carrier does not bring
    /// it; `None` when it is not kept any more, or was not for that node.
    fn held(&self, to: NodeId, reference: &Bytes) -> Option<Bytes>;
}

/// Body that a carrier has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Name by which its receivers find it, at most [`REFERENCE_BYTES_MAX`] bytes.
    pub reference: Bytes,
    /// Nodes that it is brought to; the others get it in their requests.
    pub nodes: Vec<NodeId>,
}

/// Reason why a body did not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CarryError {
    /// The reference is invalid, or what came under it is not what it says: the sender's doing.
    #[error("the body that {from} sent beside its request is not what the request says: {message}")]
    Invalid {
        /// Sender of the request.
        from: NodeId,
        /// Defect of the reference or the body.
        message: String,
    },
    /// It did not come, and nobody has it any more. Its sender is asked for it; if that does not
    /// have it either, the task did not run, and asked again, it may come.
    #[error("the body that {from} sent beside its request did not come: {message}")]
    Missing {
        /// Sender of the request.
        from: NodeId,
        /// Attempts that were made.
        message: String,
    },
}

impl From<CarryError> for Status {
    fn from(error: CarryError) -> Self {
        let code = match &error {
            CarryError::Invalid { .. } => Code::InvalidArgument,
            CarryError::Missing { .. } => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// An endpoint has a carrier already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint has a carrier of bodies already: shut down its overlay first")]
pub struct CarrierTaken;

/// Offers each large message that several branches of the node `me` have in common to its carrier,
/// which takes them from `bytes_min` on; `None` without one. In the requests of the branches that
/// it takes, a reference replaces the message.
pub(crate) fn carry<Resp>(
    me: NodeId,
    bytes_min: impl FnOnce() -> Option<usize>,
    mut offer: impl FnMut(&[NodeId], &Bytes) -> Option<Carried>,
    branches: &mut [(Peer, Request<Resp>)],
) {
    let is_large = |(peer, request): &(Peer, Request<Resp>), bytes_min| {
        request.root.payload.len() >= BODY_BYTES_MIN.max(bytes_min) && peer.node() != me
    };
    // What is small, as most is, does not even look whether there is one.
    if branches.iter().filter(|one| is_large(one, 0)).count() < 2 {
        return;
    }
    let Some(bytes_min) = bytes_min() else { return };
    let large = branches.iter().enumerate().filter(|(_, one)| is_large(one, bytes_min));
    for same in equal(large.map(|(at, (_, request))| (at, &*request.root.payload))) {
        let body = branches[same[0]].1.root.payload.clone().into_bytes();
        let to: Vec<NodeId> = same.iter().map(|at| branches[*at].0.node()).collect();
        let Some(Carried { reference, nodes }) = offer(&to, &body) else { continue };
        let (payload, nodes) = (payload_of(&reference), BTreeSet::from_iter(nodes));
        for at in same {
            let (peer, request) = &mut branches[at];
            if nodes.contains(&peer.node()) {
                request.root.payload = payload.clone().into();
            }
        }
    }
}

/// Places of messages that are equal to others, each group in order, and by the first of each. Most
/// are in the same memory; only what is not is compared.
fn equal<'a>(messages: impl Iterator<Item = (usize, &'a [u8])>) -> Vec<Vec<usize>> {
    let mut in_memory = BTreeMap::<_, (&[u8], Vec<usize>)>::new();
    for (at, message) in messages {
        let (_, same) = in_memory
            .entry((message.as_ptr(), message.len()))
            .or_insert_with(|| (message, Vec::new()));
        same.push(at);
    }
    let mut groups = BTreeMap::<(usize, &[u8]), Vec<usize>>::new();
    for (message, same) in in_memory.into_values() {
        groups.entry((message.len(), message)).or_default().extend(same);
    }
    let mut groups: Vec<_> = groups.into_values().filter(|same| same.len() > 1).collect();
    groups.iter_mut().for_each(|same| same.sort_unstable());
    groups.sort_unstable();
    groups
}

/// The payload that says where the body is.
fn payload_of(reference: &[u8]) -> Bytes {
    let mut payload = BytesMut::with_capacity(MARK.len() + reference.len());
    payload.put_slice(&MARK);
    payload.put_slice(reference);
    payload.freeze()
}

/// The reference in a payload, if its body is elsewhere.
pub(crate) fn reference_in(payload: &Bytes) -> Option<Bytes> {
    payload.starts_with(&MARK).then(|| payload.slice(MARK.len()..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::RawMessage;

    /// A branch with this message at a node.
    fn branch(node: u64, message: &Bytes) -> (Peer, Request<RawMessage>) {
        (Peer::new(NodeId::new(node)), Request::raw("test.Test/Keep", message.clone()))
    }

    fn of(byte: u8, len: usize) -> Bytes {
        Bytes::from(vec![byte; len])
    }

    #[test]
    fn each_message_that_several_have_is_offered_once_wherever_its_copies_lie() {
        let (one, two) = (of(1, BODY_BYTES_MIN), of(2, BODY_BYTES_MIN));
        let (copy, longer) = (of(1, BODY_BYTES_MIN), of(2, BODY_BYTES_MIN + 1));
        let small = of(3, BODY_BYTES_MIN - 1);
        let messages = [&two, &one, &small, &one, &longer, &small, &two, &copy, &one];
        let mut branches: Vec<_> =
            (2..).zip(messages).map(|(node, message)| branch(node, message)).collect();
        branches.push(branch(1, &one)); // to itself
        let mut offered = Vec::new();
        let offer = |to: &[NodeId], body: &Bytes| {
            offered.push((to.iter().map(|node| node.get()).collect::<Vec<_>>(), body.clone()));
            // It brings it to all but node 3.
            let nodes = to.iter().copied().filter(|node| node.get() != 3).collect();
            Some(Carried { reference: Bytes::from_static(b"r"), nodes })
        };
        carry(NodeId::new(1), || Some(0), offer, &mut branches);
        assert_eq!(offered, [(vec![2, 8], two), (vec![3, 5, 9, 10], one)]);
        let is_beside = |(peer, request): &(Peer, Request<_>)| {
            (*request.root.payload == *b"\x00\x02r").then_some(peer.node().get())
        };
        let beside: Vec<u64> = branches.iter().filter_map(is_beside).collect();
        assert_eq!(beside, [2, 5, 8, 9, 10]);
    }

    #[test]
    fn a_carrier_is_looked_for_by_large_messages_alone_and_asked_from_its_bound_on() {
        let two_of = |message| [branch(2, message), branch(3, message)];
        let offer = |_: &[NodeId], _: &Bytes| panic!("there is nothing to offer");
        let small = of(1, BODY_BYTES_MIN - 1);
        carry(NodeId::new(1), || panic!("they are small"), offer, &mut two_of(&small));
        let large = of(1, BODY_BYTES_MIN);
        carry(NodeId::new(1), || None, offer, &mut two_of(&large));
        carry(NodeId::new(1), || Some(BODY_BYTES_MIN + 1), offer, &mut two_of(&large));
    }

    /// With a comparison of each with each, this would not end within minutes.
    #[test]
    fn as_many_messages_as_a_call_may_have_are_told_apart() {
        const BRANCHES: usize = 1 << 16;
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        let noise: Bytes = noise.take(BRANCHES + BODY_BYTES_MIN).collect::<Vec<_>>().into();
        let message = |at: usize| noise.slice(at..at + BODY_BYTES_MIN);
        let mut branches: Vec<_> = (0..BRANCHES).map(|at| branch(2, &message(at))).collect();
        let last = branch(3, &of(0, BODY_BYTES_MIN));
        branches.extend([last.clone(), last]);
        let mut offers = 0;
        let offer = |_: &[NodeId], _: &Bytes| {
            offers += 1;
            None
        };
        carry(NodeId::new(1), || Some(0), offer, &mut branches);
        assert_eq!(offers, 1, "two of them are equal");
    }
}
