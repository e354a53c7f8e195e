//! Acts of callers: they open calls, read them and let them go.
//!
//! The requests of an awaited call are encoded straight into the connections' buffers, under the
//! one lock, and who takes its reply is woken by the reader that brought it. Frames of several
//! callers leave in one write: the first to append has the [flusher](super::flush::Flusher) promise
//! it, the others rely on that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use convoke_proto::call::{CallEvent, Delivered, End};
use convoke_proto::encoded::Encoded;
use convoke_proto::id::{CallId, LinkId, NodeId};
use convoke_proto::initiator::OpenError;
use convoke_proto::node::Opening;
use convoke_proto::task::SendError;
use convoke_proto::time::Timestamp;

use crate::error::CallError;
use crate::transport::Connection;
use crate::way::Way;

use super::connections::Attached;
use super::cores::Core;
use super::flush::{Dirty, Due};
use super::promise::{TRUST, Turn};
use super::{Aftermath, Driver, FlushScope, Node, RoomWait};

/// Way in which the frames of a caller leave.
#[derive(Debug, Default)]
pub(super) struct CallerFlush {
    /// By the caller itself: it is alone, or has filled a connection.
    at_once: bool,
    /// By the flusher, which promises it to those who come after.
    is_promised: bool,
    /// With all else of a scope that is open.
    is_in_scope: bool,
    /// Connections that it has appended to, and nobody before it.
    due: Dirty,
    /// One of them has as much to send as it should: what an open scope has noted is flushed, too.
    pub(super) has_filled: bool,
}

/// Terms on which a caller opens a call.
#[derive(Debug, Default)]
pub(crate) struct OpenTerms<'a> {
    /// Woken when the call has something for its caller.
    pub(crate) waker: Option<&'a Waker>,
    /// Not opened while no connection that it needs has room.
    pub(crate) needs_room: bool,
    /// Handlers of this node itself are not to run on the caller's task.
    pub(crate) apart: bool,
}

/// A call that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) id: CallId,
    pub(crate) at: Timestamp,
}

impl Driver {
    /// Counts a reply, and says once that replies come through other nodes: a hop that whoever
    /// makes the calls can save.
    pub(crate) fn note_reply(&self, from: NodeId, way: Way) {
        self.telemetry.on_reply(way);
        if way == Way::Relayed && !self.has_relayed.swap(true, Ordering::Relaxed) {
            let node = self.identity.node;
            tracing::info!(
                %node, %from,
                "a reply came through another node, for want of a connection with its sender: \
                 `keep_connected` lets replies come straight (said once)"
            );
        }
    }

    /// Opens a call. `None`, and nothing was sent, when it needs room and there is none.
    ///
    /// # Errors
    /// [`CallError`]; then nothing was sent.
    pub(crate) fn open_call(
        self: &Arc<Self>,
        mut opening: Opening<'_>,
        OpenTerms { waker, needs_room, apart }: OpenTerms<'_>,
    ) -> Result<Option<Opened>, CallError> {
        let (now, mut index) = (self.now(), self.core_for(&opening));
        // Who does not wait for the call may not let go of its thread for long, and where there are
        // several the flusher is to run on that one.
        let at_once = waker.is_none() && !self.is_one_thread;
        let aftermath;
        let (call, flush) = loop {
            let mut core = self.cores.lock(index);
            if needs_room && core.has_full() && core.has_no_room(&opening) {
                return Ok(None);
            }
            if core.is_closed {
                return Err(CallError::Stopped);
            }
            self.cores.hear(&mut core, LinkId::LOCAL);
            match core.open_flushed_by_caller(now, &mut opening, at_once) {
                Ok((call, flush)) => {
                    if let Some(waker) = waker {
                        core.parked.park_new(call, waker);
                    }
                    aftermath = core.drained_of_call(now, call);
                    break (call, flush);
                }
                Err(refusal) => {
                    drop(core);
                    index = self.core_with_room(refusal)?;
                }
            }
        };
        self.flush_for(now, index, flush);
        if let Some(mut aftermath) = aftermath {
            aftermath.starts_apart = apart;
            self.finish(&mut aftermath);
        }
        Ok(Some(Opened { id: call, at: now }))
    }

    /// Flushes what a caller has appended to: at once, or when the others have had their turn to
    /// append.
    #[inline]
    fn flush_for(&self, now: Timestamp, core: usize, flush: CallerFlush) {
        let CallerFlush { at_once, is_promised, due, has_filled, .. } = flush;
        if has_filled {
            drop(FlushScope::enter());
        }
        if !is_promised {
            return due.iter().for_each(|connection| connection.flush()); // All are its own.
        }
        let own = at_once.then(|| due.clone());
        let promised = |connection| Due { connection, promised_in: Some(core) };
        let since = self.flusher.take_over(|| now, due.into_iter().map(promised));
        if now.since(since) > TRUST {
            self.flush_due(); // The flusher is held up.
        }
        // After the flusher was told: a flush may panic, and others rely on what was promised.
        if let Some(own) = own {
            own.iter().for_each(|connection| connection.flush());
        }
    }

    /// Flushes for callers what they were promised, and what scopes have left.
    pub(super) fn flush_due(&self) {
        self.flusher.flush_due(|core, connection| self.settle_promise(core, connection));
    }

    /// Callers in a core rely no more on a connection being flushed.
    fn settle_promise(&self, core: usize, connection: &dyn Connection) {
        let (mut core, link) = (self.cores.lock(core), connection.link());
        let id = core.connections().id(link.peer.node, link.nonce);
        if let Some(attached) = id.and_then(|id| core.connections_mut().get_mut(id)) {
            attached.promise.settle();
        }
    }

    /// The core that a call is opened in: that of the first node it goes to.
    #[inline]
    fn core_for(&self, opening: &Opening<'_>) -> usize {
        let branches = &*opening.branches;
        if branches.count() == 0 { 0 } else { self.cores.routes.of_peer(branches.branch(0).0) }
    }

    /// A core that can open a call which another has refused: for it has its part of all calls
    /// open.
    fn core_with_room(&self, refusal: OpenError) -> Result<usize, OpenError> {
        match refusal {
            OpenError::TooManyCalls { .. } => {
                let found = self.cores.find(|core| core.node.initiator().has_room());
                found.ok_or(OpenError::TooManyCalls { limit: self.limits.calls_max })
            }
            refusal => Err(refusal),
        }
    }

    /// News of a call for its caller, and replies behind it in `ahead`, and its end, too, if only
    /// that is left and the call need not be let go any more. Keeps the waker when there is
    /// none.
    pub(crate) fn poll_call(
        self: &Arc<Self>,
        call: CallId,
        ahead: &mut VecDeque<Delivered>,
        waker: &Waker,
    ) -> Option<(CallEvent, Option<End>)> {
        let mut core = self.cores.lock_of(call.origin);
        let news = core.node.poll_last(call, ahead);
        let _dropped_unlocked = match news {
            None => core.parked.park(call, waker),
            // It is here, and need not be called for what came before.
            Some(_) => core.parked.take(call),
        };
        // Reading has made room for more, of which the sender is told under the same lock: who
        // takes it next, to send an item for example, finds nothing left to be sent.
        let told = core.node.has_output().then(|| {
            let (scope, mut aftermath) = (FlushScope::enter(), Aftermath::default());
            core.drain(self.now(), &mut aftermath);
            (scope, aftermath)
        });
        drop(core);
        if let Some((_flush_unlocked, mut aftermath)) = told {
            self.finish(&mut aftermath);
        }
        news
    }

    /// Nobody reads a call any more: `act` tells the node so.
    pub(crate) fn let_go(self: &Arc<Self>, call: CallId, act: impl FnOnce(&mut Node, Timestamp)) {
        let _dropped_unlocked =
            self.with_core(self.cores.routes.of(call.origin), |core, now, _| {
                act(&mut core.node, now);
                core.parked.take(call)
            });
    }

    /// Takes and sends an item of a call's request once it has credit and its connection has room.
    /// Keeps the waker until then.
    pub(crate) fn poll_send_item(
        self: &Arc<Self>,
        call: CallId,
        payload: &mut Encoded,
        room: &mut RoomWait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        loop {
            let is_told = room.poll(cx).is_ready();
            let scope = FlushScope::enter();
            let (sent, _dropped_unlocked) =
                self.with_core(self.cores.routes.of(call.origin), |core, now, _| {
                    let sent = core.send_item(now, call, payload, room);
                    let waits = sent == Ok(false);
                    let waker =
                        waits.then(|| core.item_wakers.insert(call, cx.waker().clone())).flatten();
                    (sent, waker)
                });
            // Items that follow at once leave with it.
            self.end_scope_with_more(scope);
            match sent {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) if is_told && !room.is_over() => {} // It is to be polled.
                Ok(false) => return Poll::Pending,
                Err(refusal) => return Poll::Ready(Err(refusal)),
            }
        }
    }

    /// Nobody sends further items of a call's request: `act` tells the node so.
    pub(crate) fn let_items_go(
        self: &Arc<Self>,
        call: CallId,
        act: impl FnOnce(&mut Node, Timestamp),
    ) {
        let _dropped_unlocked =
            self.with_core(self.cores.routes.of(call.origin), |core, now, _| {
                act(&mut core.node, now);
                core.item_wakers.remove(&call)
            });
    }
}

impl Core {
    /// True when a connection has no room.
    #[inline]
    fn has_full(&self) -> bool {
        !self.node.outbox().full.is_empty()
    }

    /// True when no connection that a call needs has room.
    fn has_no_room(&self, opening: &Opening<'_>) -> bool {
        let branches = &*opening.branches;
        let mut nodes = (0..).take(branches.count()).map(|index| branches.branch(index).0);
        branches.count() > 0 && nodes.all(|node| self.full_at(node).is_some())
    }

    /// Opens a call whose caller sees to it that its requests leave.
    fn open_flushed_by_caller(
        &mut self,
        now: Timestamp,
        opening: &mut Opening<'_>,
        at_once: bool,
    ) -> Result<(CallId, CallerFlush), OpenError> {
        let at_once = at_once || self.node.initiator().call_count() == 0;
        let is_in_scope = FlushScope::is_open();
        let caller = CallerFlush { at_once, is_in_scope, ..CallerFlush::default() };
        self.node.outbox_mut().caller = Some(caller);
        let opened = self.node.open(now, opening);
        let flush = self.node.outbox_mut().caller.take().unwrap_or_default();
        Ok((opened?, flush))
    }

    /// Takes and sends an item if it can leave now. One that waits for room alone does so by
    /// `room`.
    fn send_item(
        &mut self,
        now: Timestamp,
        call: CallId,
        payload: &mut Encoded,
        room: &mut RoomWait,
    ) -> Result<bool, SendError> {
        if !self.node.poll_items_writable(call)? || !room.is_over() {
            return Ok(false);
        }
        let link = self.node.items_link(call);
        if let Some(told) = link.and_then(|link| self.full_link(link)) {
            room.add(told);
            return Ok(false);
        }
        self.node.send_item(now, call, std::mem::take(payload)).map(|()| true)
    }
}

impl Attached {
    /// Sees to it that what a caller has just appended is flushed. Who has filled a connection does
    /// so itself: it may be about to append more before anybody else has a turn.
    pub(super) fn arrange_flush(
        &mut self,
        now: Timestamp,
        caller: &mut CallerFlush,
        is_full: bool,
    ) {
        if caller.is_in_scope {
            return FlushScope::note(&self.connection);
        }
        caller.at_once |= is_full;
        if !caller.at_once {
            match self.promise.rely(now) {
                Turn::First => caller.is_promised = true,
                Turn::Promised => return,
                Turn::Own => caller.at_once = true,
            }
        }
        caller.due.push(self.connection.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::flush::tests::Flushed;
    use super::*;
    use crate::Endpoint;

    #[tokio::test]
    async fn a_flush_that_panics_breaks_no_promise() {
        let endpoint = Endpoint::builder().start().await.expect("nothing to bind");
        let driver = endpoint.driver();
        let full = Flushed::new(&driver.flusher, |_| panic!("on purpose"));
        let promised = Flushed::new(&driver.flusher, |_| ());
        let due: [Arc<dyn Connection>; 2] = [full, promised.clone()];
        let due = due.into_iter().collect();
        let flush = CallerFlush { at_once: true, is_promised: true, due, ..Default::default() };
        let flushes = AssertUnwindSafe(|| driver.flush_for(driver.now(), 0, flush));
        assert!(catch_unwind(flushes).is_err(), "the first of them panics");
        driver.flush_due();
        assert_eq!(promised.count(), 1);
    }
}
