//! Bytes that are signed or digested. Each begins with what it is about, so that words of one kind,
//! cluster, epoch, view, place or sender can never be taken for those of another.

use convoke::NodeId;

use super::group::{Digest, Sequence, View};
use super::keys::{Scope, Signed};
use super::members::FIRST_EPOCH;
use super::message::{
    Checkpoint, Fetch, Fetched, Message, NewView, Outcome, Phase, Prepared, Reply, Request,
    Signatures, SignedRequest, Stable, Status, ViewChange, Vote, Vouch,
};

/// Bytes to be signed or digested. Everything of variable length has its length before it.
#[derive(Debug)]
pub(super) struct Text(Vec<u8>);

impl Text {
    pub(super) fn named(kind: &str) -> Self {
        let mut text = Self(Vec::with_capacity(160));
        text.put_bytes(b"convoke pbft");
        text.put_bytes(kind.as_bytes());
        text
    }

    /// Words of a member: cluster, epoch, kind, view, place, sender, and what the kind adds.
    fn of(scope: Scope, kind: &str, by: u64, view: View, sequence: Sequence) -> Self {
        let mut text = Self::named(kind);
        for number in [scope.cluster, scope.epoch, by, view.0, sequence.0] {
            text.put(number);
        }
        text
    }

    pub(super) fn put(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn put_digest(&mut self, digest: Digest) {
        self.0.extend_from_slice(&digest.0);
    }

    pub(super) fn put_request(&mut self, request: &Request) {
        self.put(request.client.0);
        self.put(request.number);
        self.put_bytes(&request.operation);
    }

    fn put_requests(&mut self, requests: &[SignedRequest]) {
        self.put(requests.len() as u64);
        requests.iter().for_each(|signed| self.put_digest(signed.digest()));
    }

    fn put_signatures(&mut self, signatures: &Signatures) {
        self.put(signatures.len() as u64);
        for (node, signature) in signatures {
            self.put(node.get());
            self.put_bytes(&signature.0);
        }
    }

    fn put_stable(&mut self, stable: &Stable) {
        self.put(stable.checkpoint.sequence.0);
        self.put_digest(stable.checkpoint.digest);
        self.put_signatures(&stable.signatures);
    }

    fn put_prepared(&mut self, prepared: &Prepared) {
        self.put(prepared.view.0);
        self.put(prepared.sequence.0);
        self.put_digest(prepared.digest);
        self.put_signatures(&prepared.signatures);
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Words that a member can sign.
pub(super) trait Words {
    /// The bytes under its signature.
    fn text(&self, scope: Scope, by: NodeId) -> Text;
}

impl Words for Vote {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let kind = match self.phase {
            Phase::Propose => "propose",
            Phase::Prepare => "prepare",
            Phase::Commit => "commit",
        };
        let mut text = Text::of(scope, kind, by.get(), self.view, self.sequence);
        text.put_digest(self.digest);
        text
    }
}

impl Words for Checkpoint {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let mut text = Text::of(scope, "checkpoint", by.get(), View(0), self.sequence);
        text.put_digest(self.digest);
        text
    }
}

impl Words for ViewChange {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let sequence = self.stable.checkpoint.sequence;
        let mut text = Text::of(scope, "view change", by.get(), self.view, sequence);
        text.put_stable(&self.stable);
        text.put(self.prepared.len() as u64);
        self.prepared.iter().for_each(|prepared| text.put_prepared(prepared));
        text
    }
}

impl Words for NewView {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let mut text = Text::of(scope, "new view", by.get(), self.view, Sequence(0));
        text.put(self.changes.len() as u64);
        for Signed { by, body, signature, .. } in &self.changes {
            text.put_bytes(body.text(scope, *by).bytes());
            text.put_bytes(&signature.0);
        }
        text
    }
}

impl Words for Status {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let mut text = Text::of(scope, "status", by.get(), self.view, self.stable);
        text.put(self.done.0);
        text.put(u64::from(self.is_changing));
        text
    }
}

impl Words for Fetch {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let about = |kind, sequence| Text::of(scope, kind, by.get(), View(0), sequence);
        match *self {
            Self::Batch(digest) => {
                let mut text = about("fetch batch", Sequence(0));
                text.put_digest(digest);
                text
            }
            Self::Parts(sequence) => about("fetch parts", sequence),
            Self::Part { sequence, index } => {
                let mut text = about("fetch part", sequence);
                text.put(u64::from(index));
                text
            }
        }
    }
}

impl Words for Fetched {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let about = |kind, sequence| Text::of(scope, kind, by.get(), View(0), sequence);
        match self {
            Self::Batch(batch) => {
                let mut text = about("batch", Sequence(0));
                text.put_digest(batch.digest());
                text
            }
            Self::Parts(sequence, membership, parts) => {
                let mut text = about("parts", *sequence);
                text.put_digest(membership.digest());
                text.put(parts.len() as u64);
                parts.iter().for_each(|part| text.put_digest(*part));
                text
            }
            Self::Part(bytes) => {
                let mut text = about("part", Sequence(0));
                text.put_bytes(bytes);
                text
            }
            Self::Requests(requests) => {
                let mut text = about("requests", Sequence(0));
                text.put_requests(requests);
                text
            }
        }
    }
}

impl Words for Stable {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let mut text = Text::of(scope, "stable", by.get(), View(0), self.checkpoint.sequence);
        text.put_stable(self);
        text
    }
}

impl Words for Message {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        match self {
            Self::Propose(vote, _) | Self::Outline(vote, _) | Self::Vote(vote) => {
                vote.text(scope, by)
            }
            Self::Checkpoint(checkpoint) => checkpoint.text(scope, by),
            Self::ViewChange(change) => change.text(scope, by),
            Self::NewView(new_view) => new_view.text(scope, by),
            Self::Stable(stable) => stable.text(scope, by),
            Self::Status(status) => status.text(scope, by),
            Self::Fetch(fetch) => fetch.text(scope, by),
            Self::Fetched(fetched) => fetched.text(scope, by),
            Self::Vouch(vouches) => {
                let mut text = Text::of(scope, "vouch", by.get(), View(0), Sequence(0));
                text.put(vouches.len() as u64);
                for Vouch { client, number, digest } in vouches {
                    text.put(client.0);
                    text.put(*number);
                    text.put_digest(*digest);
                }
                text
            }
            Self::Pass(requests) => {
                let mut text = Text::of(scope, "pass", by.get(), View(0), Sequence(0));
                text.put_requests(requests);
                text
            }
            Self::Pull(digests) => {
                let mut text = Text::of(scope, "pull", by.get(), View(0), Sequence(0));
                text.put(digests.len() as u64);
                digests.iter().for_each(|digest| text.put_digest(*digest));
                text
            }
        }
    }
}

impl Words for Reply {
    fn text(&self, scope: Scope, by: NodeId) -> Text {
        let mut text = Text::of(scope, "reply", by.get(), self.view, Sequence(0));
        text.put(self.client.0);
        text.put(self.number);
        match &self.outcome {
            Outcome::Done(result) => text.put_bytes(result),
            Outcome::Forgotten => text.put(u64::MAX),
        }
        text
    }
}

/// The bytes under the signature of a replica's replies, whose digests come to this root.
pub(super) fn signed_root(scope: Scope, by: NodeId, root: Digest) -> Text {
    let mut text = Text::of(scope, "replies", by.get(), View(0), Sequence(0));
    text.put_digest(root);
    text
}

/// The bytes under the signature of a request's client. They name the epoch in which the cluster
/// was formed: a request may wait while the members change.
pub(super) fn request_text(scope: Scope, request: &Request) -> Text {
    let scope = Scope { epoch: FIRST_EPOCH, ..scope };
    let mut text = Text::of(scope, "request", request.client.0, View(0), Sequence(0));
    text.put_request(request);
    text
}
