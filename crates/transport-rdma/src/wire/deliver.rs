//! Delivery of what came to the sink: the only place from which the sink is called.
//!
//! One at a time delivers, without the lock. What comes meanwhile waits in the link, and its slots
//! with it: so a sink that does not take costs no more than the slots of its connection and one
//! batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use convoke_transport::parts::{Wakers, index};
use convoke_transport::{Address, CloseReason, Connection, DialError, Received};
use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::opening::{Open, Role};
use super::{Phase, State, Wire};
use crate::connection::RdmaConnection;
use crate::link::Event;
use crate::provider::Provider;

impl<P: Provider> Wire<P> {
    /// Tells the sink what is new, and posts what that allows. Called by the engine after
    /// completions, events and requests.
    pub(crate) fn deliver(self: &Arc<Self>) {
        let unwinding = Unwinding(self);
        let mut state = self.state.lock();
        if state.is_delivering {
            std::mem::forget(unwinding);
            return self.pump(&mut state);
        }
        state.is_delivering = true;
        state.is_pumped = false;
        let mut woken = Wakers::default();
        loop {
            state = self.give_news(state, &mut woken);
            // A sink that answers has posted already, with its flush, and what that brought was
            // told.
            let mut may_be_news = !state.is_pumped;
            if may_be_news {
                self.pump(&mut state);
            }
            if (state.phase != Phase::Connected || state.is_closing())
                && self.is_over(&mut state, &mut woken)
            {
                state = self.close_for_good(state, woken);
                woken = Wakers::default();
                may_be_news = true;
            }
            if !may_be_news || state.link.as_ref().is_none_or(|link| !link.has_news()) {
                break;
            }
        }
        if !state.waiters.flush.is_empty()
            && state.link.as_ref().is_none_or(|link| link.is_flushed())
        {
            woken.append(&mut state.waiters.flush);
        }
        state.is_delivering = false;
        drop(state);
        std::mem::forget(unwinding);
        woken.wake();
    }

    /// Tells what the link has to tell, and hands over the frames that have come.
    #[inline]
    fn give_news<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State<P>>,
        woken: &mut Wakers,
    ) -> MutexGuard<'a, State<P>> {
        while state.link.as_ref().is_some_and(|link| link.has_news()) {
            // To hand frames over frees slots. Who posted while the sink was called, such as a
            // relief of the engine, found them taken.
            state.is_pumped = false;
            let link = state.link.as_mut().expect("it has news");
            if link.has_events() {
                state = self.tell(state, woken);
            } else if !woken.is_empty() {
                // Not after a sink that takes its time.
                MutexGuard::unlocked(&mut state, || std::mem::take(woken).wake());
            } else if let Some(frame) = link.take_only() {
                state = self.hand_over(state, move |open| open.take(Some(frame).into_iter()));
            } else if let Some(mut frames) = link.take_received() {
                state = self.hand_over(state, |open| open.take(frames.drain(..)));
                state.link.as_mut().expect("it is never taken away").reuse(frames);
            }
        }
        state
    }

    /// Takes a connection that is not open yet, or not any more, nearer to its end; answers whether
    /// it is there.
    #[cold]
    fn is_over(&self, state: &mut State<P>, woken: &mut Wakers) -> bool {
        let is_finished = state.link.as_ref().is_some_and(|link| link.is_finished());
        if is_finished && state.phase == Phase::Connected {
            self.drain(state);
        }
        if state.phase == Phase::Draining && state.is_drained() {
            woken.append(&mut state.waiters.take_all());
            return true;
        }
        self.note_ending(state, woken);
        false
    }

    /// Once it closes, its time is limited and nobody has to wait.
    fn note_ending(&self, state: &mut State<P>, woken: &mut Wakers) {
        if state.is_ending || !state.is_closing() {
            return;
        }
        state.is_ending = true;
        woken.append(&mut state.waiters.take_all());
        if state.phase != Phase::Draining {
            state.deadline = Some(Instant::now() + self.engine.config().common.close_grace);
            self.engine.notify_minder();
        }
    }

    /// Has frames handed to the sink, without the lock.
    #[inline]
    fn hand_over<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<P>>,
        give: impl FnOnce(&Open) -> Result<(), CloseReason>,
    ) -> MutexGuard<'a, State<P>> {
        let Role::Open(open) = &state.role else {
            // The sink did not want the connection.
            MutexGuard::unlocked(&mut state, || drop(give));
            return state;
        };
        let open = Arc::clone(open);
        let taken = MutexGuard::unlocked(&mut state, || give(&open));
        if let (Err(reason), Some(link)) = (taken, &mut state.link) {
            link.close(reason);
            state.is_pumped = false;
        }
        state
    }

    /// Takes the events of the link into account.
    #[cold]
    fn tell<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State<P>>,
        woken: &mut Wakers,
    ) -> MutexGuard<'a, State<P>> {
        while let Some(event) = state.link.as_mut().and_then(|link| link.poll_event()) {
            match event {
                Event::Introduced(addresses) => {
                    state = self.open(state, std::mem::take(woken), addresses);
                }
                Event::Writable(lane) => woken.append(&mut state.waiters.writable[index(lane)]),
                Event::Goodbye(text) => {
                    if let Role::Dialling(dialling) = &state.role {
                        let message = format!("it refused: {text}");
                        let address = dialling.address.clone();
                        state.dial_error = Some(DialError::Handshake { address, message });
                    }
                }
            }
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
            guarded(|| sink.on_open(Arc::clone(&handle)))
                .unwrap_or_else(|_| Err("its sink panicked".into()))
        });
        let role = match &wanted {
            Ok(()) => {
                Role::Open(Arc::new(Open { sink: Arc::clone(&sink), handle: Arc::clone(&handle) }))
            }
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
            (Ok(()), before) => {
                if let Role::Accepting(accepting) = before {
                    let [_handshake, seat] = accepting.into_seats();
                    state.seats.push(seat);
                }
                tracing::debug!(peer = %handle.link().peer.node, "connection open, accepted");
                // Who closed it meanwhile has limited its time.
                if !state.is_closing() {
                    state.deadline = None;
                }
                let addresses = state.addresses();
                let link = state.link.as_mut().expect("it has told of the introduction");
                link.introduce(&addresses);
            }
            (Err(text), before) => {
                link.close(CloseReason::Fault(text.clone()));
                match before {
                    Role::Dialling(dialling) => {
                        let message = format!("this endpoint refused it: {text}");
                        let address = dialling.address.clone();
                        // Whoever dialled may have given up meanwhile.
                        let _ = dialling.finish(Err(DialError::Handshake { address, message }));
                    }
                    // It takes its place until the peer has gone, however long that one waits.
                    Role::Accepting(accepting) => state.seats.extend(accepting.into_seats()),
                    Role::Open(_) | Role::Over => {}
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
        let gone = (state.queue_pair.take(), state.memory.take(), std::mem::take(&mut state.seats));
        MutexGuard::unlocked(&mut state, || {
            woken.wake();
            drop(gone);
            self.engine.remove(self.tag);
            match role {
                Role::Open(open) => {
                    let link = open.handle.link();
                    // Nothing of the connection is left that a panic could harm.
                    let _ = guarded(|| open.sink.on_closed(link, reason));
                }
                Role::Dialling(dialling) => dialling.fail(dial_error, &reason),
                Role::Accepting(_) => tracing::debug!(%reason, "connection lost before its hello"),
                Role::Over => {}
            }
        });
        state
    }
}

impl Open {
    /// Hands frames to the sink, and drops those that it leaves.
    #[inline]
    fn take(&self, mut frames: impl Iterator<Item = Received>) -> Result<(), CloseReason> {
        let Self { sink, handle } = self;
        match guarded(|| sink.on_batch(handle, &mut frames)) {
            Ok(taken) => taken.map_err(CloseReason::Fault),
            Err(_) => Err(CloseReason::Local),
        }
    }
}

/// A panic goes through a delivery: somebody else may deliver what is left, above all the end.
struct Unwinding<'a, P: Provider>(&'a Wire<P>);

impl<P: Provider> Drop for Unwinding<'_, P> {
    fn drop(&mut self) {
        self.0.state.lock().is_delivering = false;
    }
}

/// Calls a sink. One that panics costs its own connection and not the engine, which drives all.
#[inline]
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(call))
}
