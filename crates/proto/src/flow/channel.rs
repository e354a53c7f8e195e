//! A message, a stream or the items of a request on their way out, within the credit that was
//! granted.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::wire::{Part, ReplyKind};

use super::{Piece, SendWindow};

/// Pieces of one of them that wait, and how far the first has left.
#[derive(Debug)]
pub(crate) struct Channel {
    window: SendWindow,
    next_item: u64,
    queue: VecDeque<Piece>,
    /// Bytes of the first in the queue that have left.
    offset: u64,
}

/// Largest piece of a message, so that those of one connection share it.
const PART_BYTES_MAX: u64 = 256 << 10;

impl Channel {
    pub(crate) fn new(unscheduled: u64) -> Self {
        let window = SendWindow::new(unscheduled);
        Self { window, next_item: 0, queue: VecDeque::new(), offset: 0 }
    }

    /// True when nothing waits and a part of an item at least could leave, after `held` bytes of
    /// others.
    pub(crate) fn has_credit(&self, held: u64) -> bool {
        self.queue.is_empty() && self.window.available() > held
    }

    /// True when it can leave in one frame now.
    pub(crate) fn can_send_whole(&self, piece: &Piece) -> bool {
        self.queue.is_empty() && piece.cost() <= self.window.available()
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
    pub(crate) fn push(&mut self, piece: Piece) {
        self.queue.push_back(piece);
    }

    /// Ends the stream, on its last item if that has not left.
    pub(crate) fn finish(&mut self) {
        if !self.queue.back_mut().is_some_and(Piece::mark_last) {
            self.push(Piece::whole(self.end(), Vec::new(), Bytes::new()));
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

    /// Drops what waits.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.offset = 0;
    }

    /// The next frame that has credit.
    pub(crate) fn poll(&mut self) -> Option<Piece> {
        let first = self.queue.front_mut()?;
        let available = self.window.available();
        if self.offset == 0 && first.cost() <= available {
            let whole = self.queue.pop_front()?;
            if whole.cost() > 0 {
                self.window.send(whole.payload.len());
            }
            return Some(whole);
        }
        if available == 0 || first.payload.is_empty() {
            return None;
        }
        let total = first.payload.len() as u64;
        let len = available.min(total - self.offset).min(PART_BYTES_MAX);
        let range = self.offset..self.offset + len;
        let at = |byte: u64| usize::try_from(byte).expect("it is within the payload");
        let piece = Piece {
            kind: first.kind,
            part: Some(Part { offset: self.offset, total }),
            extensions: std::mem::take(&mut first.extensions),
            payload: first.payload.slice(at(range.start)..at(range.end)),
        };
        self.window.send(piece.payload.len());
        self.offset = range.end;
        if self.offset == total {
            self.queue.pop_front();
            self.offset = 0;
        }
        Some(piece)
    }
}
