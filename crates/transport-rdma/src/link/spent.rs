//! Bodies that a link is done with, until its lock is free.

use bytes::Bytes;
use convoke_transport::parts::Guest;

/// Owners of bodies, which may panic: who drops a body has a connection to see to, or a device.
static OWNER: Guest = Guest::new("owner of a body");

/// Bodies of frames that were sent, or are not going to be. To be dropped without the lock of the
/// connection: an owner may do anything then, such as look at the connection, or panic.
#[derive(Debug, Default)]
pub(crate) struct Spent(Vec<Bytes>);

impl Spent {
    pub(super) fn put(&mut self, body: Bytes) {
        self.0.push(body);
    }

    /// True when there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        for body in self.0.drain(..) {
            OWNER.call(|| drop(body));
        }
    }
}
