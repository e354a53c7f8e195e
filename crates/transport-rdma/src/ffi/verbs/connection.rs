//! Connections by rdma_cm: identifiers, and the events that tell of them.

use std::ffi::c_void;
use std::fmt;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rdma_sys::*;
use socket2::{SockAddr, SockAddrStorage};

use super::context::name_of;
use super::queue_pair::{Attributes, State};
use super::{duplicate, error};
use crate::provider::VerbsError;

/// Options of an identifier that the bindings lack: the level, and how long an unanswered packet
/// waits.
const OPTION_LEVEL_ID: i32 = 0;
const OPTION_ACK_TIMEOUT: i32 = 3;

/// Channel at which the events of identifiers arrive. Its descriptor never blocks.
pub(crate) struct EventChannel {
    raw: NonNull<rdma_event_channel>,
}

// SAFETY: librdmacm is thread-safe, and nothing of a channel is tied to a thread.
unsafe impl Send for EventChannel {}
// SAFETY: the same.
unsafe impl Sync for EventChannel {}

/// Event of an identifier, copied out.
#[derive(Debug)]
pub(crate) struct ConnectionEvent {
    /// The key of the identifier it is about; of the listener for a request.
    pub(crate) key: u64,
    pub(crate) kind: EventKind,
    /// An error number or a reason to reject, by kind.
    pub(crate) status: i32,
    pub(crate) private_data: Vec<u8>,
}

/// Kind of an event. The names are those of rdma_cm.
#[derive(Debug)]
pub(crate) enum EventKind {
    AddressResolved,
    RouteResolved,
    /// With the identifier of the new connection.
    ConnectRequest(Id),
    ConnectResponse,
    Established,
    Rejected,
    /// An error of address, route or connection; the name of the event.
    Failed(&'static str),
    Disconnected,
    DeviceRemoved,
    /// Something that changes nothing here.
    Other,
}

/// Parameters that both ends of a connection tell each other besides private data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'a> {
    pub(crate) queue_pair_number: u32,
    pub(crate) retry_count: u8,
    pub(crate) private_data: &'a [u8],
}

impl EventChannel {
    /// A channel, and what becomes readable with an event of it.
    pub(crate) fn new() -> Result<(Arc<Self>, OwnedFd), VerbsError> {
        // SAFETY: a call without arguments.
        let raw = unsafe { rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(error::of_connection_manager)?;
        let channel = Arc::new(Self { raw });
        // SAFETY: the channel is open, and so is its descriptor.
        let descriptor = unsafe { duplicate(raw.as_ref().fd) }
            .map_err(|error| error::of_code("fcntl", error.raw_os_error().unwrap_or(0)))?;
        Ok((channel, descriptor))
    }

    /// The next event, acknowledged; `None` when there is none. Acknowledged at once, since
    /// destroying an identifier waits for that.
    pub(crate) fn take_event(self: &Arc<Self>) -> Option<ConnectionEvent> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open and does not block, and the result outlives the call.
        let result = unsafe { rdma_get_cm_event(self.raw.as_ptr(), &mut raw) };
        if result != 0 {
            return None;
        }
        // SAFETY: the event was just taken, and is valid until it is acknowledged below.
        let event = unsafe { self.copy(&*raw) };
        // SAFETY: taken above, acknowledged once, and not used after.
        unsafe { rdma_ack_cm_event(raw) };
        Some(event)
    }

    /// # Safety
    /// The event is of this channel and not acknowledged.
    unsafe fn copy(self: &Arc<Self>, event: &rdma_cm_event) -> ConnectionEvent {
        use rdma_cm_event_type::*;
        let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        let about = if is_request { event.listen_id } else { event.id };
        let kind = match event.event {
            RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
            RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
            RDMA_CM_EVENT_CONNECT_REQUEST => {
                let raw = NonNull::new(event.id).expect("a request comes with an identifier");
                EventKind::ConnectRequest(Id { raw, channel: Arc::clone(self) })
            }
            RDMA_CM_EVENT_CONNECT_RESPONSE => EventKind::ConnectResponse,
            RDMA_CM_EVENT_ESTABLISHED => EventKind::Established,
            RDMA_CM_EVENT_REJECTED => EventKind::Rejected,
            RDMA_CM_EVENT_ADDR_ERROR => EventKind::Failed("no RDMA address"),
            RDMA_CM_EVENT_ROUTE_ERROR => EventKind::Failed("no route"),
            RDMA_CM_EVENT_CONNECT_ERROR => EventKind::Failed("the handshake failed"),
            RDMA_CM_EVENT_UNREACHABLE => EventKind::Failed("unreachable"),
            RDMA_CM_EVENT_DISCONNECTED => EventKind::Disconnected,
            RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::DeviceRemoved,
            _ => EventKind::Other,
        };
        ConnectionEvent {
            // SAFETY: the identifier lives at least until the event is acknowledged; its user
            // pointer is its key.
            key: unsafe { key_of(about) }.load(Ordering::Relaxed) as u64,
            kind,
            status: event.status,
            // SAFETY: identifiers are of the port space of connected queue pairs, so the parameters
            // are theirs.
            private_data: unsafe { private_data(&event.param.conn) },
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: created in `new`; the identifiers of the channel hold it, so none is left, and
        // all events are acknowledged.
        unsafe { rdma_destroy_event_channel(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}

/// # Safety
/// The parameters are of an event that is not acknowledged.
unsafe fn private_data(parameters: &rdma_conn_param) -> Vec<u8> {
    let length = usize::from(parameters.private_data_len);
    if parameters.private_data.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the library stored so many bytes within the event.
    unsafe { std::slice::from_raw_parts(parameters.private_data.cast::<u8>(), length) }.to_vec()
}

/// One end of a connection to be, or a listener. Destroying it disconnects, and takes back its
/// events.
pub(crate) struct Id {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: librdmacm is thread-safe, and nothing of an identifier is tied to a thread.
unsafe impl Send for Id {}
// SAFETY: the same.
unsafe impl Sync for Id {}

impl Id {
    /// An identifier whose events carry `key`.
    pub(crate) fn new(channel: &Arc<EventChannel>, key: u32) -> Result<Self, VerbsError> {
        let mut raw = ptr::null_mut();
        let space = rdma_port_space::RDMA_PS_TCP;
        let context = ptr::without_provenance_mut(key as usize);
        // SAFETY: the channel is open, and the result outlives the call.
        let result = unsafe { rdma_create_id(channel.raw.as_ptr(), &mut raw, context, space) };
        let raw = NonNull::new(raw).filter(|_| result == 0);
        let raw = raw.ok_or_else(|| error::last("rdma_create_id"))?;
        Ok(Self { raw, channel: Arc::clone(channel) })
    }

    /// From now on its events carry `key`: an identifier of a request starts with its listener's.
    pub(crate) fn set_key(&self, key: u32) {
        // SAFETY: the identifier exists, and its user pointer is ours: the library copies it to the
        // identifiers of requests, which only listeners have.
        unsafe { key_of(self.raw()) }
            .store(ptr::without_provenance_mut(key as usize), Ordering::Relaxed);
    }

    /// Takes a local address; port 0 is any.
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<(), VerbsError> {
        let raw = SockAddr::from(address);
        // SAFETY: the identifier exists, and the address, complete for its family, outlives the
        // call that copies it.
        let result = unsafe { rdma_bind_addr(self.raw(), raw.as_ptr().cast_mut().cast()) };
        if result == 0 {
            return Ok(());
        }
        Err(match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            code @ (libc::ENODEV | libc::EADDRNOTAVAIL) => VerbsError::Address(format!(
                "{address} is not an address of an RDMA device ({}); `rdma link` shows which \
                 network interfaces have one",
                error::text_of(code)
            )),
            code @ (libc::EADDRINUSE | libc::EACCES) => {
                VerbsError::Address(format!("cannot bind {address}: {}", error::text_of(code)))
            }
            code => error::of_code("rdma_bind_addr", code),
        })
    }

    /// Lets requests come.
    pub(crate) fn listen(&self, backlog: i32) -> Result<(), VerbsError> {
        // SAFETY: the identifier exists.
        check("rdma_listen", unsafe { rdma_listen(self.raw(), backlog) })
    }

    /// Looks for the device that leads to `address`; an event follows within `timeout`.
    pub(crate) fn resolve_address(
        &self,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<(), VerbsError> {
        let raw = SockAddr::from(address);
        let to = raw.as_ptr().cast_mut().cast();
        // SAFETY: the identifier exists, and the address, complete for its family, outlives the
        // call that copies it.
        let result = unsafe { rdma_resolve_addr(self.raw(), ptr::null_mut(), to, millis(timeout)) };
        check("rdma_resolve_addr", result)
    }

    /// Looks for the way; an event follows within `timeout`.
    pub(crate) fn resolve_route(&self, timeout: Duration) -> Result<(), VerbsError> {
        // SAFETY: the identifier exists.
        check("rdma_resolve_route", unsafe { rdma_resolve_route(self.raw(), millis(timeout)) })
    }

    /// The name of the device it has been bound to; `None` before.
    pub(crate) fn device_name(&self) -> Option<String> {
        // SAFETY: the identifier exists; its context, once there, stays open as long as the
        // process.
        unsafe {
            let context = NonNull::new((*self.raw()).verbs)?;
            Some(name_of(context.as_ref().device))
        }
    }

    /// Sets the time that an unanswered packet waits: 4.096 us times two to the power of this.
    pub(crate) fn set_ack_timeout(&self, exponent: u8) -> Result<(), VerbsError> {
        let mut exponent = exponent;
        let value = (&raw mut exponent).cast();
        // SAFETY: the identifier exists, and the value, one byte as the option wants, outlives the
        // call.
        let result =
            unsafe { rdma_set_option(self.raw(), OPTION_LEVEL_ID, OPTION_ACK_TIMEOUT, value, 1) };
        check("rdma_set_option", result)
    }

    /// Attributes that the queue pair has to be told to enter a state, by what the connection says.
    pub(crate) fn attributes(&self, state: State) -> Result<Attributes, VerbsError> {
        // SAFETY: attributes are integers.
        let mut raw: ibv_qp_attr = unsafe { mem::zeroed() };
        raw.qp_state = match state {
            State::Initialised => ibv_qp_state::IBV_QPS_INIT,
            State::ReadyToReceive => ibv_qp_state::IBV_QPS_RTR,
            State::ReadyToSend => ibv_qp_state::IBV_QPS_RTS,
        };
        let mut mask = 0;
        // SAFETY: the identifier exists, and both results outlive the call.
        let result = unsafe { rdma_init_qp_attr(self.raw(), &mut raw, &mut mask) };
        check("rdma_init_qp_attr", result)?;
        if matches!(state, State::Initialised) {
            // A dialling end is told to take no writes before its request is sent; then the probes
            // of the other end, writes of no bytes, would end the connection. No memory is open to
            // writes whatever a queue pair takes.
            raw.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
            mask |= ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0 as libc::c_int;
        }
        Ok(Attributes { raw, mask })
    }

    /// Sends the request of a resolved identifier.
    pub(crate) fn connect(&self, parameters: Parameters<'_>) -> Result<(), VerbsError> {
        let mut parameters = parameters.to_raw()?;
        // SAFETY: the identifier exists; the parameters and the data they point to outlive the
        // call.
        check("rdma_connect", unsafe { rdma_connect(self.raw(), &mut parameters) })
    }

    /// Accepts the request of this identifier.
    pub(crate) fn accept(&self, parameters: Parameters<'_>) -> Result<(), VerbsError> {
        let mut parameters = parameters.to_raw()?;
        // SAFETY: the identifier exists; the parameters and the data they point to outlive the
        // call.
        check("rdma_accept", unsafe { rdma_accept(self.raw(), &mut parameters) })
    }

    /// Tells the accepting end that its answer came.
    pub(crate) fn establish(&self) -> Result<(), VerbsError> {
        // SAFETY: the identifier exists and has no queue pair of its own.
        check("rdma_establish", unsafe { rdma_establish(self.raw()) })
    }

    /// Says that data came, which shows that the connection stands even if its last handshake
    /// packet was lost.
    pub(crate) fn notify_established(&self) {
        // SAFETY: the identifier exists. That it stood already is an error of no interest.
        let _ = unsafe { rdma_notify(self.raw(), ibv_event_type::IBV_EVENT_COMM_EST) };
    }

    /// Rejects the request of this identifier, as far as the other end can still be told.
    pub(crate) fn reject(&self, private_data: &[u8]) {
        let length = u8::try_from(private_data.len()).unwrap_or(0);
        // SAFETY: the identifier exists, and the data outlives the call.
        let _ = unsafe { rdma_reject(self.raw(), private_data.as_ptr().cast(), length) };
    }

    /// Ends the connection, if there is one, or answers the other end that does.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier exists. That it is not connected is an error of no interest.
        let _ = unsafe { rdma_disconnect(self.raw()) };
    }

    /// The address of this end.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier exists; the pointer is to the whole storage, not to the short
        // address in it.
        unsafe {
            let address = &raw const (*self.raw()).route.addr.src_addr_union;
            socket_address(address.cast())
        }
    }

    /// The address of the other end.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier exists; the pointer is to the whole storage, not to the short
        // address in it.
        unsafe {
            let address = &raw const (*self.raw()).route.addr.dst_addr_union;
            socket_address(address.cast())
        }
    }

    fn raw(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: created in `new` or handed over by a request, destroyed only here. It waits for
        // events that are taken and not acknowledged, and these are acknowledged where they are
        // taken.
        unsafe { rdma_destroy_id(self.raw()) };
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Parameters<'_> {
    fn to_raw(self) -> Result<rdma_conn_param, VerbsError> {
        // SAFETY: parameters are integers and a pointer.
        let mut raw: rdma_conn_param = unsafe { mem::zeroed() };
        raw.private_data_len = u8::try_from(self.private_data.len())
            .map_err(|_| error::of_code("private data", libc::EMSGSIZE))?;
        raw.private_data = self.private_data.as_ptr().cast();
        raw.qp_num = self.queue_pair_number;
        raw.retry_count = self.retry_count;
        // What the peer's sends do when this end has no receive posted: fail, at once.
        raw.rnr_retry_count = 0;
        Ok(raw)
    }
}

/// The user pointer of an identifier. Another thread may set it while an event is taken.
///
/// # Safety
/// The identifier exists for as long as the reference.
unsafe fn key_of<'a>(id: *mut rdma_cm_id) -> &'a AtomicPtr<c_void> {
    // SAFETY: the identifier exists, and the field is aligned and only accessed in this way.
    unsafe { AtomicPtr::from_ptr(&raw mut (*id).context) }
}

/// # Safety
/// The pointer is to a whole `sockaddr_storage`, initialised as far as its family says.
unsafe fn socket_address(from: *const SockAddrStorage) -> Option<SocketAddr> {
    let mut storage = MaybeUninit::<SockAddrStorage>::zeroed();
    // SAFETY: both are whole, do not overlap, and any bytes are a storage.
    let storage = unsafe {
        ptr::copy_nonoverlapping(
            from.cast::<u8>(),
            storage.as_mut_ptr().cast(),
            size_of::<SockAddrStorage>(),
        );
        storage.assume_init()
    };
    let length = libc::socklen_t::try_from(size_of::<SockAddrStorage>()).ok()?;
    // SAFETY: the family in the storage says which address it holds, and the length covers each of
    // them.
    unsafe { SockAddr::new(storage, length) }.as_socket()
}

fn check(call: &'static str, result: i32) -> Result<(), VerbsError> {
    if result == 0 { Ok(()) } else { Err(error::last(call)) }
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1)
}
