//! The head of a frame, written once.

use super::Out;
use crate::wire::Head;

/// Bytes written once and copied to where they leave from; the usual head of a frame needs no
/// allocation.
pub(crate) struct Scratch {
    inline: [u8; SCRATCH_BYTES],
    len: usize,
    spilled: Vec<u8>,
}

const SCRATCH_BYTES: usize = 96;

impl Scratch {
    pub(in crate::wire) fn new() -> Self {
        Self { inline: [0; SCRATCH_BYTES], len: 0, spilled: Vec::new() }
    }

    pub(in crate::wire) fn as_bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.inline[..self.len] } else { &self.spilled }
    }

    /// The head that was written.
    #[inline]
    pub(crate) fn head(&self) -> Head<'_> {
        Head::new(self.as_bytes())
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline[..self.len]);
            self.len = SCRATCH_BYTES; // Nothing fits any more.
        }
        self.spilled.extend_from_slice(bytes);
    }
}

impl Out for Scratch {
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(to) = self.inline.get_mut(self.len..self.len + bytes.len()) {
            to.copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            self.spill(bytes);
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        match self.inline.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut) {
            Some(to) => {
                *to = bytes;
                self.len += N;
            }
            None => self.spill(&bytes),
        }
    }
}
