//! Deliveries that were not read yet.

use std::collections::VecDeque;
use std::task::Poll;

use bytes::Bytes;
use convoke_core::transport::parts::Wakers;

use crate::node::DELIVERY_BYTES;
use crate::payload::Payload;
use crate::site::Site;
use crate::waiting::Waiting;
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

    /// Bytes that it takes in memory: empty ones, too, wait until they are read.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Operation { payload, .. } => payload.len() + DELIVERY_BYTES,
            Self::Gap { .. } => DELIVERY_BYTES,
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

/// See the module. The node counts what waits here, and takes no more of a source of which that is
/// much.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: VecDeque<Arrived>,
    readers: Waiting,
    is_closed: bool,
}

/// Most gaps that wait to be read; a reader who is so far behind learns of the rest by what it
/// misses.
const GAPS_MAX: usize = 4_096;

impl Inbox {
    /// True where it waits to be read.
    #[must_use]
    pub(crate) fn push(&mut self, arrived: Arrived, wakers: &mut Wakers) -> bool {
        if matches!(arrived, Arrived::Gap { .. }) && self.queue.len() >= GAPS_MAX {
            return false;
        }
        self.queue.push_back(arrived);
        self.readers.wake(wakers);
        true
    }

    /// The oldest; `None` when it is closed and empty.
    pub(crate) fn poll_next(&mut self) -> Poll<Option<Arrived>> {
        match self.queue.pop_front() {
            None if !self.is_closed => Poll::Pending,
            polled => Poll::Ready(polled),
        }
    }

    /// Those who wait for one.
    pub(crate) fn readers(&mut self) -> &mut Waiting {
        &mut self.readers
    }

    pub(crate) fn close(&mut self, wakers: &mut Wakers) {
        self.is_closed = true;
        self.readers.wake(wakers);
    }
}
