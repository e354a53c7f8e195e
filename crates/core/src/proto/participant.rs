//! All tasks of a node: takes requests, refuses what it must, runs each task key at most once, and
//! remembers what has run for as long as a stale copy could come.
//!
//! Every refusal still passes on the entries that the request carried, for they describe ancestors.

mod brief;
mod commands;
mod control;
mod route;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{
    Cast, Cause, Entry, Executed, Extension, Fail, Header, Manifest, Message, ReplyRoute, Request,
    TaskStatus, extension,
};

use super::admission;
use super::limits::Limits;
use super::links::Links;
use super::mailbox::{Mailbox, Posted};
use super::mutant::{self, Mutant};
use super::task::{ChildRequest, Task, TaskFailure, TaskOutput, TaskRefusal};
use super::timers::Timers;
use super::visit::Visit;
use super::{Arrival, Fault, Outbound};

use brief::Briefs;
pub use commands::Branch;

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
    /// Casts of this call wait to be taken.
    Cast(CallId),
}

#[derive(Debug, Default)]
struct Origin {
    floor: u64,
    briefs: Briefs,
    visits: BTreeMap<u64, Visit>,
}

impl Origin {
    fn knows(&self, seq: u64) -> bool {
        self.visits.contains_key(&seq) || self.briefs.contains(seq)
    }

    fn is_empty(&self) -> bool {
        self.visits.is_empty() && self.briefs.is_empty()
    }
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
    visit_count: usize,
    /// How many fences a peer has asked for.
    fences_of: BTreeMap<NodeId, usize>,
    /// Bytes of the casts in all mailboxes.
    cast_bytes: usize,
    /// How many visits have branches at a node.
    branch_visits: BTreeMap<NodeId, usize>,
    /// When which brief task is too old to stay one; those that are none by then are still in it.
    ageing: VecDeque<(Timestamp, CallId)>,
    timers: Timers<CallId>,
    events: VecDeque<ParticipantEvent>,
    out: VecDeque<Outbound>,
}

/// Tail transfers within one branch before it is refused: a loop of tails ends here or at the deadline.
const HOPS_MAX: u32 = 1 << 20;

impl Participant {
    pub(crate) fn new(me: NodeId, limits: &Limits) -> Self {
        Self {
            me,
            limits: limits.clone(),
            origins: BTreeMap::new(),
            running: 0,
            remembered: 0,
            is_shutting_down: false,
            visit_count: 0,
            fences_of: BTreeMap::new(),
            cast_bytes: 0,
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
            // A cancel, fence or cast that came first may not have known, another's request may have lied.
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

    fn refusal(&self, task: &TaskKey, request: &Request) -> Option<Refusal> {
        let refuse = |cause, text: &str| {
            let failure = TaskFailure::new(cause, Executed::No, text);
            Some(Refusal { failure, unrecorded: false })
        };
        // A running task will be remembered when it has ended.
        if self.remembered + self.running >= self.limits.remembered_max {
            let text = "as many tasks are remembered as remembered_max allows";
            let failure = TaskFailure::new(Cause::Overloaded, Executed::No, text);
            return Some(Refusal { failure, unrecorded: true });
        }
        if self.is_shutting_down {
            return refuse(Cause::ShuttingDown, "the node takes no new tasks");
        }
        if self.running >= self.limits.tasks_max {
            return refuse(Cause::Overloaded, "as many tasks run as tasks_max allows");
        }
        if request.budget_us == 0 {
            return refuse(Cause::Deadline, "the budget was used up on the way");
        }
        if task.hop > HOPS_MAX {
            return refuse(Cause::PathTooDeep, "too many tail transfers on one branch");
        }
        if request.extensions.iter().any(is_unknown_and_critical) {
            return refuse(Cause::BadRequest, "a critical extension is unknown here");
        }
        None
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

    /// A CAST for a call, which may come before the call's request.
    pub(crate) fn handle_cast(&mut self, now: Timestamp, by: Arrival, call: CallId, cast: Cast) {
        let is_new = self.visit_mut(call).is_none_or(|visit| visit.mailbox.is_none());
        if is_new && self.remembered + self.running >= self.limits.remembered_max {
            return;
        }
        let held = Mailbox::cost(&cast);
        if self.cast_bytes + held > self.limits.cast_bytes_total_max {
            return;
        }
        let budget = Duration::from_micros(cast.budget_us).min(self.limits.deadline_max);
        let (casts_max, bytes_max) = (self.limits.casts_max, self.limits.cast_bytes_max);
        let visit = self.visit(call, by.from, now + budget);
        let mailbox =
            visit.mailbox.get_or_insert_with(|| Box::new(Mailbox::new(casts_max, bytes_max)));
        if mailbox.post(by.via, cast) == Posted::Kept {
            self.cast_bytes += held;
            self.events.push_back(ParticipantEvent::Cast(call));
        }
        if is_new {
            self.remembered += 1;
            self.arm(call);
        }
    }

    /// The oldest cast of a call that waits, with its authenticated sender.
    pub(crate) fn take_cast(&mut self, call: CallId) -> Option<(NodeId, Cast)> {
        let (from, cast) = self.visit_mut(call)?.mailbox.as_mut()?.take()?;
        self.cast_bytes -= cast.payload.len();
        Some((from, cast))
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &mut Links) {
        self.grow_aged(now);
        while let Some((at, call)) = self.timers.pop_due(now) {
            let visit = self.visit_mut(call).filter(|visit| visit.armed_at == Some(at));
            if let Some(visit) = visit {
                visit.armed_at = None;
                self.expire(now, call, links);
            }
        }
    }

    fn expire(&mut self, now: Timestamp, call: CallId, links: &mut Links) {
        let Some(visit) = self.visit_mut(call) else { return };
        if visit.next_timeout() > now {
            self.arm(call);
            return;
        }
        while let Some(task) = self.visit_mut(call).and_then(|visit| visit.pop_late(now)) {
            self.stop(now, &TaskRef { call, task }, Cause::Deadline, links);
        }
        self.give_up_dial(now, call, links);
        let is_over = self
            .visit_mut(call)
            .is_some_and(|visit| visit.forget_at <= now && visit.running_count() == 0);
        if is_over {
            self.forget(call);
        } else {
            self.arm(call);
        }
    }

    /// Ends a task that is not wanted any more, from outside its handler.
    fn stop(&mut self, now: Timestamp, task: &TaskRef, cause: Cause, links: &mut Links) {
        let Some(running) = self.visit_mut(task.call).and_then(|v| v.running(&task.task)) else {
            return;
        };
        if running.finished().is_none() {
            let stop = ParticipantEvent::Stop { task: task.clone(), cause };
            if cause == Cause::Deadline {
                running.fail(TaskFailure::new(cause, Executed::Maybe, ""));
            }
            self.events.push_back(stop);
        }
        self.drain_task(now, task, links);
        if let Some(running) = self.visit_mut(task.call).and_then(|v| v.running(&task.task)) {
            let entries = running.abandon(cause);
            self.drain_task(now, task, links);
            let me = self.me;
            let record = self.visit_mut(task.call).and_then(|v| v.tasks.get(&task.task));
            let sender = record.map_or(me, |record| record.from);
            let entries = self.still_wanted(task.call, sender, entries);
            if !entries.is_empty() {
                let message = Message::Manifest(Manifest { entries });
                self.send_up(now, task.call, &task.task, message, links);
            }
        }
    }

    /// The entries among these that describe ancestors which are not cancelled themselves.
    fn still_wanted(
        &mut self,
        call: CallId,
        sender: NodeId,
        mut entries: Vec<Entry>,
    ) -> Vec<Entry> {
        if let Some(visit) = self.visit_mut(call) {
            entries.retain(|entry| !visit.is_cancelled(&entry.task.path, sender));
        }
        entries
    }

    /// Keeps that a cancelled task came, for who asks: until then the cancel may be a stranger's.
    fn remember_refused(&mut self, call: CallId, task: &TaskKey) {
        let has_room = self.remembered + self.running < self.limits.remembered_max;
        let Some(visit) = self.visit_mut(call) else { return };
        if has_room && visit.status(task) == TaskStatus::Unknown {
            visit.fences.insert(task.clone());
            self.remembered += 1;
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

    /// Finished tasks, fences, cancel marks and mailboxes remembered.
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

    fn send_request(&mut self, now: Timestamp, call: CallId, child: ChildRequest, links: &Links) {
        let Some(visit) = self.visit_mut(call) else { return };
        let of_visit = (visit.origin, visit.floor);
        self.send_request_of(now, call, of_visit, child, links);
    }

    fn send_request_of(
        &mut self,
        now: Timestamp,
        call: CallId,
        (origin, floor): (NodeId, u64),
        child: ChildRequest,
        links: &Links,
    ) {
        let reply_route = if origin == self.me {
            ReplyRoute::Sender
        } else {
            ReplyRoute::Node { node: origin, addresses: links.addresses(origin) }
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let request = Request {
            budget_us: micros(child.deadline.since(now)),
            outlasted_us: micros(child.call_deadline.since(child.deadline.max(now))),
            floor,
            method: child.method,
            reply_route,
            inherited: child.inherited,
            extensions: child.extensions,
            payload: child.payload,
        };
        let header = Header { call, task: child.task };
        self.out.push_back(Outbound::new(child.to, header, Message::Request(request)));
    }

    /// The request of a branch was handed to this connection.
    pub(crate) fn note_branch_link(&mut self, header: &Header, to: NodeId, link: LinkNonce) {
        if self.note_brief_link(header, link) {
            return;
        }
        let visit = self.visit_mut(header.call);
        if visit.is_some_and(|visit| visit.note_branch_link(&header.task, to, link)) {
            *self.branch_visits.entry(to).or_default() += 1;
        }
    }

    fn visit_mut(&mut self, call: CallId) -> Option<&mut Visit> {
        self.grow(call);
        self.origins.get_mut(&call.origin)?.visits.get_mut(&call.seq)
    }

    /// The visit, made if need be, that is remembered at least until `deadline` and the time that a
    /// connection may be paused without being noticed.
    fn visit(&mut self, call: CallId, origin: NodeId, deadline: Timestamp) -> &mut Visit {
        self.grow(call);
        let Origin { visits, .. } = self.origins.entry(call.origin).or_default();
        let visit = visits.entry(call.seq).or_insert_with(|| {
            self.visit_count += 1;
            Visit::new(origin)
        });
        visit.deadline = visit.deadline.max(deadline);
        visit.forget_at = visit.deadline + self.limits.keep_alive_timeout;
        visit
    }

    /// The initiator says that all its calls below `floor` are settled: what is remembered of them goes.
    fn raise_floor(&mut self, call: CallId, floor: u64) {
        let Some(origin) = self.origins.get_mut(&call.origin) else { return };
        if floor <= origin.floor {
            return;
        }
        origin.floor = floor;
        self.settle_briefs(call.origin, floor, None);
        let settled: Vec<u64> = self
            .origin(call.origin)
            .visits
            .range(..floor)
            .filter(|(_, visit)| visit.running_count() == 0)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in settled {
            self.drop_visit(CallId { origin: call.origin, seq });
        }
    }

    fn origin(&mut self, origin: Incarnation) -> &mut Origin {
        self.origins.entry(origin).or_default()
    }

    fn drop_visit(&mut self, call: CallId) {
        let Some(origin) = self.origins.get_mut(&call.origin) else { return };
        let Some(visit) = origin.visits.remove(&call.seq) else { return };
        self.remembered -= visit.remembered_count();
        self.visit_count -= 1;
        self.cast_bytes -= visit.mailbox.as_ref().map_or(0, |mailbox| mailbox.held_bytes());
        visit.branch_nodes().for_each(|node| lower(&mut self.branch_visits, node, 1));
        visit
            .fenced_by()
            .iter()
            .for_each(|(peer, count)| lower(&mut self.fences_of, *peer, *count));
    }

    fn forget(&mut self, call: CallId) {
        self.drop_visit(call);
        // The floor alone protects against nothing that could still come: no visit, no budget left.
        if self.origins.get(&call.origin).is_some_and(Origin::is_empty) {
            self.origins.remove(&call.origin);
        }
    }

    fn arm(&mut self, call: CallId) {
        let Some(visit) = self.visit_mut(call) else { return };
        let at = visit.next_timeout();
        if visit.armed_at.is_some_and(|armed_at| armed_at <= at) {
            return;
        }
        visit.armed_at = Some(at);
        self.timers.push(at, call);
        if self.timers.is_crowded(self.visit_count) {
            self.timers.sweep(armed(&self.origins));
        }
    }
}

fn lower(counts: &mut BTreeMap<NodeId, usize>, node: NodeId, by: usize) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= by;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}

fn armed(
    origins: &BTreeMap<Incarnation, Origin>,
) -> impl Iterator<Item = (Timestamp, CallId)> + '_ {
    origins.iter().flat_map(|(origin, of_origin)| {
        let visits = of_origin.visits.iter();
        visits.filter_map(|(seq, visit)| {
            Some((visit.armed_at?, CallId { origin: *origin, seq: *seq }))
        })
    })
}

struct Refusal {
    failure: TaskFailure,
    unrecorded: bool,
}

/// There is no room to remember the refusal. A transport delivers a request once, so no copy of it can
/// run after this.
fn unrecorded_fail(failure: TaskFailure, inherited: Vec<Entry>) -> Message {
    Message::Fail(Fail {
        cause: failure.cause,
        executed: failure.executed,
        code: failure.code,
        node: None,
        text: failure.text,
        entry: None,
        aborts_children: false,
        inherited,
        details: failure.details,
    })
}

fn is_unknown_and_critical(extension: &Extension) -> bool {
    extension.tag & extension::CRITICAL != 0
}
