//! All tasks of a node: takes requests, refuses what it must, runs each task key at most once, and
//! remembers what has run for as long as a stale copy could come.
//!
//! Every refusal still passes on the entries that the request carried, for they describe ancestors.

mod brief;
mod commands;
mod control;
mod memory;
mod refusal;
mod route;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cause, Extension, Header, Manifest, Message, ReplyRoute, Request};

use super::admission;
use super::limits::Limits;
use super::links::Links;
use super::mutant::{self, Mutant};
use super::task::{Task, TaskOutput, TaskRefusal};
use super::timers::Timers;
use super::{Arrival, Fault, Outbound};

pub use commands::Branch;
use memory::Origin;
use refusal::{Refusal, unrecorded_fail};

/// One task of one call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskRef {
    /// The call.
    pub call: CallId,
    /// The task.
    pub task: TaskKey,
}

/// A task to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The task.
    pub task: TaskRef,
    /// Who opened the branch: the peer whose order of submission counts.
    pub from: NodeId,
    /// The connection to it that the request came over; of no meaning when it is this node.
    pub link: LinkNonce,
    /// The initiator.
    pub origin: NodeId,
    /// What to run.
    pub method: MethodId,
    /// When it is stopped.
    pub deadline: Timestamp,
    /// Trace context, metadata and the like.
    pub extensions: Vec<Extension>,
    /// The request message.
    pub payload: Bytes,
}

/// What the driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParticipantEvent {
    /// Start the handler.
    Start(Box<Start>),
    /// Stop the handler: its outputs are not wanted any more.
    Stop {
        /// The task.
        task: TaskRef,
        /// Cancelled or past its deadline.
        cause: Cause,
    },
    /// A stream of this task has credit again.
    Writable(TaskRef),
}

/// The tasks of one node.
#[derive(Debug)]
pub struct Participant {
    me: NodeId,
    limits: Limits,
    origins: BTreeMap<Incarnation, Origin>,
    running: usize,
    remembered: usize,
    is_shutting_down: bool,
    /// Requests and casts of an older epoch than this are refused.
    epoch: u64,
    visit_count: usize,
    /// How many fences a peer has asked for.
    fences_of: BTreeMap<NodeId, usize>,
    /// How many visits have branches at a node.
    branch_visits: BTreeMap<NodeId, usize>,
    /// When which brief task is too old to stay one; those that are none by then are still in it.
    ageing: VecDeque<(Timestamp, CallId)>,
    timers: Timers<CallId>,
    events: VecDeque<ParticipantEvent>,
    out: VecDeque<Outbound>,
}

impl Participant {
    pub(crate) fn new(me: NodeId, limits: &Limits) -> Self {
        Self {
            me,
            limits: limits.clone(),
            origins: BTreeMap::new(),
            running: 0,
            remembered: 0,
            is_shutting_down: false,
            epoch: 0,
            visit_count: 0,
            fences_of: BTreeMap::new(),
            branch_visits: BTreeMap::new(),
            ageing: VecDeque::new(),
            timers: Timers::new(),
            events: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// A REQUEST for this node.
    ///
    /// # Errors
    /// [`Fault`]: the sender's doing; the request is dropped.
    pub(crate) fn handle_request(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: Header,
        request: Request,
        links: &mut Links,
        me_incarnation: Incarnation,
    ) -> Result<(), Fault> {
        let call = header.call;
        let is_initiators = request.reply_route == ReplyRoute::Sender;
        if header.task.path.is_root() {
            return Err(Fault::Misrouted);
        }
        if admission::opens_root(&header.task) && !is_initiators {
            return Err(Fault::NotInitiator);
        }
        let origin = match &request.reply_route {
            ReplyRoute::Sender => {
                let incarnation = if by.via == self.me {
                    Some(me_incarnation)
                } else {
                    links.incarnation(by.via)
                };
                if incarnation != Some(call.origin) {
                    return Err(Fault::ForeignCall);
                }
                by.via
            }
            ReplyRoute::Node { node, .. } if *node == self.me && call.origin != me_incarnation => {
                return Ok(()); // A call of this node's last life: nobody waits for it.
            }
            ReplyRoute::Node { node, addresses } => {
                if *node != self.me && !addresses.is_empty() {
                    links.hear_of(*node, addresses);
                }
                *node
            }
        };
        let floor = call.seq.saturating_sub(request.floor);
        if is_initiators {
            self.raise_floor(call, floor);
        } else {
            // Another's word for it: who lies harms only tasks that it asked for itself.
            self.settle_briefs(call.origin, floor, Some(by.via));
        }
        if self.origins.get(&call.origin).is_some_and(|origin| call.seq < origin.floor) {
            return Ok(()); // A stale copy: its call is settled.
        }
        match self.brief_route(by, origin, &header, &request, links) {
            Some(route) => self.admit_brief(now, by, (origin, route), header, request),
            None => self.admit(now, by, origin, header, request, links),
        }
        Ok(())
    }

    fn admit(
        &mut self,
        now: Timestamp,
        by: Arrival,
        origin: NodeId,
        header: Header,
        mut request: Request,
        links: &mut Links,
    ) {
        let Header { call, task } = header;
        let deadline = now + self.budget(request.budget_us);
        let call_deadline = self.call_deadline(now, deadline, &request);
        let refusal = self.refusal(&task, &request);
        if let Some(Refusal { unrecorded: true, failure }) = &refusal
            && !self.visit_mut(call).is_some_and(|visit| visit.knows(&task, by.via))
        {
            let fail = unrecorded_fail(failure.clone(), request.inherited);
            self.send_back(by, origin, Header { call, task }, fail, links);
            if self.origins.get(&call.origin).is_some_and(Origin::is_empty) {
                self.origins.remove(&call.origin);
            }
            return;
        }
        let vouched = self.vouched_floor(call, &request);
        let visit = self.visit(call, origin, call_deadline);
        if visit.tasks.is_empty() || request.reply_route == ReplyRoute::Sender {
            // A cancel or fence that came first may not have known, another's request may have lied.
            visit.origin = origin;
            visit.floor = vouched;
        }
        if visit.tasks.contains_key(&task) && !mutant::is(Mutant::NoDedupe) {
            return; // A duplicate.
        }
        let inherited = std::mem::take(&mut request.inherited);
        if visit.fences.contains(&task) || visit.is_cancelled(&task.path, by.via) {
            self.remember_refused(call, &task);
            let inherited = self.still_wanted(call, by.via, inherited);
            if !inherited.is_empty() {
                let message = Message::Manifest(Manifest { entries: inherited });
                self.send_back(by, origin, Header { call, task }, message, links);
            }
            self.arm(call);
            return;
        }
        let came_by = (request.reply_route == ReplyRoute::Sender).then_some(by.link);
        let running = Task::new(task.clone(), deadline, call_deadline, inherited, &self.limits);
        let extensions = request.extensions.clone();
        self.visit(call, origin, call_deadline).start(by.via, came_by, running, extensions);
        self.running += 1;
        self.arm(call);
        let task = TaskRef { call, task };
        if let Some(Refusal { failure, .. }) = refusal {
            let done = self.with_task(now, &task, links, |task| task.fail(failure));
            debug_assert!(done.is_ok(), "it was just inserted");
            return;
        }
        self.drain_task(now, &task, links);
        self.events.push_back(ParticipantEvent::Start(Box::new(Start {
            task,
            from: by.via,
            link: by.link,
            origin,
            method: request.method,
            deadline,
            extensions: request.extensions,
            payload: request.payload,
        })));
    }

    /// What a peer gives a task, within what this node gives any.
    fn budget(&self, micros: u64) -> Duration {
        Duration::from_micros(micros).min(self.limits.deadline_max)
    }

    /// The floor that this node may pass on: what the initiator itself has said here. Another's word is not
    /// repeated, for those who hear it next would take it for this node's.
    fn vouched_floor(&self, call: CallId, request: &Request) -> u64 {
        let known = self.origins.get(&call.origin).map_or(0, |origin| origin.floor);
        match request.reply_route {
            ReplyRoute::Sender => request.floor,
            ReplyRoute::Node { .. } => request.floor.max(call.seq.saturating_sub(known)),
        }
    }

    /// Until when the initiator may ask for the task of a request.
    fn call_deadline(&self, now: Timestamp, deadline: Timestamp, request: &Request) -> Timestamp {
        (deadline + self.budget(request.outlasted_us)).min(now + self.limits.deadline_max)
    }

    pub(crate) fn handle_credit(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        index: u32,
        limit_bytes: u64,
        links: &mut Links,
    ) {
        let visit = self.visit_mut(task.call);
        let Some(running) = visit.and_then(|visit| visit.running(&task.task)) else { return };
        if running.handle_credit(index, limit_bytes) {
            self.events.push_back(ParticipantEvent::Writable(task.clone()));
            self.drain_task(now, task, links);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let ageing = self.ageing.front().map(|(at, _)| *at);
        self.timers.next().into_iter().chain(ageing).min()
    }

    pub(crate) fn poll_event(&mut self) -> Option<ParticipantEvent> {
        self.events.pop_front()
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.out.pop_front()
    }

    /// Refuses requests from now on.
    pub(crate) fn begin_shutdown(&mut self) {
        self.is_shutting_down = true;
    }

    /// Refuses from now on what is of an older configuration. Epochs do not go back.
    pub(crate) fn raise_epoch(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the handler of a task has not ended and has not been stopped.
    pub(crate) fn is_running(&self, task: &TaskRef) -> bool {
        if let Some(is_running) = self.is_brief_running(task.call) {
            return is_running;
        }
        let origin = self.origins.get(&task.call.origin);
        let visit = origin.and_then(|origin| origin.visits.get(&task.call.seq));
        visit.is_some_and(|visit| visit.is_running(&task.task))
    }

    /// Tasks whose handler runs, or whose replies wait for credit.
    pub fn running_count(&self) -> usize {
        self.running
    }

    /// Finished tasks, fences and cancel marks remembered.
    pub fn remembered_count(&self) -> usize {
        self.remembered
    }

    /// Timers that are set, void ones too: at most twice the calls and a few.
    pub fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// Calls of which anything is known.
    pub fn visit_count(&self) -> usize {
        let briefs = self.origins.values().map(|origin| origin.briefs.len());
        self.visit_count + briefs.sum::<usize>()
    }

    fn with_task<T>(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        links: &mut Links,
        act: impl FnOnce(&mut Task) -> T,
    ) -> Result<T, TaskRefusal> {
        let visit = self.visit_mut(task.call).ok_or(TaskRefusal::Ended)?;
        let running = visit.running(&task.task).ok_or(TaskRefusal::Ended)?;
        if running.finished().is_some() {
            return Err(TaskRefusal::Ended);
        }
        let result = act(running);
        self.drain_task(now, task, links);
        Ok(result)
    }

    /// Sends what a task wants sent, and buries it when it is over.
    fn drain_task(&mut self, now: Timestamp, task: &TaskRef, links: &mut Links) {
        while let Some(output) = self
            .visit_mut(task.call)
            .and_then(|visit| visit.running(&task.task))
            .and_then(Task::poll_output)
        {
            match output {
                TaskOutput::Reply(message) => {
                    self.send_up(now, task.call, &task.task, message, links);
                }
                TaskOutput::Request(request) => self.send_request(now, task.call, request, links),
            }
        }
        if self.visit_mut(task.call).is_some_and(|visit| visit.bury(&task.task)) {
            self.running -= 1;
            self.remembered += 1;
        }
    }
}
