//! The items of a streamed request on their way in: to the one handler that reads them.
//!
//! They come over one connection, so in order. Credit runs a window ahead of what the handler has
//! read. A task may always have
//! [`Limits::unscheduled_bytes`](crate::limits::Limits::unscheduled_bytes) that it has not read;
//! what goes beyond that is paid for from the share of its peer, and without room there the window
//! stays that small.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::flow::{
    AHEAD_BYTES, AHEAD_ITEMS, Assembly, IN_BUFFERS_MAX, Piece, PieceFault, cost, kept,
};
use crate::mutant::{self, Mutant};
use crate::wire::{Item, ItemKind, ReplyKind};

/// Reason why the items of a request ended before their last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemsFailure {
    /// The task was stopped, or has ended otherwise.
    #[error("the task that the items were for has ended")]
    Ended,
    /// The connection that they came over has ended.
    #[error("the connection that the items came over has ended")]
    Lost,
    /// The caller sent more than it was granted.
    #[error(
        "the caller sent more items than it was granted: unscheduled_bytes must be the same at \
         both ends"
    )]
    Overrun,
    /// The caller's frames do not fit together.
    #[error("the caller's items do not fit together")]
    Malformed,
    /// The caller sent an item above the limit.
    #[error("the caller sent an item of {size} bytes, and message_bytes_max is {limit}")]
    TooLarge {
        /// The item, as the caller announces it.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The caller's peer has its share of `waiting_item_bytes_max`, and an item needs more, or more
    /// than 256 wait.
    #[error(
        "too many items, or bytes of items, wait to be read: their peer has its share of \
         waiting_item_bytes_max"
    )]
    NoRoom,
}

/// An item of a request, or that it was the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextItem {
    /// The next item.
    Item(Bytes),
    /// There are no others.
    End,
}

/// Memory of an item that waits, besides its bytes.
const ITEM_BYTES: usize = 64;

/// Items of one task that may wait without being paid for.
const FREE_ITEMS: usize = 256;

/// The items of one request.
#[derive(Debug)]
pub(crate) struct Intake {
    assembly: Assembly,
    waiting: VecDeque<Bytes>,
    unscheduled: u64,
    window: u64,
    message_max: u64,
    /// Reason why none follow those that wait; `Ok` when the caller has finished.
    end: Option<Result<(), ItemsFailure>>,
    /// The handler reads no further items.
    is_dropped: bool,
    /// The handler waits for an item, or the end.
    is_waiting: bool,
    /// Bytes taken from its peer's share.
    paid: usize,
}

impl Intake {
    pub(crate) fn new(unscheduled: u64, window: u64, message_max: u64) -> Self {
        Self {
            assembly: Assembly::new(unscheduled, true),
            waiting: VecDeque::new(),
            unscheduled,
            window,
            message_max,
            end: None,
            is_dropped: false,
            is_waiting: false,
            paid: 0,
        }
    }

    /// Takes a frame, and its payload out of it, unless of that a copy is kept.
    pub(crate) fn accept(&mut self, item: &mut Item) {
        if self.end.is_some() || self.is_dropped {
            return;
        }
        let kind = match item.kind {
            ItemKind::Item { seq, is_last } => ReplyKind::Item { seq, is_last },
            ItemKind::End { count } => ReplyKind::End { count },
        };
        let part = item.part;
        let payload = match part {
            Some(_) => item.payload.clone(),
            None if self.waiting.len() >= IN_BUFFERS_MAX => kept(item.payload.clone()),
            None => std::mem::take(&mut item.payload),
        };
        let piece = Piece { kind, part, extensions: Vec::new(), payload };
        match self.assembly.accept(piece, self.message_max) {
            Ok(accepted) => {
                self.waiting.extend(accepted.messages.into_iter().map(|whole| whole.payload));
                // One connection keeps their order.
                let is_end = matches!(item.kind, ItemKind::End { .. });
                let is_early = is_end && (!accepted.is_whole || self.assembly.unfinished() > 0);
                if is_early || self.assembly.has_gap() {
                    self.fail(ItemsFailure::Malformed);
                } else if accepted.is_whole {
                    self.end = Some(Ok(()));
                }
            }
            Err(fault) => self.fail(match fault {
                PieceFault::Overrun => ItemsFailure::Overrun,
                PieceFault::Malformed => ItemsFailure::Malformed,
                PieceFault::TooLarge { size, limit } => ItemsFailure::TooLarge { size, limit },
            }),
        }
    }

    /// No others follow those that wait.
    pub(crate) fn fail(&mut self, why: ItemsFailure) {
        let end = match why {
            ItemsFailure::Lost if mutant::is(Mutant::LostItemsAreComplete) => Ok(()),
            why => Err(why),
        };
        self.end.get_or_insert(end);
    }

    /// The next item, and small ones behind it in `ahead`. Without one, the handler is told once
    /// there is.
    pub(crate) fn poll(
        &mut self,
        ahead: Option<&mut VecDeque<Bytes>>,
    ) -> Result<Option<NextItem>, ItemsFailure> {
        if let Some(item) = self.take(usize::MAX) {
            let (mut items, mut room) = (ahead, AHEAD_BYTES);
            while let Some(ahead) = items.as_mut().filter(|ahead| ahead.len() < AHEAD_ITEMS)
                && let Some(item) = self.take(room)
            {
                room -= item.len();
                ahead.push_back(item);
            }
            return Ok(Some(NextItem::Item(item)));
        }
        self.is_waiting = self.end.is_none();
        self.end.map_or(Ok(None), |end| end.map(|()| Some(NextItem::End)))
    }

    /// The item that has waited longest, if it has no more bytes.
    fn take(&mut self, bytes_max: usize) -> Option<Bytes> {
        self.waiting.front().filter(|item| item.len() <= bytes_max)?;
        let item = self.waiting.pop_front()?;
        self.assembly.consume(cost(item.len()));
        Some(item)
    }

    /// The handler reads no further items. Gives those that wait.
    pub(crate) fn drop_items(&mut self) -> VecDeque<Bytes> {
        self.is_dropped = true;
        self.is_waiting = false;
        let items = std::mem::take(&mut self.waiting);
        items.iter().for_each(|item| self.assembly.consume(cost(item.len())));
        items
    }

    /// True once when the handler waits no longer for nothing.
    pub(crate) fn take_news(&mut self) -> bool {
        let has_news = self.is_waiting && (!self.waiting.is_empty() || self.end.is_some());
        self.is_waiting &= !has_news;
        has_news
    }

    /// True while items are to come and somebody reads them.
    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none() && !self.is_dropped
    }

    /// Raises the limit, with `has_room` beyond what every task may have. The new one; nothing when
    /// it does not rise. An item that can never come fails the rest, and so do, without room, more
    /// that wait than every task may have: no credit holds back small ones.
    pub(crate) fn grant(&mut self, has_room: bool) -> Option<u64> {
        if !self.is_open() || mutant::is(Mutant::ItemsWithoutGrants) {
            return None;
        }
        if !has_room && self.waiting.len() > FREE_ITEMS {
            self.fail(ItemsFailure::NoRoom);
            return None;
        }
        let wants = self.assembly.wants(self.window).most();
        if wants == 0 {
            return None;
        }
        let floor = self.assembly.read() + self.unscheduled;
        let wanted = self.assembly.limit() + wants;
        let limit = if has_room { wanted } else { wanted.min(floor) };
        let is_small_step = limit < self.assembly.limit() + self.unscheduled / 2;
        if !has_room && is_small_step && !self.waiting.is_empty() {
            return None; // It would be one for each item that is read.
        }
        let is_raised = self.assembly.raise(limit);
        if !is_raised && self.assembly.outstanding() == 0 && self.waiting.is_empty() {
            self.fail(ItemsFailure::NoRoom);
        }
        is_raised.then_some(limit)
    }

    /// Bytes that are to be paid for: what may come or waits, beyond what every task may have.
    pub(crate) fn due(&self) -> usize {
        let bytes = if self.is_open() { self.assembly.granted() } else { self.assembly.unread() };
        let items = self.waiting.len().saturating_sub(FREE_ITEMS) * ITEM_BYTES;
        usize::try_from(bytes.saturating_sub(self.unscheduled)).unwrap_or(usize::MAX) + items
    }

    /// True when the caller has finished.
    pub(crate) fn is_complete(&self) -> bool {
        self.end == Some(Ok(()))
    }

    /// Bytes that are paid.
    pub(crate) fn paid(&self) -> usize {
        self.paid
    }

    /// Notes what is paid. Returns what was.
    pub(crate) fn pay(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.paid, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::tests::Buffers;

    #[test]
    fn items_of_a_slow_reader_keep_few_of_the_buffers_that_they_came_in() {
        let (buffers, mut intake) = (Buffers::default(), Intake::new(16 << 10, 256 << 10, 1 << 20));
        for seq in 0..1_000 {
            let kind = ItemKind::Item { seq, is_last: false };
            intake.accept(&mut Item { kind, part: None, payload: buffers.slice(10) });
        }
        assert_eq!((intake.waiting.len(), buffers.count()), (1_000, IN_BUFFERS_MAX));
    }
}
