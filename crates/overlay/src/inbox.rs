//! Deliveries that were not read yet.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_core::transport::parts::Wakers;

use crate::node::DELIVERY_BYTES;
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

/// See the module. How much is in it the node is told, which then takes no more.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: VecDeque<Delivery>,
    bytes: usize,
    readers: Wakers,
    is_closed: bool,
}

/// Most gaps that wait to be read; a reader who is so far behind learns of the rest by what it
/// misses.
const GAPS_MAX: usize = 4_096;

impl Inbox {
    pub(crate) fn push(&mut self, delivery: Delivery, wakers: &mut Wakers) {
        if matches!(delivery, Delivery::Gap { .. }) && self.queue.len() >= GAPS_MAX {
            return;
        }
        self.bytes += cost(&delivery);
        self.queue.push_back(delivery);
        wakers.append(&mut self.readers);
    }

    /// The oldest; `None` when it is closed and empty.
    pub(crate) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Delivery>> {
        if let Some(delivery) = self.queue.pop_front() {
            self.bytes -= cost(&delivery);
            return Poll::Ready(Some(delivery));
        }
        if self.is_closed {
            return Poll::Ready(None);
        }
        self.readers.register(cx);
        Poll::Pending
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn close(&mut self, wakers: &mut Wakers) {
        self.is_closed = true;
        wakers.append(&mut self.readers);
    }
}

/// Bytes that a delivery takes in memory: empty ones, too, wait until they are read.
fn cost(delivery: &Delivery) -> usize {
    match delivery {
        Delivery::Operation { payload, .. } => payload.len() + DELIVERY_BYTES,
        Delivery::Gap { .. } => DELIVERY_BYTES,
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
            let empty = Delivery::Operation { op, payload: Bytes::new() };
            inbox.push(empty, &mut wakers);
        }
        assert_eq!(inbox.bytes(), 1_000 * DELIVERY_BYTES);
        let cx = Context::from_waker(std::task::Waker::noop());
        while inbox.poll_next(&cx).is_ready() {}
        assert_eq!(inbox.bytes(), 0);
    }
}
