//! Connection as an endpoint holds it: one end of a wire.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_transport::{
    Appended, CloseReason, Connection, Counters, Fill, Lane, Link, NotWritable,
};

use super::wire::{Side, Wire};

pub(crate) struct SimConnection {
    pub(crate) wire: Arc<Wire>,
    pub(crate) side: Side,
}

impl Connection for SimConnection {
    fn link(&self) -> &Link {
        self.wire.link(self.side)
    }

    fn append(&self, lane: Lane, len: usize, write: Fill<'_>) -> Result<Appended, NotWritable> {
        self.wire.append(self.side, lane, len, write)
    }

    fn append_bytes(&self, lane: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable> {
        self.wire.append_bytes(self.side, lane, head, body)
    }

    fn flush(&self) {
        self.wire.flush(self.side);
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.poll_flush(self.side, cx)
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.poll_writable(self.side, lane, cx)
    }

    fn close(&self, reason: CloseReason) {
        self.wire.close(self.side, reason);
    }

    fn counters(&self) -> Counters {
        self.wire.counters(self.side)
    }
}

impl fmt::Debug for SimConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimConnection")
            .field("peer", &self.link().peer.node)
            .field("nonce", &self.link().nonce)
            .finish_non_exhaustive()
    }
}
