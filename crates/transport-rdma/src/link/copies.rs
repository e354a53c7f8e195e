//! Memory that small frames are copied to.

use bytes::{Bytes, BytesMut};

/// Bytes allocated at once for copies. A frame that is held keeps all of it, so not more.
const BLOCK_BYTES: usize = 32 * 1024;

/// A buffer that gives out slices and takes its memory back when all of them are dropped, so that
/// in the steady state a copy allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    block: BytesMut,
}

impl Copies {
    /// A copy of `bytes`.
    // Always: one of its two callers takes every small frame that comes alone.
    #[inline(always)]
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > BLOCK_BYTES / 4 {
            return Bytes::copy_from_slice(bytes);
        }
        if self.block.capacity() < bytes.len() {
            self.block.reserve(BLOCK_BYTES);
        }
        self.block.extend_from_slice(bytes);
        self.block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_are_dropped_give_their_memory_to_the_next() {
        let mut copies = Copies::default();
        let first = copies.copy(&[1; 100]).as_ptr();
        let mut is_reused = false;
        for _ in 0..10 * BLOCK_BYTES / 100 {
            is_reused |= copies.copy(&[2; 100]).as_ptr() == first;
        }
        assert!(is_reused);
    }

    #[test]
    fn a_copy_that_is_held_keeps_its_bytes() {
        let mut copies = Copies::default();
        let held: Vec<Bytes> = (0..=255).map(|at| copies.copy(&[at; 700])).collect();
        assert!((0..=255).zip(&held).all(|(at, bytes)| bytes[..] == [at; 700]));
    }
}
