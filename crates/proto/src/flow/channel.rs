//! A message, a stream or the items of a request on their way out, within the credit that was
//! granted.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::wire::{Part, ReplyKind};

use super::{Piece, SendWindow};

/// Pieces of one of them that wait, and how far the first has left.
#[derive(Debug)]
pub(crate) struct Channel {
    window: SendWindow,
    next_item: u64,
    /// Messages that have left as a whole.
    left: u64,
    queue: VecDeque<Piece<Encoded>>,
    /// Bytes of the first in the queue that have left.
    offset: u64,
}

/// Largest piece of a message, so that those of one connection share it.
const PART_BYTES_MAX: u64 = 256 << 10;

/// Times its own size that a piece may keep in memory: parts of messages up to 2 MiB are slices.
const KEPT_TIMES_MAX: usize = 8;

impl Channel {
    pub(crate) fn new(unscheduled: u64) -> Self {
        let window = SendWindow::new(unscheduled);
        Self { window, next_item: 0, left: 0, queue: VecDeque::new(), offset: 0 }
    }

    /// Bytes that could leave at once: none while something waits.
    pub(crate) fn credit(&self) -> u64 {
        if self.queue.is_empty() { self.window.available() } else { 0 }
    }

    /// True when it can leave in one frame now.
    pub(crate) fn can_send_whole(&self, piece: &Piece<Encoded>) -> bool {
        self.queue.is_empty() && piece.cost() <= self.window.available()
    }

    /// True when all that waits can leave, and a piece behind it.
    pub(crate) fn has_credit_for_all(&self, behind: Option<&Piece<Encoded>>) -> bool {
        let pieces = self.queue.iter().chain(behind);
        pieces.map(Piece::cost).sum::<u64>() <= self.window.available() + self.offset
    }

    /// Counts a piece that leaves in one frame, as it can.
    pub(crate) fn send_whole(&mut self, piece: &Piece<Encoded>) {
        if piece.cost() > 0 {
            self.window.send(piece.payload.len());
            self.left += 1;
        }
    }

    /// The next item of the stream.
    pub(crate) fn next_item(&mut self) -> ReplyKind {
        self.next_item += 1;
        ReplyKind::Item { seq: self.next_item - 1, is_last: false }
    }

    /// The end of the stream, behind its last item.
    pub(crate) fn end(&self) -> ReplyKind {
        ReplyKind::End { count: self.next_item }
    }

    /// Queues a message, an item or an end for as much credit as it needs.
    pub(crate) fn push(&mut self, piece: Piece<Encoded>) {
        self.queue.push_back(piece);
    }

    /// Ends the stream on its last item. False when that has left.
    pub(crate) fn mark_last(&mut self) -> bool {
        self.queue.back_mut().is_some_and(Piece::mark_last)
    }

    /// Ends the stream, on its last item if that has not left.
    pub(crate) fn finish(&mut self) {
        if !self.mark_last() {
            self.push(Piece::whole(self.end(), Vec::new(), Encoded::default()));
        }
    }

    /// Takes a grant. True when it was news.
    pub(crate) fn grant(&mut self, limit: u64) -> bool {
        self.window.grant(limit)
    }

    /// True when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of the messages that wait, or parts of which do.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.queue.iter().map(|piece| piece.payload.len() as u64).sum()
    }

    /// Lets go of what waits.
    pub(crate) fn clear(&mut self, let_go: &mut dyn FnMut(Encoded)) {
        self.queue.drain(..).for_each(|piece| let_go(piece.payload));
        self.offset = 0;
    }

    /// True when something waits that has credit.
    pub(crate) fn has_granted(&self) -> bool {
        let available = self.window.available();
        self.queue.front().is_some_and(|first| {
            let is_whole = self.offset == 0 && first.cost() <= available;
            is_whole || (available > 0 && !first.payload.is_empty())
        })
    }

    /// The next frame that has credit. Lets go of a message that has left in parts, unless the last
    /// of these is of its memory, and so goes later.
    pub(crate) fn poll(&mut self, let_go: &mut dyn FnMut(Encoded)) -> Option<Piece<Encoded>> {
        let first = self.queue.front_mut()?;
        let available = self.window.available();
        if self.offset == 0 && first.cost() <= available {
            let whole = self.queue.pop_front()?;
            self.send_whole(&whole);
            return Some(whole);
        }
        if available == 0 || first.payload.is_empty() {
            return None;
        }
        let total = first.payload.len() as u64;
        let len = available.min(total - self.offset).min(PART_BYTES_MAX);
        let piece = Piece {
            kind: first.kind,
            part: Some(Part { offset: self.offset, total }),
            extensions: std::mem::take(&mut first.extensions),
            payload: part_of(&first.payload, at(self.offset)..at(self.offset + len)),
        };
        self.window.send(piece.payload.len());
        self.offset += len;
        if self.offset == total {
            let is_copy = piece.payload.as_ptr() != first.payload[at(self.offset - len)..].as_ptr();
            let whole = self.queue.pop_front().filter(|_| is_copy);
            whole.into_iter().for_each(|whole| let_go(whole.payload));
            self.offset = 0;
            self.left += 1;
        }
        Some(piece)
    }

    /// A piece without bytes at the place of the next one, which says that all before has left.
    /// `None` while nothing has.
    pub(crate) fn mark(&self) -> Option<Piece<Encoded>> {
        if (self.left, self.offset) == (0, 0) {
            return None;
        }
        let first = self.queue.front().filter(|_| self.offset > 0);
        let kind = match first.map(|first| first.kind) {
            Some(ReplyKind::Message) => ReplyKind::Message,
            _ => ReplyKind::Item { seq: self.left, is_last: false },
        };
        let total = first.map_or(0, |first| first.payload.len() as u64);
        let part = Some(Part { offset: self.offset, total });
        Some(Piece { kind, part, extensions: Vec::new(), payload: Encoded::default() })
    }
}

fn at(byte: u64) -> usize {
    usize::try_from(byte).expect("it is within the payload")
}

/// Bytes of a message for one piece. A slice keeps the whole message for as long as it waits in a
/// send buffer, which counts the slice alone; so a small one is a copy.
pub(crate) fn part_of(message: &Encoded, range: Range<usize>) -> Encoded {
    match message.as_shared() {
        Some(message) if range.len() >= message.len() / KEPT_TIMES_MAX => message.slice(range),
        _ => Bytes::copy_from_slice(&message[range]),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Message that is known to be in memory by the number of references to its mark.
    struct Marked {
        bytes: Vec<u8>,
        _mark: Arc<()>,
    }

    impl AsRef<[u8]> for Marked {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    /// However a receiver grants, and whichever pieces wait for it to read: they keep no more
    /// memory than a few times their own size.
    #[test]
    fn a_piece_keeps_little_more_than_itself() {
        for total in [20_000, 100_000, 1 << 20, 4 << 20] {
            for step in [1_000, 16 << 10, 100_000, 256 << 10, 1 << 20] {
                for kept in 0..8 {
                    let mark = Arc::new(());
                    let marked = Marked { bytes: vec![7; total], _mark: mark.clone() };
                    let message = Bytes::from_owner(marked);
                    let mut channel = Channel::new(16 << 10);
                    channel.push(Piece::whole(ReplyKind::Message, Vec::new(), message.into()));
                    let mut limit = 16 << 10;
                    let mut pieces = std::iter::from_fn(|| {
                        limit += step;
                        channel.poll(&mut drop).or_else(|| {
                            channel.grant(limit);
                            channel.poll(&mut drop)
                        })
                    });
                    let Some(piece) = pieces.nth(kept) else { continue };
                    drop(channel);
                    let keeps_all = Arc::strong_count(&mark) > 1;
                    let len = piece.payload.len();
                    assert!(!keeps_all || len * 8 >= total, "{len} of {total} by {step}");
                }
            }
        }
    }
}
