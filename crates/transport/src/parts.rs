//! Parts that every transport needs in the same form: tasks that wait for a connection, its
//! traffic, and the share of connections and send buffers that one peer may take.

mod seats;
mod send_pool;

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use crate::Counters;

pub use seats::{NoSeat, Seat, Seats};
pub use send_pool::{SendPool, SendShare};

/// Tasks waiting for the same thing; one entry per task.
#[derive(Debug, Default)]
pub struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds the task, unless it waits already.
    pub fn register(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    /// True when no task waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over the tasks of `other`.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        if !other.0.is_empty() {
            self.0.append(&mut other.0);
        }
    }

    /// Wakes them all. To be called without any lock: a waker may run anything.
    #[inline]
    pub fn wake(self) {
        if !self.0.is_empty() {
            self.0.into_iter().for_each(Waker::wake);
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<T: IntoIterator<Item = Waker>>(&mut self, wakers: T) {
        self.0.extend(wakers);
    }
}

/// A number that only grows, shared by the tasks of a connection.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it; nothing costs nothing.
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Its present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// [`Counters`] while they are counted.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of `Counters`")]
pub struct LiveCounters {
    pub frames_sent: Count,
    pub frames_received: Count,
    pub bytes_sent: Count,
    pub bytes_received: Count,
    pub writes: Count,
    pub reads: Count,
    pub transport_frames_sent: Count,
}

impl LiveCounters {
    /// Their present values.
    pub fn snapshot(&self) -> Counters {
        Counters {
            frames_sent: self.frames_sent.get(),
            frames_received: self.frames_received.get(),
            bytes_sent: self.bytes_sent.get(),
            bytes_received: self.bytes_received.get(),
            writes: self.writes.get(),
            reads: self.reads.get(),
            transport_frames_sent: self.transport_frames_sent.get(),
        }
    }
}
