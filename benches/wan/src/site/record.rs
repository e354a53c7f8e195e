//! Contents of an operation, and counts of those that come.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::clock::now_ns;
use crate::protocol::{Measured, Window};

/// Begin of an operation: its run, its source, and when it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) run: u32,
    pub(crate) source: u16,
    /// Whenever there was room for it.
    pub(crate) offered_ns: u64,
}

/// Length of a [`Head`].
pub(crate) const HEAD_BYTES: usize = 14;

impl Head {
    /// An operation of `len` bytes, at least [`HEAD_BYTES`].
    pub(crate) fn payload(self, len: usize) -> Bytes {
        let mut payload = vec![0x5a; len];
        payload[..4].copy_from_slice(&self.run.to_le_bytes());
        payload[4..6].copy_from_slice(&self.source.to_le_bytes());
        payload[6..HEAD_BYTES].copy_from_slice(&self.offered_ns.to_le_bytes());
        payload.into()
    }

    pub(crate) fn of(payload: &[u8]) -> Option<Self> {
        let (run, rest) = payload.split_first_chunk()?;
        let (source, rest) = rest.split_first_chunk()?;
        Some(Self {
            run: u32::from_le_bytes(*run),
            source: u16::from_le_bytes(*source),
            offered_ns: u64::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

/// Counts what comes within the window of a run.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    counting: Mutex<Option<Counting>>,
}

#[derive(Debug)]
struct Counting {
    run: u32,
    from_ns: u64,
    until_ns: u64,
    bytes: u64,
    sum_us: u64,
    latencies_us: BTreeMap<u64, u64>,
    came: BTreeMap<u16, u64>,
}

impl Recorder {
    /// Counts for this window from now on.
    pub(crate) fn begin(&self, window: &Window) {
        *self.counting.lock() = Some(Counting {
            run: window.run,
            from_ns: window.from_ns,
            until_ns: window.until_ns,
            bytes: 0,
            sum_us: 0,
            latencies_us: BTreeMap::new(),
            came: BTreeMap::new(),
        });
    }

    /// An operation has come.
    pub(crate) fn delivered(&self, payload: &[u8]) {
        let Some(head) = Head::of(payload) else { return };
        let now = now_ns();
        if let Some(counting) = self.counting.lock().as_mut() {
            counting.add(now, head, payload.len() as u64);
        }
    }

    /// Ends the count and returns it.
    pub(crate) fn end(&self) -> Measured {
        let Some(counting) = self.counting.lock().take() else { return Measured::default() };
        Measured {
            received_bytes: counting.bytes,
            latency_sum_us: counting.sum_us,
            latencies_us: counting.latencies_us.into_iter().collect(),
            came: counting.came,
            held_back: 0,
        }
    }
}

impl Counting {
    fn add(&mut self, now: u64, head: Head, bytes: u64) {
        if head.run != self.run || now >= self.until_ns {
            return;
        }
        *self.came.entry(head.source).or_default() += 1;
        if now < self.from_ns {
            return;
        }
        let us = now.saturating_sub(head.offered_ns) / 1_000;
        self.bytes += bytes;
        self.sum_us += us;
        *self.latencies_us.entry(rounded(us)).or_default() += 1;
    }
}

/// Rounded up to seven binary digits: less than 1.6 % too much, and few different values.
fn rounded(us: u64) -> u64 {
    let digits = u64::BITS - us.leading_zeros();
    let dropped = digits.saturating_sub(7);
    (us + (1 << dropped) - 1) >> dropped << dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Form;

    #[test]
    fn rounding_adds_at_most_a_few_percent() {
        assert_eq!([0, 1, 127, 128, 129, 255].map(rounded), [0, 1, 127, 128, 130, 256]);
        for us in (1..10_000_000).step_by(997) {
            assert!(rounded(us) >= us && (rounded(us) - us) * 64 <= us);
        }
    }

    #[test]
    fn only_operations_of_the_run_and_its_window_count() {
        let window = Window {
            run: 7,
            form: Form::Direct,
            demand: 1,
            op_bytes: 100,
            start_ns: 0,
            from_ns: 1_000_000,
            until_ns: 2_000_000,
        };
        let recorder = Recorder::default();
        recorder.begin(&window);
        let add = |now, run| {
            let mut counting = recorder.counting.lock();
            let head = Head { run, source: 3, offered_ns: 500_000 };
            counting.as_mut().expect("it began").add(now, head, 100);
        };
        for now in [999_999, 1_000_000, 1_500_000, 2_000_000] {
            add(now, 7);
        }
        add(1_500_000, 6);
        let measured = recorder.end();
        assert_eq!((measured.received_bytes, measured.latency_sum_us), (200, 500 + 1_000));
        assert_eq!(measured.latencies_us, [(500, 1), (1_000, 1)]);
        assert_eq!(measured.came, BTreeMap::from([(3, 3)]), "before the window, too");
    }

    #[test]
    fn a_head_comes_back_from_its_payload() {
        let head = Head { run: 3, source: 8, offered_ns: 1 << 40 };
        assert_eq!(Head::of(&head.payload(HEAD_BYTES)), Some(head));
        assert_eq!(Head::of(&[0; HEAD_BYTES - 1]), None);
    }
}
