//! Encoded messages on their way out.
//!
//! Most are small and leave at once: copied into the buffer of a connection. Such a message lies in
//! a buffer of its thread, which the next one takes when it has left. What is large, or is kept, is
//! [`Bytes`] of its own.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// An encoded message on its way out.
#[derive(Clone)]
pub struct Encoded(Place);

#[derive(Clone)]
enum Place {
    Shared(Bytes),
    Buffer(Buffer),
}

/// Largest message that is encoded into a buffer of its thread. A larger one is worth memory of its
/// own, which no copy is made of.
const BUFFER_BYTES_MAX: usize = 1_024;

/// Buffers that a thread keeps: for the replies of a batch of requests, about.
const BUFFERS_MAX: usize = 128;

/// A buffer of the thread that drops it.
struct Buffer(Vec<u8>);

thread_local! {
    /// Empty ones.
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Encoded {
    /// The message of `len` bytes that `encode` appends to nothing.
    #[inline]
    pub fn new(len: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let is_small = len <= BUFFER_BYTES_MAX;
        let mut buffer = if is_small { Buffer::take() } else { Buffer(Vec::new()) };
        buffer.0.reserve_exact(len);
        encode(&mut buffer.0);
        if is_small { Self(Place::Buffer(buffer)) } else { Bytes::from(buffer.into_vec()).into() }
    }

    /// The message for who keeps it. One in a buffer of its thread is copied.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Place::Shared(bytes) => bytes,
            Place::Buffer(buffer) => Bytes::copy_from_slice(&buffer.0),
        }
    }

    /// Its bytes, where an owner may be called as they are dropped: they are in a buffer of that,
    /// or others have them, too.
    pub(crate) fn into_owned(self) -> Option<Bytes> {
        match self.0 {
            Place::Shared(bytes) => Some(bytes).filter(|it| !it.is_empty() && !it.is_unique()),
            Place::Buffer(_) => None,
        }
    }

    /// The bytes that others may hold, if it lies in such.
    pub fn as_shared(&self) -> Option<&Bytes> {
        match &self.0 {
            Place::Shared(bytes) => Some(bytes),
            Place::Buffer(_) => None,
        }
    }
}

impl Buffer {
    #[inline]
    fn take() -> Self {
        // None, where the thread ends.
        let kept = BUFFERS.try_with(|buffers| buffers.borrow_mut().pop());
        Self(kept.ok().flatten().unwrap_or_default())
    }

    fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::take();
        copy.0.extend_from_slice(&self.0);
        copy
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if (1..=2 * BUFFER_BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            let _ = BUFFERS.try_with(|buffers| {
                let mut buffers = buffers.borrow_mut();
                if buffers.len() < BUFFERS_MAX {
                    buffers.push(buffer);
                }
            });
        }
    }
}

impl Default for Encoded {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for Encoded {
    fn from(bytes: Bytes) -> Self {
        Self(Place::Shared(bytes))
    }
}

impl Deref for Encoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Shared(bytes) => bytes,
            Place::Buffer(buffer) => &buffer.0,
        }
    }
}

impl PartialEq for Encoded {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Encoded {}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn of(len: usize, byte: u8) -> Encoded {
        Encoded::new(len, |out| out.resize(out.len() + len, byte))
    }

    fn kept() -> usize {
        BUFFERS.with_borrow(Vec::len)
    }

    fn kept_bytes() -> usize {
        BUFFERS.with_borrow(|buffers| buffers.iter().map(Vec::capacity).sum())
    }

    #[test]
    fn a_message_is_what_was_encoded_wherever_it_lies() {
        for len in [0, 1, 100, BUFFER_BYTES_MAX, BUFFER_BYTES_MAX + 1, 1 << 20] {
            let (message, expected) = (of(len, 7), vec![7; len]);
            assert_eq!(message.as_shared().is_some(), len > BUFFER_BYTES_MAX);
            assert_eq!(message[..], expected);
            assert_eq!(message.clone()[..], expected, "a copy of {len} bytes");
            assert_eq!(message.into_bytes(), expected);
        }
    }

    #[test]
    fn the_next_message_takes_the_buffer_of_the_last() {
        let first = of(100, 1);
        let place = first.as_ptr();
        drop(first);
        let second = of(80, 2);
        assert_eq!((second.as_ptr(), &second[..]), (place, &[2; 80][..]));
        // One that still is there keeps its own.
        let third = of(80, 3);
        assert_eq!((&second[..], &third[..]), (&[2; 80][..], &[3; 80][..]));
    }

    #[test]
    fn a_thread_keeps_few_buffers_and_small_ones() {
        let messages: Vec<_> = (0..1_000).map(|_| of(BUFFER_BYTES_MAX, 4)).collect();
        drop(messages);
        assert_eq!(kept(), BUFFERS_MAX);
        assert!(kept_bytes() <= BUFFERS_MAX * BUFFER_BYTES_MAX, "{} bytes", kept_bytes());
        // Who says less than it encodes makes a large one, which is not kept.
        drop(Encoded::new(1, |out| out.resize(1 << 20, 5)));
        assert_eq!(kept(), BUFFERS_MAX - 1);
    }

    /// A message that panics while it is encoded harms no other.
    #[test]
    fn what_is_half_encoded_is_gone() {
        let before = of(10, 6);
        let panicking = std::panic::catch_unwind(|| {
            Encoded::new(10, |out| {
                out.extend_from_slice(b"half");
                panic!("of the message");
            })
        });
        assert!(panicking.is_err());
        assert_eq!((&before[..], &of(3, 8)[..]), (&[6; 10][..], &[8; 3][..]));
    }

    /// A value of a thread that holds a message until the thread ends.
    struct AtTheEnd(Option<Encoded>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            drop(self.0.take());
            assert_eq!(of(3, 9)[..], [9; 3]);
        }
    }

    thread_local! {
        static LAST: RefCell<AtTheEnd> = const { RefCell::new(AtTheEnd(None)) };
    }

    /// Buffers may be gone before the last message of a thread.
    #[test]
    fn messages_outlive_their_thread() {
        let message = Arc::new(of(50, 1));
        for ends_last in [false, true] {
            let moved = message.clone();
            let thread = std::thread::spawn(move || {
                // The values of a thread end in an order that depends on who was first.
                if ends_last {
                    LAST.with(|_| ());
                }
                LAST.set(AtTheEnd(Some(of(5, 2))));
                assert_eq!(moved[..], [1; 50]);
                of(60, 3)
            });
            assert_eq!(thread.join().unwrap()[..], [3; 60]);
            assert_eq!(message[..], [1; 50]);
        }
    }
}
