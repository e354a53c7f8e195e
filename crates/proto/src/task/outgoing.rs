//! The replies of one task on their way out, within the credit the initiator has granted.

use std::collections::{BTreeMap, BTreeSet};

use crate::encoded::Encoded;
use crate::flow::{Channel, Piece};
use crate::wire::{Extension, Reply, ReplyKind};

/// A message, or an item of a stream, before it is sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) index: u32,
    pub(super) piece: Piece<Encoded>,
}

/// The replies of one task that are not sent wholly.
#[derive(Debug)]
pub(super) struct Outgoing {
    unscheduled: u64,
    reply_count: u32,
    /// Streams, and messages that wait for credit.
    channels: BTreeMap<u32, Channel>,
    /// Bytes of messages in them of which some have not left: a part keeps all of its message.
    waiting_bytes: u64,
    open_streams: BTreeSet<u32>,
    /// The connection that they take has room.
    pub(super) has_room: bool,
}

impl Outgoing {
    pub(super) fn new(unscheduled: u64) -> Self {
        Self {
            unscheduled,
            reply_count: 0,
            channels: BTreeMap::new(),
            waiting_bytes: 0,
            open_streams: BTreeSet::new(),
            has_room: true,
        }
    }

    /// Replies begun, which are also the names of the next ones.
    pub(super) fn reply_count(&self) -> u32 {
        self.reply_count
    }

    pub(super) fn message(&mut self, extensions: Vec<Extension>, payload: Encoded) -> Item {
        let piece = Piece::whole(ReplyKind::Message, extensions, payload);
        Item { index: self.next_index(), piece }
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

    pub(super) fn item(
        &mut self,
        index: u32,
        extensions: Vec<Extension>,
        payload: Encoded,
    ) -> Item {
        let first = ReplyKind::Item { seq: 0, is_last: false };
        let kind = self.channels.get_mut(&index).map_or(first, Channel::next_item);
        Item { index, piece: Piece::whole(kind, extensions, payload) }
    }

    /// Ends a stream on its last item, if that waits as a whole.
    pub(super) fn mark_last(&mut self, index: u32) -> bool {
        self.channels.get_mut(&index).is_some_and(Channel::mark_last)
    }

    pub(super) fn end(&mut self, index: u32) -> Item {
        let empty = ReplyKind::End { count: 0 };
        let kind = self.channels.get(&index).map_or(empty, Channel::end);
        Item { index, piece: Piece::whole(kind, Vec::new(), Encoded::default()) }
    }

    /// Bytes of further items that could leave at once.
    pub(super) fn credit(&self, index: u32) -> u64 {
        self.channels.get(&index).map_or(self.unscheduled, Channel::credit)
    }

    /// True when it can leave in one frame now.
    pub(super) fn can_leave_whole(&self, item: &Item) -> bool {
        self.has_room
            && match self.channels.get(&item.index) {
                Some(channel) => channel.can_send_whole(&item.piece),
                None => Channel::new(self.unscheduled).can_send_whole(&item.piece),
            }
    }

    /// True when it can be the last that its task says, with what rides on it: it can leave now, or
    /// once there is room, as all before it can.
    pub(super) fn can_be_last(&self, item: &Item) -> bool {
        let with = |index: &u32| (*index == item.index).then_some(&item.piece);
        let all_but_room = || {
            let is_new = !self.channels.contains_key(&item.index);
            let mut before = self.channels.iter();
            before.all(|(index, channel)| channel.has_credit_for_all(with(index)))
                && (!is_new || item.piece.cost() <= self.unscheduled)
        };
        self.can_leave_whole(item) || (!self.has_room && all_but_room())
    }

    /// Sends an item that can leave whole, and is not the last that its task says: its message is
    /// beside the reply.
    pub(super) fn send_whole(&mut self, item: Item) -> (Reply, Encoded) {
        let Item { index, mut piece } = item;
        if let Some(channel) = self.channels.get_mut(&index) {
            channel.send_whole(&piece);
            if piece.is_end() {
                self.channels.remove(&index);
            }
        }
        let payload = std::mem::take(&mut piece.payload);
        (reply_of(index, piece), payload)
    }

    /// An item that is to wait.
    pub(super) fn kept(&self, item: Item, let_go: &mut dyn FnMut(Encoded)) -> Item {
        Item { piece: item.piece.kept(self.unscheduled, let_go), ..item }
    }

    /// Queues an item for as much credit as it needs.
    pub(super) fn push(&mut self, item: Item, let_go: &mut dyn FnMut(Encoded)) {
        let (item, unscheduled) = (self.kept(item, let_go), self.unscheduled);
        let channel = self.channels.entry(item.index).or_insert_with(|| Channel::new(unscheduled));
        self.waiting_bytes += item.piece.payload.len() as u64;
        channel.push(item.piece);
    }

    pub(super) fn grant(&mut self, index: u32, limit: u64) -> bool {
        self.channels.get_mut(&index).is_some_and(|channel| channel.grant(limit))
    }

    /// Lets go of what waits of a reply, and takes no further items of it.
    pub(super) fn drop_reply(&mut self, index: u32, let_go: &mut dyn FnMut(Encoded)) {
        self.open_streams.remove(&index);
        if let Some(mut channel) = self.channels.remove(&index) {
            self.waiting_bytes -= channel.waiting_bytes();
            channel.clear(let_go);
        }
    }

    /// True when something waits that has credit.
    pub(super) fn has_granted(&self) -> bool {
        self.channels.values().any(Channel::has_granted)
    }

    /// The next frame that has credit.
    pub(super) fn poll_reply(&mut self, let_go: &mut dyn FnMut(Encoded)) -> Option<Reply> {
        let sent = self.channels.iter_mut().find_map(|(index, channel)| {
            let piece = channel.poll(let_go)?;
            let is_over = channel.is_empty() && piece.is_end();
            Some((*index, is_over, piece))
        });
        let (index, is_over, piece) = sent?;
        self.waiting_bytes -= piece.whole_bytes_left();
        if is_over {
            self.channels.remove(&index);
        }
        Some(reply_of(index, piece))
    }

    /// Replies that are not sent wholly, each as far as it has left: the first 256.
    pub(super) fn marks(&self) -> Vec<Reply> {
        let marks = self.channels.iter();
        let marks = marks.filter_map(|(index, channel)| Some(reply_of(*index, channel.mark()?)));
        marks.take(256).collect()
    }

    /// Bytes of messages that wait for credit, or parts of which do.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// True when nothing waits for credit.
    pub(super) fn is_empty(&self) -> bool {
        self.channels.values().all(Channel::is_empty)
    }

    pub(super) fn clear(&mut self, let_go: &mut dyn FnMut(Encoded)) {
        self.open_streams.clear();
        self.channels.values_mut().for_each(|channel| channel.clear(let_go));
        self.channels.clear();
        self.waiting_bytes = 0;
    }

    fn next_index(&mut self) -> u32 {
        self.reply_count += 1;
        self.reply_count - 1
    }
}

/// A reply with this piece and nothing else to say.
pub(super) fn reply_of(index: u32, piece: Piece<Encoded>) -> Reply {
    let Piece { kind, part, extensions, payload } = piece;
    Reply { kind, index, part, is_final: false, extensions, ..Reply::sole(payload.into_bytes()) }
}
