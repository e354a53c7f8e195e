//! All tasks of a node: takes requests, refuses what it must, runs each task at most once, and
//! remembers what has run for as long as a stale copy could come or until its call is settled.
//!
//! ```text
//!   REQUEST ──▶ refused ──▶ FAIL, or the closing entry of a task that was not run
//!      │
//!      └──▶ Running ──the handler ended, all has left──▶ Over ──settled, or time──▶ (nothing)
//!                                                         └──another node's word──▶ stub
//! ```
//! Every refusal still passes on the entries that the request carried, for they describe ancestors.
//!
//! Sources: `settlement.md` for what may be forgotten when, `trust.md` for who may say what.

mod audit;
mod commands;
mod control;
mod dials;
mod forget;
mod granted;
mod items;
mod last_words;
mod origins;
mod passed;
mod records;
mod refusal;
mod refusals;
mod route;
mod settle;
mod spare;
mod streams;
mod stubs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::encoded::Encoded;
use crate::id::{CallId, LinkId, MethodId, NodeId, NodeLife, TaskKey};
use crate::key::{Key, Secret};
use crate::limits::Limits;
use crate::links::Links;
use crate::mutant::{self, Mutant};
use crate::share::{PeerIndex, Pool};
use crate::task::{SendError, Task, TaskFailure, TaskOutput, may_ride};
use crate::time::Timestamp;
use crate::timers::Timers;
use crate::wire::{Cause, Executed, Extension, Header, Manifest, Message, ReplyRoute, Request};
use crate::{Arrival, Fault, Outbound};

use dials::Dials;
use origins::{OriginIndex, Origins, RingName};
use passed::Passed;
pub(crate) use records::RingIndex;
use records::{Name, NameRef, Quiet, Record, State, by, refused_entry};
use refusal::Refusal;
use refusals::Refusals;
pub(crate) use route::{Forth, Leaving, WayUp};
use spare::Spare;

/// One task of a node, for who runs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskRef {
    /// The call.
    pub call: CallId,
    /// The task.
    pub task: TaskKey,
    pub(crate) key: Key,
    pub(crate) ring: RingIndex,
}

impl TaskRef {
    /// The key of its branch, as its request gave it.
    pub fn key(&self) -> Key {
        self.key
    }

    /// True when its request came from the initiator of the call itself: nobody below may send
    /// such.
    pub fn is_of_initiator(&self) -> bool {
        self.task.opens_root()
    }

    fn place(&self) -> Place {
        (self.ring, (self.call.seq, self.task.clone(), self.key))
    }

    fn name(&self) -> NameRef<'_> {
        (self.call.seq, &self.task, self.key)
    }
}

/// A task to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The task.
    pub task: TaskRef,
    /// The node that opened the branch: the peer whose order of submission counts.
    pub from: NodeId,
    /// The connection to it that the request came over; of no meaning when it is this node.
    pub link: LinkId,
    /// The initiator.
    pub origin: NodeId,
    /// The method to run.
    pub method: MethodId,
    /// When it is stopped.
    pub deadline: Timestamp,
    /// Trace context, metadata and the like.
    pub extensions: Vec<Extension>,
    /// Items of the request follow it.
    pub has_items: bool,
    /// The request message.
    pub payload: Bytes,
}

impl Start {
    /// Moves message and extensions out.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let (extensions, payload) =
            (std::mem::take(&mut self.extensions), std::mem::take(&mut self.payload));
        Self { task: self.task.clone(), extensions, payload, ..*self }
    }
}

/// A thing for the driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisitEvent {
    /// Stop the handler: its outputs are not wanted any more.
    Stop {
        /// The task.
        task: TaskRef,
        /// Cancelled or past its deadline.
        cause: Cause,
    },
    /// A stream of this task has credit again.
    Writable(TaskRef),
    /// The handler of this task waited for an item of its request, and waits no longer for nothing.
    Readable(TaskRef),
}

/// A record, by its ring and its name there.
type Place = (RingIndex, Name);

/// Branches that left for a node: of which call, and the ring of the tasks that opened them.
type Left = (NodeId, CallId, RingIndex);

/// The tasks of some origins.
#[derive(Debug)]
pub struct Visits {
    me: NodeLife,
    secret: Secret,
    limits: Limits,
    origins: Origins,
    /// Those that have raised their floor, of which that has not had its effect.
    risen: SmallVec<[OriginIndex; 4]>,
    /// The number of the last question.
    question: u64,
    refusals: Refusals,
    /// Number of branches that have left so, or never will.
    left: BTreeMap<Left, usize>,
    dials: Dials,
    /// Tasks whose request is followed by items, by the connection that these take.
    intakes: BTreeSet<(LinkId, RingIndex, Name)>,
    /// Tasks whose replies have credit, by the connection that they take.
    granted: BTreeMap<LinkId, BTreeSet<Place>>,
    /// Frames of other nodes' tasks that wait for room in the connection that they take.
    passed: BTreeMap<LinkId, VecDeque<Passed>>,
    running: usize,
    spare: Spare,
    is_shutting_down: bool,
    /// Requests and casts of an older epoch than this are refused.
    epoch: u64,
    /// Times at which a record is due, or a ring is to be looked at itself.
    timers: Timers<(RingIndex, Option<Name>)>,
    /// Origins of which nothing is held any more.
    idle: Timers<OriginIndex>,
    orphans_sought_at: Timestamp,
    events: VecDeque<VisitEvent>,
    out: VecDeque<Leaving>,
}

impl Visits {
    pub(crate) fn new(me: NodeLife, secret: Secret, limits: &Limits) -> Self {
        Self {
            me,
            secret,
            limits: limits.clone(),
            origins: Origins::default(),
            risen: SmallVec::new(),
            question: 0,
            refusals: Refusals::new(),
            left: BTreeMap::new(),
            dials: Dials::default(),
            intakes: BTreeSet::new(),
            granted: BTreeMap::new(),
            passed: BTreeMap::new(),
            running: 0,
            spare: Spare::default(),
            is_shutting_down: false,
            epoch: 0,
            timers: Timers::new(),
            idle: Timers::new(),
            orphans_sought_at: Timestamp::ZERO,
            events: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// A REQUEST for this node, whose handler is among the `starts` if it may run.
    ///
    /// # Errors
    /// [`Fault`]: the sender's doing; the request is dropped.
    pub(crate) fn handle_request(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: &Header,
        request: &mut Request,
        (links, starts): (&mut Links, &mut Vec<Start>),
    ) -> Result<(), Fault> {
        let call = header.call;
        let is_direct = request.reply_route == ReplyRoute::Sender;
        if header.task.path.is_root() {
            return Err(Fault::Misrouted);
        }
        if call.seq == 0 {
            return Err(Fault::NoCall); // Calls are numbered from 1.
        }
        if header.task.opens_root() && !is_direct {
            return Err(Fault::NotInitiator);
        }
        let node = match &request.reply_route {
            ReplyRoute::Sender if !by.life.is_life_of(call.origin) => {
                return Err(Fault::ForeignCall);
            }
            ReplyRoute::Sender
                if mutant::is(Mutant::LifeOfFirst)
                    && self
                        .origins
                        .sole_of(call.origin)
                        .is_some_and(|first| self.origins.get(first).name.node != by.via) =>
            {
                return Ok(());
            }
            ReplyRoute::Sender => by.via,
            ReplyRoute::Node { node, .. }
                if *node == self.me.node && !self.me.life.is_life_of(call.origin) =>
            {
                return Ok(()); // A call of this node's last life: nobody waits for it.
            }
            ReplyRoute::Node { node, addresses } => {
                if *node != self.me.node && !addresses.is_empty() {
                    links.hear_of(*node, addresses);
                }
                *node
            }
        };
        let name = NodeLife { node, life: call.origin };
        let origin = self.origins.find_again(name);
        if let Some(origin) = origin {
            if by.sender().is_of(name) || mutant::is(Mutant::AnybodysFloor) {
                self.hear_floor(origin, call.seq.saturating_sub(request.floor));
            }
            if self.origins.get(origin).is_settled(call.seq) {
                return Ok(());
            }
        }
        self.admit(now, by, (name, origin), header, request, (links, starts));
        Ok(())
    }

    fn admit(
        &mut self,
        now: Timestamp,
        by: Arrival,
        (initiator, origin): (NodeLife, Option<OriginIndex>),
        header: &Header,
        request: &mut Request,
        (links, starts): (&mut Links, &mut Vec<Start>),
    ) {
        let (Header { call, task }, key) = (header, request.key);
        let call = *call;
        let ring_name = RingName { life: call.origin, sender: by.sender() };
        let ring = self.origins.find_ring(ring_name);
        if self.knows(ring_name, ring, (call.seq, task, key)) && !mutant::is(Mutant::NoDedupe) {
            return; // A duplicate.
        }
        let mut inherited = std::mem::take(&mut request.inherited);
        if mutant::is(Mutant::RefusalDropsInherited)
            && (self.refusals.cause(call, task, key).is_some()
                || self.refusal(&by, task, request, links).is_some())
        {
            inherited.clear();
        }
        let (mut initiator, mut origin) = (initiator, origin);
        if mutant::is(Mutant::RouteOfFirst)
            && let Some((_, first)) = self.records_of(call).next()
        {
            (initiator, origin) = (self.origins.get(first.origin).name, Some(first.origin));
        }
        if let Some(cause) = self.refusals.cause(call, task, key) {
            if mutant::is(Mutant::MarkWithoutWord) && cause == Cause::Cancelled {
                return;
            }
            // What meets its fence says so itself: an entry does not say that it did not run.
            let message = if cause == Cause::Lost {
                let failure = TaskFailure::new(cause, Executed::No, "");
                Message::Fail(failure.into_fail(None, inherited))
            } else {
                let own = Some(refused_entry(task, cause));
                Message::Manifest(Manifest { own, inherited })
            };
            self.send_back(&by, initiator, (header.clone(), key), message, links);
            return;
        }
        let refusal = self.refusal(&by, task, request, links);
        if let Some(Refusal { failure, unrecorded: true }) = refusal {
            let fail = failure.into_fail(None, inherited);
            let header = (header.clone(), key);
            self.send_back(&by, initiator, header, Message::Fail(fail), links);
            return;
        }
        let shares = links.shares_mut();
        let ring = ring.unwrap_or_else(|| {
            shares.take(by.peer, Pool::Records, 1);
            self.origins.insert_ring(ring_name, by.peer)
        });
        let origin = origin.unwrap_or_else(|| {
            shares.take(by.peer, Pool::Records, 1);
            self.origins.insert(initiator, by.peer)
        });
        let deadline = now + self.budget(request.budget_us);
        let call_deadline = self.call_deadline(now, deadline, request);
        let request_bytes = self.large_bytes(request);
        let has_items = items::take_mark(&mut request.extensions);
        let extensions = match request.extensions.as_slice() {
            [] => Vec::new(), // As most have it: a clone would ask for no memory at some length.
            some => some.to_vec(),
        };
        let is_quiet = may_ride(&inherited) && !has_items;
        let given = (!inherited.is_empty()).then(|| Arc::new(inherited));
        let state = if is_quiet {
            State::Quiet(Quiet { deadline, call_deadline, extensions, given })
        } else {
            let (id, deadlines) = ((task.clone(), key), (deadline, call_deadline));
            let task = Task::new(id, deadlines, given, extensions, &self.limits);
            State::Running(self.spare.boxed(task))
        };
        let payer = self.payer(&by, origin);
        let record = Record {
            seq: call.seq,
            task: task.clone(),
            key,
            origin,
            link: by.link,
            payer,
            since: now,
            forget_at: call_deadline + self.limits.keep_alive_timeout,
            waiting_bytes: 0,
            request_bytes,
            state,
        };
        let cost = record.cost();
        let records = &mut self.origins.ring_mut(ring).expect("it was just found").records;
        let is_first = records.oldest_recent().is_none();
        let is_old = records.insert(record);
        self.take_for(payer, (cost, request_bytes as usize), links);
        let of_origin = self.origins.get_mut(origin);
        of_origin.held += 1;
        of_origin.highest = of_origin.highest.max(call.seq);
        if is_first {
            self.arm_ring(ring); // Else it is armed for what is older.
        }
        let task = TaskRef { call, task: task.clone(), key, ring };
        // What ends before it is old, or is old at once, needs its timer from the start.
        if is_old || deadline < now + self.limits.worry_min {
            self.timers.push(deadline, (ring, Some(task.place().1)));
        }
        if has_items && refusal.is_none() {
            self.open_intake(&task.place(), by.link);
        }
        if let Some(Refusal { failure, .. }) = refusal {
            let done = self.with_task(now, &task, links, |task| task.refuse(failure));
            debug_assert!(done.is_ok(), "it was just inserted");
            return;
        }
        if !is_quiet {
            self.drain_task(now, call, &task.place(), links);
        }
        starts.push(Start {
            task,
            from: by.via,
            link: by.link,
            origin: initiator.node,
            method: request.method,
            deadline,
            extensions: std::mem::take(&mut request.extensions),
            has_items,
            payload: std::mem::take(&mut request.payload),
        });
    }

    /// Counts a task that begins to run, and has its peer pay for so many records, and bytes of its
    /// request.
    fn take_for(&mut self, payer: PeerIndex, (records, bytes): (usize, usize), links: &mut Links) {
        self.running += 1;
        let shares = links.shares_mut();
        shares.take(payer, Pool::Records, records);
        shares.take(payer, Pool::Running, 1);
        if bytes > 0 {
            shares.take(payer, Pool::Requests, bytes);
        }
    }

    /// Peer that pays for a record: the one that brought its request.
    fn payer(&self, by: &Arrival, origin: OriginIndex) -> PeerIndex {
        match mutant::is(Mutant::PaidByOrigin) {
            true => self.origins.get(origin).payer,
            false => by.peer,
        }
    }

    /// The time that a peer gives a task, within what this node gives any.
    fn budget(&self, micros: u64) -> Duration {
        Duration::from_micros(micros).min(self.limits.deadline_max)
    }

    /// Until when the initiator may ask for the task of a request.
    fn call_deadline(&self, now: Timestamp, deadline: Timestamp, request: &Request) -> Timestamp {
        if request.outlasted_us == 0 {
            return deadline; // No later than this node gives any.
        }
        (deadline + self.budget(request.outlasted_us)).min(now + self.limits.deadline_max)
    }

    fn record(&self, (ring, name): &Place) -> Option<&Record> {
        self.origins.ring(*ring)?.records.get(by(name))
    }

    fn record_mut(&mut self, (ring, name): &Place) -> Option<&mut Record> {
        self.origins.ring_mut(*ring)?.records.get_mut(by(name))
    }

    /// The records of a call, whoever sent their requests.
    fn records_of(&self, call: CallId) -> impl Iterator<Item = (RingIndex, &Record)> {
        self.origins.rings_of(call.origin).flat_map(move |(index, ring)| {
            ring.records.of_call(call.seq).map(move |record| (index, record))
        })
    }

    /// True when a call is known to be settled, by its initiator's own word.
    pub(crate) fn is_call_settled(&self, origin: NodeLife, seq: u64) -> bool {
        let index = self.origins.find(origin);
        index.is_some_and(|index| self.origins.get(index).is_settled(seq))
    }

    /// True while a task of a call is here or remembered.
    pub(crate) fn remembers_call(&self, origin: NodeLife, seq: u64) -> bool {
        let call = CallId { origin: origin.life, seq };
        self.records_of(call).any(|(_, record)| self.origins.get(record.origin).name == origin)
    }

    /// A task that has said something and is not over.
    fn task_mut(&mut self, place: &Place) -> Option<&mut Task> {
        self.record_mut(place)?.running()
    }

    /// A task that is about to say something.
    fn speaking_mut(&mut self, (ring, name): &Place) -> Option<&mut Task> {
        let record = self.origins.ring_mut(*ring)?.records.get_mut(by(name))?;
        record.speaking(&self.limits, &mut self.spare)
    }

    /// True when a task is here, or was and only a stub is left of it.
    fn knows(&self, ring_name: RingName, ring: Option<RingIndex>, name: NameRef<'_>) -> bool {
        if mutant::is(Mutant::KeyNotInIdentity) {
            let call = CallId { origin: ring_name.life, seq: name.0 };
            return self.records_of(call).any(|(_, record)| record.task == *name.1);
        }
        ring.and_then(|ring| self.origins.ring(ring)).is_some_and(|ring| {
            (!ring.records.is_later(name.0) && ring.records.get(name).is_some())
                || (ring.stubs.len() > 0 && ring.stubs.contains(name.0, self.stub_name(name)))
        })
    }

    /// Refuses requests from now on. True when it took them before.
    pub(crate) fn begin_shutdown(&mut self) -> bool {
        !std::mem::replace(&mut self.is_shutting_down, true)
    }

    /// True when it refuses requests, for the node takes none any more.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    /// True while something that a task says waits for a dial to its initiator.
    pub(crate) fn waits_for_dial(&self) -> bool {
        !self.dials.is_empty()
    }

    /// Refuses from now on what is of an older configuration. Epochs do not go back.
    pub(crate) fn raise_epoch(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn poll_event(&mut self) -> Option<VisitEvent> {
        self.events.pop_front()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    pub(crate) fn poll_leaving(&mut self) -> Option<Leaving> {
        self.out.pop_front()
    }

    /// True when the handler of a task has not ended and has not been stopped.
    pub(crate) fn is_running(&self, task: &TaskRef) -> bool {
        let ring = self.origins.ring(task.ring);
        ring.and_then(|ring| ring.records.get(task.name())).is_some_and(Record::is_running)
    }

    /// All that is known of a task, as text: to see whether something changed it.
    pub fn snapshot(&self, call: CallId, task: &TaskKey, key: Key) -> String {
        let records = self.records_of(call).map(|(_, record)| record);
        let same: Vec<_> = records.filter(|r| (&r.task, r.key) == (task, key)).collect();
        format!("{same:?}")
    }

    /// True when this node takes a call of `node` for settled, and refuses all of it.
    pub fn has_settled(&self, node: NodeId, call: CallId) -> bool {
        let origin = self.origins.find(NodeLife { node, life: call.origin });
        origin.is_some_and(|origin| self.origins.get(origin).is_settled(call.seq))
    }

    /// Tasks whose handler runs, or whose replies wait for credit.
    pub fn running_count(&self) -> usize {
        self.running
    }

    /// Finished tasks, fences and cancel marks remembered.
    pub fn remembered_count(&self) -> usize {
        let records: usize = self.origins.rings().map(|ring| ring.records.len()).sum();
        // Saturating: the mutant that runs a task twice keeps one record of it.
        (records + self.refusals.len()).saturating_sub(self.running)
    }

    /// The initiator, the sender and the number of the call of each finished task that is
    /// remembered.
    pub fn remembered(&self) -> impl Iterator<Item = (NodeLife, NodeLife, u64)> + '_ {
        self.origins.rings().flat_map(|ring| {
            let over = ring.records.iter().filter(|record| record.is_over());
            over.map(|r| (self.origins.get(r.origin).name, ring.name.sender, r.seq))
        })
    }

    /// Finished tasks of which only enough is left to refuse a copy of their request.
    pub fn stub_count(&self) -> usize {
        self.origins.rings().map(|ring| ring.stubs.len()).sum()
    }

    /// The number of the last question that was asked.
    #[cfg(test)]
    pub(crate) fn last_question(&self) -> u64 {
        self.question
    }

    /// Timers that are set, void ones too.
    pub fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// Initiators of which anything is known.
    pub fn origin_count(&self) -> usize {
        self.origins.iter().count()
    }

    fn with_task<T>(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        links: &mut Links,
        act: impl FnOnce(&mut Task) -> T,
    ) -> Result<T, SendError> {
        let place = task.place();
        let has_room = self.has_room_up(now, &place, links);
        let running = self.speaking_mut(&place).ok_or(SendError::Ended)?;
        running.note_room(has_room);
        if running.finished().is_some() {
            return Err(SendError::Ended);
        }
        let result = act(running);
        self.drain_task(now, task.call, &place, links);
        Ok(result)
    }

    /// Sends what a task wants sent, and buries it when it is over.
    fn drain_task(&mut self, now: Timestamp, call: CallId, place: &Place, links: &mut Links) {
        loop {
            let Some(record) = self.record_mut(place) else { return };
            let pays_for_replies = record.waiting_bytes > 0;
            let Some(task) = record.running() else { return };
            match task.poll_output() {
                Some(TaskOutput::Reply(message)) => self.send_up(now, call, place, message, links),
                Some(TaskOutput::Request(request)) => {
                    self.send_request(now, call, place, request, links);
                }
                Some(TaskOutput::Spent(payload)) => self.spend(payload),
                None => {
                    let is_over = task.finished().is_some();
                    if task.has_granted() != task.granted_at.is_some() {
                        self.note_granted(now, place, links);
                    }
                    if pays_for_replies {
                        self.give_back_room(place, links);
                    }
                    if is_over {
                        self.close_intake(call, place, links);
                        self.bury(now, place, links);
                    }
                    return;
                }
            }
        }
    }

    /// A payload goes nowhere.
    fn spend(&mut self, payload: impl Into<Encoded>) {
        self.out.extend(Outbound::spent(payload).map(Leaving::Frame));
    }

    /// Gives back what the replies of a task have taken, as they leave.
    fn give_back_room(&mut self, place: &Place, links: &mut Links) {
        let Some(record) = self.record_mut(place) else { return };
        let State::Running(task) = &record.state else { return };
        let waiting = u32::try_from(task.waiting_bytes()).unwrap_or(u32::MAX);
        let left = record.waiting_bytes.saturating_sub(waiting);
        if left > 0 {
            record.waiting_bytes -= left;
            links.shares_mut().give(record.payer, Pool::Replies, left as usize);
        }
    }
}
