//! Verbs without a device: a fabric of simulated devices within the process.
//!
//! Stricter than soft-RoCE, so that what soft-RoCE lets pass is found here: a send without a posted
//! receive fails at once, as does one more than the send queue holds, a completion more than the
//! completion queue holds, and a message longer than the receive's slot. Slots are read and written
//! only in the state that says they are the device's; anything else is a
//! [violation](FabricCounters::violations), which no test may leave behind.
//!
//! Time is counted in steps, one for each time that any device is polled. [`Fabric::new`] delivers
//! at once; [`Fabric::seeded`] delays messages by a few steps each, so that those of different
//! queue pairs pass each other, in an order that the seed gives as long as the engines are polled
//! in the same order.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;

use crate::ffi::slab::Slab;
use crate::provider::{
    ACCEPT_DATA_BYTES_MAX, Completion, Data, DeviceLimits, Event, INVALID, InlineLimit, PostError,
    Provider, QueuePairSettings, REJECT_DATA_BYTES_MAX, REQUEST_DATA_BYTES_MAX, SendRequest, Tag,
    VerbsError,
};

mod connecting;
mod sending;
mod state;
#[cfg(test)]
mod tests;

use connecting::Noted;
use state::{DeviceId, EndId, State};

/// A network of simulated devices. Cheap to clone.
#[derive(Clone)]
pub struct Fabric {
    state: Arc<Mutex<State>>,
}

/// Counts of a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FabricCounters {
    /// Messages delivered.
    pub delivered: u64,
    /// Probes answered.
    pub probes: u64,
    /// Sends that found no receive posted: what credits are there to prevent.
    pub receiver_not_ready: u64,
    /// Posts of more than a queue holds.
    pub overflows: u64,
    /// Slots that were not the device's when it had to touch them.
    pub violations: u64,
    /// Queue pairs that exist now.
    pub queue_pairs: usize,
    /// Bytes registered now.
    pub registered_bytes: usize,
}

impl Fabric {
    /// Delivers at once.
    pub fn new() -> Self {
        Self::with(0, 0)
    }

    /// Delays every message by up to eight steps.
    pub fn seeded(seed: u64) -> Self {
        Self::with(seed, 8)
    }

    fn with(seed: u64, delay_steps_max: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed, delay_steps_max))) }
    }

    /// A new device with an address of its own. It listens at whatever address it is told.
    pub fn device(&self) -> SimDevice {
        self.device_with(DeviceSettings::default())
    }

    /// A new device that can do less.
    pub fn device_with(&self, settings: DeviceSettings) -> SimDevice {
        let id = self.with_state(|state| state.add_device(settings));
        SimDevice { fabric: self.clone(), id, inline: Arc::new(InlineLimit::new()) }
    }

    /// Counts so far.
    pub fn counters(&self) -> FabricCounters {
        self.with_state(|state| state.counters())
    }

    /// Works on the state, then wakes whom that concerns, without the lock.
    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = work(&mut state);
        while let Some(waker) = state.woken.pop() {
            drop(state);
            waker.wake();
            state = self.state.lock();
        }
        result
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").finish_non_exhaustive()
    }
}

/// Abilities of a simulated device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSettings {
    /// Most inline bytes; it refuses a queue pair with more. Default 220.
    pub inline_bytes_max: u32,
    /// Most work requests of a queue. Default 4,096.
    pub work_requests_max: u32,
    /// Most completions that can wait. Default 65,536.
    pub completions_max: u32,
    /// Most bytes that can be registered, as a limit of locked memory would have it. Default: all.
    pub registered_bytes_max: usize,
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            inline_bytes_max: 220,
            work_requests_max: 4_096,
            completions_max: 65_536,
            registered_bytes_max: usize::MAX,
        }
    }
}

/// One simulated device. Cheap to clone; clones are the same device.
#[derive(Clone)]
pub struct SimDevice {
    fabric: Fabric,
    id: DeviceId,
    inline: Arc<InlineLimit>,
}

impl SimDevice {
    /// Its process dies: it does nothing more, and its peers hear that it is gone.
    pub fn kill(&self) {
        self.fabric.with_state(|state| state.kill(self.id));
    }

    /// Its cable is cut: it reaches nobody, and nobody hears anything.
    pub fn cut_off(&self) {
        self.fabric.with_state(|state| state.cut_off(self.id));
    }

    /// It cannot be waited for any more, as one whose runtime has ended.
    pub fn stop_waiting(&self) {
        self.fabric.with_state(|state| state.stop_waiting(self.id));
    }

    /// Polling it for completions panics so many times, as a bug of a provider would.
    pub fn panic_in_polls(&self, count: u32) {
        self.fabric.with_state(|state| state.panic_in_polls(self.id, count));
    }

    /// Probing a peer from it panics so many times, as a bug of a provider would.
    pub fn panic_in_probes(&self, count: u32) {
        self.fabric.with_state(|state| state.panic_in_probes(self.id, count));
    }

    /// It breaks: the system says so to its own program, and the peers hear nothing.
    pub fn lose(&self) {
        self.fabric.with_state(|state| state.lose(self.id));
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimDevice").field(&self.id).finish()
    }
}

/// A listener of a [`SimDevice`].
#[derive(Debug)]
pub struct SimListener {
    fabric: Fabric,
    address: SocketAddr,
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.fabric.with_state(|state| state.close_listener(self.address));
    }
}

/// A connect request to a [`SimDevice`].
#[derive(Debug)]
pub struct SimRequest {
    fabric: Fabric,
    /// The dialling end; `None` once accepted or rejected.
    from: Option<EndId>,
}

impl Drop for SimRequest {
    fn drop(&mut self) {
        if let Some(from) = self.from.take() {
            self.fabric.with_state(|state| state.reject(from, true, &[]));
        }
    }
}

/// A slab registered with a [`SimDevice`].
#[derive(Debug)]
pub struct SimMemory {
    fabric: Fabric,
    device: DeviceId,
    slab: Arc<Slab>,
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        self.fabric.with_state(|state| state.deregister(self.device, self.slab.bytes()));
    }
}

/// A queue pair of a [`SimDevice`].
#[derive(Debug)]
pub struct SimQueuePair {
    fabric: Fabric,
    end: EndId,
    inline_bytes: u32,
    memory: Arc<SimMemory>,
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        self.fabric.with_state(|state| state.destroy(self.end));
        self.memory.slab.reclaim();
    }
}

impl SimDevice {
    fn queue_pair(
        &self,
        settings: QueuePairSettings,
        memory: &Arc<SimMemory>,
        make: impl Fn(&mut State, QueuePairSettings, Arc<Slab>) -> Result<EndId, VerbsError>,
    ) -> Result<SimQueuePair, VerbsError> {
        if !memory.slab.claim() {
            return Err(VerbsError::slab_in_use("create_qp"));
        }
        let made = self.inline.make(settings.inline_bytes, |inline_bytes| {
            let settings = QueuePairSettings { inline_bytes, ..settings };
            let slab = Arc::clone(&memory.slab);
            let end = self.fabric.with_state(|state| make(state, settings, slab))?;
            let (fabric, memory) = (self.fabric.clone(), Arc::clone(memory));
            Ok(SimQueuePair { fabric, end, inline_bytes, memory })
        });
        made.inspect_err(|_| memory.slab.reclaim())
    }
}

fn check_private_data(bytes: &[u8], bytes_max: usize) -> Result<(), VerbsError> {
    if bytes.len() <= bytes_max {
        return Ok(());
    }
    let message = format!("{} bytes of private data, at most {bytes_max} fit", bytes.len());
    Err(VerbsError::System { call: "connect", code: INVALID, message })
}

impl Provider for SimDevice {
    type Listener = SimListener;
    type Request = SimRequest;
    type Memory = SimMemory;
    type QueuePair = SimQueuePair;

    fn limits(&self) -> DeviceLimits {
        self.fabric.with_state(|state| state.limits(self.id))
    }

    fn register(&self, slab: &Arc<Slab>) -> Result<SimMemory, VerbsError> {
        self.fabric.with_state(|state| state.register(self.id, slab.bytes()))?;
        Ok(SimMemory { fabric: self.fabric.clone(), device: self.id, slab: Arc::clone(slab) })
    }

    fn listen(
        &self,
        tag: Tag,
        address: SocketAddr,
        backlog: u16,
    ) -> Result<(SimListener, SocketAddr), VerbsError> {
        let listening =
            self.fabric.with_state(|state| state.listen(self.id, tag, address, backlog));
        let address = listening?;
        Ok((SimListener { fabric: self.fabric.clone(), address }, address))
    }

    fn dial(
        &self,
        tag: Tag,
        address: SocketAddr,
        _timeout: Duration,
        settings: QueuePairSettings,
        memory: &Arc<SimMemory>,
    ) -> Result<SimQueuePair, VerbsError> {
        self.queue_pair(settings, memory, |state, settings, slab| {
            state.dial(self.id, tag, address, settings, slab)
        })
    }

    fn connect(&self, queue_pair: &SimQueuePair, private_data: &[u8]) -> Result<(), VerbsError> {
        check_private_data(private_data, REQUEST_DATA_BYTES_MAX)?;
        self.fabric.with_state(|state| state.connect(queue_pair.end, private_data))
    }

    fn prepare(
        &self,
        tag: Tag,
        mut request: SimRequest,
        settings: QueuePairSettings,
        memory: &Arc<SimMemory>,
    ) -> Result<SimQueuePair, VerbsError> {
        let from = request.from.expect("a request is accepted or rejected by value");
        let prepared = self.queue_pair(settings, memory, |state, settings, slab| {
            state.prepare(self.id, tag, from, settings, slab)
        })?;
        request.from = None;
        Ok(prepared)
    }

    fn accept(&self, queue_pair: &SimQueuePair, private_data: &[u8]) -> Result<(), VerbsError> {
        check_private_data(private_data, ACCEPT_DATA_BYTES_MAX)?;
        self.fabric.with_state(|state| state.accept(queue_pair.end, private_data))
    }

    fn reject(&self, mut request: SimRequest, private_data: &[u8]) {
        let told = &private_data[..private_data.len().min(REJECT_DATA_BYTES_MAX)];
        if let Some(from) = request.from.take() {
            self.fabric.with_state(|state| state.reject(from, true, told));
        }
    }

    fn disconnect(&self, queue_pair: &SimQueuePair) {
        self.fabric.with_state(|state| state.disconnect(queue_pair.end));
    }

    fn inline_bytes_max(&self, queue_pair: &SimQueuePair) -> u32 {
        queue_pair.inline_bytes
    }

    fn post_receives(&self, queue_pair: &SimQueuePair, slots: &[u32]) -> Result<(), PostError> {
        self.fabric.with_state(|state| state.post_receives(queue_pair.end, slots))
    }

    fn post_send(
        &self,
        queue_pair: &SimQueuePair,
        send: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        self.post_sends(queue_pair, std::slice::from_ref(send)).map_err(|refused| refused.error)
    }

    fn post_sends(
        &self,
        queue_pair: &SimQueuePair,
        sends: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        let has_probe = sends.iter().any(|send| matches!(send.data, Data::Probe));
        let is_sound =
            !has_probe || self.fabric.with_state(|state| state.is_sound_in_probes(self.id));
        assert!(is_sound, "a probe panics on purpose");
        let inline_bytes_max = queue_pair.inline_bytes;
        self.fabric.with_state(|state| state.post_sends(queue_pair.end, inline_bytes_max, sends))
    }

    fn poll_completions(
        &self,
        budget: usize,
        into: &mut Vec<Completion>,
    ) -> Result<usize, VerbsError> {
        let is_sound = self.fabric.with_state(|state| state.is_sound(self.id));
        assert!(is_sound, "a poll panics on purpose");
        self.fabric.with_state(|state| state.poll_completions(self.id, budget, into))
    }

    fn poll_event(&self) -> Option<Event<Self>> {
        let noted = self.fabric.with_state(|state| state.poll_event(self.id))?;
        Some(match noted {
            Noted::Request { listener, from, peer, local, private_data } => Event::Request {
                listener,
                request: SimRequest { fabric: self.fabric.clone(), from: Some(from) },
                peer,
                local,
                private_data,
            },
            Noted::Resolved { tag, local } => Event::Resolved { tag, local },
            Noted::Established { tag, private_data } => Event::Established { tag, private_data },
            Noted::Rejected { tag, is_by_listener, private_data } => {
                Event::Rejected { tag, is_by_listener, private_data }
            }
            Noted::Disconnected { tag } => Event::Disconnected { tag },
            Noted::DeviceLost { error } => Event::DeviceLost { error },
        })
    }

    fn arm(&self) -> Result<(), VerbsError> {
        self.fabric.with_state(|state| state.arm(self.id))
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        self.fabric.with_state(|state| state.poll_ready(self.id, cx))
    }
}

/// The address of the device of this number, as peers see it.
fn address_of(id: DeviceId) -> IpAddr {
    let [_, _, high, low] = u32::try_from(id.0).unwrap_or(u32::MAX).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low).into()
}
