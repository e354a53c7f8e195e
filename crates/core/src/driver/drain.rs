//! Work that the node asks for besides sending frames, sorted into what needs the endpoint's maps
//! and what must wait until the lock is released.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use convoke_proto::id::CallId;
use convoke_proto::node::{NodeEvent, ResetReason};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Start, VisitEvent};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::transport::{CloseReason, Connection};

use super::cores::Core;
use super::run_queue;
use super::spare::Spare;
use super::unsaid::Unsaid;

/// Work that is left once the lock is released.
#[derive(Default)]
pub(super) struct Aftermath {
    pub(super) starts: Vec<Start>,
    /// Room for their handlers.
    pub(super) spare: Spare,
    /// Those of this node's own are not to run on this task.
    pub(super) starts_apart: bool,
    pub(super) wakers: SmallVec<[Waker; 4]>,
    /// Payloads that are dropped with it.
    pub(super) spent: SmallVec<[Bytes; 2]>,
    /// Number of tasks that were stopped.
    pub(super) stopped: usize,
    pub(super) rearm: bool,
    pub(super) is_closing: bool,
    rare: Option<Box<Rare>>,
}

/// Work that little of what comes leaves.
#[derive(Default)]
pub(super) struct Rare {
    pub(super) events: Vec<NodeEvent>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// For these, cancels have begun to wait in a core.
    pub(super) held: Vec<(usize, Arc<dyn Connection>)>,
    /// Those that had no room for a cast of a core.
    pub(super) choked: Vec<(usize, Arc<dyn Connection>)>,
    /// Those that have become full.
    pub(super) filled: Vec<Arc<dyn Connection>>,
    /// Parts of tasks wait for these, besides for room.
    pub(super) told: Vec<Arc<Notify>>,
    pub(super) unsaid: Vec<Unsaid>,
}

impl Aftermath {
    pub(super) fn is_nothing(&self) -> bool {
        let is_quiet = self.starts.is_empty() && self.wakers.is_empty() && self.rare.is_none();
        is_quiet && self.spent.is_empty() && !self.rearm && self.stopped == 0 && !self.is_closing
    }

    /// Place for work of the rare kinds.
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub(super) fn take_rare(&mut self) -> Option<Box<Rare>> {
        self.rare.take()
    }
}

impl Core {
    /// Sorts events into what needs the maps and what must wait until the lock is released.
    pub(super) fn drain(&mut self, now: Timestamp, aftermath: &mut Aftermath) {
        self.node.flush(now); // Reading a call may have left something.
        self.drain_flushed(aftermath);
    }

    fn drain_flushed(&mut self, aftermath: &mut Aftermath) {
        if self.has_news() {
            self.collect(aftermath);
        }
        aftermath.rearm |= self.arm();
        aftermath.is_closing |= self.is_closing;
    }

    /// As [`Self::drain`], after a call was opened. That rarely leaves anything.
    #[inline]
    pub(super) fn drained_of_call(
        &mut self,
        now: Timestamp,
        call: CallId,
    ) -> Option<Box<Aftermath>> {
        self.node.flush(now);
        if !self.has_news() && !self.is_closing {
            // One that is flat behind another needs no timer: that of the oldest is earlier.
            let rearm = !self.node.initiator().is_behind(call) && self.arm();
            return rearm.then(|| Box::new(Aftermath { rearm, ..Aftermath::default() }));
        }
        let mut aftermath = Aftermath::default();
        self.drain_flushed(&mut aftermath);
        (!aftermath.is_nothing()).then(|| Box::new(aftermath))
    }

    fn has_news(&self) -> bool {
        self.node.has_news() || self.node.outbox().has_news()
    }

    fn collect(&mut self, aftermath: &mut Aftermath) {
        if self.node.has_starts() {
            if aftermath.starts.is_empty() {
                aftermath.starts = run_queue::room();
                aftermath.spare = std::mem::take(&mut self.spare);
            }
            self.node.take_starts(&mut aftermath.starts);
        }
        while let Some(event) = self.node.poll_event() {
            self.sort_event(event, aftermath);
        }
        if self.node.outbox().has_news() {
            aftermath.spent.extend(self.node.outbox_mut().spent.take_all());
            if self.node.outbox().has_news() {
                self.collect_of_outlet(aftermath.rare());
            }
        }
        while let Some(reader) = self.node.mailboxes_mut().poll_ready() {
            aftermath.wakers.extend(self.mail_wakers.remove(&reader));
        }
        aftermath.wakers.reserve(self.node.initiator().ready_count());
        // Who is not parked will ask.
        while let Some(call) = self.node.poll_ready() {
            if let Some(waker) = self.parked.take(call) {
                aftermath.wakers.push(waker);
            }
        }
    }

    fn collect_of_outlet(&mut self, rare: &mut Rare) {
        let (index, outlet) = (self.index, self.node.outbox_mut());
        rare.closes.append(&mut outlet.closes);
        rare.held.extend(outlet.held.drain(..).map(|connection| (index, connection)));
        rare.choked.extend(outlet.choked.drain(..).map(|connection| (index, connection)));
        rare.filled.append(&mut outlet.filled);
        rare.unsaid.append(&mut outlet.unsaid);
    }

    /// True when the timer is to wake earlier than it would.
    fn arm(&mut self) -> bool {
        let timeout = self.node.poll_timeout();
        let is_earlier = timeout < self.armed;
        self.armed = self.armed.min(timeout);
        is_earlier
    }

    fn sort_event(&mut self, event: NodeEvent, aftermath: &mut Aftermath) {
        match event {
            NodeEvent::Task(VisitEvent::Stop { task, .. }) => {
                if let Some(stopper) = self.stoppers.remove(&task) {
                    aftermath.wakers.extend(stopper.stop_later());
                }
                self.take_parts(&task, aftermath);
                aftermath.stopped += 1;
            }
            NodeEvent::Task(VisitEvent::Writable(task) | VisitEvent::Readable(task)) => {
                self.take_parts(&task, aftermath);
            }
            NodeEvent::ItemsWritable(call) => {
                aftermath.wakers.extend(self.item_wakers.remove(&call));
            }
            NodeEvent::Reset { link, why, .. } => {
                let reason = match why {
                    ResetReason::Noise => CloseReason::Fault(why.to_string()),
                    ResetReason::Forgotten => CloseReason::Local,
                    _ => CloseReason::Stale,
                };
                // The one that opened meanwhile may have its index.
                let carrier = self.connections().carrier(link);
                let connection = carrier.map(|carrier| carrier.connection.clone());
                let close = connection.map(|connection| (connection, reason));
                aftermath.rare().closes.extend(close);
            }
            event @ (NodeEvent::Dial { .. } | NodeEvent::Ignored { .. }) => {
                aftermath.rare().events.push(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use convoke_proto::id::NodeId;

    use super::super::flush::tests::Flushed;
    use super::*;
    use crate::Endpoint;
    #[cfg(feature = "zstd")]
    use crate::{
        packing::LastPacked,
        transport::{Sink, mem::MemTransport},
    };

    #[tokio::test]
    async fn a_connection_that_panics_as_it_is_closed_keeps_nothing_else_from_being_done() {
        let endpoint = Endpoint::builder().start().await.expect("nothing to bind");
        let (driver, node) = (endpoint.driver(), NodeId::new(9));
        let broken = Flushed::new(&Arc::default(), |_| panic!("on purpose"));
        let told = Arc::new(Notify::new());
        let hears = told.clone().notified_owned();
        let mut aftermath = Aftermath::default();
        let rare = aftermath.rare();
        rare.closes.push((broken, CloseReason::Local));
        rare.told.push(told);
        rare.events.push(NodeEvent::Dial { node, addresses: Vec::new() });
        driver.finish(&mut aftermath);
        assert!(driver.dials.lock().contains(&node), "it is dialled");
        hears.await;
    }

    /// As where the host of a peer has lost its power.
    #[cfg(feature = "zstd")]
    #[tokio::test]
    async fn a_connection_that_lingers_does_not_say_what_the_next_life_of_its_peer_takes() {
        let mem = MemTransport::new();
        let builder = Endpoint::builder().transport(mem.clone()).listen("mem://lingers:0");
        let packing = builder.compression(crate::Compression::zstd_from(64));
        let endpoint = packing.start().await.expect("the name is free");
        let (driver, message) = (endpoint.driver(), Bytes::from(vec![7; 10_000]));
        let lingers = Flushed::new(&Arc::default(), |_| ());
        driver.on_open(lingers.clone()).expect("it is taken");
        let (node, nonce) = (lingers.link().peer.node, lingers.link().nonce);
        let features = driver.packing.take(node, nonce, b"\x2f\x00\x01");
        assert_eq!(features, Ok(true));
        let packed = || {
            let mut payload = message.clone().into();
            driver.packing.pack_request(node, &mut payload, &mut LastPacked::default());
            payload.into_bytes()
        };
        assert!(packed().len() < message.len());

        let again = Endpoint::builder().transport(mem).node(node).start().await;
        let again = again.expect("nothing to bind");
        again.connect(endpoint.addresses()).await.expect("it listens");
        assert_eq!(packed(), message, "that one has said nothing");
    }
}
