//! The loop around the pure node: input, `handle_*`, drain `poll_*`. The only reader of the clock.
//!
//! The node has one or several [`cores`], each with the connections behind a lock of its own.
//! Whoever brings input (a connection's reader, a caller, a handler, the timer) takes that of the
//! core that it is for, lets the core work, appends what it wants sent to the connections' buffers,
//! and lets go; then it flushes, wakes and starts handlers without the lock. Flushes of everything
//! done within one [`FlushScope`] (a read batch, one poll of a handler) are one per connection.

mod ahead;
mod batch;
mod caller;
mod carried;
mod choked;
mod connections;
mod cores;
mod dial;
mod doors;
mod drain;
mod ending;
mod flush;
mod full;
mod gate;
mod handler;
mod held;
mod hold;
mod joint;
mod load;
mod logged;
mod methods;
mod outlet;
mod owed;
mod own_starts;
mod pace;
mod parked;
mod partings;
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
mod unsaid;
mod waiters;
mod waiting;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{Incarnation, LinkId, NodeId};
use convoke_proto::key::Secret;
use convoke_proto::limits::{Limits, LimitsError};
#[cfg(feature = "metrics")]
use convoke_proto::node::IgnoredCounts;
use convoke_proto::node::{Identity, NodeEvent};
use convoke_proto::parting::Partings;
use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_proto::wire::{Cause, Executed};
use convoke_transport::parts::{Guest, Mutex, WAKER, wake_all};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::carrier::{self, BodyCarrier, Carried};
use crate::health::Health;
use crate::packing::Packing;
use crate::resolve::Resolver;
use crate::telemetry::Telemetry;
use crate::timer::{self, Timer};
use crate::transport::{Address, Connection, Counters, Transport};

pub(crate) use caller::{OpenTerms, Opened};
use carried::CarriedCasts;
use cores::{Core, Cores};
pub use dial::dial_over;
use doors::Doors;
use drain::{Aftermath, Rare};
pub use ending::SUBSCRIBER;
pub(crate) use ending::{Deferral, HandlerResult, LastWord};
pub(crate) use flush::FlushScope;
use flush::Flusher;
use full::FullConnections;
pub(crate) use full::RoomWait;
use gate::Gates;
use joint::Joint;
pub use load::Load;
use logged::Logged;
#[cfg(feature = "tower")]
pub(crate) use methods::MakeRoom;
pub(crate) use methods::{MethodEntry, MethodTable, room};
use outlet::Outlet;
use owed::Owed;
pub use owed::OwedPlace;
use own_starts::OwnStarts;
#[cfg(feature = "tower")]
pub(crate) use passage::Passage;
pub use peers::PeerState;
use peers::Peers;
use proof::Admission;
pub(crate) use pull::Pull;
pub use reconnect::KeepConnected;
use reconnect::Keepers;
pub(crate) use stopper::Stopper;
pub(crate) use task::{NewBranches, TaskHandle};
pub(crate) use waiting::Part;

/// The node of an endpoint.
pub(crate) type Node = convoke_proto::node::Node<Outlet>;

/// Nodes of which a driver remembers that every core knows them as voters: fewer than a core
/// remembers, which forgets first whom it was told of longest ago.
const VOTERS_MAX: usize = 4_096;

/// Everything of an endpoint that its handles share.
#[derive(Debug)]
pub(crate) struct Driver {
    identity: Identity,
    frame_bytes_max: u32,
    keep_alive_timeout: Duration,
    deadline_max: Duration,
    start: Instant,
    runtime: Handle,
    /// All tasks of its runtime share one thread.
    is_one_thread: bool,
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
    cores: Cores,
    full: Arc<FullConnections>,
    admission: Mutex<Admission>,
    gates: Mutex<Gates>,
    /// Connections by which requests may be on their way, while it shuts down.
    partings: Mutex<Partings>,
    advertised: Mutex<Vec<Address>>,
    /// Nodes that are dialled because a core has something for them.
    dials: Mutex<BTreeSet<NodeId>>,
    /// Nodes whose connections beyond the first are watched until they end.
    draining: Mutex<BTreeSet<NodeId>>,
    by_name: Joint<NodeId, ()>,
    by_address: Joint<Address, NodeId>,
    keepers: Keepers,
    me: Weak<Self>,
    /// Wakes the timer when a timeout earlier than the one it sleeps for comes up.
    timer: Arc<Notify>,
    /// Wakes who waits for the endpoint to become idle.
    idle: Notify,
    flusher: Arc<Flusher>,
    own_starts: OwnStarts,
    owed: Owed,
    /// Nodes whose casts every core was told to keep.
    voters: RwLock<BTreeSet<NodeId>>,
    /// A reply has come through another node.
    has_relayed: AtomicBool,
    logged: Logged,
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
    /// Number of its cores.
    pub(crate) cores: u8,
}

impl Driver {
    pub(crate) fn new(
        identity: Identity,
        limits: Limits,
        parts: Parts,
        (secret, seed): (Secret, u64),
    ) -> Result<Arc<Self>, LimitsError> {
        let Parts { transports, resolver, methods, telemetry, packing, health, pull, cores } =
            parts;
        let routes = convoke_proto::cores::Routes::new(identity.incarnation, cores);
        let full = Arc::new(FullConnections::default());
        let cores = Cores::new(routes, |index, place| {
            let outlet = Outlet::new(telemetry.clone(), full.clone());
            let secret = (secret, seed.wrapping_add(index as u64));
            let start = Timestamp::ZERO;
            let mut node = Node::with_outbox(outlet, identity, place, secret, &limits, start)?;
            if resolver.is_some() {
                node.resolve_by_name();
            }
            Ok::<_, LimitsError>(Core::new(index, node))
        })?;
        let headroom = 64 << 10;
        let frame_bytes_max =
            u32::try_from(limits.message_bytes_max.saturating_add(headroom)).unwrap_or(u32::MAX);
        let admission = Mutex::new(Admission::new(&transports));
        let runtime = Handle::current();
        let driver = Arc::new_cyclic(|me: &Weak<Self>| Self {
            identity,
            me: me.clone(),
            frame_bytes_max,
            keep_alive_timeout: limits.keep_alive_timeout,
            deadline_max: limits.deadline_max,
            #[expect(clippy::disallowed_methods, reason = "the driver is the reader of the clock")]
            start: Instant::now(),
            is_one_thread: runtime.runtime_flavor() == RuntimeFlavor::CurrentThread,
            runtime,
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
            cores,
            full,
            admission,
            gates: Mutex::default(),
            partings: Mutex::default(),
            advertised: Mutex::default(),
            dials: Mutex::default(),
            draining: Mutex::default(),
            by_name: Joint::default(),
            by_address: Joint::default(),
            keepers: Keepers::default(),
            timer: Arc::new(Notify::new()),
            idle: Notify::new(),
            flusher: Arc::default(),
            own_starts: OwnStarts::default(),
            owed: Owed::default(),
            voters: RwLock::default(),
            has_relayed: AtomicBool::new(false),
            logged: Logged::default(),
        });
        #[cfg(feature = "metrics")]
        if driver.telemetry.meters.is_some() {
            driver.runtime.spawn(run_meters(driver.me.clone(), Duration::from_secs(1)));
        }
        // Made here, so that it closes also where the runtime ends before it polls the timer.
        let closes = ClosesWithRuntime(driver.me.clone());
        driver.runtime.spawn(run_timer(closes, driver.start, driver.timer.clone()));
        let flusher = driver.flusher.clone();
        driver.runtime.spawn(run_flusher(driver.me.clone(), flusher, driver.is_one_thread));
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

    /// A time of this driver as the clock tells it.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.start + at.since(Timestamp::ZERO)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Bounds the time of a future, also where its caller has no runtime, or one without timers. It
    /// is over when the runtime of the endpoint is.
    pub(crate) async fn within<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        timer::in_time(Timer::after(&self.runtime, time), future).await
    }

    /// Lets the core of an origin work on some input, then carries out what it wants.
    pub(crate) fn with_node<T>(
        self: &Arc<Self>,
        origin: Incarnation,
        act: impl FnOnce(&mut Node, Timestamp) -> T,
    ) -> T {
        self.with_core(self.cores.routes.of(origin), |core, now, _| act(&mut core.node, now))
    }

    /// The same for what is kept with the node, too.
    fn with_core<T>(
        self: &Arc<Self>,
        index: usize,
        act: impl FnOnce(&mut Core, Timestamp, &mut Aftermath) -> T,
    ) -> T {
        let _flush_unlocked = FlushScope::enter();
        let mut aftermath = Aftermath::default();
        let result = self.visit(index, &mut aftermath, act);
        self.finish(&mut aftermath);
        result
    }

    /// Lets each core in turn work on what concerns all, then carries out what they want.
    fn with_each(self: &Arc<Self>, act: impl FnMut(&mut Core, Timestamp, &mut Aftermath)) {
        let _flush_unlocked = FlushScope::enter();
        let mut aftermath = Aftermath::default();
        self.visit_each(&mut aftermath, act);
        self.finish(&mut aftermath);
    }

    /// Lets each core in turn work. The rest is left to the caller, who may hold a lock.
    fn visit_each(
        &self,
        aftermath: &mut Aftermath,
        mut act: impl FnMut(&mut Core, Timestamp, &mut Aftermath),
    ) {
        (0..self.cores.routes.len()).for_each(|index| self.visit(index, aftermath, &mut act));
    }

    /// Lets a core work under its lock.
    fn visit<T>(
        &self,
        index: usize,
        aftermath: &mut Aftermath,
        act: impl FnOnce(&mut Core, Timestamp, &mut Aftermath) -> T,
    ) -> T {
        let now = self.now();
        let mut core = self.cores.lock(index);
        self.cores.hear(&mut core, LinkId::LOCAL);
        let result = act(&mut core, now, aftermath);
        core.drain(now, aftermath);
        self.cores.tell(&mut core);
        result
    }

    /// The same for the nodes alone.
    pub(crate) fn with_each_node(self: &Arc<Self>, mut act: impl FnMut(&mut Node, Timestamp)) {
        self.with_each(|core, now, _| act(&mut core.node, now));
    }

    /// Asks the core of an origin, or lets it work on what causes nothing to be sent.
    pub(crate) fn ask_node<T>(&self, origin: Incarnation, act: impl FnOnce(&mut Node) -> T) -> T {
        act(&mut self.cores.lock_of(origin).node)
    }

    /// Asks for what every core knows.
    pub(crate) fn ask_any_node<T>(&self, ask: impl FnOnce(&Node) -> T) -> T {
        ask(&self.cores.lock_any().node)
    }

    /// Asks each core in turn.
    pub(crate) fn ask_each_node(&self, mut act: impl FnMut(&mut Node)) {
        self.cores.each().for_each(|mut core| act(&mut core.node));
    }

    /// Keeps the casts of these nodes in whichever core, also before a reader is there. Those of
    /// one call after the other are the same, most often, and no core is asked for them.
    pub(crate) fn know_voters(&self, voters: &BTreeSet<NodeId>) {
        if voters.is_subset(&self.voters.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        self.ask_each_node(|node| node.mailboxes_mut().know(voters.iter().copied()));
        let mut known = self.voters.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() + voters.len() > VOTERS_MAX {
            known.clear(); // Those that are asked for are told once more.
        }
        if voters.len() <= VOTERS_MAX {
            known.extend(voters);
        }
    }

    /// Ends a scope in which handlers were polled or a caller has done several things: alone it
    /// flushes now, otherwise with the others. Handlers of several threads flush at once: few of
    /// them are in the same turn, and waking the one who flushes costs more than a write.
    pub(crate) fn end_scope(&self, scope: FlushScope) {
        if !self.is_one_thread || !scope.has_to_flush() {
            return;
        }
        let company = self
            .cores
            .total(|core| core.node.initiator().call_count() + core.node.visits().running_count());
        if company > 1 { scope.leave_to(&self.flusher, || self.now()) } else { drop(scope) }
    }

    /// Ends a scope of who has more to append at once, most often: a sender of many items.
    fn end_scope_with_more(&self, scope: FlushScope) {
        if self.is_one_thread { scope.leave_to(&self.flusher, || self.now()) } else { drop(scope) }
    }

    pub(crate) fn advertise(&self, addresses: Vec<Address>) {
        *self.advertised.lock() = addresses;
    }

    /// The connection that new frames to `node` take.
    pub(crate) fn connection_to(&self, node: NodeId) -> Option<Arc<dyn Connection>> {
        let core = self.cores.lock_any();
        let link = core.node.links().current(node)?;
        core.connections().get(link).map(|attached| attached.connection.clone())
    }

    /// Open branches of this node's calls at another.
    pub(crate) fn open_at(&self, node: NodeId) -> usize {
        self.cores.total(|core| core.node.open_at(node))
    }

    /// The connections to `node` that new frames do not take.
    fn doubles(&self, node: NodeId) -> Vec<Arc<dyn Connection>> {
        let core = self.cores.lock_any();
        let current = core.node.links().current(node);
        let of_node = core.connections().of_node(node);
        let doubles = of_node.filter(|(link, _)| Some(*link) != current);
        doubles.map(|(_, attached)| attached.connection.clone()).collect()
    }

    /// Refuses new work from now on.
    pub(crate) fn begin_closing(self: &Arc<Self>) {
        // Whoever accepts a connection now has told every core of it before, or is refused.
        self.admission.lock().is_closing = true;
        // Before the first word: what comes from then on is looked at.
        self.cores.each().for_each(|mut core| core.is_closing = true);
        self.with_each(|core, now, _| self.stop_core(core, now));
    }

    /// True when it refuses new work.
    pub(crate) fn is_closing(&self) -> bool {
        self.admission.lock().is_closing
    }

    /// Carrier of large bodies to several nodes at once, if there is one.
    pub(crate) fn carrier(&self) -> Option<Arc<dyn BodyCarrier>> {
        self.carrier.lock().clone()
    }

    /// Bytes from which the carrier takes bodies, if there is one.
    pub(crate) fn carried_from(&self) -> Option<usize> {
        self.carrier().map(|carrier| carrier.body_bytes_min())
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

    /// True when none of its connections is left.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.cores.lock_any().connections().len() == 0
    }

    /// True when no handler runs, no reply waits and no call is open.
    pub(crate) fn is_idle(&self) -> bool {
        let open =
            |core: &Core| core.node.visits().running_count() + core.node.initiator().open_count();
        self.cores.total(open) == 0
    }

    /// True when the handler of a task has not ended and has not been stopped.
    fn is_running(&self, task: &TaskRef) -> bool {
        self.cores.lock_of(task.call.origin).node.is_running(task)
    }

    /// Resolves once `is_so`, of an endpoint that refuses new work. Asked again whenever a call, a
    /// task or a connection may have ended.
    pub(crate) async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = pin!(self.idle.notified());
            changed.as_mut().enable();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    /// Stops every handler that still runs, and from now on each that has begun; its initiator is
    /// told.
    pub(crate) fn stop_all(self: &Arc<Self>) {
        let waiting = self.gates.lock().open_all();
        let ended = |executed| TaskFailure::new(Cause::ShuttingDown, executed, "");
        for start in waiting {
            let fail = |node: &mut Node, now| node.fail(now, &start.task, ended(Executed::No));
            self.with_node(start.task.call.origin, fail);
        }
        let mut stoppers = Vec::new();
        self.with_each(|core, now, aftermath| {
            core.is_closed = true;
            for (task, stopper) in std::mem::take(&mut core.stoppers) {
                core.node.abort(now, &task, ended(Executed::Maybe));
                // Where the handler is gone, nobody else tells parts of it that were spawned.
                core.take_parts(&task, aftermath);
                stoppers.push(stopper);
            }
        });
        wake_all(stoppers.iter().filter_map(|stopper| stopper.stop_later()));
    }

    /// Samples the metrics that are not counted as they happen.
    #[cfg(feature = "metrics")]
    pub(crate) fn sample_metrics(&self) {
        self.telemetry.sample(|| {
            let mut ignored = IgnoredCounts::default();
            self.ask_each_node(|node| ignored = ignored + node.ignored());
            crate::telemetry::Seen {
                calls: self.cores.total(|core| core.node.initiator().open_count()),
                tasks: self.cores.total(|core| core.node.visits().running_count()),
                waiting: self.gates.lock().waiting_count(),
                ignored,
                connections: self.connections().len(),
                carried: self.carried(),
            }
        });
    }

    pub(crate) fn connections(&self) -> Vec<Arc<dyn Connection>> {
        let core = self.cores.lock_any();
        core.connections().iter().map(|attached| attached.connection.clone()).collect()
    }

    /// Traffic of connections that have ended.
    pub(crate) fn ended(&self) -> Counters {
        self.cores.lock_any().connections().ended()
    }

    /// Traffic of all connections, open and ended.
    pub(crate) fn carried(&self) -> Counters {
        let (ended, open): (_, Vec<_>) = {
            let core = self.cores.lock_any();
            let open = core.connections().carriers().map(|attached| attached.connection.clone());
            (core.connections().ended(), open.collect())
        };
        open.iter().map(|connection| connection.counters()).fold(ended, std::ops::Add::add)
    }

    /// Does what is due, in each core by itself. False when something has panicked.
    fn handle_due(self: &Arc<Self>) -> bool {
        let _scope = FlushScope::enter();
        let flushed = TIMER.call(|| self.flush_due()); // The flusher may be held up.
        let of_cores = (0..self.cores.routes.len()).map(|core| {
            let handled = TIMER.call(|| {
                self.with_core(core, |core, now, _| {
                    if core.node.poll_timeout() <= now {
                        core.node.handle_timeout(now);
                    }
                });
            });
            handled.is_some()
        });
        of_cores.fold(flushed.is_some(), |all, is_handled| all && is_handled)
    }

    /// Does what is left to be done without the lock.
    fn finish(self: &Arc<Self>, aftermath: &mut Aftermath) {
        if aftermath.is_nothing() {
            return;
        }
        if let Some(rare) = aftermath.take_rare() {
            self.finish_rare(*rare);
        }
        if aftermath.stopped > 0 {
            self.sweep_gates(std::mem::take(&mut aftermath.stopped));
        }
        if !aftermath.wakers.is_empty() {
            wake_all(aftermath.wakers.drain(..));
        }
        if aftermath.rearm {
            self.timer.notify_one();
        }
        if aftermath.is_closing {
            WAKER.call(|| self.idle.notify_waiters());
        }
        if !aftermath.starts.is_empty() {
            let starts = std::mem::take(&mut aftermath.starts);
            let starts = self.take_own(starts, aftermath.starts_apart);
            run_queue::start_all(self, starts, std::mem::take(&mut aftermath.spare));
        }
    }

    fn finish_rare(self: &Arc<Self>, rare: Rare) {
        for (core, connection) in rare.held {
            self.send_held(core, connection);
        }
        for (core, connection) in rare.choked {
            self.tell_of_room(core, connection);
        }
        full::tell(&rare.told);
        rare.filled.into_iter().for_each(|connection| self.await_room(connection));
        rare.events.into_iter().for_each(|event| self.handle_event(event));
        rare.unsaid.into_iter().for_each(|unsaid| self.say(unsaid));
        // Last, and a panic of one keeps nobody from being told or woken.
        for (connection, reason) in rare.closes {
            CONNECTION.call(|| {
                // It may linger, and what an earlier life of its peer takes is not what this does.
                self.packing.forget(connection.link().peer.node, connection.link().nonce);
                connection.close(reason);
            });
        }
    }

    /// The transports hold the sink by `Arc`, so that there is one while they call it.
    fn as_arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls holds the driver")
    }

    fn handle_event(self: &Arc<Self>, event: NodeEvent) {
        match event {
            NodeEvent::Dial { node, .. } => self.dial_node(node),
            NodeEvent::Ignored { node, why, .. } => {
                SUBSCRIBER.call(|| tracing::warn!(peer = %node, "frames are ignored: {why}"));
            }
            // Drained under the lock, where the maps are.
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
async fn run_flusher(driver: Weak<Driver>, flusher: Arc<Flusher>, is_one_thread: bool) {
    while driver.strong_count() > 0 {
        flusher.turn(is_one_thread).await;
        if let Some(driver) = driver.upgrade() {
            driver.flush_due();
        }
    }
}

/// Closes an endpoint whose runtime is gone: nothing dials, answers or tells the time any more.
struct ClosesWithRuntime(Weak<Driver>);

impl Drop for ClosesWithRuntime {
    fn drop(&mut self) {
        if let Some(driver) = self.0.upgrade() {
            driver.close();
        }
    }
}

/// Calls the node when its timeouts are due, for as long as the endpoint lives.
async fn run_timer(closes: ClosesWithRuntime, start: Instant, earlier: Arc<Notify>) {
    let mut at = Timestamp::ZERO;
    loop {
        let is_due = tokio::select! {
            biased;
            () = earlier.notified() => false,
            () = tokio::time::sleep_until(start + at.since(Timestamp::ZERO)) => true,
        };
        let Some(driver) = closes.0.upgrade() else { return };
        let has_panicked = is_due && !driver.handle_due();
        at = Timestamp::MAX;
        for mut core in driver.cores.each() {
            core.armed = core.node.poll_timeout();
            at = at.min(core.armed);
        }
        if has_panicked {
            at = at.max(driver.now() + AFTER_PANIC);
        }
    }
}

/// Without it the endpoint would be closed: what a timeout causes may panic, as a connection does
/// that is given by the application.
static CONNECTION: Guest = Guest::new("connection of an endpoint");
static TIMER: Guest = Guest::new("timer of an endpoint");

/// From a panic of the timer to its next turn: what has panicked may be due still, and do so again.
const AFTER_PANIC: Duration = Duration::from_millis(10);
