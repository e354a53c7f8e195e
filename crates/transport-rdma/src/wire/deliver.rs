//! What came, on its way to the sink: the only place from which the sink is called.
//!
//! One at a time delivers, without the lock. What comes meanwhile waits in the link, and its slots with it: so a sink
//! that does not take costs no more than the slots of its connection and one batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use convoke_core::transport::parts::Wakers;
use convoke_core::transport::{Address, CloseReason, Connection, DialError, Received, Sink};
use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::opening::Role;
use super::{Phase, State, Wire};
use crate::connection::RdmaConnection;
use crate::framing::index;
use crate::link::Event;
use crate::provider::Provider;

/// What is to be done without the lock.
enum Step {
    Open(Vec<Address>),
    Frames,
    Close,
}

impl<P: Provider> Wire<P> {
    /// Tells the sink what is new, and posts what that allows. Called by the engine after completions, events and
    /// requests.
    pub(crate) fn deliver(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.is_delivering {
            return self.pump(&mut state);
        }
        state.is_delivering = true;
        state.is_pumped = false;
        loop {
            let mut woken = Wakers::default();
            let step = self.next_step(&mut state, &mut woken);
            let Some(step) = step else {
                state.is_delivering = false;
                drop(state);
                return woken.wake();
            };
            state = match step {
                Step::Open(addresses) => self.open(state, woken, addresses),
                Step::Frames => self.hand_over_frames(state, woken),
                Step::Close => self.close_for_good(state, woken),
            };
        }
    }

    fn next_step(&self, state: &mut State<P>, woken: &mut Wakers) -> Option<Step> {
        if let Some(step) = self.next_event(state, woken) {
            return Some(step);
        }
        // A sink that answers has posted already, with its flush.
        if !state.is_pumped {
            self.pump(state);
        }
        let is_finished = state.link.as_ref().is_some_and(|link| link.is_finished());
        if is_finished && state.phase == Phase::Connected {
            self.drain(state);
        }
        if state.phase == Phase::Draining && state.is_drained() {
            woken.append(&mut state.take_all_wakers());
            return Some(Step::Close);
        }
        self.note_ending(state, woken);
        let Some(link) = &state.link else {
            woken.append(&mut state.flush_wakers);
            return None;
        };
        if link.is_flushed() {
            woken.append(&mut state.flush_wakers);
        }
        // Sending may have made room.
        if link.has_events() { self.next_event(state, woken) } else { None }
    }

    /// What the link tells, as far as it is for the sink; frames are gathered in `state.batch`.
    fn next_event(&self, state: &mut State<P>, woken: &mut Wakers) -> Option<Step> {
        let link = state.link.as_mut()?;
        while let Some(event) = link.poll_event() {
            match event {
                Event::Received(received) => state.batch.push(received),
                Event::Introduced(addresses) => return Some(Step::Open(addresses)),
                Event::Writable(lane) => woken.append(&mut state.writable_wakers[index(lane)]),
                Event::Goodbye(text) => {
                    if let Role::Dialling(dialling) = &state.role {
                        let message = format!("it refused: {text}");
                        let address = dialling.address.clone();
                        state.dial_error = Some(DialError::Handshake { address, message });
                    }
                }
            }
        }
        (!state.batch.is_empty()).then_some(Step::Frames)
    }

    /// Once it closes, its time is limited and nobody has to wait.
    fn note_ending(&self, state: &mut State<P>, woken: &mut Wakers) {
        if state.is_ending || !state.is_closing() {
            return;
        }
        state.is_ending = true;
        woken.append(&mut state.take_all_wakers());
        if state.phase != Phase::Draining {
            state.deadline = Some(Instant::now() + self.engine.config().close_grace);
            self.engine.notify_minder();
        }
    }

    fn hand_over_frames<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<P>>,
        woken: Wakers,
    ) -> MutexGuard<'a, State<P>> {
        let mut batch = std::mem::take(&mut state.batch);
        let Role::Open { sink, handle } = &state.role else {
            // The sink did not want the connection.
            MutexGuard::unlocked(&mut state, || drop((batch, woken.wake())));
            return state;
        };
        let (sink, handle) = (Arc::clone(sink), Arc::clone(handle));
        let taken = MutexGuard::unlocked(&mut state, || {
            woken.wake();
            let taken = call_sink(&*sink, &handle, &mut batch);
            // What the sink left is dropped here, without the lock.
            batch.clear();
            taken
        });
        state.batch = batch;
        if let (Err(reason), Some(link)) = (taken, &mut state.link) {
            link.close(reason);
            state.is_pumped = false;
        }
        state
    }

    fn open<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State<P>>,
        woken: Wakers,
        addresses: Vec<Address>,
    ) -> MutexGuard<'a, State<P>> {
        let Some(info) = state.peer_link(addresses) else { return state };
        if matches!(&state.role, Role::Dialling(dialling) if dialling.is_given_up()) {
            self.fail(&mut state, CloseReason::Local);
            return state;
        }
        let handle: Arc<dyn Connection> = Arc::new(RdmaConnection::new(info, Arc::clone(self)));
        let sink = state.role.sink().expect("a connection opens once");
        let wanted = MutexGuard::unlocked(&mut state, || {
            woken.wake();
            sink.on_open(Arc::clone(&handle))
        });
        let role = match &wanted {
            Ok(()) => Role::Open { sink: Arc::clone(&sink), handle: Arc::clone(&handle) },
            Err(_) => Role::Over,
        };
        let before = std::mem::replace(&mut state.role, role);
        state.is_pumped = false;
        let link = state.link.as_mut().expect("it has told of the introduction");
        match (wanted, before) {
            (Ok(()), Role::Dialling(dialling)) => {
                tracing::debug!(peer = %handle.link().peer.node, "connection open, dialled");
                if dialling.finish(Ok(Arc::clone(&handle))).is_err() {
                    link.close(CloseReason::Local);
                }
            }
            (Ok(()), _) => {
                tracing::debug!(peer = %handle.link().peer.node, "connection open, accepted");
                state.deadline = None;
                let advertised = self.advertised(&state, &*sink);
                let link = state.link.as_mut().expect("it has told of the introduction");
                link.introduce(&advertised);
            }
            (Err(text), before) => {
                link.close(CloseReason::Fault(text.clone()));
                if let Role::Dialling(dialling) = before {
                    let message = format!("this endpoint refused it: {text}");
                    let address = dialling.address.clone();
                    // Whoever dialled may have given up meanwhile.
                    let _ = dialling.finish(Err(DialError::Handshake { address, message }));
                }
            }
        }
        state
    }

    /// Everything posted is back, or given up: the queue pair goes, and the sink hears it.
    fn close_for_good<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<P>>,
        woken: Wakers,
    ) -> MutexGuard<'a, State<P>> {
        state.phase = Phase::Gone;
        state.deadline = None;
        let failure = state.failure.take();
        let failure =
            failure.unwrap_or_else(|| CloseReason::Network("it ended without a goodbye".into()));
        let reason = match &mut state.link {
            Some(link) => {
                link.abandon(failure);
                link.closing().cloned().expect("it was abandoned")
            }
            None => failure,
        };
        let role = std::mem::replace(&mut state.role, Role::Over);
        let dial_error = state.dial_error.take();
        let gone = (state.queue_pair.take(), state.memory.take());
        MutexGuard::unlocked(&mut state, || {
            woken.wake();
            drop(gone);
            self.engine.remove(self.tag);
            match role {
                Role::Open { sink, handle } => {
                    let link = handle.link();
                    tracing::info!(
                        peer = %link.peer.node,
                        nonce = link.nonce.0,
                        %reason,
                        "connection closed"
                    );
                    sink.on_closed(link, reason);
                }
                Role::Dialling(dialling) => dialling.fail(dial_error, &reason),
                Role::Accepting(_) => tracing::debug!(%reason, "connection lost before its hello"),
                Role::Over => {}
            }
        });
        state
    }
}

/// Hands a batch to the sink. A sink that panics costs its own connection only.
fn call_sink(
    sink: &dyn Sink,
    from: &Arc<dyn Connection>,
    batch: &mut Vec<Received>,
) -> Result<(), CloseReason> {
    let called = catch_unwind(AssertUnwindSafe(|| sink.on_batch(from, &mut batch.drain(..))));
    match called {
        Ok(taken) => taken.map_err(CloseReason::Fault),
        Err(_) => Err(CloseReason::Local),
    }
}
