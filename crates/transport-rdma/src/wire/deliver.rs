//! Delivery of what came to the sink: the only place from which the sink is called, but for its
//! hello, which whoever dials asks for, and the engine for a request.
//!
//! One at a time delivers, without the lock. What comes meanwhile waits in the link, and its slots
//! with it: so a sink that does not take costs no more than the slots of its connection and one
//! batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use convoke_transport::parts::{Wakers, index};
use convoke_transport::{Address, CloseReason, Connection, DialError, Received};
use tokio::time::Instant;

use super::opening::{Open, Role};
use super::{Locked, Phase, State, Wire};
use crate::connection::RdmaConnection;
use crate::link::Event;
use crate::provider::Provider;

impl<P: Provider> Wire<P> {
    /// Tells the sink what is new, and posts what that allows. Called by the engine after
    /// completions, events and requests.
    pub(crate) fn deliver(self: &Arc<Self>) {
        let unwinding = Unwinding(self);
        let mut state = self.lock();
        if state.is_delivering {
            std::mem::forget(unwinding);
            self.pump(&mut state);
            // Who waits for the connection need not wait for its sink.
            let woken = state.take_served();
            let _spent = state.take_spent();
            drop(state);
            return woken.wake();
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
        state.take_flushed(&mut woken);
        state.is_delivering = false;
        let _spent = state.take_spent();
        drop(state);
        std::mem::forget(unwinding);
        woken.wake();
    }

    /// Tells what the link has to tell, and hands over the frames that have come.
    #[inline]
    fn give_news<'a>(
        self: &'a Arc<Self>,
        mut state: Locked<'a, P>,
        woken: &mut Wakers,
    ) -> Locked<'a, P> {
        while state.link.as_ref().is_some_and(|link| link.has_news()) {
            // To hand frames over frees slots. Who posted while the sink was called, such as a
            // relief of the engine, found them taken.
            state.is_pumped = false;
            let link = state.link.as_mut().expect("it has news");
            if link.has_events() {
                state = self.tell(state, woken);
            } else if !woken.is_empty() {
                // Not after a sink that takes its time.
                let spent = state.take_spent();
                state.unlocked(|| {
                    std::mem::take(woken).wake();
                    drop(spent);
                });
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
            self.plan_look(state);
        }
    }

    /// Has frames handed to the sink, without the lock.
    #[inline]
    fn hand_over<'a>(
        &'a self,
        mut state: Locked<'a, P>,
        give: impl FnOnce(&Open) -> Result<(), CloseReason>,
    ) -> Locked<'a, P> {
        let Role::Open(open) = &state.role else {
            // The sink did not want the connection.
            state.unlocked(|| drop(give));
            return state;
        };
        let open = Arc::clone(open);
        let taken = state.unlocked(|| give(&open));
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
        mut state: Locked<'a, P>,
        woken: &mut Wakers,
    ) -> Locked<'a, P> {
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
        mut state: Locked<'a, P>,
        woken: Wakers,
        addresses: Vec<Address>,
    ) -> Locked<'a, P> {
        let Some(info) = state.peer_link(addresses) else { return state };
        if matches!(&state.role, Role::Dialling(dialling) if dialling.is_given_up()) {
            self.fail(&mut state, CloseReason::Local);
            return state;
        }
        let handle: Arc<dyn Connection> = Arc::new(RdmaConnection::new(info, Arc::clone(self)));
        let sink = state.role.sink().expect("a connection opens once");
        let wanted = state.unlocked(|| {
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
    fn close_for_good<'a>(&'a self, mut state: Locked<'a, P>, woken: Wakers) -> Locked<'a, P> {
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
        // Takes it out of the plan of the minder.
        self.plan_look(&mut state);
        let role = std::mem::replace(&mut state.role, Role::Over);
        let (spent, dial_error) = (state.take_spent(), state.dial_error.take());
        let gone = (state.queue_pair.take(), state.memory.take(), std::mem::take(&mut state.seats));
        state.unlocked(|| {
            woken.wake();
            drop(gone);
            self.engine.remove_wire(self);
            // Nothing of the connection is left that a panic could harm, be it of the sink as it is
            // told or as it is dropped.
            let _ = guarded(|| role.end(dial_error, reason));
            drop(spent);
        });
        state
    }
}

impl<P: Provider> State<P> {
    /// Those who wait for room that there is, or for a flush that is done. The link tells nobody
    /// else of the room then.
    fn take_served(&mut self) -> Wakers {
        let mut served = Wakers::default();
        while let Some(lane) = self.link.as_mut().and_then(|link| link.poll_writable_event()) {
            served.append(&mut self.waiters.writable[index(lane)]);
        }
        self.take_flushed(&mut served);
        served
    }

    #[inline]
    fn take_flushed(&mut self, woken: &mut Wakers) {
        if !self.waiters.flush.is_empty() && self.link.as_ref().is_none_or(|link| link.is_flushed())
        {
            woken.append(&mut self.waiters.flush);
        }
    }
}

impl Role {
    /// Tells whoever is to be told that it is over.
    fn end(self, dial_error: Option<DialError>, reason: CloseReason) {
        match self {
            Self::Open(open) => open.sink.on_closed(open.handle.link(), reason),
            Self::Dialling(dialling) => dialling.fail(dial_error, &reason),
            Self::Accepting(_) => tracing::debug!(%reason, "connection lost before its hello"),
            Self::Over => {}
        }
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
        self.0.lock().is_delivering = false;
    }
}

/// Calls a sink. One that panics costs its own connection and not the engine, which drives all.
#[inline]
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(call))
}
