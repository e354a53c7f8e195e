//! Frames that are encoded in place by a writer that may panic.

use bytes::{BufMut, BytesMut};

use crate::Fill;

/// A frame being encoded. Taken back when its writer panics, so that half a frame is never sent.
struct Unfinished<'a> {
    buffer: &'a mut BytesMut,
    start: usize,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.buffer.truncate(self.start);
    }
}

/// Appends a frame: `word`, then `len` bytes, which `write` fills. When that panics, nothing is
/// appended.
pub fn put_written(buffer: &mut BytesMut, word: &[u8], len: usize, write: Fill<'_>) {
    let mut frame = Unfinished { start: buffer.len(), buffer };
    frame.buffer.put_slice(word);
    let begin = frame.buffer.len();
    frame.buffer.put_bytes(0, len);
    write(&mut frame.buffer[begin..]);
    frame.start = frame.buffer.len();
}
