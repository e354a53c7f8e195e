//! Things of a device that the engine holds: memory, listeners, requests and queue pairs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::device::{Device, Taken};
use super::names::Named;
use super::posted::Posted;
use crate::ffi::slab::Slab;
use crate::ffi::verbs as ffi;
use crate::provider::{
    ACCEPT_DATA_BYTES_MAX, PostError, QueuePairSettings, REJECT_DATA_BYTES_MAX,
    REQUEST_DATA_BYTES_MAX, SendRequest, Tag, VerbsError,
};

/// A slab registered with a device.
#[derive(Debug)]
pub struct VerbsMemory {
    region: Arc<ffi::MemoryRegion>,
    device: Arc<Device>,
}

impl VerbsMemory {
    pub(super) fn new(device: &Arc<Device>, slab: &Arc<Slab>) -> Result<Self, VerbsError> {
        let used_bytes = device.registered_bytes.load(Ordering::Relaxed);
        let region = ffi::MemoryRegion::new(&device.domain, slab, used_bytes)?;
        device.registered_bytes.fetch_add(slab.bytes() as u64, Ordering::Relaxed);
        Ok(Self { region: Arc::new(region), device: Arc::clone(device) })
    }
}

impl Drop for VerbsMemory {
    fn drop(&mut self) {
        let bytes = self.region.slab().bytes() as u64;
        self.device.registered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A listener of a device.
#[derive(Debug)]
pub struct VerbsListener {
    device: Arc<Device>,
    key: Tag,
}

impl VerbsListener {
    pub(super) fn new(
        device: &Arc<Device>,
        tag: Tag,
        address: SocketAddr,
        backlog: u16,
    ) -> Result<(Self, SocketAddr), VerbsError> {
        device.check()?;
        let key = device.names().reserve();
        let id = ffi::Id::new(&device.channel, key.get())?;
        id.bind(address)?;
        of_device(device, &id, address)?;
        let local = id.local_address().unwrap_or(address);
        let listening = Self { device: Arc::clone(device), key };
        // A request that comes at once waits until the listener is known.
        let mut names = device.names();
        let listened = id.listen(backlog.into());
        names.insert(key, (tag, Named::Listener(id)));
        drop(names);
        listened.map(|()| (listening, local))
    }
}

/// The system binds some addresses that no device has, such as the loopback's, where then nobody
/// could connect.
fn of_device(device: &Device, id: &ffi::Id, address: SocketAddr) -> Result<(), VerbsError> {
    let ours = &device.limits.name;
    match id.device_name() {
        Some(name) if name == *ours => Ok(()),
        Some(name) => Err(VerbsError::Address(format!(
            "{address} is an address of the RDMA device {name}, and this is {ours}"
        ))),
        None if address.ip().is_unspecified() => Ok(()),
        None => Err(VerbsError::Address(format!("{address} is not an address of an RDMA device"))),
    }
}

impl Drop for VerbsListener {
    fn drop(&mut self) {
        let removed = self.device.names().remove(self.key);
        drop(removed);
    }
}

/// A connect request to a device.
#[derive(Debug)]
pub struct VerbsRequest {
    /// `None` once accepted or rejected.
    id: Option<ffi::Id>,
}

impl VerbsRequest {
    pub(super) fn new(id: ffi::Id) -> Self {
        Self { id: Some(id) }
    }

    pub(super) fn reject(mut self, private_data: &[u8]) {
        if let Some(id) = self.id.take() {
            id.reject(&private_data[..private_data.len().min(REJECT_DATA_BYTES_MAX)]);
        }
    }
}

impl Drop for VerbsRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            id.reject(&[]);
        }
    }
}

/// A queue pair of a device.
#[derive(Debug)]
pub struct VerbsQueuePair {
    device: Arc<Device>,
    connection: Option<Arc<Connection>>,
}

impl VerbsQueuePair {
    pub(super) fn dial(
        device: &Arc<Device>,
        tag: Tag,
        address: SocketAddr,
        timeout: Duration,
        settings: QueuePairSettings,
        memory: &Arc<VerbsMemory>,
    ) -> Result<Self, VerbsError> {
        device.check()?;
        let key = device.names().reserve();
        let id = ffi::Id::new(&device.channel, key.get())?;
        let phase_timeout = timeout / 2;
        let made = Self::new(device, key, tag, id, settings, phase_timeout, memory)?;
        made.connection().id.resolve_address(address, phase_timeout)?;
        Ok(made)
    }

    pub(super) fn prepare(
        device: &Arc<Device>,
        tag: Tag,
        mut request: VerbsRequest,
        settings: QueuePairSettings,
        memory: &Arc<VerbsMemory>,
    ) -> Result<Self, VerbsError> {
        device.check()?;
        let key = device.names().reserve();
        let id = request.id.take().expect("a request is accepted or rejected by value");
        id.set_key(key.get());
        let made = Self::new(device, key, tag, id, settings, Duration::ZERO, memory)?;
        if let Err(error) = made.connection().initialise() {
            made.connection().id.reject(&[]);
            return Err(error);
        }
        Ok(made)
    }

    fn new(
        device: &Arc<Device>,
        key: Tag,
        tag: Tag,
        id: ffi::Id,
        settings: QueuePairSettings,
        phase_timeout: Duration,
        memory: &Arc<VerbsMemory>,
    ) -> Result<Self, VerbsError> {
        let connection = Connection::new(device, key, id, settings, phase_timeout, memory)?;
        let connection = Arc::new(connection);
        let named = Named::QueuePair(Arc::clone(&connection));
        device.names().insert(key, (tag, named));
        Ok(Self { device: Arc::clone(device), connection: Some(connection) })
    }

    pub(super) fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("there until it is dropped")
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // Whoever handles an event or a completion of it holds the lock, and nobody keeps a copy:
        // this is the last.
        let removed = self.device.names().remove(connection.posted.key());
        drop((removed, connection));
    }
}

/// A queue pair with the identifier of its connection. The fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Connection {
    queue_pair: ffi::QueuePair,
    pub(super) id: ffi::Id,
    pub(super) posted: Posted,
    memory: Arc<VerbsMemory>,
    settings: QueuePairSettings,
    /// Time that finding the address may take, and then the route.
    pub(super) phase_timeout: Duration,
    is_disconnected: AtomicBool,
    _room: Taken,
}

impl Connection {
    fn new(
        device: &Arc<Device>,
        key: Tag,
        id: ffi::Id,
        settings: QueuePairSettings,
        phase_timeout: Duration,
        memory: &Arc<VerbsMemory>,
    ) -> Result<Self, VerbsError> {
        device.limits.check(&settings)?;
        let room = device.take_room(settings.sends_max.saturating_add(settings.receives_max))?;
        let QueuePairSettings { sends_max, receives_max, .. } = settings;
        let queue_pair = device.inline.make(settings.inline_bytes, |inline_bytes| {
            let capacity = ffi::Capacity { sends_max, receives_max, inline_bytes };
            ffi::QueuePair::new(&memory.region, &device.queue, capacity, key.get())
        })?;
        Ok(Self {
            queue_pair,
            id,
            posted: Posted::new(key, settings.sends_max, settings.receives_max),
            memory: Arc::clone(memory),
            settings,
            phase_timeout,
            is_disconnected: AtomicBool::new(false),
            _room: room,
        })
    }

    pub(super) fn slab(&self) -> &Slab {
        self.memory.region.slab()
    }

    pub(super) fn inline_bytes_max(&self) -> u32 {
        self.queue_pair.inline_bytes_max()
    }

    /// From here on receives may be posted.
    pub(super) fn initialise(&self) -> Result<(), VerbsError> {
        self.id.set_ack_timeout(self.settings.ack_timeout_exponent)?;
        self.queue_pair.enter(self.id.attributes(ffi::State::Initialised)?)
    }

    pub(super) fn connect(&self, private_data: &[u8]) -> Result<(), VerbsError> {
        self.id.connect(self.parameters(private_data, REQUEST_DATA_BYTES_MAX)?)
    }

    pub(super) fn accept(&self, private_data: &[u8]) -> Result<(), VerbsError> {
        let parameters = self.parameters(private_data, ACCEPT_DATA_BYTES_MAX)?;
        self.make_ready()?;
        self.id.accept(parameters)
    }

    /// The accepting end has answered: gets ready, and says so.
    pub(super) fn establish(&self) -> Result<(), VerbsError> {
        self.make_ready()?;
        self.id.establish()
    }

    fn make_ready(&self) -> Result<(), VerbsError> {
        self.queue_pair.enter(self.id.attributes(ffi::State::ReadyToReceive)?)?;
        let mut attributes = self.id.attributes(ffi::State::ReadyToSend)?;
        let QueuePairSettings { retry_count, ack_timeout_exponent, .. } = self.settings;
        attributes.set_patience(retry_count, ack_timeout_exponent);
        self.queue_pair.enter(attributes)
    }

    fn parameters<'a>(
        &self,
        private_data: &'a [u8],
        bytes_max: usize,
    ) -> Result<ffi::Parameters<'a>, VerbsError> {
        if private_data.len() > bytes_max {
            return Err(ffi::of_code("private data", libc::EMSGSIZE));
        }
        Ok(ffi::Parameters {
            queue_pair_number: self.queue_pair.number(),
            retry_count: self.settings.retry_count,
            private_data,
        })
    }

    pub(super) fn disconnect(&self) {
        if !self.is_disconnected.swap(true, Ordering::Relaxed) {
            // First its own queues: the other end may never answer. The only error is a device that
            // is gone.
            let _ = self.queue_pair.fail();
            self.id.disconnect();
        }
    }

    pub(super) fn post_receives(&self, slots: &[u32]) -> Result<(), PostError> {
        let count = slots.len().min(self.posted.receives_room());
        self.posted.begin_receives(count);
        self.queue_pair
            .post_receives(&slots[..count], |slot| self.posted.receive_id(slot))
            .inspect_err(|refused| self.posted.take_back_receives(count - refused.posted))?;
        full_after(count, slots.len(), "receive")
    }

    #[inline]
    pub(super) fn post_send(&self, send: &SendRequest<'_>) -> Result<(), VerbsError> {
        if self.posted.sends_room() == 0 {
            return Err(VerbsError::QueueFull("send"));
        }
        // Before the device is told, since it may complete at once.
        let number = self.posted.begin_sends(1);
        self.queue_pair
            .post_send(send, self.posted.send_id(number, 0))
            .inspect_err(|_| self.posted.take_back_sends(1))
    }

    pub(super) fn post_sends(&self, sends: &[SendRequest<'_>]) -> Result<(), PostError> {
        let count = sends.len().min(self.posted.sends_room());
        // Before the device is told, since they may complete at once.
        let first = self.posted.begin_sends(count);
        self.queue_pair
            .post_sends(&sends[..count], |i| self.posted.send_id(first, i))
            .inspect_err(|refused| self.posted.take_back_sends(count - refused.posted))?;
        full_after(count, sends.len(), "send")
    }
}

fn full_after(posted: usize, wanted: usize, queue: &'static str) -> Result<(), PostError> {
    if posted == wanted {
        return Ok(());
    }
    Err(PostError { posted, error: VerbsError::QueueFull(queue) })
}
