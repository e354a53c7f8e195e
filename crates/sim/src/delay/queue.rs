//! One lane of a delayed connection, without I/O: frames, when they are due, and their bound.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use convoke_transport::Lane;

/// Bytes that a frame counts beyond its own, so that frames without content are bounded too.
const FRAME_OVERHEAD_BYTES: usize = 16;

/// The soft bounds. With the data lane's, 2 ms of delay still carry 2 GB/s, more than loopback TCP
/// does.
const CONTROL_BYTES_SOFT: usize = 512 << 10;
const DATA_BYTES_SOFT: usize = 4 << 20;

/// Frames in the order they were appended: first those that are flowing, then those not yet
/// flushed.
#[derive(Debug)]
pub(crate) struct DelayQueue {
    flowing: VecDeque<(Instant, Bytes)>,
    unflushed: Vec<Bytes>,
    bytes: usize,
    soft: usize,
    hard: usize,
}

impl DelayQueue {
    /// A lane to a peer that takes frames of up to so many bytes.
    pub(crate) fn new(lane: Lane, frame_bytes_max: usize) -> Self {
        let soft = match lane {
            Lane::Control => CONTROL_BYTES_SOFT,
            Lane::Data => DATA_BYTES_SOFT,
        };
        // A writable lane takes any frame.
        let hard = soft.saturating_add(cost(frame_bytes_max)).max(2 * soft);
        Self { flowing: VecDeque::new(), unflushed: Vec::new(), bytes: 0, soft, hard }
    }

    /// True when a frame of `len` bytes is taken.
    pub(crate) fn has_room_for(&self, len: usize) -> bool {
        self.bytes.saturating_add(cost(len)) <= self.hard
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.bytes < self.soft
    }

    pub(crate) fn append(&mut self, frame: Bytes) {
        self.bytes += cost(frame.len());
        self.unflushed.push(frame);
    }

    /// Lets what was appended flow, and answers how many frames that are.
    pub(crate) fn flush(&mut self, due: Instant) -> usize {
        let count = self.unflushed.len();
        self.flowing.extend(self.unflushed.drain(..).map(|frame| (due, frame)));
        count
    }

    /// The first frame, once it is due.
    pub(crate) fn due(&self, now: Instant) -> Option<&Bytes> {
        self.flowing.front().filter(|(due, _)| *due <= now).map(|(_, frame)| frame)
    }

    /// Takes the first frame out.
    pub(crate) fn advance(&mut self) {
        if let Some((_, frame)) = self.flowing.pop_front() {
            self.bytes -= cost(frame.len());
        }
    }

    /// True when nothing is flowing or waits for a flush.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Drops what was not flushed.
    pub(crate) fn drop_unflushed(&mut self) {
        self.bytes -= self.unflushed.drain(..).map(|frame| cost(frame.len())).sum::<usize>();
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.flowing.clear();
        self.unflushed.clear();
        self.bytes = 0;
    }
}

fn cost(len: usize) -> usize {
    len.saturating_add(FRAME_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_order_and_not_before_they_are_due() {
        let mut queue = DelayQueue::new(Lane::Data, 1_000);
        let (now, later) = (Instant::now(), Instant::now() + std::time::Duration::from_secs(1));
        queue.append(Bytes::from_static(b"one"));
        assert_eq!(queue.due(later), None, "it was not flushed");
        assert_eq!(queue.flush(now), 1);
        queue.append(Bytes::from_static(b"two"));
        assert_eq!(queue.flush(later), 1);
        assert_eq!(queue.due(now).unwrap(), "one");
        queue.advance();
        assert_eq!(queue.due(now), None);
        assert_eq!(queue.due(later).unwrap(), "two");
        queue.advance();
        assert!(queue.is_empty());
    }

    #[test]
    fn a_writable_lane_takes_the_largest_frame_and_then_is_bounded() {
        for lane in [Lane::Control, Lane::Data] {
            let frame = Bytes::from(vec![0; 3 << 20]);
            let mut queue = DelayQueue::new(lane, frame.len());
            while queue.is_writable() {
                assert!(queue.has_room_for(frame.len()));
                queue.append(frame.clone());
            }
            while queue.has_room_for(0) {
                queue.append(Bytes::new());
            }
            assert!(queue.bytes <= queue.hard);
            queue.drop_unflushed();
            assert!(queue.is_empty());
        }
    }
}
