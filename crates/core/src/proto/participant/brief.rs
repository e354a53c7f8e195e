//! Tasks of flat calls, which most tasks are, kept flat.
//!
//! A brief task was opened by its initiator over a connection of its own, carries nothing for others, and
//! has done nothing yet but, at its end, send one reply. It knows what a [`Visit`] with one such task
//! would. Whatever else happens to it (another frame of its call, any other output, age) makes a visit of
//! it first, which then takes what happened; so a brief decides nothing of its own.
//!
//! It remembers that its task ran, as a tombstone does. Most are dropped flat, by the next requests of
//! their initiator, which say that the call is settled.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::id::{CallId, LinkNonce, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Extension, Frame, Header, Message, Reply, ReplyPath, ReplyRoute, Request};

use super::super::links::Links;
use super::super::task::Task;
use super::super::visit::Route;
use super::super::{Arrival, Transmit, admission};
use super::{Participant, Start, TaskRef};
use crate::transport::Lane;

/// A task that is brief so far.
#[derive(Debug)]
pub(super) struct Brief {
    seq: u64,
    task: TaskKey,
    from: NodeId,
    link: LinkNonce,
    floor: u64,
    deadline: Timestamp,
    extensions: Vec<Extension>,
    is_over: bool,
}

/// The brief tasks of one initiator, by call number.
#[derive(Debug, Default)]
pub(super) struct Briefs(VecDeque<Brief>);

impl Briefs {
    fn position(&self, seq: u64) -> Result<usize, usize> {
        // Most come in order, and most are asked for soon.
        match self.0.back() {
            None => Err(0),
            Some(last) if last.seq < seq => Err(self.0.len()),
            Some(_) => self.0.binary_search_by_key(&seq, |brief| brief.seq),
        }
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.position(seq).is_ok()
    }

    fn get(&self, seq: u64) -> Option<&Brief> {
        self.0.get(self.position(seq).ok()?)
    }

    fn remove(&mut self, seq: u64) -> Option<Brief> {
        let position = self.position(seq).ok()?;
        self.0.remove(position)
    }

    /// Takes out the oldest if its call is numbered below `floor`.
    pub(super) fn pop_below(&mut self, floor: u64) -> Option<Brief> {
        if self.0.front()?.seq < floor { self.0.pop_front() } else { None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Brief {
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }
}

impl Participant {
    /// Whether the task of a request is to be brief.
    pub(super) fn can_be_brief(&self, by: Arrival, header: &Header, request: &Request) -> bool {
        let Header { call, task } = header;
        let is_flat = request.reply_route == ReplyRoute::Sender
            && by.via != self.me
            && admission::opens_root(task)
            && request.inherited.is_empty()
            && request.outlasted_us == 0;
        let is_new = || self.origins.get(&call.origin).is_none_or(|origin| !origin.knows(call.seq));
        is_flat
            && self.budget(request.budget_us) > self.limits.worry_min
            && is_new()
            && self.refusal(task, request).is_none()
    }

    /// Takes the request of a brief task.
    pub(super) fn admit_brief(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: Header,
        request: Request,
    ) {
        let budget = self.budget(request.budget_us);
        let Header { call, task } = header;
        let deadline = now + budget;
        let brief = Brief {
            seq: call.seq,
            task: task.clone(),
            from: by.via,
            link: by.link,
            floor: request.floor,
            deadline,
            extensions: request.extensions.clone(),
            is_over: false,
        };
        let briefs = &mut self.origin(call.origin).briefs;
        let position = briefs.position(call.seq).unwrap_or_else(|position| position);
        briefs.0.insert(position, brief);
        self.running += 1;
        self.forget_aged();
        self.ageing.push_back((now + self.limits.worry_min, call));
        self.events.push_back(super::ParticipantEvent::Start(Box::new(Start {
            task: TaskRef { call, task },
            from: by.via,
            link: by.link,
            origin: by.via,
            method: request.method,
            deadline,
            extensions: request.extensions,
            payload: request.payload,
        })));
    }

    /// Sends the only reply of a brief task, which ends it. Gives the reply back when it must be sent as
    /// any other.
    pub(crate) fn answer_brief(
        &mut self,
        task: &TaskRef,
        payload: Bytes,
        links: &Links,
    ) -> Result<Transmit, Bytes> {
        let TaskRef { call, .. } = *task;
        let is_small = payload.len() as u64 <= self.limits.unscheduled_bytes
            && payload.len() <= self.limits.message_bytes_max;
        let brief = self.origins.get_mut(&call.origin).and_then(|origin| {
            let position = origin.briefs.position(call.seq).ok()?;
            origin.briefs.0.get_mut(position)
        });
        let sendable =
            brief.filter(|brief| is_small && !brief.is_over && links.is_up(brief.from, brief.link));
        let Some(brief) = sendable else { return Err(payload) };
        brief.is_over = true;
        brief.extensions = Vec::new();
        let (to, link) = (brief.from, brief.link);
        self.running -= 1;
        self.remembered += 1;
        let header = Header { call, task: task.task.clone() };
        let frame = Frame::new(header, Message::Reply(Reply::sole(payload)));
        Ok(Transmit { to, link, lane: Lane::Data, frame })
    }

    /// Makes a visit of a brief task, if the call is one.
    pub(super) fn grow(&mut self, call: CallId) {
        let origin = self.origins.get_mut(&call.origin);
        let Some(brief) = origin.and_then(|origin| origin.briefs.remove(call.seq)) else { return };
        self.grow_taken(call, brief);
    }

    pub(super) fn grow_taken(&mut self, call: CallId, brief: Brief) {
        let Brief { task, from, link, deadline, extensions, is_over, floor, .. } = brief;
        let mut running = Task::new(task.clone(), deadline, deadline, Vec::new(), &self.limits);
        if is_over {
            running.reply(Bytes::new()).expect("a new task takes a reply");
            running.finish();
            while running.poll_output().is_some() {} // It has left.
        }
        let visit = self.visit(call, from, deadline);
        visit.floor = floor;
        visit.start(from, Some(link), running, extensions);
        if is_over {
            visit.route = Route::Link(link);
            visit.note_reply_path(&task, ReplyPath::Link(link));
            visit.bury(&task);
        }
        self.arm(call);
    }

    /// Whether a brief task runs, or has; `None` when there is none.
    pub(super) fn is_brief_running(&self, call: CallId) -> Option<bool> {
        let brief = self.origins.get(&call.origin)?.briefs.get(call.seq)?;
        Some(!brief.is_over)
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
}
