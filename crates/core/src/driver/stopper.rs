//! The way to stop a handler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use convoke_transport::parts::{Mutex, wake_all};

/// Tells a running handler to stop: its future is dropped at the next chance.
#[derive(Debug, Default)]
pub(crate) struct Stopper {
    is_stopped: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Stopper {
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// True when it is stopped; otherwise keeps the waker.
    pub(crate) fn poll_stopped(&self, cx: &Context<'_>) -> bool {
        *self.waker.lock() = Some(cx.waker().clone());
        self.is_stopped()
    }

    pub(super) fn stop(&self) {
        wake_all(self.stop_later());
    }

    /// Stops, leaving it to the caller to wake.
    pub(super) fn stop_later(&self) -> Option<Waker> {
        self.is_stopped.store(true, Ordering::Release);
        self.waker.lock().take()
    }
}
