//! Fetching: batches by their digest, and states in parts by theirs, from anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;

use super::Replica;
use crate::core::group::{Digest, Sequence};
use crate::core::members::Membership;
use crate::core::message::{Batch, Checkpoint, Fetch, Fetched, Message};
use crate::core::state::{Machine, Snapshot, State, part_digest, state_digest};
use crate::mutant::{self, Mutant};

/// Questions of one kind that are asked at a time.
pub(super) const ASKED_MAX: usize = 16;

/// Questions of one member that are answered in half a pause between two reports: as many as who
/// fetches a state asks one member for, and as many again. Who asks in vain asks somebody else with
/// its next report.
const ANSWERED_MAX: usize = 2 * ASKED_MAX;

/// Bytes of these answers, but for the last one: of so many parts of a state as its digests have by
/// default. A batch may have four times as many.
const ANSWERED_BYTES_MAX: usize = ANSWERED_MAX * (256 << 10);

/// Questions of one member in half a pause, and the bytes of their answers.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Asked {
    since: Duration,
    count: usize,
    bytes: usize,
}

/// A state that is being fetched.
#[derive(Clone, Debug, Hash)]
pub(super) struct Transfer {
    target: Checkpoint,
    /// Members of that state, and digests of its other parts.
    parts: Option<(Membership, Arc<[Digest]>)>,
    /// Parts that are here. They stay when the target moves on.
    here: BTreeMap<Digest, Bytes>,
    /// Parts that were asked for the last time and have not come.
    awaited: BTreeSet<Digest>,
}

impl Transfer {
    fn missing(&self) -> impl Iterator<Item = (u32, Digest)> {
        let parts = self.parts.iter().flat_map(|(_, parts)| parts.iter());
        let missing = (0..).zip(parts).filter(|(_, digest)| !self.here.contains_key(*digest));
        missing.map(|(index, digest)| (index, *digest))
    }

    /// Members and all bytes, when all are here.
    fn whole(&self) -> Option<(Membership, Bytes)> {
        let (membership, parts) = self.parts.as_ref()?;
        let mut bytes = Vec::new();
        for digest in parts.iter() {
            bytes.extend_from_slice(self.here.get(digest)?);
        }
        Some((membership.clone(), bytes.into()))
    }
}

impl<M: Machine> Replica<M> {
    /// Notes that the state at the stable checkpoint is wanted, if it is not here. It may still
    /// come by execution, so nobody is asked before the next report.
    pub(super) fn need_state(&mut self) {
        let target = self.stable.checkpoint;
        let here = self.transfer.take().map(|transfer| transfer.here).unwrap_or_default();
        if self.lacks(target) {
            let awaited = BTreeSet::new();
            self.transfer = Some(Transfer { target, parts: None, here, awaited });
        }
    }

    /// True while the state behind a checkpoint is fetched from others: until it is here, be it by
    /// execution.
    pub fn is_fetching(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| self.lacks(transfer.target))
    }

    /// True when this node has not executed so far, or came to another state than the quorum that
    /// has claimed it: by a fault of its own, which it would carry on for ever.
    fn lacks(&self, Checkpoint { sequence, digest }: Checkpoint) -> bool {
        let own = self.snapshots.get(&sequence);
        self.executed < sequence || own.is_some_and(|own| own.digest() != digest)
    }

    /// Asks for what is lacking, each time somebody else: of a state first for the digests of its
    /// parts. Who is asked may lack it, too, or lie, so f + 1 are asked for those.
    pub(super) fn fetch(&mut self, now: Duration) {
        let without = |digest: &Digest| !self.batches.contains_key(digest);
        let proposals = self.slots.values().filter(|slot| !slot.is_accepted);
        let wanted = proposals.filter_map(|slot| slot.proposal).filter(without).take(ASKED_MAX);
        let mut wanted: Vec<Fetch> = wanted.map(Fetch::Batch).collect();
        if let Some(Transfer { target, parts: None, .. }) = &self.transfer {
            let askings = std::iter::repeat_n(target.sequence, self.group.witnesses());
            wanted.extend(askings.map(Fetch::Parts));
        }
        for fetch in wanted {
            let to = self.next_other();
            to.into_iter().for_each(|to| self.tell(to, Message::Fetch(fetch)));
        }
        self.fetch_to_begin();
        self.fetch_parts(None);
        self.install(now);
    }

    /// Asks for parts that are lacking: a member that has some of them, or each time somebody else.
    fn fetch_parts(&mut self, of: Option<NodeId>) {
        let Some(transfer) = &mut self.transfer else { return };
        let sequence = transfer.target.sequence;
        let missing: Vec<(u32, Digest)> = transfer.missing().take(ASKED_MAX).collect();
        transfer.awaited = missing.iter().map(|(_, digest)| *digest).collect();
        for (index, _) in missing {
            let to = of.or_else(|| self.next_other());
            let fetch = Fetch::Part { sequence, index };
            to.into_iter().for_each(|to| self.tell(to, Message::Fetch(fetch)));
        }
    }

    fn next_other(&mut self) -> Option<NodeId> {
        self.turn += 1;
        let others = self.others();
        let count = others.len().max(1) as u64;
        others.get(usize::try_from(self.turn % count).unwrap_or(0)).copied()
    }

    pub(super) fn on_fetch(&mut self, now: Duration, by: NodeId, fetch: Fetch) {
        if !self.may_ask(now, by) {
            return;
        }
        let found = match fetch {
            Fetch::Batch(digest) => self.batches.get(&digest).cloned().map(Fetched::Batch),
            Fetch::Parts(sequence) => {
                let snapshot = self.snapshots.get(&sequence);
                snapshot.map(|Snapshot { membership, parts, .. }| {
                    Fetched::Parts(sequence, membership.clone(), parts.clone())
                })
            }
            Fetch::Part { sequence, index } => {
                let snapshot = self.snapshots.get(&sequence);
                snapshot.and_then(|snapshot| snapshot.part(index)).map(Fetched::Part)
            }
        };
        match (found, fetch) {
            (Some(found), _) => self.answer(by, found),
            (None, Fetch::Parts(sequence) | Fetch::Part { sequence, .. })
                if sequence < self.low() =>
            {
                self.tell(by, Message::Stable(self.stable.clone()));
            }
            (None, _) => {}
        }
    }

    /// Counts a question of a member. True for one that is answered.
    pub(super) fn may_ask(&mut self, now: Duration, by: NodeId) -> bool {
        let none = Asked { since: now, count: 0, bytes: 0 };
        let asked = self.asked.entry(by).or_insert(none);
        if now >= asked.since + self.settings.repeat / 2 {
            *asked = none;
        }
        asked.count += 1;
        let is_within = asked.count <= ANSWERED_MAX && asked.bytes < ANSWERED_BYTES_MAX;
        is_within || mutant::is(Mutant::AllFetchesAnswered)
    }

    /// Answers a question that counts.
    pub(super) fn answer(&mut self, by: NodeId, found: Fetched) {
        if let Some(asked) = self.asked.get_mut(&by) {
            asked.bytes += found.bytes();
        }
        self.tell(by, Message::Fetched(found));
    }

    pub(super) fn on_fetched(&mut self, now: Duration, by: NodeId, fetched: Fetched) {
        match fetched {
            Fetched::Batch(batch) => self.on_batch(now, batch),
            Fetched::Parts(sequence, membership, parts) => {
                self.on_parts(now, by, sequence, membership, parts);
            }
            Fetched::Part(bytes) => self.on_part(now, by, bytes),
            Fetched::Requests(requests) => self.on_pulled(now, requests),
        }
    }

    /// Takes a batch that a proposal waits for, or the beginning of a view.
    fn on_batch(&mut self, now: Duration, batch: Batch) {
        let digest = batch.digest();
        let waits = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.proposal == Some(digest) && !slot.is_accepted);
        let waits: Vec<Sequence> = waits.map(|(sequence, _)| *sequence).collect();
        if !waits.is_empty() || self.is_to_begin_with(digest) {
            self.keep_batch(batch);
        }
        for sequence in waits {
            self.accept(now, sequence);
        }
        self.begin_as_primary();
    }

    /// Takes members and digests of parts. It is by the digest of all of them, which a quorum has
    /// signed, that they are believed, not by who sends them.
    fn on_parts(
        &mut self,
        now: Duration,
        by: NodeId,
        sequence: Sequence,
        membership: Membership,
        parts: Arc<[Digest]>,
    ) {
        let Some(transfer) = &mut self.transfer else { return };
        let is_right = state_digest(&membership, &parts) == transfer.target.digest
            || mutant::is(Mutant::StateUnchecked);
        if transfer.target.sequence != sequence || transfer.parts.is_some() || !is_right {
            return;
        }
        let wanted: BTreeSet<Digest> = parts.iter().copied().collect();
        transfer.here.retain(|digest, _| wanted.contains(digest));
        transfer.parts = Some((membership, parts));
        self.fetch_parts(Some(by));
        self.install(now);
    }

    /// Takes a part. Once all have come that were asked for, who sent it is asked for the next.
    fn on_part(&mut self, now: Duration, by: NodeId, bytes: Bytes) {
        let Some(transfer) = &mut self.transfer else { return };
        let digest = part_digest(&bytes);
        let mut wanted = transfer.missing().map(|(_, wanted)| wanted);
        let found = match mutant::is(Mutant::StateUnchecked) {
            true => wanted.next(),
            false => wanted.find(|wanted| *wanted == digest),
        };
        drop(wanted);
        let Some(digest) = found else { return };
        transfer.here.insert(digest, bytes);
        if transfer.awaited.remove(&digest) && transfer.awaited.is_empty() {
            self.fetch_parts(Some(by));
        }
        self.install(now);
    }

    /// Takes the fetched state for its own, once it is whole. Nothing is fetched any more if it was
    /// reached by execution.
    fn install(&mut self, now: Duration) {
        let Some(transfer) = &self.transfer else { return };
        let sequence = transfer.target.sequence;
        if !self.lacks(transfer.target) {
            self.transfer = None;
            return;
        }
        let Some((membership, bytes)) = transfer.whole() else { return };
        self.transfer = None;
        let Some(state) = State::decode(membership.clone(), &bytes) else { return };
        self.state = state;
        self.executed = sequence;
        self.snapshots.retain(|of, _| *of < sequence);
        let snapshot = Snapshot::new(membership, bytes, self.settings.part_bytes);
        self.snapshots.insert(sequence, snapshot);
        self.keep_snapshot();
        self.forget_decided();
        self.forget();
        self.execute(now);
    }
}
