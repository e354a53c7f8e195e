//! Platform of a connection: a lock, a signal, a socket. A trait, so that the model test of writing
//! runs the connection itself on ones that try every order of events.

use std::future::Future;
use std::io::{self, IoSlice};
use std::ops::DerefMut;

use convoke_transport::parts::Mutex;
use tokio::sync::Notify;

use crate::socket::WriteHalf;

/// Platform that a connection stands on.
pub(crate) trait Platform: 'static {
    type Lock<T: Send>: Lock<T>;
    type Signal: Signal;
    type Half: Half;
}

/// Gives one at a time what it holds.
pub(crate) trait Lock<T>: Send + Sync {
    fn new(value: T) -> Self;
    fn lock(&self) -> impl DerefMut<Target = T>;
}

/// Tells one task something; kept until it is heard, once.
pub(crate) trait Signal: Default + Send + Sync {
    fn notify_one(&self);
}

/// The sending direction of a socket.
pub(crate) trait Half: Send {
    /// Waits until the socket takes bytes.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Writes from the front of `bytes`, as much as the socket takes. After one that would block,
    /// the next must begin with the same bytes.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// The same from several slices.
    fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// The real thing.
#[derive(Debug)]
pub(crate) enum Tokio {}

impl Platform for Tokio {
    type Lock<T: Send> = Mutex<T>;
    type Signal = Notify;
    type Half = WriteHalf;
}

impl<T: Send> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn lock(&self) -> impl DerefMut<Target = T> {
        self.lock()
    }
}

impl Signal for Notify {
    fn notify_one(&self) {
        self.notify_one();
    }
}
