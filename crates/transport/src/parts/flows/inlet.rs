//! Receiving side of one flow: from its reader to the sink of the connection, through the place
//! where frames wait for those of other flows.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::parts::Mutex;
use bytes::{Buf, Bytes};

use super::sent::take;
use super::{Flow, Flows};
use crate::parts::{Closing, Valve, hand_to};
use crate::{CloseReason, Connection, Hello, Lane, Link, ORDER_HEAD_BYTES, Order, Received, Sink};

/// Frames of a flow that wait, and what it was told.
pub(super) struct Waiting {
    is_shut: AtomicBool,
    /// Its reader is gone: whoever has news delivers what waits.
    is_orphan: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Numbers of frames of the other flows before the last frame that was looked at.
    told: Vec<u64>,
    /// The frame that waits until so many have arrived.
    first: Option<Bytes>,
    /// Those behind it, as they came.
    behind: VecDeque<Bytes>,
}

impl State {
    fn clear(&mut self) {
        self.first = None;
        self.behind.clear();
    }
}

impl Waiting {
    pub(super) fn new(flows: usize) -> Self {
        let state = State { told: vec![0; flows], first: None, behind: VecDeque::new() };
        Self {
            is_shut: AtomicBool::new(false),
            is_orphan: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }
}

/// Sink of one flow, in front of that of the connection.
pub struct Inlet<C: Flow> {
    flows: Arc<Flows<C>>,
    handle: Arc<dyn Connection>,
    sink: Arc<dyn Sink>,
    index: usize,
}

impl<C: Flow> Inlet<C> {
    pub(super) fn new(
        flows: Arc<Flows<C>>,
        handle: Arc<dyn Connection>,
        sink: Arc<dyn Sink>,
        index: usize,
    ) -> Self {
        Self { flows, handle, sink, index }
    }

    fn waiting(&self) -> &Waiting {
        &self.flows.waiting[self.index]
    }

    /// Hands frames to the sink, and puts aside what has to wait.
    fn pass(
        &self,
        state: &mut State,
        ready: Option<Bytes>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let mut passing = Passing { inlet: self, state, ready, frames, passed: 0, fault: None };
        let taken = hand_to(&*self.sink, &self.handle, &mut passing);
        let Passing { passed, fault, .. } = passing;
        self.flows.arrived[self.index].fetch_add(passed, Ordering::SeqCst);
        let taken = taken.and(fault.map_or(Ok(()), Err));
        if let Err(text) = &taken {
            // Nothing more of the peer is delivered, by whichever flow.
            self.flows.close(CloseReason::Fault(text.clone()));
        }
        taken
    }

    /// Hands over what waits and need not.
    fn pass_waiting(&self, state: &mut State) -> Result<(), String> {
        while state.first.is_some() && self.flows.have_arrived(&state.told) {
            let (first, behind) = (state.first.take(), std::mem::take(&mut state.behind));
            self.waiting().is_shut.store(false, Ordering::SeqCst);
            let mut behind = behind.into_iter().map(|bytes| Received { lane: Lane::Data, bytes });
            self.pass(state, first, &mut behind)?;
        }
        Ok(())
    }

    /// The sink has taken frames: others may have waited for them.
    fn tell_others(&self) {
        self.tell_readers();
        while (0..self.flows.flows.len()).any(|index| self.brings_orphan_on(index)) {}
    }

    fn tell_readers(&self) {
        for (flow, waiting) in self.flows.flows.iter().zip(&self.flows.waiting) {
            if waiting.is_shut.load(Ordering::SeqCst) {
                flow.wake_reader();
            }
        }
    }

    /// Delivers for a flow whose reader is gone. True when the sink has taken something.
    fn brings_orphan_on(&self, index: usize) -> bool {
        let waiting = &self.flows.waiting[index];
        if !waiting.is_orphan.load(Ordering::SeqCst) || !waiting.is_shut.load(Ordering::SeqCst) {
            return false;
        }
        let (flows, handle) = (Arc::clone(&self.flows), Arc::clone(&self.handle));
        let orphan = Self::new(flows, handle, Arc::clone(&self.sink), index);
        // A fault has closed the connection; there is no reader to do more.
        let (has_passed, _) = orphan.with_state(|state| orphan.pass_waiting(state));
        if has_passed {
            self.tell_readers();
        }
        has_passed
    }

    /// Says besides whether the sink has taken something of this flow.
    fn with_state<T>(&self, act: impl FnOnce(&mut State) -> T) -> (bool, T) {
        let mut state = self.waiting().state.lock();
        let arrived = &self.flows.arrived[self.index];
        let before = arrived.load(Ordering::SeqCst);
        let done = act(&mut state);
        (arrived.load(Ordering::SeqCst) != before, done)
    }

    fn act(&self, act: impl FnOnce(&mut State) -> Result<(), String>) -> Result<(), String> {
        let (has_passed, taken) = self.with_state(act);
        if has_passed {
            self.tell_others();
        }
        taken
    }
}

impl<C: Flow> Sink for Inlet<C> {
    fn hello(&self) -> Hello {
        self.sink.hello()
    }

    /// A flow opens with its connection, which the sink has been shown.
    fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
        Ok(())
    }

    fn on_batch(
        &self,
        _: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        self.act(|state| {
            self.pass(state, None, frames)?;
            // They may have come since the frame was looked at.
            self.pass_waiting(state)
        })
    }

    fn on_closed(&self, _: &Link, reason: CloseReason) {
        if Closing::new(reason.clone()).is_delivering {
            self.waiting().is_orphan.store(true, Ordering::SeqCst);
            // A fault has closed the connection; there is no reader to do more.
            let _ = self.resume();
        } else {
            self.with_state(State::clear);
            self.waiting().is_shut.store(false, Ordering::SeqCst);
        }
        let ended = self.flows.ending.lock().on_flow_ended(&reason);
        if let Some(reason) = ended.others {
            self.flows.end_others(&reason);
        }
        if let Some((lifetime, reason)) = ended.last {
            self.flows.sending.lock().sink = None;
            lifetime.end(reason);
        }
    }
}

impl<C: Flow> Valve for Inlet<C> {
    const HOLDS: bool = true;

    fn is_shut(&self) -> bool {
        self.waiting().is_shut.load(Ordering::SeqCst)
    }

    fn resume(&self) -> Result<(), String> {
        self.act(|state| self.pass_waiting(state))
    }
}

impl<C: Flow> fmt::Debug for Inlet<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").field("flow", &self.index).finish_non_exhaustive()
    }
}

/// A frame for who keeps it, in memory of its own. A slice would keep all of the read it came in:
/// of 64 KiB a single byte may be of the frame, which gives up credit for no more than that.
fn alone(bytes: Bytes) -> Bytes {
    if bytes.is_unique() { bytes } else { Bytes::copy_from_slice(&bytes) }
}

/// Frames of a flow on their way to the sink.
struct Passing<'a, C: Flow> {
    inlet: &'a Inlet<C>,
    state: &'a mut State,
    /// A frame that has waited and goes first.
    ready: Option<Bytes>,
    frames: &'a mut dyn Iterator<Item = Received>,
    /// Data frames that the sink was given.
    passed: u64,
    fault: Option<String>,
}

impl<C: Flow> Passing<'_, C> {
    /// A data frame, without what goes before it; `None` when it has to wait.
    fn admit(&mut self, mut bytes: Bytes) -> Result<Option<Bytes>, String> {
        if self.state.first.is_some() {
            self.state.behind.push_back(alone(bytes));
            return Ok(None);
        }
        let (flows, index) = (&self.inlet.flows, self.inlet.index);
        let mut rest = &bytes[..];
        let others = self.state.told.iter_mut().enumerate().filter(|(flow, _)| *flow != index);
        for (_, told) in others {
            let more = take(&mut rest).and_then(|more| told.checked_add(more));
            *told = more.ok_or("a frame does not say how many were sent over other flows")?;
        }
        let prefix_bytes = bytes.len() - rest.len();
        bytes.advance(prefix_bytes);
        // Of its own flow everything before it has arrived.
        if flows.have_arrived(&self.state.told) {
            return Ok(Some(bytes));
        }
        let head = &bytes[..bytes.len().min(ORDER_HEAD_BYTES)];
        if self.inlet.sink.order(head) != Order::Lane {
            return Ok(Some(bytes));
        }
        self.state.first = Some(alone(bytes));
        self.inlet.waiting().is_shut.store(true, Ordering::SeqCst);
        Ok(None)
    }
}

impl<C: Flow> Iterator for Passing<'_, C> {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        if let Some(bytes) = self.ready.take() {
            self.passed += 1;
            return Some(Received { lane: Lane::Data, bytes });
        }
        while self.fault.is_none() {
            let received = self.frames.next()?;
            if received.lane == Lane::Control {
                return Some(received);
            }
            match self.admit(received.bytes) {
                Ok(Some(bytes)) => {
                    self.passed += 1;
                    return Some(Received { lane: Lane::Data, bytes });
                }
                Ok(None) => {}
                Err(fault) => self.fault = Some(fault),
            }
        }
        None
    }
}
