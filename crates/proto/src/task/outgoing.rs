//! The replies of one task on their way out, within the credit the initiator has granted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::wire::{Entry, Extension, Part, Reply, ReplyKind, Sealed};

use super::super::flow::{Piece, SendWindow, cost};

/// A message, or an item of a stream, before it is sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) index: u32,
    kind: ReplyKind,
    /// Fields beside it, which its first frame carries.
    extensions: Vec<Extension>,
    payload: Bytes,
}

impl Item {
    /// Makes it the last of its stream, if it is an item.
    pub(super) fn mark_last(&mut self) -> bool {
        match &mut self.kind {
            ReplyKind::Item { is_last, .. } => {
                *is_last = true;
                true
            }
            ReplyKind::Message | ReplyKind::End { .. } => false,
        }
    }

    fn cost(&self) -> u64 {
        match self.kind {
            ReplyKind::End { .. } => 0,
            ReplyKind::Message | ReplyKind::Item { .. } => cost(self.payload.len()),
        }
    }
}

/// A stream, or a message that waits for credit.
#[derive(Debug)]
pub(crate) struct Channel {
    window: SendWindow,
    next_item: u64,
    queue: VecDeque<Item>,
    /// Bytes of the first item in the queue that have left.
    offset: u64,
}

/// The replies of one task that are not sent wholly.
#[derive(Debug)]
pub(super) struct Outgoing {
    unscheduled: u64,
    reply_count: u32,
    /// Streams, and messages that wait for credit.
    channels: BTreeMap<u32, Channel>,
    open_streams: BTreeSet<u32>,
}

/// Largest piece of a message, so that replies of one task share the connection.
const PART_BYTES_MAX: u64 = 256 << 10;

impl Outgoing {
    pub(super) fn new(unscheduled: u64) -> Self {
        Self {
            unscheduled,
            reply_count: 0,
            channels: BTreeMap::new(),
            open_streams: BTreeSet::new(),
        }
    }

    /// Replies begun, which are also the names of the next ones.
    pub(super) fn reply_count(&self) -> u32 {
        self.reply_count
    }

    pub(super) fn message(&mut self, extensions: Vec<Extension>, payload: Bytes) -> Item {
        let index = self.next_index();
        Item { index, kind: ReplyKind::Message, extensions, payload }
    }

    pub(super) fn open_stream(&mut self) -> u32 {
        let index = self.next_index();
        self.channels.insert(index, Channel::new(self.unscheduled));
        self.open_streams.insert(index);
        index
    }

    pub(super) fn is_stream_open(&self, index: u32) -> bool {
        self.open_streams.contains(&index)
    }

    /// A stream that nobody has ended.
    pub(super) fn first_open_stream(&self) -> Option<u32> {
        self.open_streams.first().copied()
    }

    /// No further items come.
    pub(super) fn close_stream(&mut self, index: u32) {
        self.open_streams.remove(&index);
    }

    pub(super) fn item(&mut self, index: u32, extensions: Vec<Extension>, payload: Bytes) -> Item {
        let channel = self.channels.get_mut(&index);
        let seq = channel.map_or(0, |channel| {
            channel.next_item += 1;
            channel.next_item - 1
        });
        Item { index, kind: ReplyKind::Item { seq, is_last: false }, extensions, payload }
    }

    pub(super) fn end(&mut self, index: u32) -> Item {
        let count = self.channels.get(&index).map_or(0, |channel| channel.next_item);
        let (extensions, payload) = (Vec::new(), Bytes::new());
        Item { index, kind: ReplyKind::End { count }, extensions, payload }
    }

    /// Whether another item could leave. `holds_one`: an item of this stream is held and uses credit.
    pub(super) fn has_credit(&self, index: u32, holds_one: bool) -> bool {
        self.channels.get(&index).is_none_or(|channel| {
            channel.queue.is_empty() && channel.window.available() > u64::from(holds_one)
        })
    }

    /// Whether it can leave in one frame now.
    pub(super) fn can_leave_whole(&self, item: &Item) -> bool {
        match self.channels.get(&item.index) {
            Some(channel) => channel.queue.is_empty() && item.cost() <= channel.window.available(),
            None => item.cost() <= self.unscheduled,
        }
    }

    /// Sends an item that can leave whole, with what rides on it.
    pub(super) fn take_whole(
        &mut self,
        item: Item,
        is_final: bool,
        own_entry: Option<Box<Entry>>,
        inherited: Vec<Sealed>,
    ) -> Reply {
        self.channels.remove(&item.index);
        let Item { index, kind, extensions, payload } = item;
        Reply { index, kind, part: None, is_final, own_entry, inherited, extensions, payload }
    }

    /// Queues an item for as much credit as it needs.
    pub(super) fn push(&mut self, item: Item) {
        let unscheduled = self.unscheduled;
        let channel = self.channels.entry(item.index).or_insert_with(|| Channel::new(unscheduled));
        channel.queue.push_back(item);
    }

    pub(super) fn grant(&mut self, index: u32, limit: u64) -> bool {
        self.channels.get_mut(&index).is_some_and(|channel| channel.grant(limit))
    }

    /// The next frame that has credit.
    pub(super) fn poll_reply(&mut self) -> Option<Reply> {
        let sent = self.channels.iter_mut().find_map(|(index, channel)| {
            let piece = channel.poll()?;
            let is_over = channel.queue.is_empty() && ends_reply(&piece);
            Some((*index, is_over, piece))
        });
        let (index, is_over, Piece { kind, part, extensions, payload }) = sent?;
        if is_over {
            self.channels.remove(&index);
        }
        Some(Reply { kind, index, part, is_final: false, extensions, ..Reply::sole(payload) })
    }

    /// Whether nothing waits for credit.
    pub(super) fn is_empty(&self) -> bool {
        self.channels.values().all(|channel| channel.queue.is_empty())
    }

    pub(super) fn clear(&mut self) {
        self.open_streams.clear();
        self.channels.clear();
    }

    fn next_index(&mut self) -> u32 {
        self.reply_count += 1;
        self.reply_count - 1
    }
}

fn ends_reply(piece: &Piece) -> bool {
    let is_whole =
        piece.part.is_none_or(|part| part.offset + piece.payload.len() as u64 == part.total);
    let is_last = !matches!(piece.kind, ReplyKind::Item { is_last: false, .. });
    is_whole && is_last
}

impl Channel {
    pub(crate) fn new(unscheduled: u64) -> Self {
        let window = SendWindow::new(unscheduled);
        Self { window, next_item: 0, queue: VecDeque::new(), offset: 0 }
    }

    /// True when nothing waits and a part of an item at least could leave.
    pub(crate) fn has_credit(&self) -> bool {
        self.queue.is_empty() && self.window.available() > 0
    }

    /// Queues the next item of a stream.
    pub(crate) fn append(&mut self, payload: Bytes) {
        let kind = ReplyKind::Item { seq: self.next_item, is_last: false };
        self.next_item += 1;
        self.queue.push_back(Item { index: 0, kind, extensions: Vec::new(), payload });
    }

    /// Ends a stream, on its last item if that has not left.
    pub(crate) fn end(&mut self) {
        if !self.queue.back_mut().is_some_and(Item::mark_last) {
            let kind = ReplyKind::End { count: self.next_item };
            let (extensions, payload) = (Vec::new(), Bytes::new());
            self.queue.push_back(Item { index: 0, kind, extensions, payload });
        }
    }

    /// Takes a grant. True when it was news.
    pub(crate) fn grant(&mut self, limit: u64) -> bool {
        self.window.grant(limit)
    }

    /// Drops what waits.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.offset = 0;
    }

    /// The next frame that has credit.
    pub(crate) fn poll(&mut self) -> Option<Piece> {
        let item = self.queue.front_mut()?;
        let available = self.window.available();
        let is_whole = self.offset == 0 && item.cost() <= available;
        if !is_whole && (available == 0 || item.payload.is_empty()) {
            return None;
        }
        let extensions = std::mem::take(&mut item.extensions);
        let (kind, payload) = (item.kind, item.payload.clone());
        let piece = Piece { kind, part: None, extensions, payload };
        if is_whole {
            let item = self.queue.pop_front().expect("it was just looked at");
            if item.cost() > 0 {
                self.window.send(item.payload.len());
            }
            return Some(piece);
        }
        Some(self.take_part(piece, available))
    }

    fn take_part(&mut self, mut piece: Piece, available: u64) -> Piece {
        let total = piece.payload.len() as u64;
        let len = available.min(total - self.offset).min(PART_BYTES_MAX);
        let range = self.offset..self.offset + len;
        let at = |byte: u64| usize::try_from(byte).expect("it is within the payload");
        piece.payload = piece.payload.slice(at(range.start)..at(range.end));
        piece.part = Some(Part { offset: self.offset, total });
        self.window.send(piece.payload.len());
        self.offset = range.end;
        if self.offset == total {
            self.queue.pop_front();
            self.offset = 0;
        }
        piece
    }
}
