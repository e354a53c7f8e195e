//! Requests of clients that wait: to be proposed, to be chosen, to be read.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use convoke::{Code, Deferred, NodeId, Status};
use node_kit::places::Place;
use prost::Message as _;

use crate::core::{Members, Slot, Token, Value};
use crate::kv::Machine;
use crate::proto::{Batch, Entry, Get, LeaderHint, Reply, Scan};

/// A client that waits. What its request takes of the room for requests is free again when it is
/// answered.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) task: Deferred<Reply>,
    /// This node, if another has handed the request on: the client may as well ask here.
    pub(super) hint: Option<NodeId>,
    /// It counts votes.
    pub(super) counts_votes: bool,
    pub(super) room: Place,
}

impl Waiter {
    pub(super) fn answer(self, reply: &Reply) {
        // An error: who asked has given up.
        let _ = match self.hint {
            Some(leader) => self.task.answer(&Reply { leader: leader.get(), ..reply.clone() }),
            None => self.task.answer(reply),
        };
    }

    pub(super) fn fail(self, status: Status) {
        self.task.fail(status);
    }
}

/// A read.
#[derive(Debug)]
pub(super) enum Reading {
    Get(Get),
    Scan(Scan),
}

impl Reading {
    pub(super) fn reply(&self, machine: &Machine) -> Reply {
        match self {
            Self::Get(get) => machine.get(&get.key),
            Self::Scan(scan) => machine.scan(scan),
        }
    }
}

/// A value that this node has proposed, and who waits for it.
#[derive(Debug)]
struct Proposed {
    value: Value,
    /// One for each entry of a batch; none where votes answer.
    waiters: Vec<Option<Waiter>>,
}

impl Proposed {
    fn fail(self, status: &Status) {
        self.waiters.into_iter().flatten().for_each(|waiter| waiter.fail(status.clone()));
    }

    fn len(&self) -> usize {
        self.waiters.iter().flatten().count()
    }
}

/// All that waits.
#[derive(Debug, Default)]
pub(super) struct Requests {
    queue: VecDeque<(Entry, Waiter)>,
    proposed: BTreeMap<Slot, Proposed>,
    /// Reads that came since the last round began.
    fresh: Vec<(Reading, Waiter)>,
    reads: BTreeMap<Token, Vec<(Reading, Waiter)>>,
    /// Reads that can be answered.
    ready: VecDeque<(Reading, Waiter)>,
    count: usize,
}

impl Requests {
    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn write(&mut self, entry: Entry, waiter: Waiter) {
        self.count += 1;
        self.queue.push_back((entry, waiter));
    }

    pub(super) fn read(&mut self, reading: Reading, waiter: Waiter) {
        self.count += 1;
        self.fresh.push((reading, waiter));
    }

    /// Takes a read of what is applied here, which waits for no round.
    pub(super) fn read_stale(&mut self, reading: Reading, waiter: Waiter) {
        self.count += 1;
        self.ready.push_back((reading, waiter));
    }

    /// The next batch: so many requests and bytes at most, and one at least. Clients that have
    /// given up are left out.
    pub(super) fn next_batch(&mut self, requests: usize, bytes: usize) -> Option<NextBatch> {
        let (mut batch, mut waiters, mut room) = (Batch::default(), Vec::new(), bytes);
        while let Some((entry, _)) = self.queue.front() {
            let size = entry.encoded_len() + 8;
            if batch.entries.len() == requests || (size > room && !batch.entries.is_empty()) {
                break;
            }
            let Some((entry, waiter)) = self.queue.pop_front() else { break };
            if waiter.task.is_stopped() {
                self.count -= 1;
                continue;
            }
            room = room.saturating_sub(size);
            batch.entries.push(entry);
            waiters.push(waiter);
        }
        let bytes = batch.encode_to_vec().into();
        (!waiters.is_empty()).then_some(NextBatch { bytes, entries: batch.entries, waiters })
    }

    /// A batch is proposed in a slot.
    pub(super) fn proposed(&mut self, slot: Slot, NextBatch { bytes, waiters, .. }: NextBatch) {
        let waiters = waiters.into_iter().map(Some).collect();
        self.proposed.insert(slot, Proposed { value: Value::Commands(bytes), waiters });
    }

    /// Gives out those who count votes and wait for entries of this batch that `is_certain`, if
    /// `is_polled` is true of them. They do not wait here any more.
    pub(super) fn take_polled(
        &mut self,
        slot: Slot,
        is_certain: &[bool],
        mut is_polled: impl FnMut(&Waiter) -> bool,
    ) -> Vec<Waiter> {
        let Some(proposed) = self.proposed.get_mut(&slot) else { return Vec::new() };
        let certain = proposed.waiters.iter_mut().zip(is_certain).filter(|(_, is)| **is);
        let take = |(waiter, _): (&mut Option<Waiter>, _)| {
            waiter.take_if(|waiter| waiter.counts_votes && is_polled(waiter))
        };
        let polled: Vec<_> = certain.filter_map(take).collect();
        self.count -= polled.len();
        polled
    }

    /// Other members are proposed in a slot.
    pub(super) fn changes(&mut self, slot: Slot, members: Members, waiter: Waiter) {
        self.count += 1;
        let proposed = Proposed { value: Value::Change(members), waiters: vec![Some(waiter)] };
        self.proposed.insert(slot, proposed);
    }

    /// Those who wait for the value of a slot, if the value is what was proposed there: one for
    /// each entry of a batch, where one waits. If it is another, theirs never runs, and they are
    /// told.
    pub(super) fn applied(&mut self, slot: Slot, value: &Value) -> Vec<Option<Waiter>> {
        let Some(proposed) = self.proposed.remove(&slot) else { return Vec::new() };
        self.count -= proposed.len();
        if proposed.value == *value {
            return proposed.waiters;
        }
        proposed.fail(&not_leading(None));
        Vec::new()
    }

    /// Reads that came meanwhile wait for this round. False when there are none.
    pub(super) fn begin_reads(&mut self, token: Token) -> bool {
        let fresh = std::mem::take(&mut self.fresh);
        if fresh.is_empty() {
            return false;
        }
        self.reads.insert(token, fresh);
        true
    }

    /// The reads of a round can be answered, behind those that can be already.
    pub(super) fn ready(&mut self, token: Token) {
        self.ready.extend(self.reads.remove(&token).unwrap_or_default());
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next read that can be answered.
    pub(super) fn next_ready(&mut self) -> Option<(Reading, Waiter)> {
        let next = self.ready.pop_front();
        self.count -= usize::from(next.is_some());
        next
    }

    /// A round of reads is given up: they may be asked again anywhere.
    pub(super) fn unready(&mut self, token: Token, leader: Option<NodeId>) {
        for (_, waiter) in self.reads.remove(&token).unwrap_or_default() {
            self.count -= 1;
            waiter.fail(not_leading(leader));
        }
    }

    /// The node does not lead any more. Of what was proposed nobody knows what becomes of it.
    pub(super) fn give_up(&mut self, leader: Option<NodeId>) {
        self.leave_proposed(&unknown());
        self.refuse_waiting(&not_leading(leader));
    }

    /// The node stops, and answers nothing any more.
    pub(super) fn stop(&mut self) {
        let text = "the node is stopping: the request may run, or not";
        self.leave_proposed(&Status::new(Code::Aborted, text));
        self.fresh.extend(std::mem::take(&mut self.reads).into_values().flatten());
        self.fresh.extend(self.ready.drain(..));
        self.refuse_waiting(&stopping());
    }

    fn leave_proposed(&mut self, word: &Status) {
        for (_, proposed) in std::mem::take(&mut self.proposed) {
            self.count -= proposed.len();
            proposed.fail(word);
        }
    }

    /// Refuses what was neither proposed nor is being read.
    fn refuse_waiting(&mut self, refusal: &Status) {
        let queue = self.queue.drain(..).map(|(_, waiter)| waiter);
        for waiter in queue.chain(self.fresh.drain(..).map(|(_, waiter)| waiter)) {
            self.count -= 1;
            waiter.fail(refusal.clone());
        }
    }

    /// Slots up to here are in a snapshot that was installed: what became of them is not known.
    pub(super) fn skip(&mut self, upto: Slot) {
        let later = self.proposed.split_off(&upto.next());
        for (_, proposed) in std::mem::replace(&mut self.proposed, later) {
            self.count -= proposed.len();
            proposed.fail(&unknown());
        }
    }
}

/// A batch that is to be proposed.
#[derive(Debug)]
pub(super) struct NextBatch {
    pub(super) bytes: Bytes,
    entries: Vec<Entry>,
    waiters: Vec<Waiter>,
}

impl NextBatch {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Its entries, each with whether votes may answer who waits for it.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Entry, bool)> {
        self.entries.iter().zip(self.waiters.iter().map(|waiter| waiter.counts_votes))
    }
}

/// The refusal of a node that does not lead. Nothing was done.
pub(super) fn not_leading(leader: Option<NodeId>) -> Status {
    let status = match leader {
        Some(leader) => Status::new(Code::Unavailable, format!("{leader} leads"))
            .with_detail(&LeaderHint { leader: leader.get() }),
        None => Status::new(Code::Unavailable, "no leader is known here"),
    };
    status.without_effect()
}

/// The refusal of a node that is about to stop. Nothing was done.
pub(super) fn stopping() -> Status {
    Status::new(Code::Unavailable, "the node is stopping").without_effect()
}

/// The refusal of a leader that cannot change the members now. Nothing was done.
pub(super) fn changing() -> Status {
    let text = "another change of the members is under way, or this leader is new: ask again";
    Status::new(Code::Unavailable, text).without_effect()
}

/// The word of a node that has proposed a request, and does not lead any more.
fn unknown() -> Status {
    Status::new(Code::Aborted, "the leader has changed: the request may run, or not")
}
