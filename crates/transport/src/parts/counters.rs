//! Traffic while it is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Counters;

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
    /// Counts a read of so many bytes.
    pub fn read(&self, bytes: usize) {
        self.reads.add(1);
        self.bytes_received.add(bytes as u64);
    }

    /// Counts a write of so many bytes.
    pub fn wrote(&self, bytes: usize) {
        self.writes.add(1);
        self.bytes_sent.add(bytes as u64);
    }

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
