//! The loop around the pure node: input, `handle_*`, drain `poll_*`. The only reader of the clock.
//!
//! One lock holds the node and its connections. Whoever brings input (a connection's reader, a
//! caller, a handler, the timer) takes it, lets the node work, appends what it wants sent to the
//! connections' buffers, and lets go; then it flushes, wakes and starts handlers without the lock.
//! Flushes of everything done within one [`FlushScope`] (a read batch, one poll of a handler) are
//! one per connection.

mod ahead;
mod caller;
mod carried;
mod choked;
mod connections;
mod dial;
mod doors;
mod drain;
mod ending;
mod flush;
mod gate;
mod handler;
mod held;
mod hold;
mod load;
mod logged;
mod methods;
mod outlet;
mod own_starts;
mod parked;
#[cfg(feature = "tower")]
mod passage;
mod peers;
mod promise;
mod proof;
mod pull;
mod reconnect;
mod run_queue;
mod sink;
mod spare;
mod stopper;
mod task;
mod waiters;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{CallId, NodeId};
use convoke_proto::key::Secret;
use convoke_proto::limits::{Limits, LimitsError};
use convoke_proto::mailbox::MailReader;
use convoke_proto::node::{Cores, Identity, NodeEvent};
use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_proto::wire::{Cause, Executed};
use convoke_transport::parts::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::carrier::{self, BodyCarrier, Carried};
use crate::health::Health;
use crate::packing::Packing;
use crate::resolve::Resolver;
use crate::telemetry::Telemetry;
use crate::transport::{Address, Connection, Counters, Lane, Transport};

pub(crate) use caller::FlushDuty;
use carried::CarriedCasts;
use connections::Connections;
use doors::Doors;
use drain::Aftermath;
pub(crate) use ending::{HandlerResult, LastWord};
pub(crate) use flush::FlushScope;
use flush::Flusher;
use gate::Gates;
use held::HeldCancels;
pub use load::Load;
use logged::Logged;
#[cfg(feature = "tower")]
pub(crate) use methods::MakeRoom;
pub(crate) use methods::{MethodEntry, MethodTable, room};
use outlet::Outlet;
use own_starts::OwnStarts;
use parked::Parked;
#[cfg(feature = "tower")]
pub(crate) use passage::Passage;
pub use peers::PeerState;
use peers::Peers;
use promise::Promise;
use proof::Proofs;
pub(crate) use pull::Pull;
pub use reconnect::KeepConnected;
use spare::Spare;
pub(crate) use stopper::Stopper;
pub(crate) use task::{NewBranch, TaskHandle};

/// The node of an endpoint.
pub(crate) type Node = convoke_proto::node::Node<Outlet>;

/// Everything of an endpoint that its handles share.
#[derive(Debug)]
pub(crate) struct Driver {
    identity: Identity,
    frame_bytes_max: u32,
    keep_alive_timeout: Duration,
    deadline_max: Duration,
    start: Instant,
    runtime: Handle,
    pub(crate) transports: Vec<Arc<dyn Transport>>,
    resolver: Option<Resolver>,
    pub(crate) methods: MethodTable,
    pub(crate) telemetry: Telemetry,
    peers: Peers,
    pub(crate) packing: Packing,
    carrier: Mutex<Option<Arc<dyn BodyCarrier>>>,
    carried: CarriedCasts,
    pull: Pull,
    pub(crate) limits: Limits,
    pub(crate) health: Option<Health>,
    doors: Doors,
    state: Mutex<State>,
    me: Weak<Self>,
    /// Wakes the timer when a timeout earlier than the one it sleeps for comes up.
    timer: Arc<Notify>,
    /// Wakes who waits for the endpoint to become idle.
    idle: Notify,
    flusher: Arc<Flusher>,
    own_starts: OwnStarts,
    /// A reply has come through another node.
    has_relayed: AtomicBool,
    logged: Logged,
}

#[derive(Debug)]
struct State {
    node: Node,
    parked: Parked,
    advertised: Vec<Address>,
    /// Handlers that wait for credit of a streamed reply, or for an item of a streamed request.
    stream_wakers: BTreeMap<TaskRef, Vec<Waker>>,
    /// Callers that wait for room for an item of a streamed request.
    item_wakers: BTreeMap<CallId, Waker>,
    mail_wakers: BTreeMap<MailReader, Waker>,
    stoppers: BTreeMap<TaskRef, Arc<Stopper>>,
    gates: Gates,
    /// Left by the handlers of the last batch to those of the next.
    spare: Spare,
    proofs: Proofs,
    armed: Timestamp,
    is_closing: bool,
    /// It makes no calls any more.
    is_closed: bool,
}

/// Parts of which a driver is made.
pub(crate) struct Parts {
    pub(crate) transports: Vec<Arc<dyn Transport>>,
    pub(crate) resolver: Option<Resolver>,
    pub(crate) methods: MethodTable,
    pub(crate) telemetry: Telemetry,
    pub(crate) packing: Packing,
    pub(crate) health: Option<Health>,
    pub(crate) pull: Pull,
}

/// A connection, and what callers that append to it must know.
#[derive(Debug)]
struct Attached {
    connection: Arc<dyn Connection>,
    /// Promise of somebody to flush it.
    promise: Promise,
    held: HeldCancels,
    /// It had no room for a cast; somebody waits until it has, to say so.
    is_choked: bool,
}

impl Attached {
    fn new(connection: Arc<dyn Connection>) -> Self {
        let (promise, held) = (Promise::default(), HeldCancels::default());
        Self { connection, promise, held, is_choked: false }
    }
}

impl State {
    /// Ready while the connection to a node has room for requests, or while there is none.
    fn poll_room(&self, node: NodeId, cx: &mut Context<'_>) -> Poll<()> {
        if !self.node.outbox().full.contains(&node) {
            return Poll::Ready(());
        }
        let link = self.node.links().current(node);
        match link.and_then(|link| self.connections().get(link)) {
            Some(way) => way.connection.poll_writable(Lane::Data, cx),
            None => Poll::Ready(()),
        }
    }

    fn connections(&self) -> &Connections {
        &self.node.outbox().connections
    }

    fn connections_mut(&mut self) -> &mut Connections {
        &mut self.node.outbox_mut().connections
    }
}

impl Driver {
    pub(crate) fn new(
        identity: Identity,
        limits: Limits,
        parts: Parts,
        (secret, seed): (Secret, u64),
    ) -> Result<Arc<Self>, LimitsError> {
        let Parts { transports, resolver, methods, telemetry, packing, health, pull } = parts;
        let outlet = Outlet::new(telemetry.clone());
        let mut node = Node::with_outbox(
            outlet,
            identity,
            (secret, seed),
            &limits,
            Cores::ONE,
            Timestamp::ZERO,
        )?;
        if resolver.is_some() {
            node.resolve_by_name();
        }
        let headroom = 64 << 10;
        let frame_bytes_max =
            u32::try_from(limits.message_bytes_max.saturating_add(headroom)).unwrap_or(u32::MAX);
        let state = State {
            node,
            parked: Parked::default(),
            advertised: Vec::new(),
            stream_wakers: BTreeMap::new(),
            item_wakers: BTreeMap::new(),
            mail_wakers: BTreeMap::new(),
            stoppers: BTreeMap::new(),
            gates: Gates::default(),
            spare: Spare::default(),
            proofs: Proofs::new(&transports),
            armed: Timestamp::MAX,
            is_closing: false,
            is_closed: false,
        };
        let driver = Arc::new_cyclic(|me: &Weak<Self>| Self {
            identity,
            me: me.clone(),
            frame_bytes_max,
            keep_alive_timeout: limits.keep_alive_timeout,
            deadline_max: limits.deadline_max,
            #[expect(clippy::disallowed_methods, reason = "the driver is the reader of the clock")]
            start: Instant::now(),
            runtime: Handle::current(),
            transports,
            resolver,
            methods,
            telemetry,
            peers: Peers::default(),
            packing,
            carrier: Mutex::default(),
            carried: CarriedCasts::default(),
            pull,
            limits,
            health,
            doors: Doors::default(),
            state: Mutex::new(state),
            timer: Arc::new(Notify::new()),
            idle: Notify::new(),
            flusher: Arc::default(),
            own_starts: OwnStarts::default(),
            has_relayed: AtomicBool::new(false),
            logged: Logged::default(),
        });
        #[cfg(feature = "metrics")]
        if driver.telemetry.meters.is_some() {
            driver.runtime.spawn(run_meters(driver.me.clone(), Duration::from_secs(1)));
        }
        driver.runtime.spawn(run_timer(driver.me.clone(), driver.start, driver.timer.clone()));
        driver.runtime.spawn(run_flusher(driver.me.clone(), driver.flusher.clone()));
        Ok(driver)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the driver is the reader of the clock")]
        let now = Instant::now();
        Timestamp::ZERO + now.duration_since(self.start)
    }

    /// Lets the node work on some input, then carries out what it wants.
    pub(crate) fn with_node<T>(self: &Arc<Self>, act: impl FnOnce(&mut Node, Timestamp) -> T) -> T {
        self.with_state(|state, now, _| act(&mut state.node, now))
    }

    /// The same for what concerns its connections, too.
    fn with_state<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut State, Timestamp, &mut Aftermath) -> T,
    ) -> T {
        let _flush_unlocked = FlushScope::enter();
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let result = {
            let mut state = self.state.lock();
            let result = act(&mut state, now, &mut aftermath);
            state.drain(now, &mut aftermath);
            result
        };
        self.finish(&mut aftermath);
        result
    }

    /// Ends a scope of a caller or a handler: alone it flushes now, otherwise with the others.
    /// Between threads waking the one who flushes costs more than a write.
    pub(crate) fn end_scope(&self, scope: FlushScope) {
        let is_one_thread = self.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if !is_one_thread || !scope.has_to_flush() {
            return;
        }
        let company = {
            let state = self.state.lock();
            state.node.initiators().call_count() + state.node.shards().running_count()
        };
        if company > 1 { scope.leave_to(&self.flusher) } else { drop(scope) }
    }

    /// Ends a scope of who has more to append at once, most often: a sender of many items.
    fn end_scope_with_more(&self, scope: FlushScope) {
        let is_one_thread = self.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if is_one_thread { scope.leave_to(&self.flusher) } else { drop(scope) }
    }

    /// For what causes nothing to be sent.
    pub(crate) fn with_node_quietly<T>(&self, act: impl FnOnce(&mut Node) -> T) -> T {
        act(&mut self.state.lock().node)
    }

    pub(crate) fn advertise(&self, addresses: Vec<Address>) {
        self.state.lock().advertised = addresses;
    }

    /// The connection that new frames to `node` take.
    pub(crate) fn connection_to(&self, node: NodeId) -> Option<Arc<dyn Connection>> {
        let state = self.state.lock();
        let link = state.node.links().current(node)?;
        state.connections().get(link).map(|attached| attached.connection.clone())
    }

    /// Ready while the connection to a node has room for requests, or while there is none.
    #[cfg(feature = "tower")]
    pub(crate) fn poll_writable(&self, node: NodeId, cx: &mut Context<'_>) -> Poll<()> {
        self.state.lock().poll_room(node, cx)
    }

    /// Open branches of this node's calls at another.
    pub(crate) fn open_at(&self, node: NodeId) -> usize {
        self.state.lock().node.open_at(node)
    }

    /// The connections to `node` that new frames do not take.
    fn doubles(&self, node: NodeId) -> Vec<Arc<dyn Connection>> {
        let state = self.state.lock();
        let current = state.node.links().current(node);
        let of_node = state.connections().of_node(node);
        let doubles = of_node.filter(|(link, _)| Some(*link) != current);
        doubles.map(|(_, attached)| attached.connection.clone()).collect()
    }

    /// Refuses new work from now on.
    pub(crate) fn begin_closing(self: &Arc<Self>) {
        self.state.lock().is_closing = true;
        self.with_node(|node, _| node.begin_shutdown());
    }

    /// True when it refuses new work.
    pub(crate) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// True when it has closed its connections.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Carrier of large bodies to several nodes at once, if there is one.
    pub(crate) fn carrier(&self) -> Option<Arc<dyn BodyCarrier>> {
        self.carrier.lock().clone()
    }

    /// Offers what is large and for several other nodes to the carrier, if there is one.
    pub(crate) fn offer(&self, to: &[NodeId], body: &Bytes) -> Option<Carried> {
        // What is small, as most is, does not even look whether there is one.
        if body.len() < carrier::BODY_BYTES_MIN || to.len() < 2 {
            return None;
        }
        let carrier = self.carrier().filter(|carrier| body.len() >= carrier.body_bytes_min())?;
        let carried = carrier.offer(to, body)?;
        debug_assert!(carried.reference.len() <= carrier::REFERENCE_BYTES_MAX, "as it promises");
        (!carried.nodes.is_empty()).then_some(carried)
    }

    /// True when there was none before.
    pub(crate) fn set_carrier(&self, carrier: Arc<dyn BodyCarrier>) -> bool {
        let mut place = self.carrier.lock();
        let is_free = place.is_none();
        if is_free {
            *place = Some(carrier);
        }
        is_free
    }

    pub(crate) fn take_carrier(&self) -> Option<Arc<dyn BodyCarrier>> {
        self.carrier.lock().take()
    }

    /// True when no handler runs, no reply waits and no call is open.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.node.shards().running_count() == 0 && state.node.initiators().open_count() == 0
    }

    /// Resolves when something may have ended since it was enabled.
    pub(crate) fn idle_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.idle.notified()
    }

    /// Stops every handler that still runs; its initiator is told.
    pub(crate) fn stop_all(self: &Arc<Self>) {
        let (stoppers, waiting) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.stoppers), state.gates.open_all())
        };
        self.with_node(|node, now| {
            let begun = stoppers.keys().map(|task| (task, Executed::Maybe));
            let not_begun = waiting.iter().map(|start| (&start.task, Executed::No));
            for (task, executed) in begun.chain(not_begun) {
                node.fail(now, task, TaskFailure::new(Cause::ShuttingDown, executed, ""));
            }
        });
        stoppers.values().for_each(|stopper| stopper.stop());
    }

    /// Samples the metrics that are not counted as they happen.
    #[cfg(feature = "metrics")]
    pub(crate) fn sample_metrics(&self) {
        let Some(meters) = &self.telemetry.meters else { return };
        let carried = self.carried();
        let state = self.state.lock();
        let seen = crate::telemetry::Seen {
            calls: state.node.initiators().open_count(),
            tasks: state.node.shards().running_count(),
            waiting: state.gates.waiting_count(),
            ignored: state.node.ignored(),
            connections: state.connections().iter().count(),
            carried,
        };
        drop(state);
        meters.sample(seen);
    }

    pub(crate) fn connections(&self) -> Vec<Arc<dyn Connection>> {
        self.state.lock().connections().iter().map(|attached| attached.connection.clone()).collect()
    }

    /// Traffic of connections that have ended.
    pub(crate) fn ended(&self) -> Counters {
        self.state.lock().connections().ended()
    }

    /// Traffic of all connections, open and ended.
    pub(crate) fn carried(&self) -> Counters {
        let (ended, open): (_, Vec<_>) = {
            let state = self.state.lock();
            let open = state.connections().carriers().map(|attached| attached.connection.clone());
            (state.connections().ended(), open.collect())
        };
        open.iter().map(|connection| connection.counters()).fold(ended, std::ops::Add::add)
    }

    /// Does what is left to be done without the lock.
    fn finish(self: &Arc<Self>, aftermath: &mut Aftermath) {
        if aftermath.is_nothing() {
            return;
        }
        for (connection, reason) in aftermath.closes.drain(..) {
            connection.close(reason);
        }
        for connection in aftermath.held.drain(..) {
            self.send_held(connection);
        }
        for connection in aftermath.choked.drain(..) {
            self.tell_of_room(connection);
        }
        for waker in aftermath.wakers.drain(..) {
            waker.wake();
        }
        if aftermath.rearm {
            self.timer.notify_one();
        }
        if aftermath.is_closing {
            self.idle.notify_waiters();
        }
        aftermath.events.drain(..).for_each(|event| self.handle_event(event));
        if !aftermath.starts.is_empty() {
            let starts = std::mem::take(&mut aftermath.starts);
            let starts = self.take_own(starts, aftermath.starts_apart);
            run_queue::start_all(self, starts, std::mem::take(&mut aftermath.spare));
        }
    }

    /// The transports hold the sink by `Arc`, so that there is one while they call it.
    fn as_arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls holds the driver")
    }

    fn handle_event(self: &Arc<Self>, event: NodeEvent) {
        match event {
            NodeEvent::Dial { node, addresses } => self.dial_node(node, addresses),
            // Drained under the lock, where the maps are.
            NodeEvent::Ignored { node, why, .. } => {
                tracing::warn!(peer = %node, "frames are ignored: {why}");
            }
            NodeEvent::Task(_) | NodeEvent::ItemsWritable(_) | NodeEvent::Reset { .. } => {}
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.flusher.wake();
    }
}

/// Samples metrics every `interval` for as long as the endpoint lives.
#[cfg(feature = "metrics")]
async fn run_meters(driver: Weak<Driver>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        let Some(driver) = driver.upgrade() else { return };
        driver.sample_metrics();
    }
}

/// Flushes for callers and handlers that have company, for as long as the endpoint lives.
async fn run_flusher(driver: Weak<Driver>, flusher: Arc<Flusher>) {
    while driver.strong_count() > 0 {
        flusher.turn().await;
    }
}

/// Calls the node when its timeouts are due, for as long as the endpoint lives.
async fn run_timer(driver: Weak<Driver>, start: Instant, earlier: Arc<Notify>) {
    let mut at = Timestamp::ZERO;
    loop {
        let is_due = tokio::select! {
            biased;
            () = earlier.notified() => false,
            () = tokio::time::sleep_until(start + at.since(Timestamp::ZERO)) => true,
        };
        let Some(driver) = driver.upgrade() else { return };
        if is_due {
            let _scope = FlushScope::enter();
            driver.flush_overdue();
            driver.with_node(|node, now| node.handle_timeout(now));
        }
        let mut state = driver.state.lock();
        state.armed = state.node.poll_timeout();
        at = state.armed;
    }
}
