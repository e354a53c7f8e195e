//! Credit (L2): how many bytes of a reply, or of the items of a request, may be sent, and have
//! been.
//!
//! Both ends count the same: [`cost`] of every frame, from 0. The limit is a total that only grows,
//! so a copy of a CREDIT changes nothing. After Homa (Montazeri et al., SIGCOMM 2018): a first part
//! goes unscheduled, the rest when the receiver grants it.

mod assembly;
mod channel;

use std::ops::Deref;

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::wire::{Extension, Part, ReplyKind};

#[cfg(test)]
pub(crate) use assembly::ASKED;
pub use assembly::{Accepted, PieceFault, Whole};
pub(crate) use assembly::{Assembly, Wants, cost_of};
pub(crate) use channel::{Channel, part_of};

/// Items that a reader may be handed with another, and their bytes: they are granted anew as if it
/// had read them.
pub(crate) const AHEAD_ITEMS: usize = 32;
pub(crate) const AHEAD_BYTES: usize = 4 << 10;

/// Messages that wait to be read in the buffers that they came in. A prompt reader leaves no more;
/// of a slow one's, those beyond are [`kept`].
pub(crate) const IN_BUFFERS_MAX: usize = 256;

/// A payload below this size is copied where it is kept.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// Bytes for who keeps them for long: small ones leave the buffer that they came in, which they
/// would keep as a whole, 64 KiB for a few of them.
pub(crate) fn kept(bytes: Bytes) -> Bytes {
    if bytes.len() < COPIED_BYTES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes }
}

/// Credit charged for a payload of `len` bytes: at least 1, so that empty items are bounded as
/// well.
pub fn cost(len: usize) -> u64 {
    (len as u64).max(1)
}

/// A message, an item of a stream, or a piece of either, as one frame carries it: [`Bytes`] that
/// came, or [`Encoded`](crate::encoded::Encoded) ones that leave.
#[derive(Debug)]
pub(crate) struct Piece<P = Bytes> {
    pub(crate) kind: ReplyKind,
    pub(crate) part: Option<Part>,
    /// Of the first piece alone.
    pub(crate) extensions: Vec<Extension>,
    pub(crate) payload: P,
}

impl Piece<Encoded> {
    /// The same for who keeps it: of a small message all of it alone, for it may lie in a buffer
    /// that others have come in. Lets go of the message of which it is a copy then.
    pub(crate) fn kept(mut self, small: u64, let_go: &mut dyn FnMut(Encoded)) -> Self {
        let is_slice = self.payload.len() as u64 <= small && self.payload.as_shared().is_some();
        if is_slice {
            let copy = Bytes::copy_from_slice(&self.payload).into();
            let_go(std::mem::replace(&mut self.payload, copy));
        }
        self
    }
}

impl<P: Deref<Target = [u8]>> Piece<P> {
    /// All of it in one frame.
    pub(crate) fn whole(kind: ReplyKind, extensions: Vec<Extension>, payload: P) -> Self {
        Self { kind, part: None, extensions, payload }
    }

    /// Makes it the last of its stream, if it is an item.
    pub(crate) fn mark_last(&mut self) -> bool {
        match &mut self.kind {
            ReplyKind::Item { is_last, .. } => {
                *is_last = true;
                true
            }
            ReplyKind::Message | ReplyKind::End { .. } => false,
        }
    }

    pub(crate) fn cost(&self) -> u64 {
        match self.kind {
            ReplyKind::End { .. } => 0,
            ReplyKind::Message | ReplyKind::Item { .. } => cost(self.payload.len()),
        }
    }

    /// True when nothing of its message or stream follows it.
    pub(crate) fn is_end(&self) -> bool {
        self.is_last_part() && !matches!(self.kind, ReplyKind::Item { is_last: false, .. })
    }

    /// Bytes of the message that has left with it as a whole; 0 while more parts follow.
    pub(crate) fn whole_bytes_left(&self) -> u64 {
        let total = self.part.map_or(self.payload.len() as u64, |part| part.total);
        if self.is_last_part() { total } else { 0 }
    }

    fn is_last_part(&self) -> bool {
        self.part.is_none_or(|part| part.offset + self.payload.len() as u64 == part.total)
    }
}

/// The sender's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow {
    sent: u64,
    limit: u64,
}

impl SendWindow {
    /// A window of `unscheduled` bytes.
    pub fn new(unscheduled: u64) -> Self {
        Self { sent: 0, limit: unscheduled }
    }

    /// Bytes that may be sent now.
    pub fn available(&self) -> u64 {
        self.limit - self.sent
    }

    /// Counts a frame.
    ///
    /// # Panics
    /// If it costs more than is available: the caller asked first.
    pub fn send(&mut self, len: usize) {
        assert!(cost(len) <= self.available(), "the sender outran its credit");
        self.sent += cost(len);
    }

    /// Takes a grant. True when it was news.
    pub fn grant(&mut self, limit: u64) -> bool {
        let is_news = limit > self.limit;
        self.limit = self.limit.max(limit);
        is_news
    }
}

/// The receiver's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWindow {
    received: u64,
    limit: u64,
}

/// The sender sent more than it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl ReceiveWindow {
    /// A window of `unscheduled` bytes.
    pub fn new(unscheduled: u64) -> Self {
        Self { received: 0, limit: unscheduled }
    }

    /// Counts a frame.
    ///
    /// # Errors
    /// [`Overrun`] if it is beyond the limit.
    pub fn receive(&mut self, len: usize) -> Result<(), Overrun> {
        if cost(len) > self.limit - self.received {
            return Err(Overrun);
        }
        self.received += cost(len);
        Ok(())
    }

    /// Raises the limit, never lowers it. True when it rose.
    pub fn raise(&mut self, limit: u64) -> bool {
        let rises = limit > self.limit;
        self.limit = self.limit.max(limit);
        rises
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes granted in all.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes granted and not here yet.
    pub fn outstanding(&self) -> u64 {
        self.limit - self.received
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;

    /// Buffers of a transport, each of which lives as long as a slice of it.
    #[derive(Default)]
    pub(crate) struct Buffers(Arc<()>);

    struct Buffer {
        bytes: [u8; 1 << 10],
        _alive: Arc<()>,
    }

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Buffers {
        /// The first bytes of a new one.
        pub(crate) fn slice(&self, len: usize) -> Bytes {
            let buffer = Buffer { bytes: [7; 1 << 10], _alive: self.0.clone() };
            Bytes::from_owner(buffer).slice(..len)
        }

        /// Number of those that are alive.
        pub(crate) fn count(&self) -> usize {
            Arc::strong_count(&self.0) - 1
        }
    }
}
