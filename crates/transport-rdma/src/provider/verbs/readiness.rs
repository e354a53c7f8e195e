//! Sleeping until the device has something.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;

use crate::ffi::verbs as ffi;

/// The descriptors of a device: completions, connections, asynchronous events.
///
/// The system tells once that a descriptor has become readable, so each is read until it has
/// nothing, and only then marked as not ready.
#[derive(Debug)]
pub(super) struct Readiness {
    unregistered: Mutex<Option<Descriptors<OwnedFd>>>,
    registered: OnceLock<Result<Descriptors<AsyncFd<OwnedFd>>, io::ErrorKind>>,
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

    /// Ready once `take_completion_events` takes any, or another descriptor is readable, or waiting
    /// is impossible.
    pub(super) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        take_completion_events: impl Fn() -> bool,
    ) -> Poll<()> {
        let Ok(descriptors) = self.registered() else { return Poll::Ready(()) };
        // All are polled, so that all wake the caller.
        let polled = [
            poll_completions(&descriptors.completions, cx, take_completion_events),
            descriptors.connections.poll_read_ready(cx).map(drop),
            descriptors.device.poll_read_ready(cx).map(drop),
        ];
        if polled.iter().any(Poll::is_ready) { Poll::Ready(()) } else { Poll::Pending }
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
    fn registered(&self) -> &Result<Descriptors<AsyncFd<OwnedFd>>, io::ErrorKind> {
        self.registered.get_or_init(|| {
            let descriptors = self.unregistered.lock().take().ok_or(io::ErrorKind::NotConnected)?;
            let watch = |descriptor| ffi::watch(descriptor).map_err(|error| error.kind());
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
) -> Poll<()> {
    loop {
        let Ok(mut guard) = ready!(descriptor.poll_read_ready(cx)) else {
            return Poll::Ready(());
        };
        let were_any = take_events();
        guard.clear_ready();
        if were_any {
            return Poll::Ready(());
        }
    }
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
