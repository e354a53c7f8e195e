//! The connection that its users hold.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_transport::{
    Appended, CloseReason, Connection, Counters, Fill, Lane, Link, NotWritable,
};

use crate::provider::Provider;
use crate::wire::Wire;

/// One open connection.
pub(crate) struct RdmaConnection<P: Provider> {
    link: Link,
    wire: Arc<Wire<P>>,
}

impl<P: Provider> RdmaConnection<P> {
    pub(crate) fn new(link: Link, wire: Arc<Wire<P>>) -> Self {
        Self { link, wire }
    }
}

impl<P: Provider> Connection for RdmaConnection<P> {
    fn link(&self) -> &Link {
        &self.link
    }

    fn append(&self, lane: Lane, len: usize, write: Fill<'_>) -> Result<Appended, NotWritable> {
        self.wire.append(lane, len, write)
    }

    fn append_bytes(&self, lane: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable> {
        self.wire.append_bytes(lane, head, body)
    }

    fn flush(&self) {
        self.wire.flush();
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.poll_flush(cx)
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.poll_writable(lane, cx)
    }

    fn close(&self, reason: CloseReason) {
        self.wire.close(reason);
    }

    fn counters(&self) -> Counters {
        self.wire.counters()
    }
}

impl<P: Provider> fmt::Debug for RdmaConnection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaConnection")
            .field("peer", &self.link.peer.node)
            .field("nonce", &self.link.nonce)
            .finish_non_exhaustive()
    }
}
