//! Tasks that do one thing, which most tasks are, kept flat.
//!
//! A brief task is the only one of its call here and can reach the initiator directly. It has done nothing
//! yet, or holds one branch that it is about to hand itself over to, or has ended with one reply or by
//! handing over. It knows what a [`Visit`](super::super::visit::Visit) with such a task would. Whatever
//! else happens to it (another frame of its call, any other output, age) makes a visit of it first, which
//! then takes what happened; so a brief decides nothing of its own.
//!
//! ```text
//!  Running ──one reply──▶ Replying ──the handler ended──▶ Answered
//!     └──one branch──▶ Holding ──the handler ended──▶ HandedOver
//! ```
//!
//! It remembers that its task ran, as a tombstone does. Most are dropped flat, when their initiator says
//! that the call is settled.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Entry, Extension, Header, Message, Reply, ReplyPath, ReplyRoute, Request};

use super::super::links::Links;
use super::super::task::{ChildRequest, Task, may_ride};
use super::super::visit::Route;
use super::super::{Arrival, Outbound, key};
use super::memory::lower;
use super::{Branch, Participant, Start, TaskRef};

/// A task that is brief so far.
#[derive(Debug)]
pub(super) struct Brief {
    seq: u64,
    task: TaskKey,
    /// Who sent the request.
    from: NodeId,
    /// The connection it came by, if its sender is the initiator.
    came_by: Option<LinkNonce>,
    /// The initiator, and a connection to it.
    origin: NodeId,
    route: LinkNonce,
    floor: u64,
    deadline: Timestamp,
    call_deadline: Timestamp,
    extensions: Vec<Extension>,
    inherited: Vec<Entry>,
    state: State,
}

#[derive(Debug)]
enum State {
    Running,
    Replying(Bytes),
    Holding(Box<ChildRequest>),
    Answered,
    /// And by which connection the request left, once it has.
    HandedOver(NodeId, Option<LinkNonce>),
}

/// The brief tasks of one initiator: one ring for each node that sent their requests, by call number.
#[derive(Debug, Default)]
pub(super) struct Briefs(SmallVec<[Ring; 1]>);

#[derive(Debug)]
struct Ring {
    from: NodeId,
    briefs: VecDeque<Brief>,
}

impl Ring {
    fn position(&self, seq: u64) -> Result<usize, usize> {
        // Most come in order; where an initiator asks nobody else, without gaps.
        let (Some(first), Some(last)) = (self.briefs.front(), self.briefs.back()) else {
            return Err(0);
        };
        if last.seq < seq {
            return Err(self.briefs.len());
        }
        let guess = usize::try_from(seq.saturating_sub(first.seq)).unwrap_or(usize::MAX);
        match self.briefs.get(guess) {
            Some(brief) if brief.seq == seq => Ok(guess),
            _ => self.briefs.binary_search_by_key(&seq, |brief| brief.seq),
        }
    }

    fn pop_below(&mut self, floor: u64) -> Option<Brief> {
        if self.briefs.front()?.seq < floor { self.briefs.pop_front() } else { None }
    }
}

impl Briefs {
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.get(seq).is_some()
    }

    fn get(&self, seq: u64) -> Option<&Brief> {
        self.0.iter().find_map(|ring| ring.briefs.get(ring.position(seq).ok()?))
    }

    fn get_mut(&mut self, seq: u64) -> Option<&mut Brief> {
        self.0.iter_mut().find_map(|ring| {
            let position = ring.position(seq).ok()?;
            ring.briefs.get_mut(position)
        })
    }

    fn insert(&mut self, brief: Brief) {
        let ring = match self.0.iter().position(|ring| ring.from == brief.from) {
            Some(index) => &mut self.0[index],
            None => {
                self.0.push(Ring { from: brief.from, briefs: VecDeque::new() });
                self.0.last_mut().expect("it was just pushed")
            }
        };
        let position = ring.position(brief.seq).unwrap_or_else(|position| position);
        ring.briefs.insert(position, brief);
    }

    fn remove(&mut self, seq: u64) -> Option<Brief> {
        let removed = self.0.iter_mut().find_map(|ring| {
            let position = ring.position(seq).ok()?;
            ring.briefs.remove(position)
        });
        self.0.retain(|ring| !ring.briefs.is_empty());
        removed
    }

    /// Takes out one whose call is numbered below `floor`; with `from`, one whose request that node sent.
    pub(super) fn pop_below(&mut self, floor: u64, from: Option<NodeId>) -> Option<Brief> {
        let mut rings = self.0.iter_mut().filter(|ring| from.is_none_or(|from| ring.from == from));
        rings.find_map(|ring| ring.pop_below(floor))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|ring| ring.briefs.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|ring| ring.briefs.len()).sum()
    }

    fn iter(&self) -> impl Iterator<Item = &Brief> {
        self.0.iter().flat_map(|ring| &ring.briefs)
    }
}

impl State {
    /// Whether the handler has ended.
    fn is_over(&self) -> bool {
        matches!(self, Self::Answered | Self::HandedOver(..))
    }

    /// Whether the task has done nothing yet.
    fn is_fresh(&self) -> bool {
        matches!(self, Self::Running)
    }
}

impl Brief {
    /// The node that a request of it has left for, and the connection.
    fn branch_link(&self) -> Option<(NodeId, LinkNonce)> {
        match self.state {
            State::HandedOver(node, link) => Some((node, link?)),
            _ => None,
        }
    }
}

impl Participant {
    /// A connection to the initiator that the task of a request can reply by, if the task is to be brief.
    pub(super) fn brief_route(
        &self,
        by: Arrival,
        origin: NodeId,
        header: &Header,
        request: &Request,
        links: &Links,
    ) -> Option<LinkNonce> {
        let Header { call, task } = header;
        let has_time = self.budget(request.budget_us) > self.limits.worry_min;
        if !has_time || by.via == self.me || origin == self.me || !may_ride(&request.inherited) {
            return None;
        }
        if self.origins.get(&call.origin).is_some_and(|of_origin| of_origin.knows(call.seq)) {
            return None;
        }
        let route = match &request.reply_route {
            ReplyRoute::Sender => Some(by.link),
            ReplyRoute::Node { .. } => {
                let is_same_life = links.incarnation(origin) == Some(call.origin);
                links.current(origin).filter(|_| is_same_life)
            }
        }?;
        self.refusal(task, request).is_none().then_some(route)
    }

    /// Takes the request of a brief task.
    pub(super) fn admit_brief(
        &mut self,
        now: Timestamp,
        by: Arrival,
        (origin, route): (NodeId, LinkNonce),
        header: Header,
        request: Request,
    ) {
        let Header { call, task } = header;
        let deadline = now + self.budget(request.budget_us);
        let came_by = (request.reply_route == ReplyRoute::Sender).then_some(by.link);
        let brief = Brief {
            seq: call.seq,
            task: task.clone(),
            from: by.via,
            came_by,
            origin,
            route,
            floor: self.vouched_floor(call, &request),
            deadline,
            call_deadline: self.call_deadline(now, deadline, &request),
            extensions: request.extensions.clone(),
            inherited: request.inherited,
            state: State::Running,
        };
        self.origin(call.origin).briefs.insert(brief);
        self.running += 1;
        self.forget_aged();
        self.ageing.push_back((now + self.limits.worry_min, call));
        self.events.push_back(super::ParticipantEvent::Start(Box::new(Start {
            task: TaskRef { call, task },
            from: by.via,
            link: by.link,
            origin,
            method: request.method,
            deadline,
            extensions: request.extensions,
            payload: request.payload,
        })));
    }

    /// Sends the only reply of a brief task, which ends it. Gives the reply back when it must be sent as
    /// any other.
    pub(super) fn answer_brief(
        &mut self,
        task: &TaskRef,
        payload: Bytes,
        links: &Links,
    ) -> Result<(), Bytes> {
        let leaves_whole = self.leaves_whole(&payload);
        let sendable = self.brief_mut(task.call).filter(|brief| {
            leaves_whole && brief.state.is_fresh() && links.is_up(brief.origin, brief.route)
        });
        let Some(brief) = sendable else { return Err(payload) };
        brief.state = State::Answered;
        brief.extensions = Vec::new();
        let inherited = brief.inherited.clone();
        let (to, link) = (brief.origin, brief.route);
        self.end_brief();
        let header = Header { call: task.call, task: task.task.clone() };
        let reply = Reply { inherited, ..Reply::sole(payload) };
        let reply = Outbound::new(to, header, Message::Reply(reply));
        self.out.push_back(Outbound { link: Some(link), ..reply });
        Ok(())
    }

    /// Whether a reply needs no credit of its initiator.
    fn leaves_whole(&self, payload: &Bytes) -> bool {
        payload.len() as u64 <= self.limits.unscheduled_bytes
            && payload.len() <= self.limits.message_bytes_max
    }

    /// Holds the only reply of a brief task back, for it may be all that the task does. Gives it back when
    /// it must be sent as any other.
    pub(super) fn reply_brief(&mut self, task: &TaskRef, payload: Bytes) -> Result<(), Bytes> {
        let leaves_whole = self.leaves_whole(&payload);
        let brief = self.brief_mut(task.call);
        let holdable = brief.filter(|brief| leaves_whole && brief.state.is_fresh());
        let Some(brief) = holdable else { return Err(payload) };
        brief.state = State::Replying(payload);
        Ok(())
    }

    /// Holds the only branch of a brief task back, for it may be all that the task does. Gives it back
    /// when it must be opened as any other.
    pub(super) fn delegate_brief(
        &mut self,
        task: &TaskRef,
        branch: Branch,
    ) -> Result<TaskKey, Branch> {
        let may_open =
            branch.payload.len() <= self.limits.message_bytes_max && self.limits.children_max > 0;
        let brief = self.brief_mut(task.call);
        let holdable = brief.filter(|brief| may_open && brief.state.is_fresh());
        let Some(brief) = holdable else { return Err(branch) };
        let Ok(path) = brief.task.path.child(0) else { return Err(branch) };
        let Branch { to, method, payload, extensions, deadline } = branch;
        let child = key(path, 0);
        brief.state = State::Holding(Box::new(ChildRequest {
            to,
            task: child.clone(),
            method,
            extensions: super::commands::inherit(&brief.extensions, extensions),
            inherited: Vec::new(),
            payload,
            deadline: deadline.unwrap_or(Timestamp::MAX).min(brief.deadline),
            call_deadline: brief.call_deadline,
        }));
        Ok(child)
    }

    /// The handler of a brief task ended: the reply that it holds leaves, or the branch becomes the task.
    /// False when it must end as any other.
    pub(super) fn finish_brief(&mut self, now: Timestamp, task: &TaskRef, links: &Links) -> bool {
        let Some(brief) = self.brief_mut(task.call) else { return false };
        match std::mem::replace(&mut brief.state, State::Running) {
            State::Replying(payload) => match self.answer_brief(task, payload, links) {
                Ok(()) => true,
                Err(payload) => {
                    // The way to the initiator is gone.
                    let held = self.reply_brief(task, payload);
                    debug_assert!(held.is_ok(), "it was held before");
                    false
                }
            },
            State::Holding(child) => {
                self.hand_over(now, task, *child, links);
                true
            }
            other => {
                brief.state = other;
                false
            }
        }
    }

    fn hand_over(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        mut child: ChildRequest,
        links: &Links,
    ) {
        let Some(brief) = self.brief_mut(task.call) else { return };
        brief.state = State::HandedOver(child.to, None);
        brief.extensions = Vec::new();
        child.task = key(brief.task.path.clone(), brief.task.hop + 1);
        child.inherited = brief.inherited.clone();
        let (origin, floor) = (brief.origin, brief.floor);
        self.end_brief();
        self.send_request_of(now, task.call, (origin, floor), child, links);
    }

    /// The request of a brief task's only branch was handed to this connection. False when it is not one.
    pub(super) fn note_brief_link(&mut self, header: &Header, link: LinkNonce) -> bool {
        let Some(brief) = self.brief_mut(header.call) else { return false };
        let is_its_own = header.task.path == brief.task.path;
        let State::HandedOver(to, left_by @ None) = &mut brief.state else { return false };
        if !is_its_own {
            return false;
        }
        *left_by = Some(link);
        let to = *to;
        *self.branch_visits.entry(to).or_default() += 1;
        true
    }

    /// Drops the finished brief tasks of calls numbered below `floor`, which are settled; with `from`, only
    /// those whose requests that node sent.
    pub(super) fn settle_briefs(&mut self, origin: Incarnation, floor: u64, from: Option<NodeId>) {
        while let Some(of_origin) = self.origins.get_mut(&origin)
            && let Some(brief) = of_origin.briefs.pop_below(floor, from)
        {
            if !brief.state.is_over() {
                self.grow_taken(CallId { origin, seq: brief.seq }, brief);
                continue;
            }
            self.remembered -= 1;
            if let Some((node, _)) = brief.branch_link() {
                lower(&mut self.branch_visits, node, 1);
            }
        }
    }

    /// Makes visits of the brief tasks that were handed over to `node`.
    pub(super) fn grow_handed_over(&mut self, node: NodeId) {
        let mut calls = Vec::new();
        for (origin, of_origin) in &self.origins {
            let briefs = of_origin.briefs.iter();
            let there =
                briefs.filter(|brief| brief.branch_link().is_some_and(|(to, _)| to == node));
            calls.extend(there.map(|brief| CallId { origin: *origin, seq: brief.seq }));
        }
        calls.into_iter().for_each(|call| self.grow(call));
    }

    /// Makes a visit of a brief task, if the call is one.
    pub(super) fn grow(&mut self, call: CallId) {
        let origin = self.origins.get_mut(&call.origin);
        let Some(brief) = origin.and_then(|origin| origin.briefs.remove(call.seq)) else { return };
        self.grow_taken(call, brief);
    }

    pub(super) fn grow_taken(&mut self, call: CallId, brief: Brief) {
        let Brief { task, from, came_by, origin, route, floor, deadline, call_deadline, .. } =
            brief;
        let Brief { extensions, inherited, state, .. } = brief;
        let mut running = Task::new(task.clone(), deadline, call_deadline, inherited, &self.limits);
        let (is_answered, is_over) = (matches!(state, State::Answered), state.is_over());
        let mut left = None;
        let expect = "a new task takes it";
        match state {
            State::Running => {}
            State::Replying(payload) => running.reply(payload).expect(expect),
            State::Holding(child) => {
                let ChildRequest { to, method, extensions, payload, deadline, .. } = *child;
                running.delegate(to, method, extensions, payload, deadline).expect(expect);
            }
            State::Answered => running.reply(Bytes::new()).expect(expect),
            State::HandedOver(to, link) => {
                let (method, extensions, payload) = (MethodId(0), Vec::new(), Bytes::new());
                running.delegate(to, method, extensions, payload, deadline).expect(expect);
                left = link.map(|link| (to, link));
            }
        }
        if is_over {
            running.finish();
            while running.poll_output().is_some() {} // It has left.
        }
        let visit = self.visit(call, origin, call_deadline);
        visit.floor = floor;
        visit.start(from, came_by, running, extensions);
        if is_answered {
            visit.route = Route::Link(route);
            visit.note_reply_path(&task, ReplyPath::Link(route));
        }
        if let Some((to, link)) = left {
            visit.note_branch_link(&key(task.path.clone(), task.hop + 1), to, link);
        }
        if is_over {
            visit.bury(&task);
        }
        self.arm(call);
    }

    /// Whether a brief task runs, or has; `None` when there is none.
    pub(super) fn is_brief_running(&self, call: CallId) -> Option<bool> {
        let brief = self.origins.get(&call.origin)?.briefs.get(call.seq)?;
        Some(!brief.state.is_over())
    }

    /// Makes visits of those that are too old to be brief.
    pub(super) fn grow_aged(&mut self, now: Timestamp) {
        while self.ageing.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, call)) = self.ageing.pop_front() {
                self.grow(call);
            }
        }
    }

    /// Drops the oldest of the queue that are brief no longer.
    fn forget_aged(&mut self) {
        while let Some((_, call)) = self.ageing.front()
            && self.is_brief_running(*call).is_none()
        {
            self.ageing.pop_front();
        }
    }

    fn brief_mut(&mut self, call: CallId) -> Option<&mut Brief> {
        self.origins.get_mut(&call.origin)?.briefs.get_mut(call.seq)
    }

    fn end_brief(&mut self) {
        self.running -= 1;
        self.remembered += 1;
    }
}
