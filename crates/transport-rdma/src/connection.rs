//! The connection that its users hold.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use convoke_transport::{Buffer, CloseReason, Connection, Counters, Lane, Link};

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

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        self.wire.with_buffer(act);
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
