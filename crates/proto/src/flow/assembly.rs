//! A message, a stream or the items of a request as they come in: pieces put together, items put in
//! order, and how much more may come.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::wire::{Extension, Part, ReplyKind};

use super::{Overrun, Piece, ReceiveWindow, cost, kept};

/// Pieces that break the rules: their sender's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceFault {
    /// More than was granted.
    Overrun,
    /// Pieces that do not fit together.
    Malformed,
    /// A message above the limit.
    TooLarge {
        /// The message, as its sender announces it.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl From<Overrun> for PieceFault {
    fn from(_: Overrun) -> Self {
        Self::Overrun
    }
}

/// Result of taking a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Messages that are whole now, in order.
    pub messages: SmallVec<[Whole; 1]>,
    /// Nothing of this reply is outstanding any more.
    pub is_whole: bool,
    /// Something before this has not come.
    pub has_gap: bool,
}

/// A message that came wholly.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// Its number in a stream.
    pub item: Option<u64>,
    /// Fields beside it, metadata among them: those of its first frame.
    pub extensions: Vec<Extension>,
    /// Its bytes.
    pub payload: Bytes,
}

/// Bytes that a reply, or the items of a request, should be granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Rest of the message or item that has begun.
    pub(crate) rest: u64,
    /// Rest of the window ahead of what was read, if it is a stream.
    pub(crate) ahead: u64,
}

impl Wants {
    /// Bytes that bring it both.
    pub(crate) fn most(self) -> u64 {
        self.rest.max(self.ahead)
    }
}

/// A reply, or the items of a request, that are not whole.
#[derive(Debug)]
pub(crate) struct Assembly {
    window: ReceiveWindow,
    is_stream: bool,
    unscheduled: u64,
    /// Bytes of items that are whole, and of those that the application has read, as the window
    /// counts them.
    whole: u64,
    read: u64,
    next_item: u64,
    next_offset: u64,
    gathered: BytesMut,
    total: Option<u64>,
    last_item: Option<u64>,
    /// Pieces that came before their turn, and their lengths.
    early: BTreeMap<(u64, u64), (Piece, usize)>,
    /// Extensions of the message in hand, and bytes of these and of those that came early.
    extensions: Vec<Extension>,
    beside: u64,
    /// Counts and drops what comes, as nobody reads it.
    is_discarded: bool,
}

impl Assembly {
    pub(crate) fn new(unscheduled: u64, is_stream: bool) -> Self {
        Self {
            window: ReceiveWindow::new(unscheduled),
            is_stream,
            unscheduled,
            whole: 0,
            read: 0,
            next_item: 0,
            next_offset: 0,
            gathered: BytesMut::new(),
            total: None,
            last_item: None,
            early: BTreeMap::new(),
            extensions: Vec::new(),
            beside: 0,
            is_discarded: false,
        }
    }

    /// Drops what is here, and what comes as it comes. It counts as read, so that its sender goes
    /// on, and takes no room.
    pub(crate) fn discard(&mut self) {
        self.is_discarded = true;
        self.read = self.read.max(self.window.received());
        (self.gathered, self.extensions, self.beside) = (BytesMut::new(), Vec::new(), 0);
        for (piece, _) in self.early.values_mut() {
            (piece.payload, piece.extensions) = (Bytes::new(), Vec::new());
        }
    }

    /// The application has read a message of this cost.
    pub(crate) fn consume(&mut self, cost: u64) {
        self.read += cost;
    }

    /// Cost of what the application has read.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Cost of what is whole and unread. A liar may have had more read by the same name before.
    pub(crate) fn unread(&self) -> u64 {
        self.whole.saturating_sub(self.read)
    }

    /// Bytes of extensions whose message is not whole, and what pieces that came before their turn
    /// take besides their bytes: many may be of one byte each.
    pub(crate) fn beside(&self) -> u64 {
        self.beside + self.early.len() as u64 * PLACE_BYTES
    }

    /// True when nobody reads it, and so many pieces came before their turn that the one whose turn
    /// it is must be lost. The window does not bound them then, as they count as read.
    pub(crate) fn has_lost_piece(&self) -> bool {
        self.is_discarded && self.early.len() > EARLY_MAX
    }

    /// Counts what was granted and has not come as lost, and so as read. Its bytes, to be granted
    /// once more. For what is discarded.
    pub(crate) fn lose_granted(&mut self) -> u64 {
        let lost = self.coming();
        self.read += lost;
        lost
    }

    /// Bytes granted that may still come. Of what is discarded, those that came and those that were
    /// taken for lost are read; some of these may come all the same.
    fn coming(&self) -> u64 {
        match self.is_discarded {
            true => self.window.limit().saturating_sub(self.read),
            false => self.window.outstanding(),
        }
    }

    /// Bytes granted in all.
    pub(crate) fn limit(&self) -> u64 {
        self.window.limit()
    }

    /// Raises the limit. False when it is that high already.
    pub(crate) fn raise(&mut self, limit: u64) -> bool {
        self.window.raise(limit)
    }

    /// Bytes granted that are not here.
    pub(crate) fn outstanding(&self) -> u64 {
        self.window.outstanding()
    }

    /// Bytes that are unread, or not here and granted or kept to be, once it is granted so many
    /// more: as many ahead of what was read as it began with, or more.
    pub(crate) fn held_with(&self, grant: u64) -> u64 {
        if self.is_discarded {
            return 0;
        }
        (self.window.limit() + grant).saturating_sub(self.read).max(self.unscheduled)
    }

    /// Bytes that were kept for a stream and are to be granted now, though it should have more.
    pub(crate) fn least(&self) -> Option<u64> {
        let floor = self.read.saturating_add(self.unscheduled);
        let kept = floor.saturating_sub(self.window.limit());
        let is_low = self.window.outstanding() <= self.unscheduled / 2 && self.unread() == 0;
        (is_low && kept > 0).then_some(kept)
    }

    /// Bytes granted that the application has not read.
    pub(crate) fn granted(&self) -> u64 {
        self.window.limit() - self.read
    }

    /// True when something came before its turn.
    pub(crate) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Bytes that came and are not part of a whole message yet.
    pub(crate) fn unfinished(&self) -> u64 {
        match self.is_discarded {
            true => 0,
            false => self.window.received().saturating_sub(self.whole),
        }
    }

    /// Bytes it should be granted now. A message is granted whole. A stream is granted a window
    /// ahead of what was read, and the whole of an item that is larger. It is topped up once half
    /// of that is used and half was read, or all: short streams cost no CREDIT, and slow readers do
    /// not send one for each item.
    pub(crate) fn wants(&self, stream_window: u64) -> Wants {
        #[cfg(test)]
        ASKED.with(|asked| asked.set(asked.get() + 1));
        let beyond = |target: u64| target.saturating_sub(self.window.limit());
        let rest = beyond(self.whole + self.total.unwrap_or(0));
        if !self.is_stream {
            return Wants { rest, ahead: 0 };
        }
        let is_low = self.coming() <= stream_window / 2;
        if !is_low || self.window.received() < self.unscheduled / 2 {
            return Wants::default(); // As after most items.
        }
        let wants = Wants { rest, ahead: beyond(self.read.saturating_add(stream_window)) };
        let is_worth_it = wants.most() >= stream_window / 2 || self.unread() == 0;
        if is_worth_it { wants } else { Wants::default() }
    }

    pub(crate) fn accept(
        &mut self,
        mut piece: Piece,
        message_max: u64,
    ) -> Result<Accepted, PieceFault> {
        if self.is_stream == (piece.kind == ReplyKind::Message) {
            return Err(PieceFault::Malformed);
        }
        let (item, end) = match piece.kind {
            ReplyKind::Message => (0, None),
            ReplyKind::Item { seq, is_last } => (seq, is_last.then_some(seq)),
            ReplyKind::End { count } => {
                let last = count.checked_sub(1);
                return self.end(count, last);
            }
        };
        let place = (item, piece.part.map_or(0, |part| part.offset));
        if piece.part.is_some() && piece.payload.is_empty() {
            // All before it has left.
            let has_gap = place > (self.next_item, self.next_offset);
            return Ok(Accepted { has_gap, ..Accepted::default() });
        }
        if place < (self.next_item, self.next_offset) || self.early.contains_key(&place) {
            return Ok(Accepted::default());
        }
        let len = piece.payload.len();
        let total = piece.part.map_or(len as u64, |part| part.total);
        if total > message_max {
            return Err(PieceFault::TooLarge { size: total, limit: message_max });
        }
        if self.last_item.is_some_and(|last| item > last) {
            return Err(PieceFault::Malformed);
        }
        self.window.receive(len)?;
        if let Some(last) = end {
            self.last_item = Some(last);
        }
        if item == self.next_item {
            self.total = Some(total);
        }
        if place.1 > 0 || self.is_discarded {
            piece.extensions = Vec::new(); // Those of a later piece are for nobody.
        }
        if self.is_discarded {
            self.read += cost(len);
            piece.payload = Bytes::new();
        }
        self.beside += cost_of(&piece.extensions);
        if place == (self.next_item, self.next_offset) {
            return self.advance(piece, len);
        }
        piece.payload = kept(piece.payload);
        self.early.insert(place, (piece, len));
        Ok(Accepted { is_whole: self.is_whole(), ..Accepted::default() })
    }

    fn end(&mut self, count: u64, last: Option<u64>) -> Result<Accepted, PieceFault> {
        if count < self.next_item {
            return Err(PieceFault::Malformed);
        }
        self.last_item = last.or(self.last_item);
        let (is_whole, has_gap) = (count == self.next_item, count > self.next_item);
        Ok(Accepted { is_whole, has_gap, ..Accepted::default() })
    }

    /// Takes the piece that is next in order, and those that came early and follow it.
    fn advance(&mut self, piece: Piece, len: usize) -> Result<Accepted, PieceFault> {
        let mut accepted = Accepted::default();
        let mut next = Some((piece, len));
        while let Some((piece, len)) = next {
            if let Some(whole) = self.take(piece, len)? {
                accepted.messages.push(whole);
            }
            next = match self.early.is_empty() {
                true => None,
                false => self.early.remove(&(self.next_item, self.next_offset)),
            };
        }
        accepted.is_whole = self.is_whole();
        Ok(accepted)
    }

    /// Takes the piece that is next in order, of this length. The message, if that is whole now and
    /// anybody reads it.
    fn take(&mut self, mut piece: Piece, len: usize) -> Result<Option<Whole>, PieceFault> {
        if !piece.extensions.is_empty() {
            self.extensions.append(&mut piece.extensions);
        }
        let part = piece.part;
        let Some(payload) = self.gather(part, piece.payload, len)? else { return Ok(None) };
        self.whole += part.map_or(cost(len), |part| part.total);
        self.total = None;
        let extensions = std::mem::take(&mut self.extensions);
        self.beside -= cost_of(&extensions);
        let item = self.is_stream.then_some(self.next_item);
        (self.next_item, self.next_offset) = (self.next_item + 1, 0);
        Ok((!self.is_discarded).then_some(Whole { item, extensions, payload }))
    }

    /// True when nothing of it is to come.
    fn is_whole(&self) -> bool {
        let is_last = |last: u64| self.next_item > last;
        if self.is_stream { self.last_item.is_some_and(is_last) } else { self.next_item > 0 }
    }

    /// Adds a piece of this length to the message in hand; the message once it is whole.
    fn gather(
        &mut self,
        part: Option<Part>,
        bytes: Bytes,
        len: usize,
    ) -> Result<Option<Bytes>, PieceFault> {
        let Some(part) = part else {
            let fits = self.next_offset == 0;
            return if fits { Ok(Some(bytes)) } else { Err(PieceFault::Malformed) };
        };
        // A piece that came early was not asked for its total then.
        self.total = Some(part.total);
        self.gathered.extend_from_slice(&bytes);
        self.next_offset += len as u64;
        let is_whole = self.next_offset == part.total;
        Ok(is_whole.then(|| self.gathered.split().freeze()))
    }
}

/// Pieces of a discarded reply that may come before their turn.
const EARLY_MAX: usize = 4_096;

/// Bytes that a piece takes that came before its turn, besides its own, about.
const PLACE_BYTES: u64 = 128;

/// Bytes that an extension takes besides its own.
const EXTENSION_BYTES: u64 = 64;

/// Bytes that extensions take.
pub(crate) fn cost_of(extensions: &[Extension]) -> u64 {
    extensions.iter().map(|extension| extension.value.len() as u64 + EXTENSION_BYTES).sum()
}

#[cfg(test)]
thread_local! {
    /// Number of times that a reply was asked what it wants.
    pub(crate) static ASKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
