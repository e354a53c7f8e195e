//! Real verbs: a device of this machine, through `libibverbs` and `librdmacm`.
//!
//! [`VerbsDevice`] is one opened device with one protection domain, one completion queue that grows
//! with the queue pairs, and one channel of connection events. What the other end of a connection
//! may ask for does not count here: how long unanswered packets are repeated is this end's setting,
//! and a peer that has no receive posted is an error at once.
//!
//! The device does not notice every queue that is full (software devices accept more sends than
//! they were made for), so the posts of each queue pair are counted here.
//!
//! Nothing is reachable from afar: regions allow local access only, and no queue pair answers
//! reads.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::ffi::slab::Slab;
use crate::ffi::verbs as ffi;
use crate::provider::{
    Completion, DeviceLimits, Event, PostError, Provider, QueuePairSettings, SendRequest, Tag,
    VerbsError,
};

mod connection;
mod device;
mod events;
mod keyed;
mod names;
mod posted;
mod readiness;
mod room;

pub use connection::{VerbsListener, VerbsMemory, VerbsQueuePair, VerbsRequest};
use device::Device;

/// An RDMA device of this machine. Cheap to clone; clones are the same device.
#[derive(Clone, Debug)]
pub struct VerbsDevice {
    device: Arc<Device>,
}

impl VerbsDevice {
    /// Opens the first device.
    ///
    /// # Errors
    /// [`VerbsError::NoDevice`] or [`VerbsError::Permission`], with what to do; others as the
    /// system says.
    pub fn first() -> Result<Self, VerbsError> {
        Device::open(None).map(Self::of)
    }

    /// Opens the device of a name, such as `mlx5_0`.
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn named(name: &str) -> Result<Self, VerbsError> {
        Device::open(Some(name)).map(Self::of)
    }

    /// Opens the device that owns an address of this machine; the first for an unspecified one.
    ///
    /// # Errors
    /// [`VerbsError::Address`] when none does; otherwise as for [`first`](Self::first).
    pub fn of_address(address: IpAddr) -> Result<Self, VerbsError> {
        if address.is_unspecified() {
            return Self::first();
        }
        // Without any device, say so rather than that none has the address.
        drop(ffi::Context::open(None)?);
        let (channel, _) = ffi::EventChannel::new()?;
        let id = ffi::Id::new(&channel, 0)?;
        id.bind(SocketAddr::new(address, 0))?;
        let name = id.device_name().ok_or_else(|| {
            VerbsError::Address(format!("{address} is not an address of an RDMA device"))
        })?;
        Self::named(&name)
    }

    fn of(device: Arc<Device>) -> Self {
        Self { device }
    }
}

impl Provider for VerbsDevice {
    type Listener = VerbsListener;
    type Request = VerbsRequest;
    type Memory = VerbsMemory;
    type QueuePair = VerbsQueuePair;

    fn limits(&self) -> DeviceLimits {
        self.device.limits.clone()
    }

    fn register(&self, slab: &Arc<Slab>) -> Result<VerbsMemory, VerbsError> {
        VerbsMemory::new(&self.device, slab)
    }

    fn listen(
        &self,
        tag: Tag,
        address: SocketAddr,
        backlog: u16,
    ) -> Result<(VerbsListener, SocketAddr), VerbsError> {
        VerbsListener::new(&self.device, tag, address, backlog)
    }

    fn dial(
        &self,
        tag: Tag,
        address: SocketAddr,
        timeout: Duration,
        settings: QueuePairSettings,
        memory: &Arc<VerbsMemory>,
    ) -> Result<VerbsQueuePair, VerbsError> {
        VerbsQueuePair::dial(&self.device, tag, address, timeout, settings, memory)
    }

    fn connect(&self, queue_pair: &VerbsQueuePair, private_data: &[u8]) -> Result<(), VerbsError> {
        queue_pair.connection().connect(private_data)
    }

    fn prepare(
        &self,
        tag: Tag,
        request: VerbsRequest,
        settings: QueuePairSettings,
        memory: &Arc<VerbsMemory>,
    ) -> Result<VerbsQueuePair, VerbsError> {
        VerbsQueuePair::prepare(&self.device, tag, request, settings, memory)
    }

    fn accept(&self, queue_pair: &VerbsQueuePair, private_data: &[u8]) -> Result<(), VerbsError> {
        queue_pair.connection().accept(private_data)
    }

    fn reject(&self, request: VerbsRequest, private_data: &[u8]) {
        request.reject(private_data);
    }

    fn disconnect(&self, queue_pair: &VerbsQueuePair) {
        queue_pair.connection().disconnect();
    }

    fn inline_bytes_max(&self, queue_pair: &VerbsQueuePair) -> u32 {
        queue_pair.connection().inline_bytes_max()
    }

    fn post_receives(&self, queue_pair: &VerbsQueuePair, slots: &[u32]) -> Result<(), PostError> {
        queue_pair.connection().post_receives(slots)
    }

    fn post_send(
        &self,
        queue_pair: &VerbsQueuePair,
        send: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        queue_pair.connection().post_send(send)
    }

    fn post_sends(
        &self,
        queue_pair: &VerbsQueuePair,
        sends: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        queue_pair.connection().post_sends(sends)
    }

    fn poll_completions(
        &self,
        budget: usize,
        into: &mut Vec<Completion>,
    ) -> Result<usize, VerbsError> {
        self.device.poll_completions(budget, into)
    }

    fn poll_event(&self) -> Option<Event<Self>> {
        events::next(&self.device)
    }

    fn arm(&self) -> Result<(), VerbsError> {
        self.device.check()?;
        self.device.queue.arm()
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        self.device.readiness.poll_ready(cx, || self.device.queue.take_events())
    }
}

#[cfg(test)]
mod tests;
