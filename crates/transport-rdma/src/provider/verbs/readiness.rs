//! Sleeping until the device has something.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;

use crate::ffi::verbs as ffi;
use crate::provider::VerbsError;

/// The descriptors of a device: completions, connections, asynchronous events.
///
/// The system tells once that a descriptor has become readable, so each is read until it has
/// nothing, and only then marked as not ready.
#[derive(Debug)]
pub(super) struct Readiness {
    unregistered: Mutex<Option<Descriptors<OwnedFd>>>,
    registered: OnceLock<Result<Descriptors<AsyncFd<OwnedFd>>, VerbsError>>,
}

/// Something for each descriptor.
#[derive(Debug)]
pub(super) struct Descriptors<T> {
    pub(super) completions: T,
    pub(super) connections: T,
    pub(super) device: T,
}

impl Readiness {
    pub(super) fn new(descriptors: Descriptors<OwnedFd>) -> Self {
        Self { unregistered: Mutex::new(Some(descriptors)), registered: OnceLock::new() }
    }

    /// Ready once `take_completion_events` takes any, or another descriptor is readable.
    ///
    /// # Errors
    /// [`VerbsError::DeviceLost`] when waiting is impossible.
    pub(super) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        take_completion_events: impl Fn() -> bool,
    ) -> Poll<Result<(), VerbsError>> {
        let descriptors = self.registered().as_ref().map_err(Clone::clone)?;
        // All are polled, so that all wake the caller.
        let polled = [
            poll_completions(&descriptors.completions, cx, take_completion_events),
            descriptors.connections.poll_read_ready(cx).map_ok(drop),
            descriptors.device.poll_read_ready(cx).map_ok(drop),
        ];
        let first = polled.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending);
        first.map_err(|error| unwatched(&error))
    }

    /// Takes a connection event, unless there is surely none.
    pub(super) fn take_connection<T>(&self, take: impl FnMut() -> Option<T>) -> Option<T> {
        take_from(self.get().map(|descriptors| &descriptors.connections), take)
    }

    /// Takes an asynchronous event, unless there is surely none.
    pub(super) fn take_device<T>(&self, take: impl FnMut() -> Option<T>) -> Option<T> {
        take_from(self.get().map(|descriptors| &descriptors.device), take)
    }

    fn get(&self) -> Option<&Descriptors<AsyncFd<OwnedFd>>> {
        self.registered.get().and_then(|registered| registered.as_ref().ok())
    }

    /// Registers with the runtime of the caller, the first time.
    fn registered(&self) -> &Result<Descriptors<AsyncFd<OwnedFd>>, VerbsError> {
        self.registered.get_or_init(|| {
            let descriptors = self.unregistered.lock().take();
            // A runtime without I/O has made the first try panic.
            let descriptors =
                descriptors.ok_or_else(|| unwatched(&ErrorKind::NotConnected.into()))?;
            let watch = |descriptor| ffi::watch(descriptor).map_err(|error| unwatched(&error));
            Ok(Descriptors {
                completions: watch(descriptors.completions)?,
                connections: watch(descriptors.connections)?,
                device: watch(descriptors.device)?,
            })
        })
    }
}

fn poll_completions(
    descriptor: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
    take_events: impl Fn() -> bool,
) -> Poll<io::Result<()>> {
    loop {
        let mut guard = ready!(descriptor.poll_read_ready(cx))?;
        let were_any = take_events();
        guard.clear_ready();
        if were_any {
            return Poll::Ready(Ok(()));
        }
    }
}

fn unwatched(error: &io::Error) -> VerbsError {
    VerbsError::DeviceLost(format!(
        "it cannot be waited for, {error}: make a transport anew, on a runtime that goes on"
    ))
}

/// Reading an empty descriptor is a system call, which this spares once the runtime knows that
/// there is nothing.
fn take_from<T>(
    descriptor: Option<&AsyncFd<OwnedFd>>,
    mut take: impl FnMut() -> Option<T>,
) -> Option<T> {
    let Some(descriptor) = descriptor else { return take() };
    let nothing = || io::Error::from(io::ErrorKind::WouldBlock);
    descriptor.try_io(tokio::io::Interest::READABLE, |_| take().ok_or_else(nothing)).ok()
}
