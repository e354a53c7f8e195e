//! One core of a node: its calls, its tasks and the connections, as one state machine. A node is
//! one of these, or several that share nothing (see [`cores`](super::cores)).
//!
//! The driver feeds frames, connections and time, then drains `poll_event`. Frames go to the
//! node's outbox as they are sent; those of the node to itself go around in here.

mod calls;
mod casts;
mod ignored;
mod partings;
mod routing;
mod tasks;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::address::Address;
use crate::id::{CallId, Incarnation, LinkId, NodeId, NodeLife};
use crate::key::Secret;
use crate::link::Link;
use crate::time::Timestamp;
use crate::wire::{Frame, Message, Opened};

use super::Fault;
use super::cores::Place;
use super::initiator::Initiator;
use super::ledger::Ledger;
use super::limits::{Limits, LimitsError};
use super::links::Links;
use super::mailbox::Mailboxes;
use super::mutant::{self, Mutant};
use super::outbox::{Outbox, Queue, Transmit};
use super::share::Taken;
use super::visits::{Start, TaskRef, VisitEvent, Visits};

pub use calls::Opening;
pub use casts::Reach;
pub use ignored::{Ignored, IgnoredCounts};

/// Identity of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its stable name.
    pub node: NodeId,
    /// This life of it.
    pub incarnation: Incarnation,
}

/// A thing for the driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// Something about a task.
    Task(VisitEvent),
    /// The writer of a call's items waited, and waits no longer for nothing.
    ItemsWritable(CallId),
    /// Dial a node at one of these addresses, then report `handle_link_up` or `handle_dial_failed`.
    Dial {
        /// The node.
        node: NodeId,
        /// Addresses at which it may be, in this order.
        addresses: Vec<Address>,
    },
    /// Close a connection.
    Reset {
        /// The peer.
        node: NodeId,
        /// The connection.
        link: LinkId,
        /// Reason.
        why: ResetReason,
    },
    /// Frames of a connection did not count: said at most once a second for each connection.
    Ignored {
        /// The peer.
        node: NodeId,
        /// The connection.
        link: LinkId,
        /// The attempt that one of them made.
        why: Ignored,
    },
}

/// Reason why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResetReason {
    /// This process was paused for so long that what comes over it may be stale.
    #[error("this process was paused for longer than the keep-alive timeout")]
    Paused,
    /// The peer has started again since.
    #[error("the peer has started again")]
    Restarted,
    /// Too many of its frames did not count.
    #[error("too many frames of the connection did not count")]
    Noise,
    /// The owner of this endpoint said so.
    #[error("the owner of this endpoint has forgotten the peer")]
    Forgotten,
}

/// The whole protocol of one node, and where its frames go.
#[derive(Debug)]
pub struct Node<O = Queue> {
    identity: Identity,
    secret: Secret,
    initiator: Initiator,
    visits: Visits,
    /// Tasks to be started, in the order of their requests.
    starts: Vec<Start>,
    mailboxes: Mailboxes,
    links: Links,
    loopback: VecDeque<Frame>,
    outbox: O,
    events: VecDeque<NodeEvent>,
    ignored: IgnoredCounts,
    last_seen: Timestamp,
    keep_alive_timeout: Duration,
    deadline_default: Duration,
    deadline_max: Duration,
    message_bytes_max: usize,
    /// It was told of other nodes, by their addresses.
    knows_others: bool,
    /// It is the core that says for all what is about a connection.
    is_first: bool,
}

impl Node {
    /// The only core of a node, whose frames are polled, otherwise as [`Self::with_outbox`].
    ///
    /// # Errors
    /// [`LimitsError`] when the limits are not usable.
    pub fn new(
        identity: Identity,
        secret: Secret,
        limits: &Limits,
        seed: u64,
        now: Timestamp,
    ) -> Result<Self, LimitsError> {
        Self::with_outbox(Queue::default(), identity, Place::SOLE, (secret, seed), limits, now)
    }

    /// The next frame for a connection.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmit> {
        self.flush(now);
        self.outbox.poll()
    }
}

impl<O: Outbox> Node<O> {
    /// A core without calls, tasks and connections. The keys of its calls are made of `secret`,
    /// which must be random and of this start alone, and the same for all cores of a node; `seed`
    /// is for jitter. Of `calls_max` it has its part; for the bounds of tasks, see [`Ledger`].
    ///
    /// # Errors
    /// [`LimitsError`] when the limits are not usable.
    pub fn with_outbox(
        outbox: O,
        identity: Identity,
        place: Place,
        (secret, seed): (Secret, u64),
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Self, LimitsError> {
        limits.check()?;
        let origin = identity.incarnation.of_stream(place.stream());
        let limits = &limits.clone().of_core(place);
        let me = NodeLife { node: identity.node, life: identity.incarnation };
        Ok(Self {
            identity,
            secret,
            initiator: Initiator::new(origin, secret, limits),
            visits: Visits::new(me, secret, limits),
            starts: Vec::new(),
            mailboxes: Mailboxes::new(limits, place.count()),
            links: Links::new(me, limits, place.count(), seed),
            loopback: VecDeque::new(),
            outbox,
            events: VecDeque::new(),
            ignored: IgnoredCounts::default(),
            last_seen: now,
            keep_alive_timeout: limits.keep_alive_timeout,
            deadline_default: limits.deadline_default,
            deadline_max: limits.deadline_max,
            message_bytes_max: limits.message_bytes_max,
            knows_others: false,
            is_first: place.stream() == 0,
        })
    }

    // Connections

    /// Sets the addresses at which a node can be dialled.
    pub fn configure(&mut self, node: NodeId, addresses: Vec<Address>) {
        self.knows_others = true;
        self.links.configure(node, addresses);
    }

    /// Another place where a node can be dialled.
    pub fn configure_also(&mut self, node: NodeId, address: Address) {
        self.knows_others = true;
        self.links.configure_also(node, address);
    }

    /// This life of a node answered at an address.
    pub fn note_met(&mut self, node: NodeId, life: Incarnation, address: &Address) {
        self.links.note_met(node, life, address);
    }

    /// A node was not found at an address: a dial there failed, or another answered.
    pub fn note_missed(&mut self, node: NodeId, address: &Address) {
        self.links.note_missed(node, address);
    }

    /// From now on a request or cast may be for a node without an address: its dial finds one.
    pub fn resolve_by_name(&mut self) {
        self.links.resolve_by_name();
    }

    /// The resolver is asked for a node that is dialled: if the dial fails, it is not asked again
    /// before the pause is over.
    pub fn note_resolved(&mut self, node: NodeId) {
        self.links.note_resolved(node);
    }

    /// Forgets where a node can be dialled, and closes the connections to it.
    pub fn forget(&mut self, now: Timestamp, node: NodeId) {
        for link in self.links.to_node(node) {
            self.reset(now, node, link, ResetReason::Forgotten);
        }
        self.links.forget(node);
    }

    /// A connection is up. It is known by this id from now on, of which `name` tells the outbox
    /// before the first frame.
    pub fn handle_link_up(
        &mut self,
        now: Timestamp,
        link: &Link,
        name: impl FnOnce(&mut O, LinkId),
    ) -> LinkId {
        self.observe(now);
        // A new life of the peer: connections of the last one lead nowhere, whoever notices first.
        for stale in self.links.of_earlier_life(link) {
            self.reset(now, link.peer.node, stale, ResetReason::Restarted);
        }
        let is_first = self.links.current(link.peer.node).is_none();
        let (id, waiting) = self.links.handle_up(now, link);
        name(&mut self.outbox, id);
        if is_first {
            self.initiator.handle_link_again(now, link.peer.node);
        }
        for (since, mut outbound) in waiting {
            // Rounded up: no branch gets more time than its parent has.
            let waited_us = now.since(since).as_nanos().div_ceil(1_000);
            let waited_us = u64::try_from(waited_us).unwrap_or(u64::MAX);
            take_time(&mut outbound.frame.message, waited_us);
            self.send(now, outbound);
        }
        self.visits.handle_dial_over(now, link.peer.node, &mut self.links);
        self.tell_readers_of(link.peer.node);
        if self.visits.is_shutting_down() {
            self.say_leaving(now, id);
        }
        self.pump(now);
        id
    }

    /// A connection ended.
    pub fn handle_link_down(&mut self, now: Timestamp, link: LinkId) {
        if let Some(node) = self.links.handle_down(now, link) {
            self.initiator.handle_link_down(now, (node, link), &self.links);
            self.visits.handle_link_lost(now, node, link, &mut self.links);
            if self.links.current(node).is_none() {
                self.mailboxes.handle_node_down(node);
            }
            self.tell_readers_of(node);
        }
        self.pump(now);
    }

    /// A connection that was too full for a cast has room again.
    pub fn handle_writable(&mut self, now: Timestamp) {
        self.mailboxes.tell_readers();
        self.pump(now);
    }

    fn reset(&mut self, now: Timestamp, node: NodeId, link: LinkId, why: ResetReason) {
        self.events.push_back(NodeEvent::Reset { node, link, why });
        self.handle_link_down(now, link);
    }

    /// A dial that was asked for failed.
    pub fn handle_dial_failed(&mut self, now: Timestamp, node: NodeId) {
        for (_, outbound) in self.links.handle_dial_failed(now, node) {
            self.handle_undeliverable(now, (outbound.to, None), outbound.frame);
        }
        self.visits.handle_dial_over(now, node, &mut self.links);
        self.tell_readers_of(node);
        self.pump(now);
    }

    /// Notes why a dial failed, for the failures it causes; before [`Self::handle_dial_failed`].
    pub fn note_dial_error(&mut self, node: NodeId, text: &str) {
        self.links.note_dial_error(node, text);
    }

    /// The bytes of a frame came over a connection. What follows is sent at the end of its batch,
    /// by [`Self::flush`].
    ///
    /// # Errors
    /// [`Fault`]: the peer's doing. The frame is dropped; the connection should be closed.
    pub fn handle_bytes(
        &mut self,
        now: Timestamp,
        link: LinkId,
        bytes: Bytes,
    ) -> Result<(), Fault> {
        self.observe(now);
        let mut opened = Opened::nothing();
        opened.read(&bytes)?;
        // What a connection that was reset still brings may be stale.
        let Some(by) = self.links.arrive(link, opened.is_request()) else { return Ok(()) };
        self.dispatch_opened(now, by, &mut opened, bytes)
    }

    /// Time passes.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.observe(now);
        self.initiator.handle_timeout(now, &self.links);
        self.visits.handle_timeout(now, &mut self.links);
        self.mailboxes.handle_timeout(now);
        self.sweep_closed_calls(now);
        self.pump(now);
    }

    /// When [`Self::handle_timeout`] must be called next. Never later than half the keep-alive
    /// timeout, so that a pause of the process is noticed.
    pub fn poll_timeout(&self) -> Timestamp {
        let tick = self.last_seen + self.keep_alive_timeout / 2;
        let at = |timeout: Option<Timestamp>| timeout.unwrap_or(Timestamp::MAX);
        tick.min(at(self.initiator.poll_timeout()))
            .min(at(self.visits.poll_timeout()))
            .min(at(self.mailboxes.poll_timeout()))
    }

    /// Ends a batch of inputs: sends what frames and reading calls have left to be sent, and lets
    /// go of what the batch settles. To be called before the lock of the node is released.
    pub fn flush(&mut self, now: Timestamp) {
        self.visits.settle_risen(now, &mut self.links);
        self.pump(now);
    }

    /// True when there is a thing for the driver to do: tasks to be started, an event, a call or a
    /// reader of casts that may have something.
    pub fn has_news(&self) -> bool {
        !self.starts.is_empty()
            || !self.events.is_empty()
            || self.links.has_dials()
            || self.initiator.has_news()
            || self.visits.has_events()
            || self.mailboxes.has_ready()
    }

    /// True when tasks are to be started.
    pub fn has_starts(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Number of tasks to be started.
    pub fn start_count(&self) -> usize {
        self.starts.len()
    }

    /// Moves the tasks to be started to a list, in the order of their requests. To be called before
    /// [`Self::poll_event`], which may say that one is to be stopped.
    pub fn take_starts(&mut self, into: &mut Vec<Start>) {
        if into.is_empty() {
            std::mem::swap(&mut self.starts, into); // The room of the one for the other.
        } else {
            into.append(&mut self.starts);
        }
    }

    /// The next thing for the driver to do.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(node) = self.links.poll_dial() {
            let addresses = self.links.addresses(node);
            return Some(NodeEvent::Dial { node, addresses });
        }
        if let Some(call) = self.initiator.poll_writable() {
            return Some(NodeEvent::ItemsWritable(call));
        }
        self.visits.poll_event().map(NodeEvent::Task)
    }

    /// Refuses requests and casts of an older epoch from now on. Epochs do not go back.
    pub fn raise_epoch(&mut self, epoch: u64) {
        self.visits.raise_epoch(epoch);
        self.mailboxes.tell_readers();
    }

    /// The epoch of the configuration that this node was told of; 0 without one.
    pub fn epoch(&self) -> u64 {
        self.visits.epoch()
    }

    /// Ends the undecided calls of this node, before its connections are closed for good, and asks
    /// for them to be stopped wherever they run. Nothing waits for a dial any more: what did has
    /// not left, and fails so. Says where its tasks have handed their work on, for there will be
    /// nobody to ask.
    pub fn end_calls(&mut self, now: Timestamp) {
        for node in self.links.stop_dialling() {
            self.handle_dial_failed(now, node);
        }
        self.visits.say_last_words(now, &mut self.links);
        self.initiator.end_all(now);
        self.pump(now);
    }

    // Shares of peers, over several cores

    /// True when the ledger is to be told of what it has taken, by [`Self::tell`]. The only core of
    /// a node never has to.
    #[inline]
    pub fn has_to_tell(&self) -> bool {
        self.links.shares().has_news() || self.mailboxes.has_to_tell()
    }

    /// Tells the ledger what it has taken for its peers.
    pub fn tell(&mut self, ledger: &mut Ledger) {
        if self.links.shares().has_news() {
            self.links.shares_mut().tell(ledger);
        }
        if self.mailboxes.has_to_tell() {
            self.mailboxes.tell(ledger);
        }
    }

    /// The version of the ledger by which it knows what the peer of a connection has taken in other
    /// cores; `None` once that has ended. Before it is given frames of the connection under another
    /// one it is to [`hear`](Self::hear).
    #[inline]
    pub fn heard_at(&self, link: LinkId) -> Option<u64> {
        self.links.heard_at(link)
    }

    /// Hears from the ledger what others have taken, in all and for the peer of a connection.
    pub fn hear(&mut self, link: LinkId, ledger: &Ledger) {
        if let Some((peer, node)) = self.links.note_heard(link, ledger.version())
            && !mutant::is(Mutant::CoresDoNotHear)
        {
            self.links.shares_mut().hear(peer, ledger);
            self.mailboxes.hear(node, ledger);
        }
    }

    // Inspection

    /// The outbox that its frames go to.
    pub fn outbox(&self) -> &O {
        &self.outbox
    }

    /// The same, to be changed.
    pub fn outbox_mut(&mut self) -> &mut O {
        &mut self.outbox
    }

    /// The node that this is, and its life.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// True when the handler of a task has not ended and has not been stopped.
    pub fn is_running(&self, task: &TaskRef) -> bool {
        self.visits.is_running(task)
    }

    /// Shares that each peer has of the pools.
    pub fn shares(&self) -> impl Iterator<Item = Taken> {
        self.links.shares().taken()
    }

    /// Compares the shares of all peers with a count of what is kept for them.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn audit_shares(&self) -> Result<(), String> {
        let mut counted = BTreeMap::new();
        self.visits.audit(&self.links, &mut counted)?;
        self.links.shares().compare(&counted)
    }

    /// Its calls.
    pub fn initiator(&self) -> &Initiator {
        &self.initiator
    }

    /// Open branches of its calls at another node, for choosing who has fewer.
    pub fn open_at(&self, node: NodeId) -> usize {
        self.initiator.open_at(node, self.links.current(node))
    }

    /// Its tasks.
    pub fn visits(&self) -> &Visits {
        &self.visits
    }

    /// Frames that did not count, by what they did.
    pub fn ignored(&self) -> IgnoredCounts {
        self.ignored
    }

    /// Its mailboxes.
    pub fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }

    /// Its connections.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The largest message it sends.
    pub fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// After a pause longer than the keep-alive timeout every connection is reset before anything
    /// is read or expired: a fence may have run out here while its stale request waits in a socket.
    #[inline]
    fn observe(&mut self, now: Timestamp) {
        if now != self.last_seen {
            self.observe_progress(now);
        }
    }

    #[inline(never)] // So that what asks for it once a frame is in line.
    fn observe_progress(&mut self, now: Timestamp) {
        let paused = now.since(self.last_seen) > self.keep_alive_timeout;
        self.last_seen = now;
        if paused {
            let up: Vec<(NodeId, LinkId)> = self.links.up().collect();
            for (node, link) in up {
                self.reset(now, node, link, ResetReason::Paused);
            }
        }
    }
}

/// Takes the time that a message has waited off the rest of the time that it speaks of. A request
/// has two: its own, and then that of its call.
fn take_time(message: &mut Message, waited_us: u64) {
    let budget_us = match message {
        Message::Request(request) => {
            let beyond = waited_us.saturating_sub(request.budget_us);
            request.outlasted_us = request.outlasted_us.saturating_sub(beyond);
            &mut request.budget_us
        }
        Message::Cancel(cancel) => &mut cancel.budget_us,
        Message::Probe(probe) => &mut probe.budget_us,
        Message::Cast(cast) => &mut cast.budget_us,
        _ => return,
    };
    *budget_us = budget_us.saturating_sub(waited_us);
}

#[cfg(test)]
mod tests;
