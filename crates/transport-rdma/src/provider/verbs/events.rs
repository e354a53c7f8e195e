//! Events of connections and of the device, as the engine wants them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::VerbsDevice;
use super::connection::{Connection, VerbsRequest};
use super::device::Device;
use crate::ffi::verbs::{self as ffi, AsyncEvent, ConnectionEvent, EventKind};
use crate::provider::{Event, Tag, VerbsError};

/// Reason that the other end gives where its program rejects; anything else means that nobody
/// listens.
const REJECTED_BY_CONSUMER: i32 = 28;

/// The next event; `None` when there is none now.
pub(super) fn next(device: &Arc<Device>) -> Option<Event<VerbsDevice>> {
    loop {
        if let Some(lost) = device.loss()
            && !device.is_loss_told.swap(true, Ordering::Relaxed)
        {
            return Some(Event::DeviceLost { error: lost.clone() });
        }
        if let Some(event) = device.readiness.take_device(|| device.context.take_event()) {
            match of_device(device, event) {
                Some(event) => return Some(event),
                None => continue,
            }
        }
        let event = device.readiness.take_connection(|| device.channel.take_event())?;
        if let Some(event) = of_connection(device, event) {
            return Some(event);
        }
    }
}

fn of_device(device: &Device, event: AsyncEvent) -> Option<Event<VerbsDevice>> {
    match event {
        AsyncEvent::QueuePairFailed(key, number) => {
            let (tag, _) = device.names().queue_pair(key).map(|(tag, _)| (tag, ()))?;
            let error = VerbsError::System {
                call: "the queue pair",
                code: i32::try_from(number).unwrap_or(i32::MAX),
                message: "the device reports that it has failed".into(),
            };
            return Some(Event::Failed { tag, error });
        }
        AsyncEvent::Established(key) => {
            if let Some((_, connection)) = device.names().queue_pair(key) {
                connection.id.notify_established();
            }
        }
        AsyncEvent::CompletionQueueFailed => {
            device.lose(VerbsError::DeviceLost("its completion queue has overflowed".into()));
        }
        AsyncEvent::DeviceLost => {
            device.lose(VerbsError::DeviceLost("the device reports a fatal error".into()));
        }
        AsyncEvent::Other => {}
    }
    None
}

fn of_connection(device: &Arc<Device>, event: ConnectionEvent) -> Option<Event<VerbsDevice>> {
    let ConnectionEvent { key, kind, status, private_data } = event;
    match kind {
        EventKind::ConnectRequest(id) => return request(device, key, id, private_data),
        EventKind::DeviceRemoved => {
            device.lose(VerbsError::DeviceLost("it was removed".into()));
            return None;
        }
        EventKind::Other => return None,
        _ => {}
    }
    let names = device.names();
    let (tag, connection) = names.queue_pair(key)?;
    match kind {
        EventKind::AddressResolved => {
            let found = of_same_device(device, &connection.id)
                .and_then(|()| connection.id.resolve_route(connection.phase_timeout));
            found.err().map(|error| Event::Unreachable { tag, error })
        }
        EventKind::RouteResolved => Some(resolved(tag, connection)),
        EventKind::ConnectResponse => Some(match connection.establish() {
            Ok(()) => Event::Established { tag, private_data },
            Err(error) => Event::Unreachable { tag, error },
        }),
        EventKind::Established => Some(Event::Established { tag, private_data: Vec::new() }),
        EventKind::Rejected => {
            let is_by_listener = status == REJECTED_BY_CONSUMER;
            Some(Event::Rejected { tag, is_by_listener, private_data })
        }
        EventKind::Failed(what) => {
            let message =
                if status < 0 { ffi::text_of(status) } else { format!("reason {status}") };
            let error = VerbsError::Address(format!("{what}: {message}"));
            Some(Event::Unreachable { tag, error })
        }
        EventKind::Disconnected => Some(Event::Disconnected { tag }),
        EventKind::ConnectRequest(_) | EventKind::DeviceRemoved | EventKind::Other => None,
    }
}

fn resolved(tag: Tag, connection: &Connection) -> Event<VerbsDevice> {
    let unreachable = |error| Event::Unreachable { tag, error };
    if let Err(error) = connection.initialise() {
        return unreachable(error);
    }
    match connection.id.local_address() {
        Some(local) => Event::Resolved { tag, local },
        None => unreachable(VerbsError::Address("the route has no local address".into())),
    }
}

fn request(
    device: &Device,
    listener: u64,
    id: ffi::Id,
    private_data: Vec<u8>,
) -> Option<Event<VerbsDevice>> {
    // Dropped on the way out, the request is rejected.
    let (peer, local) = (id.peer_address(), id.local_address());
    let is_ours = of_same_device(device, &id).is_ok();
    let request = VerbsRequest::new(id);
    let listener = device.names().listener(listener)?;
    if !is_ours {
        return None;
    }
    Some(Event::Request { listener, request, peer: peer?, local: local?, private_data })
}

/// A machine may have several devices, and a way that leads over another than ours is invalid.
fn of_same_device(device: &Device, id: &ffi::Id) -> Result<(), VerbsError> {
    let ours = &device.limits.name;
    match id.device_name() {
        Some(name) if name == *ours => Ok(()),
        other => Err(VerbsError::Address(format!(
            "the way leads over the device {}, and this is {ours}",
            other.as_deref().unwrap_or("of nobody")
        ))),
    }
}
