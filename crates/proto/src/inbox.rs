//! Replies on their way into a call: pieces put together, stream items put in order, credit
//! granted.
//!
//! A message of at most the unscheduled bytes passes straight through. Anything longer, and every
//! stream, has an `Assembly` until it is whole. Credit for messages goes first to the one with the
//! fewest bytes left (Homa's order), streams get a window ahead of what the application has read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::id::Path;
use crate::wire::{Extension, Reply, ReplyKind};

use super::flow::{
    Accepted, Assembly, IN_BUFFERS_MAX, Piece, PieceFault, ReceiveWindow, Whole, cost_of, kept,
};
use super::limits::Limits;

/// One reply of one branch.
pub type ReplyName = (Path, u32);

/// A message that was read: of which reply, its bytes, and what came beside them.
pub type Read<'a> = (&'a Path, u32, usize, &'a [Extension]);

/// A reply that breaks the rules: the sender's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxFault {
    /// Its pieces.
    Reply(PieceFault),
    /// More than this root branch may have of what the call holds.
    OverShare,
}

impl From<PieceFault> for InboxFault {
    fn from(fault: PieceFault) -> Self {
        Self::Reply(fault)
    }
}

/// Bytes that a message takes besides its own.
pub(crate) const MESSAGE_BYTES: u64 = 128;

/// The replies of one call that are not whole or not read.
#[derive(Debug)]
pub struct Inbox {
    assemblies: BTreeMap<ReplyName, Opened>,
    /// Sums over these.
    sums: Sums,
    /// Replies that were given up half-way: what still comes of them is not wanted.
    forgotten: BTreeSet<ReplyName>,
    unread: u64,
    /// Messages whole and unread.
    unread_count: u64,
    /// Bytes gathered of messages that are not whole.
    gathered: u64,
    /// Bytes of extensions, of messages unread and not whole.
    beside: u64,
    /// Replies that came whole while the one before them did not: their indices are kept apart.
    gaps: u64,
    /// Bytes of all this that each root branch has, where there are several.
    of_root: BTreeMap<u32, u64>,
    root_count: usize,
    limits: InboxLimits,
    credits: VecDeque<(ReplyName, u64)>,
}

/// A reply that is not whole, and what of it the sums say.
#[derive(Debug)]
struct Opened {
    assembly: Assembly,
    summed: Summed,
}

/// Part of the sums that one reply is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summed {
    /// Bytes granted that are not here.
    outstanding: u64,
    /// Bytes that it should be granted now, or 0.
    want: u64,
    /// It may get no further without a grant.
    waits: bool,
}

/// Sums over all replies that are not whole. A frame and a reader change what one of them is
/// alone, so none looks at the others.
#[derive(Debug, Default)]
struct Sums {
    outstanding: u64,
    /// Those that should be granted something, the fewest bytes first.
    wanting: BTreeSet<(u64, ReplyName)>,
    waiting_count: usize,
}

impl Sums {
    /// A reply has changed.
    fn update(&mut self, path: &Path, index: u32, reply: &mut Opened, stream_window: u64) {
        let outstanding = reply.assembly.outstanding();
        let want = reply.assembly.wants(stream_window).unwrap_or(0);
        let now = Summed { outstanding, want, waits: outstanding == 0 || want > 0 };
        self.replace((path, index), &mut reply.summed, now);
    }

    fn replace(&mut self, (path, index): (&Path, u32), summed: &mut Summed, now: Summed) {
        let before = std::mem::replace(summed, now);
        self.outstanding = self.outstanding + now.outstanding - before.outstanding;
        self.waiting_count =
            self.waiting_count + usize::from(now.waits) - usize::from(before.waits);
        if before.want != now.want {
            if before.want > 0 {
                self.wanting.remove(&(before.want, (path.clone(), index)));
            }
            if now.want > 0 {
                self.wanting.insert((now.want, (path.clone(), index)));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct InboxLimits {
    unscheduled: u64,
    stream_window: u64,
    total: u64,
    message: u64,
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
            sums: Sums::default(),
            forgotten: BTreeSet::new(),
            unread: 0,
            unread_count: 0,
            gathered: 0,
            beside: 0,
            gaps: 0,
            of_root: BTreeMap::new(),
            root_count,
            limits,
            credits: VecDeque::new(),
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
        self.unread + self.gathered + self.beside + self.count() * MESSAGE_BYTES
    }

    /// Number of what takes memory besides its bytes.
    fn count(&self) -> u64 {
        let begun = (self.assemblies.len() + self.forgotten.len()) as u64;
        self.unread_count + begun + self.gaps
    }

    fn take(&mut self, path: &Path, reply: &Reply) -> Result<Accepted, InboxFault> {
        let is_simple = reply.kind == ReplyKind::Message && reply.part.is_none();
        let is_behind = reply.part.is_none() && self.unread_count >= IN_BUFFERS_MAX as u64;
        let payload = reply.payload.clone();
        let payload = if is_behind { kept(payload) } else { payload };
        if is_simple {
            ReceiveWindow::new(self.limits.unscheduled)
                .receive(reply.payload.len())
                .map_err(PieceFault::from)?;
            self.unread += reply.payload.len() as u64;
            self.unread_count += 1;
            self.beside += cost_of(&reply.extensions);
            let extensions = reply.extensions.clone();
            let messages = SmallVec::from_buf([Whole { item: None, extensions, payload }]);
            return Ok(Accepted { messages, is_whole: true, has_gap: false });
        }
        let name = (path.clone(), reply.index);
        if self.forgotten.contains(&name) {
            return Ok(Accepted::default());
        }
        let (unscheduled, message_max) = (self.limits.unscheduled, self.limits.message);
        let is_stream = reply.kind != ReplyKind::Message;
        let opened = self.assemblies.entry(name).or_insert_with(|| Opened {
            assembly: Assembly::new(unscheduled, is_stream),
            summed: Summed::default(),
        });
        let assembly = &mut opened.assembly;
        let (before, beside_before) = (assembly.unfinished(), assembly.beside());
        let (kind, part, extensions) = (reply.kind, reply.part, reply.extensions.clone());
        let accepted = assembly.accept(Piece { kind, part, extensions, payload }, message_max);
        let has_gap = assembly.has_gap();
        self.gathered = self.gathered + assembly.unfinished() - before;
        self.beside = self.beside + assembly.beside() - beside_before;
        if accepted.as_ref().is_ok_and(|accepted| accepted.is_whole) {
            self.remove(&(path.clone(), reply.index));
        } else {
            self.sums.update(path, reply.index, opened, self.limits.stream_window);
        }
        let mut accepted = accepted?;
        accepted.has_gap |= has_gap;
        self.unread_count += accepted.messages.len() as u64;
        for message in &accepted.messages {
            self.unread += message.payload.len() as u64;
            self.beside += cost_of(&message.extensions);
        }
        self.grant();
        Ok(accepted)
    }

    /// The application has read these messages, or wants none of them.
    pub fn consume_all<'a>(&mut self, read: impl IntoIterator<Item = Read<'a>>) {
        for message in read {
            self.count_read(message);
        }
        self.grant();
    }

    fn count_read(&mut self, (path, index, len, extensions): Read<'_>) {
        self.counted(root_of(path), |inbox| {
            inbox.unread -= len as u64;
            inbox.unread_count -= 1;
            inbox.beside -= cost_of(extensions);
        });
        if let Some(opened) = self.assemblies.get_mut(&(path.clone(), index)) {
            opened.assembly.consume(super::flow::cost(len));
            self.sums.update(path, index, opened, self.limits.stream_window);
        }
    }

    /// Gives up the replies of a branch that are not whole.
    pub fn forget(&mut self, path: &Path) {
        let of_branch = self.assemblies.range(all_of(path)).map(|(name, _)| name.clone());
        for name in of_branch.collect::<Vec<_>>() {
            self.counted(root_of(path), |inbox| {
                inbox.remove(&name);
                inbox.forgotten.insert(name);
            });
        }
        self.grant();
    }

    fn remove(&mut self, name: &ReplyName) {
        if let Some(mut opened) = self.assemblies.remove(name) {
            self.gathered -= opened.assembly.unfinished();
            self.beside -= opened.assembly.beside();
            self.sums.replace((&name.0, name.1), &mut opened.summed, Summed::default());
        }
    }

    /// The indices of the replies that came of a branch have so many gaps more or fewer, each of
    /// which takes memory as a message does.
    pub fn note_gaps(&mut self, path: &Path, before: usize, now: usize) {
        if before != now {
            let (before, now) = (before as u64, now as u64);
            self.counted(root_of(path), |inbox| inbox.gaps = inbox.gaps + now - before);
        }
    }

    /// True when the call holds more than it may: what came without being granted is bounded by
    /// this alone. Messages are bounded in number, too, for an empty one takes memory, and what
    /// comes beside them in bytes; each apart from the bytes of messages, so that what was granted
    /// always fits.
    pub fn is_over(&self) -> bool {
        let held = [self.unread + self.gathered, self.beside, self.count() * MESSAGE_BYTES];
        held.into_iter().any(|bytes| bytes > self.limits.total)
    }

    /// Grants to send, as totals, in order.
    pub fn poll_credit(&mut self) -> Option<(ReplyName, u64)> {
        self.credits.pop_front()
    }

    /// Bytes whole and unread.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Says again what the replies of a branch have been granted and did not bring: what was said
    /// may have been lost with its connection. Limits are totals, so a copy changes nothing.
    pub fn repeat_credits(&mut self, path: &Path) {
        let of_branch = self.assemblies.range(all_of(path));
        let granted = of_branch.filter(|(_, opened)| opened.summed.outstanding > 0);
        self.credits.extend(granted.map(|(name, of)| (name.clone(), of.assembly.limit())));
    }

    /// Bytes unread, gathered and granted: what the call may come to hold.
    pub fn committed(&self) -> u64 {
        self.unread + self.gathered + self.sums.outstanding
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.assemblies.is_empty() && self.unread == 0
    }

    /// True when a reply may get no further before what is unread has been read.
    pub fn is_starved(&self) -> bool {
        if self.unread >= self.limits.stream_window / 2 {
            return true; // All of one stream, for what is known here.
        }
        self.unread_count > 0 && self.sums.waiting_count > 0
    }

    fn grant(&mut self) {
        while !self.sums.wanting.is_empty() {
            let free = self.limits.total.saturating_sub(self.committed());
            if free == 0 {
                return;
            }
            let Some((want, name)) = self.sums.wanting.pop_first() else { return };
            let opened = self.assemblies.get_mut(&name).expect("what wants is not whole");
            opened.summed.want = 0;
            let limit = opened.assembly.limit() + want.min(free);
            opened.assembly.raise(limit);
            self.sums.update(&name.0, name.1, opened, self.limits.stream_window);
            self.credits.push_back((name, limit));
        }
    }
}

/// The names of all replies of a branch.
fn all_of(path: &Path) -> RangeInclusive<ReplyName> {
    (path.clone(), 0)..=(path.clone(), u32::MAX)
}

/// The root branch that a branch is below.
fn root_of(path: &Path) -> u32 {
    path.indices().next().unwrap_or(0)
}

#[cfg(test)]
mod tests;
