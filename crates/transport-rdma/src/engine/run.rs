//! The task that polls: completions to wires, wires to sinks, and when to sleep.

mod idle;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::transport::CloseReason;

use super::{Engine, Poller, Running};
use crate::provider::{Provider, VerbsError};
use idle::Idle;

/// Completions taken with one poll: enough to share the cost of the call, few enough that no connection waits long.
const POLL_BUDGET: usize = 16;

/// Engines of this process that run.
static ENGINES: AtomicUsize = AtomicUsize::new(0);

/// The task that is the engine. However it ends, what it leaves is closed.
struct Runner<P: Provider> {
    engine: Arc<Engine<P>>,
    term: u64,
}

impl<P: Provider> Engine<P> {
    /// Starts the engine unless it runs.
    pub(super) fn start(self: &Arc<Self>) {
        let mut running = self.running.lock();
        if running.is_running {
            return self.signal.notify_one();
        }
        running.is_running = true;
        let runner = Runner::new(self);
        running.minder = Some(tokio::spawn(Arc::clone(self).mind()).abort_handle());
        tokio::spawn(runner.run());
    }

    /// Another task takes over from one that a sink holds up.
    pub(super) fn relieve(self: &Arc<Self>) {
        let running = self.running.lock();
        if running.is_running {
            tokio::spawn(Runner::new(self).run());
        }
    }

    /// Takes what has completed; answers whether that was anything.
    fn poll(&self, poller: &mut Poller<P>) -> Result<bool, VerbsError> {
        let Poller { completions, ready } = poller;
        let count = self.provider.poll_completions(POLL_BUDGET, completions)?;
        if count == 0 {
            return Ok(false);
        }
        for completion in completions.drain(..) {
            let tag = completion.id.tag();
            // Completions of one wire come in runs.
            let known = ready.back().filter(|wire| wire.tag() == tag);
            let Some(wire) = known.cloned().or_else(|| self.wire(tag)) else { continue };
            wire.handle_completion(&completion);
            if ready.back().is_none_or(|last| last.tag() != tag) {
                ready.push_back(wire);
            }
        }
        Ok(true)
    }

    /// Takes the events there are.
    fn poll_events(self: &Arc<Self>) {
        while let Some(event) = self.provider.poll_event() {
            self.handle_event(event);
        }
    }

    /// Takes the requests there are.
    fn take_requests(&self, poller: &mut Poller<P>) -> bool {
        if !self.has_requests.swap(false, Ordering::AcqRel) {
            return false;
        }
        let mut requests = self.requests.lock();
        let wires = requests.drain(..).filter_map(|tag| self.wire(tag));
        poller.ready.extend(wires);
        true
    }
}

impl<P: Provider> Runner<P> {
    /// From now on this one is in charge. Called under the lock of `running`.
    fn new(engine: &Arc<Engine<P>>) -> Self {
        ENGINES.fetch_add(1, Ordering::Relaxed);
        let term = engine.term.fetch_add(1, Ordering::AcqRel) + 1;
        Self { engine: Arc::clone(engine), term }
    }

    async fn run(self) {
        let mut idle = Idle::new(&self.engine);
        while self.is_in_charge() {
            match self.round(&mut idle) {
                Ok(true) => idle.after_traffic().await,
                Ok(false) if idle.is_spinning() => {
                    if idle.after_nothing().await && self.ends() {
                        return;
                    }
                }
                Ok(false) if self.ends() => return,
                Ok(false) => {
                    if let Err(error) = self.sleep().await {
                        self.engine.lose(&error);
                    }
                    idle.on_woken();
                }
                Err(error) => {
                    self.engine.lose(&error);
                    // Its wires end now, and what is left is for requests to say.
                    self.deliver_all();
                    self.rest_when_lost().await;
                }
            }
        }
    }

    /// One look at everything; answers whether there was anything.
    fn round(&self, idle: &mut Idle) -> Result<bool, VerbsError> {
        let engine = &self.engine;
        let mut poller = engine.poller.lock();
        if idle.is_time_for_events() {
            engine.poll_events();
        }
        let mut has_work = engine.take_requests(&mut poller);
        has_work |= engine.poll(&mut poller)?;
        drop(poller);
        Ok(self.deliver_all() || has_work)
    }

    /// Lets the wires deliver, one after the other. The poller is free meanwhile, so that a relief can go on when one
    /// takes long.
    fn deliver_all(&self) -> bool {
        let engine = &self.engine;
        let mut was_any = false;
        loop {
            let next = engine.poller.lock().ready.pop_front();
            let Some(wire) = next else { return was_any };
            was_any = true;
            engine.deliveries.fetch_add(1, Ordering::Relaxed);
            wire.deliver();
            if !self.is_in_charge() {
                return was_any;
            }
            engine.deliveries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Arms, looks once more, and waits until the device or somebody here has something.
    async fn sleep(&self) -> Result<(), VerbsError> {
        let engine = &self.engine;
        let has_more = {
            let mut poller = engine.poller.lock();
            engine.provider.arm()?;
            engine.poll(&mut poller)?
        };
        if !has_more {
            tokio::select! {
                biased;
                () = engine.signal.notified() => {}
                () = poll_fn(|cx| engine.provider.poll_ready(cx)) => {}
            }
            engine.wake_minder();
        }
        Ok(())
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
        if let Some(minder) = running.minder.take() {
            minder.abort();
        }
    }
}

impl<P: Provider> Drop for Runner<P> {
    fn drop(&mut self) {
        ENGINES.fetch_sub(1, Ordering::Relaxed);
        let engine = &self.engine;
        let mut running = engine.running.lock();
        if !self.is_in_charge() {
            return;
        }
        // The runtime shuts down, or a bug made the task panic: nobody polls any more.
        self.stop(&mut running);
        drop(running);
        let wires: Vec<_> = engine.table.lock().wires().cloned().collect();
        for wire in wires {
            wire.abort(CloseReason::Local);
            wire.deliver();
        }
    }
}
