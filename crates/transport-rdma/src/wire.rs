//! One queue pair and what goes over it, from the dial or the request until everything posted is
//! back.
//!
//! ```text
//!  Connecting ──established──▶ Connected ──both goodbyes, a failure──▶ Draining ──all back──▶ Gone
//!      └──────────────rejected, unreachable, given up───────────────────────────────────────▶
//! ```
//!
//! Everything is under one lock, which is never held while the sink is called, nor while a body
//! that was sent is dropped. Any thread may append and post; completions, events and deliveries are
//! the engine's.
//!
//! An owner of a body may block as it is dropped. So bodies are dropped by callers and by
//! deliveries, which the minder watches; see [`lock`](Wire::lock). What else the engine and the
//! minder do leaves them to the next delivery; see [`lock_unwatched`](Wire::lock_unwatched).

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use convoke_transport::parts::{Heartbeat, Seat, Waiters};
use convoke_transport::{Address, CloseReason, DialError, Hello};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::ffi::slab::Slab;
use crate::hello::Greeting;
use crate::link::Link;
use crate::provider::{Completion, Direction, Provider, Tag, VerbsError, WorkStatus};
use crate::slot_ring::Slot;

mod deliver;
mod handle;
mod locked;
mod opening;
mod outgoing;

pub(crate) use deliver::guarded;
use locked::Locked;
use opening::Role;
pub(crate) use opening::{Accepting, Dialled, Dialling, refusal_of};
use outgoing::Outgoing;

/// Time that a goodbye gets to leave once the grace of a close is over.
const LAST_GRACE: Duration = Duration::from_millis(100);

/// One queue pair and what goes over it.
#[derive(Debug)]
pub(crate) struct Wire<P: Provider> {
    engine: Arc<Engine<P>>,
    tag: Tag,
    slab: Arc<Slab>,
    state: Mutex<State<P>>,
}

#[derive(Debug)]
struct State<P: Provider> {
    phase: Phase,
    queue_pair: Option<P::QueuePair>,
    memory: Option<Arc<P::Memory>>,
    role: Role,
    mine: Greeting,
    /// Addresses at which this end can be dialled, by its sink.
    advertised: Vec<Address>,
    /// Greeting with which the other end answered a dial.
    theirs: Option<Greeting>,
    /// The address of this end, once known.
    local: Option<SocketAddr>,
    /// Address of the peer, once known.
    remote: Option<SocketAddr>,
    /// Place among the accepted connections, once it is open. One that the sink refused keeps that
    /// among the handshakes, too, until it is gone.
    seats: Vec<Seat>,
    /// Once both ends have said hello.
    link: Option<Link>,
    outgoing: Outgoing,
    /// Receives that are posted.
    receives: usize,
    /// Scratch for posting.
    to_post: Vec<u32>,
    /// Nothing has come since receives and sends were last posted.
    is_pumped: bool,
    /// Somebody is calling the sink; nobody else may.
    is_delivering: bool,
    waiters: Waiters,
    /// When to look again, for what ends by time.
    deadline: Option<Instant>,
    /// When the minder is to look at it.
    planned: Option<Instant>,
    /// It closes, and whoever waits has been woken.
    is_ending: bool,
    /// Reason why it ended, when the link does not know.
    failure: Option<CloseReason>,
    /// Error for the dialler, when it says more.
    dial_error: Option<DialError>,
    /// Messages that have come from the peer's process.
    came: u64,
    /// So that neither the setting nor the peer's timeout is missed, once the peer has said that.
    keep_alive_interval: Duration,
    /// Keep-alive, once both ends are connected, and when to look at it again.
    heartbeat: Option<(Heartbeat, Instant)>,
    /// A probe is posted, and no send has completed since.
    is_probing: bool,
    /// Calls that posted sends.
    posts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Connected,
    Draining,
    Gone,
}

/// Facts of a wire that the minder must know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    /// True when both ends are connected.
    pub(crate) is_connected: bool,
    /// When to look at it again, for what goes by time.
    pub(crate) next_look: Option<Instant>,
}

/// Tells the engine that a slot came back to a connection that needs it.
struct Returned<P: Provider> {
    engine: std::sync::Weak<Engine<P>>,
    tag: Tag,
}

impl<P: Provider> Wake for Returned<P> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(engine) = self.engine.upgrade() {
            engine.request(self.tag);
        }
    }
}

impl<P: Provider> Wire<P> {
    /// A wire without a queue pair.
    fn new(
        engine: &Arc<Engine<P>>,
        tag: Tag,
        role: Role,
        hello: Hello,
    ) -> Result<Arc<Self>, VerbsError> {
        let config = engine.config();
        let (receives, sends) = (config.receive_slots(), config.send_slot_count());
        let returned = Arc::new(Returned { engine: Arc::downgrade(engine), tag });
        let slab = Slab::new(receives + sends, config.slot_bytes as usize, Waker::from(returned));
        let memory = Some(Arc::new(engine.provider().register(&slab)?));
        let state = State {
            phase: Phase::Connecting,
            queue_pair: None,
            memory,
            local: None,
            remote: None,
            seats: Vec::new(),
            role,
            mine: engine.greeting(&hello),
            advertised: hello.advertised,
            theirs: None,
            link: None,
            outgoing: Outgoing::new(receives..receives + sends, config.send_queue_depth()),
            receives: 0,
            to_post: Vec::new(),
            is_pumped: false,
            is_delivering: false,
            waiters: Waiters::default(),
            deadline: None,
            planned: None,
            is_ending: false,
            failure: None,
            dial_error: None,
            came: 0,
            keep_alive_interval: config.common.keep_alive_interval,
            heartbeat: None,
            is_probing: false,
            posts: 0,
        };
        let engine = Arc::clone(engine);
        Ok(Arc::new(Self { engine, tag, slab, state: Mutex::new(state) }))
    }

    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// The lock of a caller, or of a delivery: bodies that are done with are dropped after it.
    #[inline]
    fn lock(&self) -> Locked<'_, P> {
        Locked::new(self.state.lock())
    }

    /// The lock of the engine apart from its deliveries, and of the minder: bodies that are done
    /// with stay in the link, until a delivery, which is to be requested.
    #[inline]
    fn lock_unwatched(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock()
    }

    /// Takes one completion into account. [`deliver`](Self::deliver) follows.
    pub(crate) fn handle_completion(&self, completion: &Completion) {
        let mut state = self.lock_unwatched();
        state.is_pumped = false;
        match completion.id.direction() {
            Direction::Receive => self.on_receive(&mut state, completion),
            Direction::Send => self.on_sent(&mut state, completion),
        }
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let state = self.lock_unwatched();
        Pulse { is_connected: state.phase == Phase::Connected, next_look: state.next_look() }
    }

    /// Look of the minder that was planned, for what goes by time. Plans the next.
    pub(crate) fn look(&self, now: Instant) {
        self.handle_deadline(now);
        self.beat(now);
        let mut state = self.lock_unwatched();
        // Another may have planned one since the minder took this out of its plan.
        state.planned = state.planned.filter(|planned| *planned > now);
        self.plan_look(&mut state);
        if state.link.as_ref().is_some_and(|link| link.has_spent()) {
            self.engine.request(self.tag);
        }
    }

    /// Has the minder look at it when something goes by time next. To be called where that may be
    /// sooner than before.
    fn plan_look(&self, state: &mut State<P>) {
        let next = state.next_look();
        let before = std::mem::replace(&mut state.planned, next);
        if next != before {
            self.engine.plan_look(self.tag, before, next);
        }
    }

    /// Keeps the peer sure that this process is alive, and looks whether the peer's is. Over an
    /// idle connection the peer is probed, too, which its adapter answers by itself: so that a
    /// machine without power is noticed sooner.
    fn beat(&self, now: Instant) {
        let mut state = self.lock_unwatched();
        let State { phase: Phase::Connected, link: Some(link), came, heartbeat, .. } = &mut *state
        else {
            return;
        };
        let Some((heartbeat, at)) = heartbeat.as_mut().filter(|(_, at)| *at <= now) else { return };
        *at = now + heartbeat.period();
        let counters = link.counters();
        let left = counters.data_messages_sent + counters.credit_messages_sent;
        let beat = heartbeat.look(*came, left, link.may_peer_speak(), now);
        if beat.is_dead {
            return self.fail(&mut state, CloseReason::KeepAlive);
        }
        if beat.is_due {
            link.keep_alive();
            self.pump(&mut state);
        }
        if beat.is_due || beat.is_quiet {
            self.probe(&mut state);
        }
    }

    /// Sends a probe, unless one is under way. Other sends may well be done without having said so.
    fn probe(&self, state: &mut State<P>) {
        let State { phase, queue_pair, link, outgoing, is_probing, .. } = state;
        if *phase != Phase::Connected || *is_probing {
            return;
        }
        let (Some(queue_pair), Some(link)) = (queue_pair, link) else { return };
        if link.take_send_slot() {
            *is_probing = true;
            let posted = outgoing.post_probe(self.engine.provider(), queue_pair, true);
            if let Err(error) = posted {
                self.fail(state, CloseReason::Network(error.to_string()));
            }
        }
    }

    /// Ends what ends by time, if the deadline has passed.
    fn handle_deadline(&self, now: Instant) {
        let mut state = self.lock_unwatched();
        if state.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        state.deadline = None;
        match state.phase {
            Phase::Connecting | Phase::Connected => {
                let is_closing = state.link.as_ref().is_some_and(|link| link.closing().is_some());
                if !is_closing {
                    self.fail(
                        &mut state,
                        CloseReason::Network("it never introduced itself".into()),
                    );
                } else if state.link.as_mut().is_some_and(|link| !link.is_flushed()) {
                    state.deadline = Some(now + LAST_GRACE);
                    state.link.as_mut().expect("it is closing").handle_grace_over();
                    self.pump(&mut state);
                } else {
                    self.drain(&mut state);
                }
            }
            // The device keeps what it has; destroying the queue pair takes it back.
            Phase::Draining => state.forget_work(),
            Phase::Gone => {}
        }
        drop(state);
        self.engine.request(self.tag);
    }

    /// Ends it without waiting for the peer.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut state = self.lock_unwatched();
        self.fail(&mut state, reason);
    }

    /// Ends it, and delivers nothing of what has come: it may be too old to act on.
    pub(crate) fn end_as_stale(&self) {
        let mut state = self.lock_unwatched();
        if let Some(link) = &mut state.link {
            link.close(CloseReason::Stale);
        }
        self.fail(&mut state, CloseReason::Stale);
    }

    /// Ends it without waiting for the device either, as when that is gone.
    pub(crate) fn abort(&self, reason: CloseReason) {
        let mut state = self.lock_unwatched();
        self.fail(&mut state, reason);
        state.forget_work();
        drop(state);
        self.engine.request(self.tag);
    }

    /// Gives back what it has of the provider, which then reports nothing more of its tag.
    pub(crate) fn give_back(&self) {
        let mut state = self.lock_unwatched();
        let gone = (state.queue_pair.take(), state.memory.take());
        drop(state);
        drop(gone);
    }

    fn on_receive(&self, state: &mut State<P>, completion: &Completion) {
        state.receives = state.receives.saturating_sub(1);
        if completion.status != WorkStatus::Success {
            return self.on_work_error(state, completion.status);
        }
        state.came += 1;
        let (slot, bytes) = (completion.id.index(), completion.bytes as usize);
        let Some(link) = &mut state.link else {
            return self.fail(state, CloseReason::Fault("a message before its hello".into()));
        };
        let message =
            self.slab.read(slot, bytes).expect("a receive that completed filled its slot");
        let lend = || {
            let guard = message.lend(&self.slab).expect("a message is lent once");
            bytes::Bytes::from_owner(guard)
        };
        if let Err(fault) = link.handle_message(Slot(slot), &message, lend) {
            tracing::debug!(tag = self.tag.get(), %fault, "the peer broke the protocol");
        }
        message.recycle();
    }

    fn on_sent(&self, state: &mut State<P>, completion: &Completion) {
        let count = state.outgoing.complete(completion.id.index(), &self.slab);
        if let Some(link) = &mut state.link {
            link.handle_sent(count);
        }
        if completion.status == WorkStatus::Success {
            state.is_probing = false;
        } else {
            self.on_work_error(state, completion.status);
        }
    }

    #[cold]
    fn on_work_error(&self, state: &mut State<P>, status: WorkStatus) {
        if state.phase == Phase::Connecting && status == WorkStatus::Flushed {
            // A refusal gives back the receives, too, and its event says why.
            return;
        }
        let reason = match status {
            WorkStatus::Success | WorkStatus::Flushed => {
                "the queue pair failed and gave back what was posted"
            }
            WorkStatus::ReceiverNotReady => {
                "the peer had no receive posted, though it had given credit"
            }
            WorkStatus::NoAnswer => "the peer's adapter does not answer",
            WorkStatus::SlotInUse => {
                "a slot was not the device's, which is a bug of this transport"
            }
            WorkStatus::Failed(what) => what,
        };
        self.fail(state, CloseReason::Network(reason.into()));
    }

    /// The connection is over; what is posted comes back. What has come is still delivered, and a
    /// goodbye among it says better why.
    #[cold]
    fn fail(&self, state: &mut State<P>, reason: CloseReason) {
        if matches!(state.phase, Phase::Draining | Phase::Gone) {
            return;
        }
        state.failure = Some(reason);
        self.drain(state);
        self.engine.request(self.tag);
    }

    /// Disconnects, and waits for what is posted.
    #[cold]
    fn drain(&self, state: &mut State<P>) {
        if let Some(queue_pair) = &state.queue_pair {
            let provider = self.engine.provider();
            provider.disconnect(queue_pair);
            // Sends that succeeded without a signal are told of by whatever comes back after them.
            if state.outgoing.under_way() > 0
                && state.outgoing.post_probe(provider, queue_pair, false).is_err()
            {
                state.outgoing.forget();
            }
        }
        state.phase = Phase::Draining;
        state.deadline = Some(Instant::now() + self.engine.config().common.close_grace);
        self.plan_look(state);
    }

    /// Posts what can be received and sent now; receives first, since a control slot must be posted
    /// again before anything is sent.
    #[inline]
    fn pump(&self, state: &mut State<P>) {
        state.is_pumped = true;
        self.post_receives(state);
        self.post_sends(state);
        let is_starved = state.link.as_ref().is_some_and(|link| link.is_starved());
        self.slab.set_starved(is_starved);
        if is_starved && self.slab.has_returned() {
            // They came back before anybody was to be woken for them.
            self.post_receives(state);
            self.post_sends(state);
        }
    }

    /// Posts the receives that are due; mostly none are.
    #[inline]
    fn post_receives(&self, state: &mut State<P>) {
        let is_time = state.link.as_ref().is_some_and(|link| link.is_time_to_post());
        if is_time || self.slab.has_returned() {
            self.post_free_receives(state);
        }
    }

    #[inline(never)]
    fn post_free_receives(&self, state: &mut State<P>) {
        let State { phase, queue_pair, link, to_post, receives, .. } = state;
        let Some(link) = link else { return };
        self.slab.take_returned(|slot| link.handle_slot_returned(Slot(slot)));
        let Some(queue_pair) = queue_pair else { return };
        if *phase != Phase::Connected && *phase != Phase::Connecting {
            return;
        }
        link.poll_post(to_post);
        if to_post.is_empty() {
            return;
        }
        let posted = self.engine.provider().post_receives(queue_pair, to_post);
        *receives += posted.as_ref().map_or_else(|refused| refused.posted, |()| to_post.len());
        to_post.clear();
        if let Err(refused) = posted {
            self.fail(state, CloseReason::Network(refused.error.to_string()));
        }
    }

    #[inline]
    fn post_sends(&self, state: &mut State<P>) {
        let State { phase: Phase::Connected, queue_pair, link, outgoing, posts, .. } = state else {
            return;
        };
        let (Some(queue_pair), Some(link)) = (queue_pair, link) else { return };
        let provider = self.engine.provider();
        let posted = match link.poll_send_in_place(outgoing.inline_bytes_max()) {
            Some(message) => outgoing.post_inline(provider, queue_pair, message),
            None => match self.post_copies(provider, queue_pair, link, outgoing) {
                Some(posted) => posted,
                None => return,
            },
        };
        *posts += 1;
        if let Err(error) = posted {
            self.fail(state, CloseReason::Network(error.to_string()));
        }
    }

    /// Posts what is copied into messages; `None` when there is nothing.
    #[inline(never)]
    fn post_copies(
        &self,
        provider: &P,
        queue_pair: &P::QueuePair,
        link: &mut Link,
        outgoing: &mut Outgoing,
    ) -> Option<Result<(), VerbsError>> {
        // The end of a connection waits for the completion of its goodbye.
        let is_closing = link.closing().is_some();
        let has_written = outgoing.takes_credit()
            && link.poll_send(&mut outgoing.outbox(&self.slab, is_closing)) > 0;
        has_written.then(|| outgoing.post(provider, queue_pair))
    }
}

impl<P: Provider> State<P> {
    /// Nothing posted is waited for any more.
    fn forget_work(&mut self) {
        self.receives = 0;
        self.outgoing.forget();
    }

    /// When something goes by time next.
    fn next_look(&self) -> Option<Instant> {
        let beat = self.heartbeat.as_ref().filter(|_| self.phase == Phase::Connected);
        self.deadline.into_iter().chain(beat.map(|(_, at)| *at)).min()
    }

    fn is_drained(&self) -> bool {
        self.receives == 0 && self.outgoing.under_way() == 0
    }

    fn is_closing(&self) -> bool {
        self.failure.is_some() || self.link.as_ref().is_some_and(|link| link.closing().is_some())
    }
}
