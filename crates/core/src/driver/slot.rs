//! Flat calls: the short way of a call that waits for one reply.
//!
//! Its frame is encoded straight into the connection's buffer, under the one lock, and who takes the reply
//! is woken by the reader that brought it. Frames of several callers leave in one write: the first to
//! append takes on the [`FlushDuty`] and yields once, the others rely on it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{CallId, LinkNonce, MethodId, NodeId};
use convoke_proto::initiator::SlotPoll;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::Extension;

use crate::error::CallError;
use crate::transport::{Appended, Connection, NotWritable};

use super::drain::NO_ROOM;
use super::promise::{Guard, Promiser, Turn};
use super::{Aftermath, Driver, FlushScope, State, append};

/// A call to be opened flat.
pub(crate) struct SlotRequest {
    pub(crate) to: NodeId,
    pub(crate) budget: Option<Duration>,
    pub(crate) method: MethodId,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) payload: Bytes,
}

/// How opening a flat call went.
pub(crate) enum SlotOpened {
    /// It is open; when its caller has to flush for others too, here is the duty.
    Open(CallId, Option<FlushDuty>),
    /// It must begin as a full call.
    Unsuited(SlotRequest),
}

/// The promise of a caller to flush a connection soon.
pub(crate) type FlushDuty = Guard<Appender>;

/// A caller that has appended to a connection.
pub(crate) struct Appender {
    driver: Arc<Driver>,
    connection: Arc<dyn Connection>,
}

impl Promiser for Appender {
    fn settle(&self) {
        let link = self.connection.link();
        let key = (link.peer.node, link.nonce);
        if let Some(attached) = self.driver.state.lock().connections.get_mut(&key) {
            attached.promise.settle();
        }
    }

    fn flush(&self) {
        self.connection.flush();
    }
}

/// Whose flush a frame leaves with.
enum Flush {
    Now(Arc<dyn Connection>),
    Soon(Arc<dyn Connection>),
    Others,
}

impl Driver {
    /// Opens a flat call if one is possible now.
    pub(crate) fn open_slot(
        self: &Arc<Self>,
        request: SlotRequest,
        waker: &Waker,
    ) -> Result<SlotOpened, CallError> {
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let (call, flush) = {
            let mut state = self.state.lock();
            let Some(link) = state.slot_link(request.to, request.budget) else {
                return Ok(SlotOpened::Unsuited(request));
            };
            let opened = state.open_slot(now, request, link, waker, &mut aftermath)?;
            aftermath.wakers.extend(state.node.take_woken());
            opened
        };
        self.finish(aftermath);
        let duty = match flush {
            Flush::Now(connection) => {
                connection.flush();
                None
            }
            Flush::Soon(connection) => {
                Some(Guard::new(Appender { driver: self.clone(), connection }))
            }
            Flush::Others => None,
        };
        Ok(SlotOpened::Open(call, duty))
    }

    /// What a flat call has; keeps the waker when there is nothing.
    pub(crate) fn poll_slot(&self, call: CallId, waker: &Waker) -> SlotPoll {
        let mut state = self.state.lock();
        let polled = state.node.poll_slot(call);
        if polled == SlotPoll::Pending {
            state.node.park(call, waker);
        }
        polled
    }

    /// Flushes what somebody promised to flush and did not.
    pub(super) fn flush_overdue(&self) {
        let now = self.now();
        let overdue: Vec<Arc<dyn Connection>> = {
            let mut state = self.state.lock();
            let overdue = state.connections.values_mut().filter_map(|attached| {
                attached.promise.take_overdue(now).then(|| attached.connection.clone())
            });
            overdue.collect()
        };
        overdue.iter().for_each(|connection| connection.flush());
    }
}

impl State {
    /// The connection for a flat call, if one can be opened and there is room for its request.
    fn slot_link(&self, to: NodeId, budget: Option<Duration>) -> Option<LinkNonce> {
        let link = self.node.slot_link(to, budget)?;
        let attached = self.connections.get(&(to, link))?;
        (!attached.is_full).then_some(link)
    }

    fn open_slot(
        &mut self,
        now: Timestamp,
        request: SlotRequest,
        link: LinkNonce,
        waker: &Waker,
        aftermath: &mut Aftermath,
    ) -> Result<(CallId, Flush), CallError> {
        let SlotRequest { to, budget, method, extensions, payload } = request;
        let parts = (method, extensions, payload);
        let transmit = self.node.open_slot(now, budget, (to, link), parts)?;
        let call = transmit.frame.header.call;
        self.node.park(call, waker);
        self.arm(aftermath);
        let is_alone = self.node.initiator().call_count() == 1;
        let Some(attached) = self.connections.get_mut(&(to, link)) else {
            return Ok((call, Flush::Others)); // It was there under the same lock.
        };
        self.telemetry.on_transmit(&transmit);
        match append(attached.connection.as_ref(), &transmit) {
            Ok(appended) => {
                attached.is_full = appended == Appended::Full;
                return Ok((call, attached.flush_for(now, is_alone)));
            }
            Err(NotWritable::Closed) => {} // on_closed tells the node.
            Err(NotWritable::Full) => {
                attached.is_full = true;
                self.node.handle_rejected(now, transmit, NO_ROOM);
                self.drain(now, aftermath);
            }
            Err(error @ NotWritable::TooLarge { .. }) => {
                self.reject(now, transmit, &error);
                self.drain(now, aftermath);
            }
        }
        Ok((call, Flush::Others))
    }
}

impl super::Attached {
    /// Who flushes a frame that was just appended by a caller.
    fn flush_for(&mut self, now: Timestamp, is_alone: bool) -> Flush {
        if FlushScope::note_if_open(&self.connection) {
            return Flush::Others;
        }
        match self.promise.on_append(now, is_alone) {
            Turn::Now => Flush::Now(self.connection.clone()),
            Turn::Soon => Flush::Soon(self.connection.clone()),
            Turn::Others => Flush::Others,
        }
    }
}
