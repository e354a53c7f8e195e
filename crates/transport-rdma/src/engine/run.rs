//! The task that polls: completions to wires, wires to sinks, and when to sleep.

mod idle;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use convoke_transport::CloseReason;
use tokio::time::Instant;

use super::{Engine, Poller, Running};
use crate::provider::{Event, Provider, VerbsError};
use crate::wire::{Wire, guarded};
use idle::Idle;

/// Completions taken with one poll: enough to share the cost of the call, few enough that no
/// connection waits long.
const POLL_BUDGET: usize = 16;

/// Events taken with one round, for the same reason. A request is the last of its round: it costs
/// the memory and the queue pair of a connection.
const EVENT_BUDGET: usize = 16;

/// Engines of this process that run, each once however many of its tasks a sink holds up.
static ENGINES: AtomicUsize = AtomicUsize::new(0);

/// The task that is the engine. However it ends, what it leaves is closed.
struct Runner<P: Provider> {
    engine: Arc<Engine<P>>,
    term: u64,
}

impl<P: Provider> Engine<P> {
    /// Starts the engine unless it runs. Answers whether it does: it goes on for what the caller
    /// has put in its table, and ends at once where the caller's runtime has ended.
    pub(super) fn start(self: &Arc<Self>) -> bool {
        let mut running = self.running.lock();
        if running.is_running {
            self.signal.notify_one();
            return true;
        }
        running.minder = Some(tokio::spawn(Arc::clone(self).mind()).abort_handle());
        running.is_running = true;
        ENGINES.fetch_add(1, Ordering::Relaxed);
        let runner = Runner::new(self);
        drop(running);
        // A runtime that has ended drops it at once, which takes the lock.
        tokio::spawn(runner.run());
        self.running.lock().is_running
    }

    /// Another task takes over from one that a sink holds up, unless that delivery is over.
    pub(super) fn relieve(self: &Arc<Self>, delivery: u64) {
        let running = self.running.lock();
        if !running.is_running || !self.count_end(delivery) {
            return;
        }
        let runner = Runner::new(self);
        drop(running);
        // As at the start.
        tokio::spawn(runner.run());
    }

    /// Ends all connections at once.
    fn abort_all(&self) {
        for wire in self.wires() {
            self.abort(&wire, |wire| wire.deliver());
        }
    }

    /// Ends a connection at once, after a panic that it may have met, and sees to its end.
    pub(super) fn abort(&self, wire: &Arc<Wire<P>>, see_to_it: impl Fn(&Arc<Wire<P>>)) {
        let abort = || {
            guarded(|| {
                wire.abort(CloseReason::Local);
                see_to_it(wire);
            })
        };
        if abort().is_err() {
            // Without its queue pair the provider cannot panic again.
            let _ = guarded(|| wire.give_back());
            if abort().is_err() {
                self.remove_wire(wire);
            }
        }
    }

    /// Takes what has completed; answers a wire with something to deliver. Others are added to
    /// those that are ready.
    #[inline]
    fn poll(&self, poller: &mut Poller<P>) -> Result<Option<Arc<Wire<P>>>, VerbsError> {
        // First, for a panic may have left some.
        poller.completions.clear();
        if self.provider.poll_completions(POLL_BUDGET, &mut poller.completions)? == 0 {
            return Ok(None);
        }
        self.on_heard(poller);
        let Poller { completions, ready, .. } = poller;
        let mut last: Option<Arc<Wire<P>>> = None;
        for completion in completions.iter() {
            let tag = completion.id.tag();
            // Completions of one wire come in runs.
            if last.as_ref().is_none_or(|last| last.tag() != tag) {
                if let Some(other) = last.take() {
                    ready.push_back(other);
                }
                last = self.wire(tag);
            }
            if let Some(wire) = &last {
                wire.handle_completion(completion);
            }
        }
        Ok(last)
    }

    /// Takes the events there are, as many as one round may; answers whether there may be more.
    fn poll_events(self: &Arc<Self>, poller: &mut Poller<P>) -> bool {
        for _ in 0..EVENT_BUDGET {
            let Some(event) = self.provider.poll_event() else { return false };
            self.on_heard(poller);
            let is_request = matches!(event, Event::Request { .. });
            self.handle_event(event);
            if is_request {
                break;
            }
        }
        true
    }

    /// The device has something, which is looked at next. Where this process was paused before, be
    /// it asleep, between two polls or within one, what has waited meanwhile is not acted on.
    #[inline]
    fn on_heard(&self, poller: &mut Poller<P>) {
        let now = Instant::now();
        let quiet_since = std::mem::replace(&mut poller.heard_at, now);
        if quiet_since + self.config.common.keep_alive_timeout < now {
            self.end_what_was_paused(now);
        }
    }

    /// Takes the requests there are.
    #[inline]
    fn take_requests(&self, poller: &mut Poller<P>) {
        // Set after a request was added, and cleared before all are taken under the lock: none is
        // left behind.
        if self.has_requests.load(Ordering::Relaxed) {
            self.has_requests.store(false, Ordering::Relaxed);
            self.take_all_requests(poller);
        }
    }

    #[cold]
    fn take_all_requests(&self, poller: &mut Poller<P>) {
        let Poller { requests, ready, .. } = poller;
        std::mem::swap(&mut *self.requests.lock(), requests);
        ready.extend(requests.drain(..).filter_map(|tag| self.wire(tag)));
    }
}

impl<P: Provider> Runner<P> {
    /// From now on this one is in charge. Called under the lock of `running`.
    fn new(engine: &Arc<Engine<P>>) -> Self {
        let term = engine.term.fetch_add(1, Ordering::AcqRel) + 1;
        Self { engine: Arc::clone(engine), term }
    }

    /// Runs until the engine ends or is relieved, and goes on after a panic.
    async fn run(self) {
        let mut has_panicked = false;
        loop {
            let mut rounds = 0;
            let is_over = {
                let mut turns = pin!(self.turns(&mut rounds));
                poll_fn(|cx| match guarded(|| turns.as_mut().poll(cx)) {
                    Ok(poll) => poll.map(|()| true),
                    Err(_) => Poll::Ready(false),
                })
                .await
            };
            if is_over || !self.recover(has_panicked && rounds == 0) {
                return;
            }
            has_panicked = true;
            tokio::task::yield_now().await;
        }
    }

    /// A bug, here or in a provider, has made the engine panic. Its connections end, for nobody
    /// knows which of them are whole; who listens goes on. Answers whether it does: not when it
    /// panics at once again.
    fn recover(&self, is_hopeless: bool) -> bool {
        let running = self.engine.running.lock();
        if !self.is_in_charge() {
            return false;
        }
        self.engine.give_up_delivery();
        drop(running);
        let device = self.engine.provider.limits().name;
        tracing::error!(%device, is_hopeless, "the engine panicked, and its connections end");
        if is_hopeless {
            self.engine.lose(&VerbsError::DeviceLost("its engine panics at every turn".into()));
            return false;
        }
        self.engine.abort_all();
        true
    }

    async fn turns(&self, rounds: &mut u64) {
        let mut idle = Idle::new(&self.engine);
        while self.is_in_charge() {
            let round = self.round(&mut idle);
            *rounds += 1;
            match round {
                Ok(true) if idle.goes_on_after_traffic() => {}
                Ok(true) => idle.give_others_a_turn().await,
                Ok(false) if idle.is_spinning() => {
                    if idle.after_nothing().await && self.ends() {
                        return;
                    }
                }
                Ok(false) if self.ends() => return,
                Ok(false) => {
                    if let Err(error) = self.sleep(&mut idle).await {
                        self.lose(&error).await;
                    }
                    idle.on_woken();
                }
                Err(error) => self.lose(&error).await,
            }
        }
    }

    /// One look at everything; answers whether there was anything.
    #[inline]
    fn round(&self, idle: &mut Idle) -> Result<bool, VerbsError> {
        let engine = &self.engine;
        let mut poller = engine.poller.lock();
        let has_more_events = idle.is_time_for_events() && engine.poll_events(&mut poller);
        if has_more_events {
            idle.on_more_events();
        }
        engine.take_requests(&mut poller);
        let first = engine.poll(&mut poller)?;
        let has_others = !poller.ready.is_empty();
        drop(poller);
        let has_first = first.is_some();
        let goes_on = first.is_none_or(|wire| self.deliver(&wire));
        if goes_on && has_others {
            self.deliver_all();
        }
        Ok(has_first || has_others || has_more_events)
    }

    /// Lets a wire deliver; answers whether to go on. The poller is free meanwhile, so that a
    /// relief can go on when it takes long.
    #[inline]
    fn deliver(&self, wire: &Arc<Wire<P>>) -> bool {
        let delivery = self.engine.begin_delivery();
        wire.deliver();
        self.engine.end_delivery(delivery)
    }

    /// Lets the wires that are ready deliver, one after the other.
    fn deliver_all(&self) {
        loop {
            let next = self.engine.poller.lock().ready.pop_front();
            let Some(wire) = next else { return };
            if !self.deliver(&wire) {
                return;
            }
        }
    }

    /// Arms, looks once more, and waits until the device or somebody here has something.
    async fn sleep(&self, idle: &mut Idle) -> Result<(), VerbsError> {
        let engine = &self.engine;
        engine.provider.arm()?;
        if self.round(idle)? {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = engine.signal.notified() => {}
            ready = poll_fn(|cx| engine.provider.poll_ready(cx)) => ready?,
        }
        Ok(())
    }

    /// Gives the device up, and waits until there is more to do for that.
    async fn lose(&self, error: &VerbsError) {
        self.engine.lose(error);
        // Its wires end now, and what is left is for requests to say.
        self.deliver_all();
        if self.is_in_charge() {
            self.rest_when_lost().await;
        }
    }

    /// A lost device brings nothing; only what is to be closed remains.
    async fn rest_when_lost(&self) {
        let has_requests = self.engine.has_requests.load(Ordering::Acquire);
        if has_requests {
            let mut poller = self.engine.poller.lock();
            self.engine.take_requests(&mut poller);
            drop(poller);
            self.deliver_all();
        } else if !self.ends() {
            self.engine.signal.notified().await;
        }
    }

    fn is_in_charge(&self) -> bool {
        self.engine.term.load(Ordering::Acquire) == self.term
    }

    /// With nothing left to drive the engine ends; the next dial or listener starts it again.
    fn ends(&self) -> bool {
        let engine = &self.engine;
        let mut running = engine.running.lock();
        let is_over = engine.table.lock().is_empty();
        if is_over && self.is_in_charge() {
            self.stop(&mut running);
        }
        is_over
    }

    fn stop(&self, running: &mut Running) {
        self.engine.term.fetch_add(1, Ordering::AcqRel);
        running.is_running = false;
        ENGINES.fetch_sub(1, Ordering::Relaxed);
        if let Some(minder) = running.minder.take() {
            minder.abort();
        }
    }
}

impl<P: Provider> Drop for Runner<P> {
    fn drop(&mut self) {
        let engine = &self.engine;
        let mut running = engine.running.lock();
        if !self.is_in_charge() {
            return;
        }
        // The runtime shuts down, or the device is given up: nobody polls any more.
        self.stop(&mut running);
        engine.give_up_delivery();
        drop(running);
        engine.abort_all();
    }
}
