//! Proposals by the digests of their requests, where clients ask all replicas.
//!
//! ```text
//!   outline ──▶ all requests are here ──▶ the batch, as if it had come whole
//!      │ some are lacking                        ▲
//!      └──▶ pulled from the primary ─────────────┤   or its client brings one meanwhile
//!           whole batch, from anybody, later ────┘   as after any lost proposal
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::NodeId;

use super::Replica;
use crate::core::group::{Digest, Sequence};
use crate::core::message::{Batch, Fetched, Message, Outline, SignedRequest, Vote, bytes_of};
use crate::core::signature::Signature;
use crate::core::state::Machine;
use crate::mutant::{self, Mutant};

/// Bytes of the operations of one answer, if it is more than one.
const PULLED_BYTES_MAX: usize = 256 << 10;

impl<M: Machine> Replica<M> {
    pub(super) fn on_outline(
        &mut self,
        now: Duration,
        by: NodeId,
        vote: Vote,
        signature: Signature,
        outline: Outline,
    ) {
        if outline.digest() != vote.digest {
            return;
        }
        self.on_propose(now, by, vote, signature, None);
        let slot = self.slots.get(&vote.sequence);
        let waits =
            slot.is_some_and(|slot| slot.proposal == Some(vote.digest) && !slot.is_accepted);
        let is_here = self.batches.contains_key(&vote.digest);
        if waits && !is_here && vote.view == self.view && !self.is_changing {
            self.outlines.insert(vote.sequence, outline);
            self.fill(now, vote.sequence);
            self.pull(vote.sequence);
        }
    }

    /// Puts the batch of an outline together, once all its requests are here.
    fn fill(&mut self, now: Duration, sequence: Sequence) {
        let Some(outline) = self.outlines.get(&sequence) else { return };
        let requests = outline.requests().iter().map(|digest| self.known(digest));
        // Only its requests say how many bytes it has.
        if !Batch::may_have(requests.len(), bytes_of(requests.clone().flatten())) {
            return self.forget_outline(sequence);
        }
        let requests = requests.map(Option::<&SignedRequest>::cloned);
        if let Some(requests) = requests.collect::<Option<Vec<SignedRequest>>>() {
            let batch = Batch::filled(outline.clone(), requests);
            self.forget_outline(sequence);
            self.keep_batch(batch);
            self.accept(now, sequence);
        }
    }

    /// Looks again at the outlines that name this request.
    pub(super) fn fill_all(&mut self, now: Duration, digest: &Digest) {
        let named = self.outlines.iter().filter(|(_, of)| of.requests().contains(digest));
        for sequence in named.map(|(sequence, _)| *sequence).collect::<Vec<_>>() {
            self.fill(now, sequence);
        }
    }

    /// The request with this digest, if it waits here, or was pulled.
    fn known(&self, digest: &Digest) -> Option<&SignedRequest> {
        self.requests.find(digest).or_else(|| self.pulled.get(digest))
    }

    /// Asks the primary for the requests that an outline names and nobody has brought.
    fn pull(&mut self, sequence: Sequence) {
        let Some(outline) = self.outlines.get(&sequence) else { return };
        let lacking = outline.requests().iter().filter(|digest| self.known(digest).is_none());
        let lacking: Vec<Digest> = lacking.copied().collect();
        if !lacking.is_empty() && !mutant::is(Mutant::LackingNotPulled) {
            self.tell(self.primary(), Message::Pull(lacking));
        }
    }

    /// Sends a member requests that it lacks, as far as they are here and an answer takes them.
    pub(super) fn on_pull(&mut self, now: Duration, by: NodeId, digests: &[Digest]) {
        if !self.may_ask(now, by) {
            return;
        }
        let (mut found, mut room) = (Vec::new(), PULLED_BYTES_MAX);
        for signed in digests.iter().filter_map(|digest| self.requests.find(digest)) {
            let size = signed.request.operation.len();
            if size > room && !found.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            found.push(signed.clone());
        }
        if !found.is_empty() {
            self.answer(by, Fetched::Requests(found));
        }
    }

    /// Takes requests that outlines name. It is by their digests that they are believed to be
    /// those, not by who sends them.
    pub(super) fn on_pulled(&mut self, now: Duration, requests: Vec<SignedRequest>) {
        let mut taken = BTreeSet::new();
        for signed in requests {
            let digest = match mutant::is(Mutant::PulledUnchecked) {
                true => self.lacking().next(),
                false => Some(signed.digest()).filter(|digest| self.is_lacking(digest)),
            };
            if let Some(digest) = digest {
                self.pulled.insert(digest, signed);
                self.fill_all(now, &digest);
                taken.insert(digest);
            }
        }
        // What did not fit into the answer is asked for again, of the first place that it was for:
        // one word has one question follow, whatever it has and however many places are open.
        let is_taken = |outline: &Outline| outline.requests().iter().any(|of| taken.contains(of));
        let first = self.outlines.iter().find(|(_, outline)| is_taken(outline));
        if let Some(sequence) = first.map(|(sequence, _)| *sequence) {
            self.pull(sequence);
        }
    }

    /// True for a request that an outline names and that is not here.
    fn is_lacking(&self, digest: &Digest) -> bool {
        let mut outlines = self.outlines.values();
        self.known(digest).is_none() && outlines.any(|of| of.requests().contains(digest))
    }

    /// Digests that outlines name, of requests that are not here.
    fn lacking(&self) -> impl Iterator<Item = Digest> {
        let named = self.outlines.values().flat_map(|outline| outline.requests());
        named.filter(|digest| self.known(digest).is_none()).copied()
    }

    /// Forgets the outline of a place, and what was pulled for it alone.
    pub(super) fn forget_outline(&mut self, sequence: Sequence) {
        if self.outlines.remove(&sequence).is_some() {
            let outlines = &self.outlines;
            let is_named =
                |digest: &Digest| outlines.values().any(|of| of.requests().contains(digest));
            self.pulled.retain(|digest, _| is_named(digest));
        }
    }

    /// Forgets all outlines: a view begins, or is left.
    pub(super) fn drop_outlines(&mut self) {
        self.outlines.clear();
        self.pulled.clear();
    }
}
