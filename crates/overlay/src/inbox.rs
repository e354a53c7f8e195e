//! Deliveries that were not read yet.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_core::transport::parts::Wakers;

use crate::node::DELIVERY_BYTES;
use crate::payload::Payload;
use crate::site::Site;
use crate::wire::{Life, OpId};

/// Something of another site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An operation, each exactly once.
    Operation {
        /// The operation.
        op: OpId,
        /// Payload that was broadcast.
        payload: Bytes,
    },
    /// These sequence numbers of a source will not come by themselves; see
    /// [`Event::Gap`](crate::Event::Gap). A body of requests may have been among them.
    Gap {
        /// The source.
        source: Site,
        /// In which of its lives.
        life: Life,
        /// The first.
        from: u64,
        /// The first after them.
        to: u64,
    },
}

/// A delivery as it waits: in the pieces that it came in.
#[derive(Clone, Debug)]
pub(crate) enum Arrived {
    Operation { op: OpId, payload: Payload },
    Gap { source: Site, life: Life, from: u64, to: u64 },
}

impl Arrived {
    pub(crate) fn source(&self) -> Site {
        match self {
            Self::Operation { op, .. } => op.source,
            Self::Gap { source, .. } => *source,
        }
    }
}

impl From<Arrived> for Delivery {
    /// Copies what came in several pieces: not to be done under a lock.
    fn from(arrived: Arrived) -> Self {
        match arrived {
            Arrived::Operation { op, payload } => {
                Self::Operation { op, payload: payload.into_bytes() }
            }
            Arrived::Gap { source, life, from, to } => Self::Gap { source, life, from, to },
        }
    }
}

/// See the module. How much is in it the node is told, which then takes no more.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: VecDeque<Arrived>,
    /// Bytes that wait, by source.
    bytes: BTreeMap<Site, usize>,
    readers: Wakers,
    is_closed: bool,
}

/// Most gaps that wait to be read; a reader who is so far behind learns of the rest by what it
/// misses.
const GAPS_MAX: usize = 4_096;

impl Inbox {
    pub(crate) fn push(&mut self, arrived: Arrived, wakers: &mut Wakers) {
        if matches!(arrived, Arrived::Gap { .. }) && self.queue.len() >= GAPS_MAX {
            return;
        }
        *self.bytes.entry(arrived.source()).or_default() += cost(&arrived);
        self.queue.push_back(arrived);
        wakers.append(&mut self.readers);
    }

    /// The oldest; `None` when it is closed and empty.
    pub(crate) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Arrived>> {
        if let Some(arrived) = self.queue.pop_front() {
            *self.bytes.entry(arrived.source()).or_default() -= cost(&arrived);
            return Poll::Ready(Some(arrived));
        }
        if self.is_closed {
            return Poll::Ready(None);
        }
        self.readers.register(cx);
        Poll::Pending
    }

    /// Bytes of a source that wait.
    pub(crate) fn bytes(&self, source: Site) -> usize {
        self.bytes.get(&source).copied().unwrap_or(0)
    }

    pub(crate) fn close(&mut self, wakers: &mut Wakers) {
        self.is_closed = true;
        wakers.append(&mut self.readers);
    }
}

/// Bytes that a delivery takes in memory: empty ones, too, wait until they are read.
fn cost(arrived: &Arrived) -> usize {
    match arrived {
        Arrived::Operation { payload, .. } => payload.len() + DELIVERY_BYTES,
        Arrived::Gap { .. } => DELIVERY_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_without_bytes_count_until_they_are_read() {
        let (mut inbox, mut wakers) = (Inbox::default(), Wakers::default());
        let op = OpId { source: Site(1), life: Life(7), seq: 0 };
        for _ in 0..1_000 {
            let empty = Arrived::Operation { op, payload: Payload::cut(Bytes::new()) };
            inbox.push(empty, &mut wakers);
        }
        assert_eq!(inbox.bytes(Site(1)), 1_000 * DELIVERY_BYTES);
        let cx = Context::from_waker(std::task::Waker::noop());
        while inbox.poll_next(&cx).is_ready() {}
        assert_eq!(inbox.bytes(Site(1)), 0);
    }
}
