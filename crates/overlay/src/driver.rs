//! The loop around the pure parts: frames and operations in, what they want sent out. The only
//! reader of the clock.
//!
//! One lock holds the node, the control part and the flows. Whoever brings input takes it, lets
//! them work, appends what they want sent to the connections' buffers and lets go; flushes and
//! wakes follow without the lock.

mod dial;
mod drain;
mod flows;
mod names;
mod roster;
mod sink;
mod unsaid;
mod waits;

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_core::NodeId;
use convoke_core::seam::Seldom;
use convoke_core::time::Timestamp;
use convoke_core::transport::parts::{Guest, Mutex, WAKER, Wakers};
use convoke_core::transport::{Address, CloseReason, Hello, Listener, Transport};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, Timeout};

use crate::bodies::Bodies;
use crate::control::Control;
use crate::estimate::Estimator;
use crate::inbox::{Delivery, Inbox};
#[cfg(feature = "metrics")]
use crate::meters::Meters;
use crate::node::OverlayNode;
use crate::plan::Plan;
use crate::site::Site;
use crate::waiting::Waiting;
use crate::watch::{Held, Watched};
use crate::wire::OpId;

use drain::Aftermath;
use flows::Flows;
use names::Names;
use roster::Roster;
pub(crate) use sink::{FLOWS_MAX, FRAME_BYTES_MAX};
use waits::Wait;
pub(crate) use waits::{Forget, Offer};

/// Everything of an overlay that its handles share.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) me: Site,
    /// The node of each site.
    pub(crate) nodes: Arc<[NodeId]>,
    names: Names,
    hello: Mutex<Hello>,
    roster: Roster,
    start: Instant,
    runtime: Handle,
    transports: Vec<Arc<dyn Transport>>,
    flows_per_site: usize,
    state: Mutex<State>,
    me_shared: Weak<Self>,
    /// Wakes the timer when something is due earlier than what it sleeps for.
    timer: Notify,
    /// Wakes those who dial: a flow was lost, an address was learnt, or all is over.
    dialling: Notify,
    /// Wakes those who wait for all links, or for all acknowledgements.
    changed: Notify,
    /// Ends of flows that are logged: a network that fails chooses how many there are.
    closed: Seldom,
    #[cfg(feature = "metrics")]
    meters: Option<Meters>,
}

/// State behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) node: OverlayNode,
    pub(crate) bodies: Bodies,
    pub(crate) inbox: Inbox,
    pub(crate) watched: Watched,
    /// Those whose broadcast was not ready.
    offers: Waiting,
    flows: Vec<Flows>,
    addresses: Vec<Option<Address>>,
    /// None under a plan made by hand.
    control: Option<Control>,
    estimator: Option<Estimator>,
    plan: Arc<Plan>,
    /// Time until which the timer sleeps.
    armed: Timestamp,
    /// Requests carry their own bodies again.
    is_leaving: bool,
    is_closed: bool,
    listeners: Vec<Box<dyn Listener>>,
    /// Dropped frames that are logged: a site chooses how many there are.
    dropped: Seldom,
    /// News of relays that are logged: a site chooses how many there are.
    suspected: Seldom,
}

/// Parts that a driver is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) me: Site,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) hello: Hello,
    pub(crate) transports: Vec<Arc<dyn Transport>>,
    pub(crate) flows_per_site: usize,
    pub(crate) addresses: Vec<Option<Address>>,
    pub(crate) node: OverlayNode,
    pub(crate) bodies: Bodies,
    pub(crate) control: Option<Control>,
    pub(crate) estimator: Option<Estimator>,
    pub(crate) plan: Arc<Plan>,
    #[cfg(feature = "metrics")]
    pub(crate) meters: Option<Meters>,
}

impl Driver {
    /// Starts its timer and its dials on the current runtime.
    pub(crate) fn start(parts: Parts) -> Arc<Self> {
        let (sites, nodes) = (parts.nodes.len(), Arc::<[_]>::from(parts.nodes));
        let state = State {
            node: parts.node,
            bodies: parts.bodies,
            inbox: Inbox::default(),
            watched: Watched::default(),
            offers: Waiting::default(),
            flows: (0..sites).map(|_| Flows::default()).collect(),
            addresses: parts.addresses,
            control: parts.control,
            estimator: parts.estimator,
            plan: parts.plan,
            armed: Timestamp::MAX,
            is_leaving: false,
            is_closed: false,
            listeners: Vec::new(),
            dropped: Seldom::per_second(8),
            suspected: Seldom::per_second(8),
        };
        let driver = Arc::new_cyclic(|me_shared| Self {
            me: parts.me,
            roster: Roster::of(&nodes),
            names: Names::new(nodes.clone()),
            nodes,
            hello: Mutex::new(parts.hello),
            #[expect(clippy::disallowed_methods, reason = "the driver is the reader of the clock")]
            start: Instant::now(),
            runtime: Handle::current(),
            transports: parts.transports,
            flows_per_site: parts.flows_per_site,
            state: Mutex::new(state),
            me_shared: me_shared.clone(),
            timer: Notify::new(),
            dialling: Notify::new(),
            changed: Notify::new(),
            closed: Seldom::per_second(32),
            #[cfg(feature = "metrics")]
            meters: parts.meters,
        });
        // Made here, so that it closes also where the runtime ends before it polls the timer.
        driver.runtime.spawn(run_timer(ClosesWithRuntime(driver.clone())));
        #[cfg(feature = "metrics")]
        if driver.meters.is_some() {
            driver.runtime.spawn(crate::meters::run(Arc::downgrade(&driver)));
        }
        for site in (0..sites).map(site_of).filter(|site| *site > driver.me) {
            driver.runtime.spawn(dial::keep_flows(driver.clone(), site));
        }
        driver.with(|_, _| ()); // What the parts had to say from the beginning.
        driver
    }

    pub(crate) fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the driver is the reader of the clock")]
        let now = Instant::now();
        Timestamp::ZERO + now.duration_since(self.start)
    }

    /// Works on some input, then carries out what follows from it.
    pub(crate) fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        self.with_aftermath(|state, now, _| act(state, now))
    }

    /// The same for input that has something to send by itself.
    fn with_aftermath<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut State, Timestamp, &mut Aftermath) -> T,
    ) -> T {
        let now = self.now();
        let mut aftermath = Aftermath::default();
        let result = {
            let mut state = self.state.lock();
            let result = act(&mut state, now, &mut aftermath);
            state.drain(now, &mut aftermath);
            result
        };
        self.finish(aftermath);
        result
    }

    /// For what causes nothing to be sent.
    pub(crate) fn with_quietly<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock())
    }

    /// The next delivery; `None` once it is closed. What is read makes room.
    pub(crate) async fn next(self: &Arc<Self>) -> Option<Delivery> {
        let mut wait = Wait::new(self, |state| Some(state.inbox.readers()));
        let (arrived, is_asking) = poll_fn(|cx| wait.poll(cx, State::poll_next)).await?;
        if is_asking {
            self.with(|_, _| ());
        }
        Some(arrived.into())
    }

    /// Resolves once `count` other sites have an own operation, or nothing more comes of it.
    pub(crate) async fn acked_by(&self, op: OpId, count: usize) -> Held {
        let mut wait = Wait::new(self, |state| state.watched.waiting(op));
        poll_fn(|cx| wait.poll(cx, |state| state.watched.poll(op, count))).await
    }

    /// Resolves once every other site can be reached.
    pub(crate) async fn connected(&self) {
        let all = self.nodes.len() - 1;
        self.until(|state| state.node.up().len() == all).await;
    }

    /// Resolves once nobody is owed anything, of this site or by it, nor will be: all others have
    /// heard that it leaves, and what they had sent before that is here.
    pub(crate) async fn drained(&self) {
        let round_trip = self.with_quietly(|state| state.node.round_trip_max());
        self.until(State::is_drained).await;
        // Or until it is closed: a timer may not be polled once its runtime is gone.
        let _ = self.within(round_trip * 2, self.until(|_| false)).await;
        self.until(State::is_drained).await;
    }

    /// Bounds the time of a future, also where its caller has no runtime, or one without timers.
    pub(crate) fn within<F: Future>(&self, time: Duration, future: F) -> Timeout<F> {
        let _entered = self.runtime.enter();
        tokio::time::timeout(time, future)
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            if self.with_quietly(|state| holds(state) || state.is_closed) {
                return;
            }
            changed.await;
        }
    }

    /// Samples the metrics, if there are any.
    #[cfg(feature = "metrics")]
    pub(crate) fn sample_metrics(&self) {
        let Some(meters) = &self.meters else { return };
        let (plan, seen) = self.with_quietly(|state| (state.plan.clone(), state.seen()));
        meters.sample(self.me, &plan, &seen);
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.state.lock().plan.clone()
    }

    pub(crate) fn site_of(&self, node: NodeId) -> Option<Site> {
        self.nodes.binary_search(&node).ok().map(site_of)
    }

    /// Listens there, too.
    pub(crate) fn listens(&self, listener: Box<dyn Listener>) {
        self.hello.lock().advertised.push(listener.local_address());
        self.state.lock().listeners.push(listener);
    }

    /// Sets where a site can be dialled from now on.
    pub(crate) fn set_address(&self, site: Site, address: Address) {
        self.state.lock().addresses[site.index()] = Some(address);
        self.dialling.notify_waiters();
    }

    pub(crate) fn transport(&self, address: &Address) -> Option<&Arc<dyn Transport>> {
        self.transports.iter().find(|one| one.schemes().contains(&address.scheme()))
    }

    /// Takes no more bodies of requests; those of others are still brought to theirs, and what they
    /// have it relay goes on.
    pub(crate) fn leave(self: &Arc<Self>) {
        self.with(|state, now| {
            state.is_leaving = true;
            state.node.leave(now);
        });
    }

    /// Ends it: listeners and connections close, whoever waits is told.
    pub(crate) fn close(&self) {
        let (connections, listeners, wakers, told) = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_closed, true) {
                return;
            }
            let flows = state.flows.iter().flat_map(Flows::connections);
            let connections: Vec<_> = flows.cloned().collect();
            let mut wakers = Wakers::default();
            state.offers.wake(&mut wakers);
            state.inbox.close(&mut wakers);
            state.watched.close(&mut wakers);
            let told = state.bodies.close();
            (connections, std::mem::take(&mut state.listeners), wakers, told)
        };
        for listener in listeners {
            CONNECTION.call(|| listener.close());
        }
        for connection in connections {
            CONNECTION.call(|| connection.close(CloseReason::Local));
        }
        self.dialling.notify_waiters();
        WAKER.call(|| self.changed.notify_waiters());
        self.timer.notify_one();
        wakers.wake();
        told.tell();
    }

    /// Transports hold the sink by `Arc`, so that there is one while they call it.
    fn as_arc(&self) -> Arc<Self> {
        self.me_shared.upgrade().expect("whoever calls holds the driver")
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Does what is left to be done without the lock: all of it, whatever of it panics.
    fn finish(self: &Arc<Self>, aftermath: Aftermath) {
        for connection in aftermath.flushes {
            CONNECTION.call(|| connection.flush());
        }
        for (connection, reason) in aftermath.closes {
            CONNECTION.call(|| connection.close(reason));
        }
        for (site, connection) in aftermath.full {
            self.runtime.spawn(sink::await_room(self.clone(), site, connection));
        }
        aftermath.unsaid.into_iter().for_each(|unsaid| self.say(unsaid));
        aftermath.wakers.wake();
        aftermath.told.tell();
        if aftermath.has_settled {
            WAKER.call(|| self.changed.notify_waiters());
        }
        if aftermath.rearm {
            self.timer.notify_one();
        }
    }
}

/// Transports of an overlay, which the application may have given.
static CONNECTION: Guest = Guest::new("transport of an overlay");
static TIMER: Guest = Guest::new("timer of an overlay");

/// From a panic of the timer to its next turn: what has panicked may be due still, and do so again.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// Closes an overlay whose runtime is gone: nothing dials or tells the time any more.
struct ClosesWithRuntime(Arc<Driver>);

impl Drop for ClosesWithRuntime {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Calls the parts when they are due, until the overlay is closed.
async fn run_timer(closes: ClosesWithRuntime) {
    let driver = &closes.0;
    let mut has_panicked = false;
    loop {
        let mut at = {
            let mut state = driver.state.lock();
            if state.is_closed {
                return;
            }
            state.armed = state.poll_timeout();
            state.armed
        };
        if has_panicked {
            at = at.max(driver.now() + AFTER_PANIC);
        }
        let sleep = async {
            match at {
                Timestamp::MAX => std::future::pending().await,
                at => tokio::time::sleep_until(driver.start + at.since(Timestamp::ZERO)).await,
            }
        };
        let is_due = tokio::select! {
            biased;
            () = driver.timer.notified() => false,
            () = sleep => true,
        };
        has_panicked = is_due && TIMER.call(|| driver.with(State::handle_timeout)).is_none();
    }
}

/// # Panics
/// For an index of no site.
pub(crate) fn site_of(index: usize) -> Site {
    Site(u16::try_from(index).expect("an overlay has at most 128 sites"))
}
