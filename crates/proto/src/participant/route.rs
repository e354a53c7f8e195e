//! The way back to the initiator: a connection both share, else dialling it, else through the parent; and
//! the way of requests to children.

use std::collections::VecDeque;
use std::time::Duration;

use crate::id::{CallId, LinkNonce, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Frame, Header, Message, Probe, ReplyRoute, Request};

use super::super::limits::ReplyDial;
use super::super::links::{Links, Way};
use super::super::task::{ChildRequest, TaskOutput, reply_path};
use super::super::visit::{Route, Upward};
use super::super::{Arrival, Outbound};
use super::{Participant, TaskRef};

impl Participant {
    /// Sends a message of one of this node's tasks to the initiator.
    pub(super) fn send_up(
        &mut self,
        now: Timestamp,
        call: CallId,
        task: &TaskKey,
        message: Message,
        links: &mut Links,
    ) {
        self.send_upward(now, call, Upward { from: self.me, task: task.clone(), message }, links);
    }

    fn send_upward(&mut self, now: Timestamp, call: CallId, upward: Upward, links: &mut Links) {
        self.fix_route(now, call, &upward.task, links);
        let me = self.me;
        let bytes_max = self.limits.dial_queue_bytes_max;
        let Some(visit) = self.visit_mut(call) else { return };
        let (to, link, relay) = match &mut visit.route {
            Route::Local => (me, None, None),
            Route::Link(link) => (visit.origin, Some(*link), None),
            Route::Relay => match visit.upstream(me, &upward.task) {
                Some(relay) if relay != visit.origin => (relay, None, Some(relay)),
                _ => return, // No way at all: the initiator is gone.
            },
            Route::Dialling { queue, queue_bytes, .. } => {
                *queue_bytes += upward.message.payload().map_or(0, bytes::Bytes::len);
                let is_full = *queue_bytes > bytes_max;
                queue.push_back(upward);
                if is_full {
                    self.relay_queue(now, call, links);
                }
                return;
            }
            Route::Unset => return, // As above.
        };
        let Upward { from, task, message } = upward;
        if from == me && TaskOutput::is_reply(&message) {
            visit.note_reply_path(&task, reply_path(link, relay));
        }
        let mut outbound = Outbound::new(to, Header { call, task }, message);
        outbound.link = link;
        outbound.relayed_from = (relay.is_some() || from != me).then_some(from);
        self.out.push_back(outbound);
    }

    /// Answers a request of which nothing is kept: the initiator if it is connected, else through the
    /// sender, who knows its ancestors.
    pub(super) fn send_back(
        &mut self,
        by: Arrival,
        origin: NodeId,
        header: Header,
        message: Message,
        links: &Links,
    ) {
        let is_same_life = links.incarnation(origin) == Some(header.call.origin);
        let is_direct = origin == self.me || (is_same_life && links.current(origin).is_some());
        let to = if is_direct { origin } else { by.via };
        let mut outbound = Outbound::new(to, header, message);
        outbound.relayed_from = (!is_direct).then_some(self.me);
        self.out.push_back(outbound);
    }

    /// Makes sure the visit has a route that is not known to be broken, if there is any.
    fn fix_route(&mut self, now: Timestamp, call: CallId, task: &TaskKey, links: &mut Links) {
        let me = self.me;
        let policy = self.limits.reply_dial;
        let dial_timeout = self.limits.reply_dial_timeout;
        let Some(visit) = self.visit_mut(call) else { return };
        let is_good = match &visit.route {
            Route::Unset => false,
            Route::Local | Route::Dialling { .. } => true,
            Route::Link(link) => links.is_up(visit.origin, *link),
            Route::Relay => {
                let relay = visit.upstream(me, task).filter(|relay| *relay != visit.origin);
                relay.is_some_and(|relay| links.current(relay).is_some())
            }
        };
        if is_good {
            return;
        }
        let origin = visit.origin;
        let direct = visit.came_by().filter(|link| links.is_up(origin, *link));
        let direct = direct.or_else(|| {
            let is_same_life = links.incarnation(origin) == Some(call.origin);
            links.current(origin).filter(|_| is_same_life)
        });
        let may_dial = !visit.gave_up_dialling
            && match policy {
                ReplyDial::Never => false,
                ReplyDial::KnownNodes => links.is_configured(origin),
                ReplyDial::Anybody => true,
            };
        visit.route = if origin == me {
            Route::Local
        } else if let Some(link) = direct {
            Route::Link(link)
        } else if may_dial && links.way(now, origin) == Way::Dialable {
            let budget = visit.deadline.since(now);
            let give_up_at = now + dial_timeout.min(budget / 4);
            links.dial(origin);
            Route::Dialling { give_up_at, queue: VecDeque::new(), queue_bytes: 0 }
        } else {
            Route::Relay
        };
        if matches!(visit.route, Route::Dialling { .. }) {
            self.arm(call);
        }
    }

    /// A connection to an initiator came up: what waited for it goes.
    pub(crate) fn handle_link_up(&mut self, now: Timestamp, node: NodeId, links: &mut Links) {
        for call in self.dialling(node) {
            self.release_queue(now, call, links);
        }
    }

    /// No connection to an initiator could be made: what waited for it goes through the parent.
    pub(crate) fn handle_dial_failed(&mut self, now: Timestamp, node: NodeId, links: &mut Links) {
        for call in self.dialling(node) {
            self.relay_queue(now, call, links);
        }
    }

    pub(super) fn give_up_dial(&mut self, now: Timestamp, call: CallId, links: &mut Links) {
        let is_late = self.visit_mut(call).is_some_and(
            |visit| matches!(visit.route, Route::Dialling { give_up_at, .. } if give_up_at <= now),
        );
        if is_late {
            self.relay_queue(now, call, links);
        }
    }

    fn dialling(&self, node: NodeId) -> Vec<CallId> {
        let mut calls = Vec::new();
        for (origin, of_origin) in &self.origins {
            for (seq, visit) in &of_origin.visits {
                if visit.origin == node && matches!(visit.route, Route::Dialling { .. }) {
                    calls.push(CallId { origin: *origin, seq: *seq });
                }
            }
        }
        calls
    }

    /// The dial ended well: the queue takes the best route there is now.
    fn release_queue(&mut self, now: Timestamp, call: CallId, links: &mut Links) {
        let Some(visit) = self.visit_mut(call) else { return };
        if let Route::Dialling { queue, .. } = std::mem::replace(&mut visit.route, Route::Unset) {
            for upward in queue {
                self.send_upward(now, call, upward, links);
            }
        }
    }

    /// The dial ended badly, or took too long, or too much waits: through the parent.
    fn relay_queue(&mut self, now: Timestamp, call: CallId, links: &mut Links) {
        let Some(visit) = self.visit_mut(call) else { return };
        let Route::Dialling { queue, .. } = std::mem::replace(&mut visit.route, Route::Relay)
        else {
            return;
        };
        visit.gave_up_dialling = true;
        for upward in queue {
            self.send_upward(now, call, upward, links);
        }
    }

    /// A frame of another node's task, on its way up to the initiator: passed on by this node's own
    /// route.
    pub(crate) fn relay_up(
        &mut self,
        now: Timestamp,
        by: Arrival,
        frame: Frame,
        links: &mut Links,
    ) {
        let Frame { header: Header { call, task }, message, .. } = frame;
        if !self.visit_mut(call).is_some_and(|visit| visit.is_downstream(by.via, &task)) {
            return;
        }
        self.send_upward(now, call, Upward { from: by.from, task, message }, links);
    }

    /// A frame of the initiator for a task further down: passed on to the next node on the way that its
    /// request took, for each takes it only from there.
    pub(crate) fn relay_down(&mut self, by: Arrival, is_initiators: bool, frame: Frame) {
        let Some(visit) = self.visit_mut(frame.header.call) else { return };
        if !is_initiators && !visit.is_upstream(by.via, &frame.header.task) {
            return;
        }
        if let Some(to) = visit.downstream(&frame.header.task) {
            let mut outbound = Outbound::new(to, frame.header, frame.message);
            outbound.relayed_from = frame.relayed_from;
            self.out.push_back(outbound);
        }
    }

    /// Whether frames for a task can come by `node` from the initiator.
    pub(crate) fn is_upstream(&mut self, node: NodeId, task: &TaskRef) -> bool {
        self.visit_mut(task.call).is_some_and(|visit| visit.is_upstream(node, &task.task))
    }

    /// Takes out of a relayed PROBE what only the initiator's own may ask: fences, and tasks that came by
    /// another way.
    pub(crate) fn restrict_probe(&mut self, by: Arrival, call: CallId, probe: &mut Probe) {
        probe.fence = false;
        let Some(visit) = self.visit_mut(call) else { return };
        probe
            .tasks
            .retain(|task| !visit.tasks.contains_key(task) || visit.is_upstream(by.via, task));
    }

    /// Who initiates a call, as far as known here.
    pub(crate) fn initiator_of(&mut self, call: CallId) -> Option<NodeId> {
        self.visit_mut(call).map(|visit| visit.origin)
    }

    pub(super) fn send_request(
        &mut self,
        now: Timestamp,
        call: CallId,
        child: ChildRequest,
        links: &Links,
    ) {
        let Some(visit) = self.visit_mut(call) else { return };
        let of_visit = (visit.origin, visit.floor);
        self.send_request_of(now, call, of_visit, child, links);
    }

    pub(super) fn send_request_of(
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
}
