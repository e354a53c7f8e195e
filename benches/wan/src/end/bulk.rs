//! Large replies beside small calls.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use convoke_core::{Endpoint, Peer};
use tokio::time::Instant;

use super::BULK;

/// One who asks for large replies, one after the other.
#[derive(Debug)]
pub(super) struct Bulk<'a> {
    endpoint: &'a Endpoint,
    peer: Peer,
    bytes: u32,
    counted: Range<Instant>,
    came_bytes: AtomicU64,
}

impl<'a> Bulk<'a> {
    /// Replies of `bytes` each. Those that come while it is `counted` count.
    pub(super) fn new(
        endpoint: &'a Endpoint,
        peer: Peer,
        bytes: u32,
        counted: Range<Instant>,
    ) -> Self {
        Self { endpoint, peer, bytes, counted, came_bytes: AtomicU64::new(0) }
    }

    /// Asks until a call fails; asks nothing, for ever, where replies have no bytes.
    pub(super) async fn ask(&self) -> anyhow::Error {
        if self.bytes == 0 {
            return std::future::pending().await;
        }
        loop {
            match self.endpoint.call(BULK, self.bytes).to(self.peer).await {
                Ok(reply) if self.counted.contains(&Instant::now()) => {
                    self.came_bytes.fetch_add(reply.len() as u64, Ordering::Relaxed);
                }
                Ok(_) => {}
                Err(error) => return error.into(),
            }
        }
    }

    /// Bytes of the replies that counted.
    pub(super) fn came_bytes(&self) -> u64 {
        self.came_bytes.load(Ordering::Relaxed)
    }
}
