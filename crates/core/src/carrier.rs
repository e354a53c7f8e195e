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

/// Offers each large message that several branches of the node `me` have in common to its carrier.
/// In the requests of the branches that it takes, a reference replaces the message.
pub(crate) fn carry<Resp>(
    me: NodeId,
    mut offer: impl FnMut(&[NodeId], &Bytes) -> Option<Carried>,
    branches: &mut [(Peer, Request<Resp>)],
) {
    // What is small, as most is, takes no memory for this.
    let is_large = |(peer, request): &(Peer, Request<Resp>)| {
        request.root.payload.len() >= BODY_BYTES_MIN && peer.node() != me
    };
    if branches.iter().filter(|one| is_large(one)).count() < 2 {
        return;
    }
    let mut left: Vec<usize> = (0..branches.len()).filter(|at| is_large(&branches[*at])).collect();
    while let [first, _, ..] = left[..] {
        let body = branches[first].1.root.payload.clone().into_bytes();
        let of_body = |at: &usize| is_same(&branches[*at].1.root.payload, &body);
        let (same, others): (Vec<usize>, Vec<usize>) = left.iter().partition(|at| of_body(at));
        left = others;
        let to: Vec<NodeId> = same.iter().map(|at| branches[*at].0.node()).collect();
        let Some(Carried { reference, nodes }) = offer(&to, &body) else { continue };
        let payload = payload_of(&reference);
        for at in same {
            let (peer, request) = &mut branches[at];
            if nodes.contains(&peer.node()) {
                request.root.payload = payload.clone().into();
            }
        }
    }
}

/// True for the same bytes, most often because they are in the same place.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.as_ptr() == other.as_ptr() || one == other)
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
