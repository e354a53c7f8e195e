//! Connection as an endpoint holds it: one end of a wire.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use convoke_transport::{Buffer, CloseReason, Connection, Counters, Lane, Link};

use super::wire::{Side, Wire};

pub(crate) struct SimConnection {
    pub(crate) wire: Arc<Wire>,
    pub(crate) side: Side,
}

impl Connection for SimConnection {
    fn link(&self) -> &Link {
        self.wire.link(self.side)
    }

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        self.wire.with_buffer(self.side, act);
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
