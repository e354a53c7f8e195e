//! Messages of replicas and clients, and records of a replica's ledger.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use convoke::NodeId;

use super::group::{ClientId, Digest, Sequence, View};
use super::handover::Handover;
use super::keys::Signed;
use super::members::Membership;
use super::replica::Forgotten;
use super::signature::Signature;
use super::text::Text;
use crate::mutant::{self, Mutant};

/// An operation that a client wants executed once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The client that wants it.
    pub client: ClientId,
    /// Its number, from 0 on, increasing.
    pub number: u64,
    /// The command, as the replicated machine reads it.
    pub operation: Bytes,
}

/// A request with the signature of its client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SignedRequest {
    /// The request.
    pub request: Request,
    /// The client's; [none](Signature::NONE) where connections prove requests.
    pub signature: Signature,
}

impl SignedRequest {
    /// The digest of all of it, the signature included.
    pub fn digest(&self) -> Digest {
        let mut text = Text::named("signed request");
        text.put_request(&self.request);
        text.put_bytes(&self.signature.0);
        text.digest()
    }
}

/// Word that a client has made a request, which the digest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vouch {
    /// The client.
    pub client: ClientId,
    /// The request's number.
    pub number: u64,
    /// The digest of the whole request.
    pub digest: Digest,
}

impl Vouch {
    /// The word about this request.
    pub fn of(request: &Request) -> Self {
        let mut text = Text::named("request of a connection");
        text.put_request(request);
        Self { client: request.client, number: request.number, digest: text.digest() }
    }
}

/// Digests of the requests of a batch, in their order, for those that have heard them already.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outline {
    requests: Arc<[Digest]>,
    digest: Digest,
}

impl Outline {
    /// The outline of a batch of requests with these digests.
    pub fn new(requests: impl IntoIterator<Item = Digest>) -> Self {
        let requests: Arc<[Digest]> = requests.into_iter().collect();
        let mut text = Text::named("batch");
        text.put(requests.len() as u64);
        requests.iter().for_each(|digest| text.put_digest(*digest));
        Self { digest: text.digest(), requests }
    }

    /// The digests of its requests.
    pub fn requests(&self) -> &[Digest] {
        &self.requests
    }

    /// True for one of a batch that may have so many requests.
    pub(super) fn is_small(&self) -> bool {
        Batch::may_have(self.requests.len(), 0)
    }

    /// The digest of the batch.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// Requests that are ordered as one. The empty one is the null request, which does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    requests: Arc<[SignedRequest]>,
    outline: Outline,
}

impl Batch {
    /// Requests of a batch, at most. Settings of a primary may say fewer: nodes whose settings
    /// differ take each other's batches.
    pub const REQUESTS_MAX: usize = 256;

    /// Bytes of the operations of a batch, if it has more than one request.
    pub const BYTES_MAX: usize = 1 << 20;

    /// A batch of these.
    pub fn new(requests: impl IntoIterator<Item = SignedRequest>) -> Self {
        let requests: Arc<[SignedRequest]> = requests.into_iter().collect();
        let outline = Outline::new(requests.iter().map(SignedRequest::digest));
        Self { requests, outline }
    }

    /// The batch of an outline, whose requests these are.
    pub(super) fn filled(outline: Outline, requests: Vec<SignedRequest>) -> Self {
        Self { requests: requests.into(), outline }
    }

    /// The digests of its requests.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The null request.
    pub fn null() -> Self {
        Self::new([])
    }

    /// Its requests.
    pub fn requests(&self) -> &[SignedRequest] {
        &self.requests
    }

    /// The digest of all of it, signatures included.
    pub fn digest(&self) -> Digest {
        self.outline.digest
    }

    /// True for a batch of which a replica holds as many as there are places.
    pub(super) fn is_small(&self) -> bool {
        Self::may_have(self.requests.len(), self.bytes())
    }

    /// True for so many requests with so many bytes as one may have.
    pub(super) fn may_have(requests: usize, bytes: usize) -> bool {
        let is_small = requests == 1 || bytes <= Self::BYTES_MAX;
        requests <= Self::REQUESTS_MAX && is_small || mutant::is(Mutant::SizesUnchecked)
    }

    /// Bytes of the operations.
    pub(super) fn bytes(&self) -> usize {
        bytes_of(self.requests.iter())
    }
}

/// Bytes of the operations of these.
pub(super) fn bytes_of<'a>(requests: impl IntoIterator<Item = &'a SignedRequest>) -> usize {
    requests.into_iter().map(|signed| signed.request.operation.len()).sum()
}

impl Hash for Batch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

/// The phase that a vote is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Pre-prepare: the primary's proposal, which is its vote of the next phase, too.
    Propose,
    /// Prepare, of a backup.
    Prepare,
    /// Commit, of any member.
    Commit,
}

/// A vote for a batch in a place of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vote {
    /// Its phase.
    pub phase: Phase,
    /// The view.
    pub view: View,
    /// The place.
    pub sequence: Sequence,
    /// The batch's.
    pub digest: Digest,
}

/// Claim about the state behind all up to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The place.
    pub sequence: Sequence,
    /// Digest of the state: of the machine, the sessions, replies included, and the members.
    pub digest: Digest,
}

/// Signatures of several members under the same words.
pub type Signatures = BTreeMap<NodeId, Signature>;

/// Proof that a batch was prepared: the primary's proposal and votes of backups, a quorum in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// The view.
    pub view: View,
    /// The place.
    pub sequence: Sequence,
    /// The batch's.
    pub digest: Digest,
    /// The primary's is under its proposal, those of others are under their prepare votes.
    pub signatures: Signatures,
}

/// Proof that a checkpoint is stable: claims of a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stable {
    /// Their claims.
    pub checkpoint: Checkpoint,
    /// Theirs. Empty only for the state before the first place.
    pub signatures: Signatures,
}

/// Word of a replica that it has left all views before this one, and what it takes along.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewChange {
    /// The view it wants.
    pub view: View,
    /// The latest stable checkpoint it knows.
    pub stable: Stable,
    /// Per place above that, the proof of the latest view in which it was prepared here.
    pub prepared: Vec<Prepared>,
}

/// Beginning of a view: word of a quorum that wants it. What the view has to propose again follows
/// from that alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewView {
    /// The view.
    pub view: View,
    /// Of a quorum.
    pub changes: Vec<Signed<Arc<ViewChange>>>,
}

/// Progress of a replica, from which others see what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// Its view.
    pub view: View,
    /// True when it waits for that view to begin.
    pub is_changing: bool,
    /// Its stable checkpoint.
    pub stable: Sequence,
    /// All up to here is committed in its view, or stable.
    pub done: Sequence,
}

/// Something that a replica lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fetch {
    /// A batch.
    Batch(Digest),
    /// Digests of the parts of the state at a stable checkpoint.
    Parts(Sequence),
    /// One part of a state.
    Part {
        /// The checkpoint.
        sequence: Sequence,
        /// The index of the part.
        index: u32,
    },
}

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fetched {
    /// A batch.
    Batch(Batch),
    /// Members of the state at a checkpoint, and digests of its other parts.
    Parts(Sequence, Membership, Arc<[Digest]>),
    /// Bytes of a part.
    Part(Bytes),
    /// Requests of an outline.
    Requests(Vec<SignedRequest>),
}

impl Fetched {
    /// Bytes of its operations, of a part, or of the digests of parts.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.bytes(),
            Self::Parts(_, _, parts) => size_of_val(&parts[..]),
            Self::Part(bytes) => bytes.len(),
            Self::Requests(requests) => bytes_of(requests.iter()),
        }
    }
}

/// Words of a replica to another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// A proposal, with its batch or without. The signature is under the vote alone, which names
    /// the batch by its digest.
    Propose(Vote, Option<Batch>),
    /// A vote of another phase.
    Vote(Vote),
    /// A checkpoint.
    Checkpoint(Checkpoint),
    /// A view is wanted.
    ViewChange(Arc<ViewChange>),
    /// A view begins.
    NewView(Arc<NewView>),
    /// Proof of a stable checkpoint.
    Stable(Stable),
    /// Its progress.
    Status(Status),
    /// A question.
    Fetch(Fetch),
    /// An answer.
    Fetched(Fetched),
    /// It vouches for requests, to the primary. Where connections prove requests.
    Vouch(Vec<Vouch>),
    /// It vouches for these requests, and passes them on. Where connections prove requests.
    Pass(Vec<SignedRequest>),
    /// A proposal with digests of its requests. The signature is under the vote alone.
    Outline(Vote, Outline),
    /// It lacks the requests with these digests, which the receiver has proposed.
    Pull(Vec<Digest>),
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It was executed, once, with this result.
    Done(Bytes),
    /// It is older than what is remembered: it may have been executed.
    Forgotten,
}

/// Answer of a replica to a client, who believes what f + 1 replicas say alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The client.
    pub client: ClientId,
    /// The request's.
    pub number: u64,
    /// The replica's view, from which the client knows the primary.
    pub view: View,
    /// The outcome.
    pub outcome: Outcome,
}

/// A record of a replica's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The clients whose sessions the first state had; before all else.
    Clients(Vec<ClientId>),
    /// State at a stable checkpoint: its members, and all else.
    Snapshot(Sequence, Membership, Bytes),
    /// A checkpoint is stable.
    Stable(Stable),
    /// All views before this one are left.
    Left(View),
    /// A view has begun.
    Entered(Signed<Arc<NewView>>),
    /// A batch that a vote is about.
    Batch(Batch),
    /// The proposal that counts here; the primary's own has no signature yet.
    Accepted(Vote, Option<Signature>),
    /// A batch is prepared.
    Prepared(Prepared),
    /// A batch is committed.
    Committed(Vote),
    /// An epoch has ended, and the next one begun.
    HandedOver(Handover),
    /// This replica has signed something that is not in its ledger: it takes no part any more.
    Lost(Forgotten),
}
