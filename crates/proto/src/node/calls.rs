//! Calls of a node: opened with all their branches at once, read, and let go.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::encoded::Encoded;
use crate::id::{CallId, LinkId, Path};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::{Cause, Envelope, Extension, Header, Item, Message};

use super::super::call::{
    Call, CallEvent, CallOptions, Delivered, End, Roots, root_path, root_request,
};
use super::super::initiator::OpenError;
use super::super::outbox::{Destination, Outbox, Rejected};
use super::super::task::SendError;
use super::super::{Arrival, Outbound, key};
use super::Node;

/// A call to be opened: all of its root branches. It takes no others later.
pub struct Opening<'a> {
    /// The time it gets; `None` is the default deadline.
    pub budget: Option<Duration>,
    /// Options of the call: what its caller wants to be told.
    pub options: CallOptions,
    /// Its root branches.
    pub branches: &'a mut dyn Roots,
}

impl fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("budget", &self.budget)
            .field("options", &self.options)
            .field("branches", &self.branches.count())
            .finish()
    }
}

impl<O: Outbox> Node<O> {
    /// Opens a call. A node that cannot be reached is a failure of its branch. The payloads of the
    /// requests are taken out of it.
    ///
    /// # Errors
    /// [`OpenError`] at a bound; then nothing is sent, and the opening is as it was.
    pub fn open(&mut self, now: Timestamp, opening: &mut Opening<'_>) -> Result<CallId, OpenError> {
        let Opening { budget, options, ref mut branches } = *opening;
        let count = branches.count();
        if options.sends_items && count != 1 {
            return Err(OpenError::ItemsToMany { count });
        }
        let budget = budget.unwrap_or(self.deadline_default).min(self.deadline_max);
        let call = self.initiator.begin(count)?;
        if options.sends_items {
            branches.branch_mut(0).1.extensions.push(Extension::items());
        }
        // Its own number is not settled yet.
        let floor = call.seq - self.initiator.floor().min(call.seq);
        let secret = self.secret;
        if self.open_flat(now, call, (budget, options), *branches) {
            let mut rejected = Vec::new();
            for index in (0..).take(count) {
                let Some((to, link)) = self.initiator.leg(call, index) else { break };
                let (_, request) = branches.branch_mut(index);
                let payload = std::mem::take(&mut request.payload);
                let task = &key(root_path(index), 0);
                let envelope = Envelope { call, task, relayed: None, key: None };
                let key = secret.root(call, index);
                let head = envelope.request(&root_request(key, budget, floor, request));
                let to = Destination { to, link, lane: Lane::Data };
                if let Err(reason) = self.hand_over_request(now, to, head.head(), payload) {
                    rejected.push((root_path(index), reason));
                }
            }
            if !rejected.is_empty() {
                self.reject(now, call, rejected);
            }
        } else {
            self.initiator.open_full(call, now, now + budget, options, *branches);
            for index in (0..).take(count) {
                let (to, request) = branches.branch_mut(index);
                let header = Header { call, task: key(root_path(index), 0) };
                let payload = std::mem::take(&mut request.payload);
                let key = secret.root(call, index);
                let request = root_request(key, budget, floor, request);
                let message = Message::Request(request.with(payload.into_bytes()));
                self.send(now, Outbound::new(to, header, message));
            }
        }
        self.pump(now);
        Ok(call)
    }

    /// Opens a call flat, if it can begin so: each branch is to a node that is connected, or this
    /// one, and has time enough for the call to grow first.
    #[inline]
    fn open_flat(
        &mut self,
        now: Timestamp,
        call: CallId,
        (budget, options): (Duration, CallOptions),
        branches: &dyn Roots,
    ) -> bool {
        let (links, deadline) = (&self.links, now + budget);
        let way = |index| {
            let (to, request) = branches.branch(index);
            let (link, life) = links.current_to(to).filter(|(link, _)| !links.is_leaving(*link))?;
            let deadline = request.budget.map_or(deadline, |own| deadline.min(now + own));
            Some((to, link, life, deadline))
        };
        self.initiator.open_flat(call, (now, deadline), options, branches.count(), way)
    }

    /// Fails the branches of a call that connections have refused.
    #[cold]
    fn reject(&mut self, now: Timestamp, call: CallId, rejected: Vec<(Path, Rejected)>) {
        for (path, Rejected { text }) in rejected {
            self.initiator.handle_unsent(now, call, &path, (Cause::Unreachable, &text));
        }
    }

    /// True when reading a call has left frames to be sent, see [`Self::flush`].
    pub fn has_output(&self) -> bool {
        self.initiator.has_output()
    }

    /// Next event of a call for the application, and replies behind it in `ahead`: those that are
    /// small, or all of a call whose branches reply once each. With its end if only that is left to
    /// be told and there is nothing else to be looked at: then the call is let go.
    pub fn poll_last(
        &mut self,
        call: CallId,
        ahead: &mut VecDeque<Delivered>,
    ) -> Option<(CallEvent, Option<End>)> {
        self.initiator.of_mut(call)?.poll_last(call, ahead)
    }

    /// A call that may have something for the application since it was last asked.
    pub fn poll_ready(&mut self) -> Option<CallId> {
        self.initiator.poll_ready()
    }

    /// A call is ready when `count` replies wait, a branch has failed, or the call has ended; once
    /// it is read, for each.
    pub fn wake_after(&mut self, call: CallId, count: usize) {
        if let Some(initiator) = self.initiator.of_mut(call) {
            initiator.wake_after(call, count);
        }
    }

    /// Gives a call up.
    pub fn cancel_call(&mut self, now: Timestamp, call: CallId) {
        if let Some(initiator) = self.initiator.of_mut(call) {
            initiator.cancel(now, call);
        }
        self.pump(now);
    }

    /// The caller has enough and reads the call no longer. What still runs goes on, unless it
    /// `cancels_late`.
    pub fn decide_call(&mut self, now: Timestamp, call: CallId, cancels_late: bool) {
        if let Some(initiator) = self.initiator.of_mut(call) {
            initiator.decide(now, call, cancels_late);
        }
        self.pump(now);
    }

    /// Nobody reads the call any more; an undecided one is cancelled.
    pub fn detach_call(&mut self, now: Timestamp, call: CallId) {
        if let Some(initiator) = self.initiator.of_mut(call) {
            initiator.detach(now, call);
        }
        self.pump(now);
    }

    /// True when an item of the request of a call that `sends_items` can leave now. If not,
    /// [`NodeEvent::ItemsWritable`](super::NodeEvent::ItemsWritable) says once one can. It also
    /// says that none ever will, unless one was sent since: the connection may have no room for it.
    ///
    /// # Errors
    /// [`SendError`] when no item will be taken.
    pub fn poll_items_writable(&mut self, call: CallId) -> Result<bool, SendError> {
        self.initiator.of_mut(call).ok_or(SendError::Ended)?.poll_items_writable(call)
    }

    /// The connection that the items of a call's request take, once they may leave.
    pub fn items_link(&self, call: CallId) -> Option<LinkId> {
        self.initiator.call(call)?.items_link()
    }

    /// True while items of requests may come or go over a connection: they take no other.
    pub fn carries_items(&self, link: LinkId) -> bool {
        let node = self.links.arrival(link).map(|by| by.via);
        node.is_some_and(|node| self.initiator.sends_items(node, link))
            || self.visits.takes_items(link)
    }

    /// Sends an item of the request of a call that `sends_items`. What has no credit waits, so who
    /// sends only once [`Self::poll_items_writable`] says yes keeps one item at most.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_item(
        &mut self,
        now: Timestamp,
        call: CallId,
        payload: impl Into<Encoded>,
    ) -> Result<(), SendError> {
        let mut payload = payload.into();
        let leaves = self.take_item(call, &mut payload);
        self.let_go(payload); // Of one that is refused.
        if let Some((link, item, payload)) = leaves?
            && let Some(Arrival { via: to, .. }) = self.links.arrival(link)
        {
            let task = &key(root_path(0), 0);
            let head = Envelope { call, task, relayed: None, key: None }.item(&item);
            let to = Destination { to, link, lane: Lane::Data };
            if self.hand_over(now, to, head.head(), payload).is_err() {
                self.initiator.lose_items(call);
            }
        }
        self.pump(now);
        Ok(())
    }

    /// Takes an item out of `payload`, if its call takes any. One that is to leave at once, with
    /// its message beside it.
    fn take_item(
        &mut self,
        call: CallId,
        payload: &mut Encoded,
    ) -> Result<Option<(LinkId, Item, Encoded)>, SendError> {
        let (size, limit) = (payload.len(), self.message_bytes_max);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        self.initiator.of_mut(call).ok_or(SendError::Ended)?.send_item(call, payload)
    }

    /// No further items of a call's request come.
    pub fn finish_items(&mut self, now: Timestamp, call: CallId) {
        if let Some(initiator) = self.initiator.of_mut(call) {
            initiator.finish_items(call);
        }
        self.pump(now);
    }

    /// The items of a call's request end unfinished. That cancels the call, also one that was
    /// decided and let run.
    pub fn abandon_items(&mut self, now: Timestamp, call: CallId) {
        if let Some(initiator) = self.initiator.of_mut(call) {
            initiator.abandon_items(now, call);
        }
        self.pump(now);
    }

    /// A call that is not flat, for inspection.
    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.initiator.call(call)
    }
}
