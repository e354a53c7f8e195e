//! Bytes that go to the network next.
//!
//! A batch holds whole chunks only. It is written to its end before the next one is composed, so a
//! partial write never needs to know where chunks begin.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Most slices of one vectored write. A batch rarely has more than a head and a body per chunk.
pub const SLICES_MAX: usize = 32;

/// Bytes on their way to the socket, in order.
#[derive(Debug, Default)]
pub struct Batch {
    parts: VecDeque<Part>,
}

/// Number of frames that are complete once its bytes are out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Frames of a lane.
    pub frames: u64,
    /// The transport's own.
    pub transport_frames: u64,
}

#[derive(Debug)]
struct Part {
    bytes: Bytes,
    completes: Completed,
}

impl Batch {
    /// Adds bytes that complete `completes` when written.
    pub fn push(&mut self, bytes: Bytes, completes: Completed) {
        debug_assert!(!bytes.is_empty(), "an empty part would never be advanced over");
        self.parts.push_back(Part { bytes, completes });
    }

    /// Takes `count` written bytes off the front.
    ///
    /// # Panics
    /// When it has fewer.
    pub fn advance(&mut self, mut count: usize) -> Completed {
        let mut completed = Completed::default();
        while count > 0 {
            let part = self.parts.front_mut().expect("not more was written than there was");
            let written = count.min(part.bytes.len());
            part.bytes.advance(written);
            count -= written;
            if part.bytes.is_empty() {
                completed.frames += part.completes.frames;
                completed.transport_frames += part.completes.transport_frames;
                self.parts.pop_front();
            }
        }
        completed
    }

    /// Takes all of it, as one message.
    pub fn take(&mut self) -> (impl Iterator<Item = Bytes>, Completed) {
        let completed = self.parts.iter().fold(Completed::default(), |sum, part| Completed {
            frames: sum.frames + part.completes.frames,
            transport_frames: sum.transport_frames + part.completes.transport_frames,
        });
        (self.parts.drain(..).map(|part| part.bytes), completed)
    }

    /// True when all of it is written.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The bytes, where all of them are one part.
    pub fn sole(&self) -> Option<&[u8]> {
        let sole = self.parts.front().filter(|_| self.parts.len() == 1)?;
        Some(&sole.bytes)
    }

    /// Points `slices` at the front; answers how many it used.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let used = self.parts.len().min(SLICES_MAX);
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(&part.bytes);
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: u64) -> Completed {
        Completed { frames, transport_frames: 0 }
    }

    #[test]
    fn frames_count_when_their_last_byte_is_out() {
        let mut batch = Batch::default();
        batch.push(Bytes::from_static(b"abc"), frames(2));
        batch.push(Bytes::from_static(b"de"), frames(0));
        batch.push(Bytes::from_static(b"f"), frames(1));
        assert_eq!(batch.advance(2), frames(0));
        assert_eq!(batch.advance(2), frames(2));
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        assert_eq!(batch.slices(&mut slices), 2);
        assert_eq!((&*slices[0], &*slices[1], batch.sole()), (&b"e"[..], &b"f"[..], None));
        assert_eq!((batch.advance(1), batch.sole()), (frames(0), Some(&b"f"[..])));
        assert_eq!(batch.advance(1), frames(1));
        assert!(batch.is_empty() && batch.sole().is_none());
        batch.push(Bytes::from_static(b"gh"), frames(1));
        batch.push(Bytes::from_static(b"i"), Completed { frames: 0, transport_frames: 1 });
        let (bytes, completed) = batch.take();
        assert_eq!(bytes.collect::<Vec<_>>(), ["gh", "i"]);
        assert_eq!(completed, Completed { frames: 1, transport_frames: 1 });
    }
}
