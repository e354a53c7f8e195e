//! Replies on their way into a call: pieces put together, stream items put in order, credit granted.
//!
//! A message of at most the unscheduled bytes passes straight through. Anything longer, and every
//! stream, has an `Assembly` until it is whole. Credit for messages goes first to the one with the
//! fewest bytes left (Homa's order), streams get a window ahead of what the application has read.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

use crate::id::Path;
use crate::wire::{Extension, Part, Reply, ReplyKind};

use super::flow::{Overrun, Piece, ReceiveWindow};
use super::limits::Limits;

/// One reply of one branch.
pub type ReplyName = (Path, u32);

/// What a frame brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Messages that are whole now, in order.
    pub messages: Vec<Whole>,
    /// Nothing of this reply is outstanding any more.
    pub is_whole: bool,
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

/// A reply that breaks the rules: the sender's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxFault {
    /// More than was granted.
    Overrun,
    /// Pieces that do not fit together.
    Malformed,
    /// More than this root branch may have of what the call holds.
    OverShare,
    /// A message above the limit.
    TooLarge {
        /// The message, as its sender announces it.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl From<Overrun> for InboxFault {
    fn from(_: Overrun) -> Self {
        Self::Overrun
    }
}

/// What a message takes besides its bytes.
const MESSAGE_BYTES: u64 = 128;

/// What an extension takes besides its bytes.
const EXTENSION_BYTES: u64 = 64;

/// The replies of one call that are not whole or not read.
#[derive(Debug)]
pub struct Inbox {
    assemblies: BTreeMap<ReplyName, Assembly>,
    /// Replies that were given up half-way: what still comes of them is not wanted.
    forgotten: BTreeSet<ReplyName>,
    unread: u64,
    /// Messages whole and unread.
    unread_count: u64,
    /// Bytes gathered of messages that are not whole.
    gathered: u64,
    /// Bytes of extensions, of messages unread and not whole.
    beside: u64,
    /// What each root branch has of all this, where there are several.
    of_root: BTreeMap<u32, u64>,
    root_count: usize,
    limits: InboxLimits,
    credits: Vec<(ReplyName, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct InboxLimits {
    unscheduled: u64,
    stream_window: u64,
    total: u64,
    message: u64,
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
    /// Pieces that came before their turn; bounded by the window.
    early: BTreeMap<(u64, u64), Piece>,
    /// Extensions of the message in hand, and bytes of these and of those that came early.
    extensions: Vec<Extension>,
    beside: u64,
}

impl Inbox {
    /// An inbox of a call of so many root branches, with these bounds.
    pub fn new(root_count: usize, limits: &Limits) -> Self {
        let limits = InboxLimits {
            unscheduled: limits.unscheduled_bytes,
            stream_window: limits.stream_window_bytes,
            total: limits.reply_bytes_max,
            message: limits.message_bytes_max as u64,
        };
        Self {
            assemblies: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            unread: 0,
            unread_count: 0,
            gathered: 0,
            beside: 0,
            of_root: BTreeMap::new(),
            root_count,
            limits,
            credits: Vec::new(),
        }
    }

    /// Takes a frame of a reply that is not whole yet.
    ///
    /// # Errors
    /// [`InboxFault`] when the sender broke a rule.
    pub fn accept(&mut self, path: &Path, reply: &Reply) -> Result<Accepted, InboxFault> {
        let root = root_of(path);
        let of_root = self.of_root.get(&root).copied().unwrap_or(0);
        if self.root_count > 1 && of_root >= self.limits.total.saturating_sub(self.held()) {
            return Err(InboxFault::OverShare);
        }
        self.counted(root, |inbox| inbox.take(path, reply))
    }

    /// Counts what `act` changes for a root branch.
    fn counted<T>(&mut self, root: u32, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.held();
        let result = act(self);
        if self.root_count > 1 {
            let after = self.held();
            let of_root = self.of_root.entry(root).or_default();
            *of_root = (*of_root + after).saturating_sub(before);
        }
        result
    }

    /// Bytes kept, with what each message takes besides.
    fn held(&self) -> u64 {
        let count = self.unread_count + (self.assemblies.len() + self.forgotten.len()) as u64;
        self.unread + self.gathered + self.beside + count * MESSAGE_BYTES
    }

    fn take(&mut self, path: &Path, reply: &Reply) -> Result<Accepted, InboxFault> {
        let is_simple = reply.kind == ReplyKind::Message && reply.part.is_none();
        if is_simple {
            ReceiveWindow::new(self.limits.unscheduled).receive(reply.payload.len())?;
            self.unread += reply.payload.len() as u64;
            self.unread_count += 1;
            self.beside += cost_of(&reply.extensions);
            let (extensions, payload) = (reply.extensions.clone(), reply.payload.clone());
            let messages = vec![Whole { item: None, extensions, payload }];
            return Ok(Accepted { messages, is_whole: true });
        }
        let name = (path.clone(), reply.index);
        if self.forgotten.contains(&name) {
            return Ok(Accepted::default());
        }
        let (unscheduled, message_max) = (self.limits.unscheduled, self.limits.message);
        let is_stream = reply.kind != ReplyKind::Message;
        let assembly = self
            .assemblies
            .entry(name.clone())
            .or_insert_with(|| Assembly::new(unscheduled, is_stream));
        if assembly.is_stream != is_stream {
            return Err(InboxFault::Malformed);
        }
        let (before, beside_before) = (assembly.unfinished(), assembly.beside);
        let Reply { kind, part, ref extensions, ref payload, .. } = *reply;
        let (extensions, payload) = (extensions.clone(), payload.clone());
        let accepted = assembly.accept(Piece { kind, part, extensions, payload }, message_max);
        self.gathered = self.gathered + assembly.unfinished() - before;
        self.beside = self.beside + assembly.beside - beside_before;
        let accepted = accepted?;
        self.unread_count += accepted.messages.len() as u64;
        for message in &accepted.messages {
            self.unread += message.payload.len() as u64;
            self.beside += cost_of(&message.extensions);
        }
        if accepted.is_whole {
            self.remove(&name);
        }
        self.grant();
        Ok(accepted)
    }

    /// The application has read `len` bytes of a reply, with these extensions.
    pub fn consume(&mut self, path: &Path, index: u32, len: usize, extensions: &[Extension]) {
        self.counted(root_of(path), |inbox| {
            inbox.unread -= len as u64;
            inbox.unread_count -= 1;
            inbox.beside -= cost_of(extensions);
        });
        if let Some(assembly) = self.assemblies.get_mut(&(path.clone(), index)) {
            assembly.consume(super::flow::cost(len));
        }
        self.grant();
    }

    /// Gives up the replies of a branch that are not whole.
    pub fn forget(&mut self, path: &Path) {
        let of_branch = self.assemblies.keys().filter(|(of, _)| of == path);
        for name in of_branch.cloned().collect::<Vec<_>>() {
            self.counted(root_of(path), |inbox| {
                inbox.remove(&name);
                inbox.forgotten.insert(name);
            });
        }
        self.grant();
    }

    fn remove(&mut self, name: &ReplyName) {
        if let Some(assembly) = self.assemblies.remove(name) {
            self.gathered -= assembly.unfinished();
            self.beside -= assembly.beside;
        }
    }

    /// Whether the call holds more than it may: what came without being granted is bounded by this alone.
    /// Messages are bounded in number, too, for an empty one takes memory, and what comes beside them in
    /// bytes; each apart from the bytes of messages, so that what was granted always fits.
    pub fn is_over(&self) -> bool {
        let count = self.unread_count + (self.assemblies.len() + self.forgotten.len()) as u64;
        let held = [self.unread + self.gathered, self.beside, count * MESSAGE_BYTES];
        held.into_iter().any(|bytes| bytes > self.limits.total)
    }

    /// Grants to send, as totals, in order.
    pub fn poll_credit(&mut self) -> Option<(ReplyName, u64)> {
        if self.credits.is_empty() { None } else { Some(self.credits.remove(0)) }
    }

    /// Bytes whole and unread.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Bytes unread, gathered and granted: what the call may come to hold.
    pub fn committed(&self) -> u64 {
        let held = |assembly: &Assembly| assembly.window.outstanding() + assembly.held();
        self.unread + self.assemblies.values().map(held).sum::<u64>()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.assemblies.is_empty() && self.unread == 0
    }

    /// Whether a reply may get no further before what is unread has been read.
    pub fn is_starved(&self) -> bool {
        if self.unread >= self.limits.stream_window / 2 {
            return true; // All of one stream, for what is known here.
        }
        let waits = |assembly: &Assembly| {
            assembly.outstanding() == 0 || assembly.wants(self.limits.stream_window).is_some()
        };
        self.unread_count > 0 && self.assemblies.values().any(waits)
    }

    fn grant(&mut self) {
        if self.assemblies.is_empty() {
            return;
        }
        let mut free = self.limits.total.saturating_sub(self.committed());
        let mut order: Vec<(u64, ReplyName)> = self
            .assemblies
            .iter()
            .filter_map(|(name, a)| Some((a.wants(self.limits.stream_window)?, name.clone())))
            .collect();
        order.sort_unstable();
        for (want, name) in order {
            let grant = want.min(free);
            if grant == 0 {
                return;
            }
            free -= grant;
            let assembly = self.assemblies.get_mut(&name).expect("names come from the map");
            let limit = assembly.window.limit() + grant;
            assembly.window.raise(limit);
            self.credits.push((name, limit));
        }
    }
}

/// Bytes that extensions take.
fn cost_of(extensions: &[Extension]) -> u64 {
    extensions.iter().map(|extension| extension.value.len() as u64 + EXTENSION_BYTES).sum()
}

/// The root branch that a branch is below.
fn root_of(path: &Path) -> u32 {
    path.indices().next().unwrap_or(0)
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
        self.window.received().saturating_sub(self.whole)
    }

    fn held(&self) -> u64 {
        let early: usize = self.early.values().map(|piece| piece.payload.len()).sum();
        (self.gathered.len() + early) as u64
    }

    /// Bytes it should be granted now, `None` when it needs none. A message is granted whole. A stream
    /// is granted a window ahead of what was read, and the whole of an item that is larger. It is
    /// topped up once half of that is used and half was read, or all: short streams cost no CREDIT,
    /// and slow readers do not send one for each item.
    pub(crate) fn wants(&self, stream_window: u64) -> Option<u64> {
        let target = match self.is_stream {
            false => self.total.unwrap_or(0),
            true if self.window.received() < self.unscheduled / 2 => 0,
            true => (self.read + stream_window).max(self.whole + self.total.unwrap_or(0)),
        };
        let want = target.saturating_sub(self.window.limit());
        let is_worth_it = want >= stream_window / 2 || self.unread() == 0;
        let is_low = self.window.outstanding() <= stream_window / 2 && is_worth_it;
        ((is_low || !self.is_stream) && want > 0).then_some(want)
    }

    pub(crate) fn accept(
        &mut self,
        mut piece: Piece,
        message_max: u64,
    ) -> Result<Accepted, InboxFault> {
        let (item, end) = match piece.kind {
            ReplyKind::Message => (0, None),
            ReplyKind::Item { seq, is_last } => (seq, is_last.then_some(seq)),
            ReplyKind::End { count } => {
                let last = count.checked_sub(1);
                return self.end(count, last);
            }
        };
        let place = (item, piece.part.map_or(0, |part| part.offset));
        if place < (self.next_item, self.next_offset) || self.early.contains_key(&place) {
            return Ok(Accepted::default());
        }
        let len = piece.payload.len();
        let total = piece.part.map_or(len as u64, |part| part.total);
        if total > message_max {
            return Err(InboxFault::TooLarge { size: total, limit: message_max });
        }
        if self.last_item.is_some_and(|last| item > last) {
            return Err(InboxFault::Malformed);
        }
        self.window.receive(len)?;
        if let Some(last) = end {
            self.last_item = Some(last);
        }
        if item == self.next_item {
            self.total = Some(total);
        }
        if place.1 > 0 {
            piece.extensions = Vec::new(); // Those of a later piece are for nobody.
        }
        self.beside += cost_of(&piece.extensions);
        self.early.insert(place, piece);
        self.advance()
    }

    fn end(&mut self, count: u64, last: Option<u64>) -> Result<Accepted, InboxFault> {
        if count < self.next_item {
            return Err(InboxFault::Malformed);
        }
        self.last_item = last.or(self.last_item);
        Ok(Accepted { messages: Vec::new(), is_whole: count == self.next_item })
    }

    /// Takes what is next in order.
    fn advance(&mut self) -> Result<Accepted, InboxFault> {
        let mut accepted = Accepted::default();
        while let Some(mut piece) = self.early.remove(&(self.next_item, self.next_offset)) {
            self.extensions.append(&mut piece.extensions);
            let Some(payload) = self.gather(piece.part, piece.payload)? else { continue };
            self.whole += super::flow::cost(payload.len());
            self.total = None;
            let extensions = std::mem::take(&mut self.extensions);
            self.beside -= cost_of(&extensions);
            let item = self.is_stream.then_some(self.next_item);
            accepted.messages.push(Whole { item, extensions, payload });
            (self.next_item, self.next_offset) = (self.next_item + 1, 0);
        }
        let is_last = |last: u64| self.next_item > last;
        accepted.is_whole =
            if self.is_stream { self.last_item.is_some_and(is_last) } else { self.next_item > 0 };
        Ok(accepted)
    }

    /// Adds a piece to the message in hand; the message once it is whole.
    fn gather(&mut self, part: Option<Part>, bytes: Bytes) -> Result<Option<Bytes>, InboxFault> {
        let Some(part) = part else {
            let fits = self.gathered.is_empty();
            return if fits { Ok(Some(bytes)) } else { Err(InboxFault::Malformed) };
        };
        // A piece that came early was not asked for its total then.
        self.total = Some(part.total);
        self.gathered.extend_from_slice(&bytes);
        self.next_offset = self.gathered.len() as u64;
        let is_whole = self.next_offset == part.total;
        Ok(is_whole.then(|| self.gathered.split().freeze()))
    }
}

#[cfg(test)]
mod tests;
