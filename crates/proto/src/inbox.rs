//! Replies on their way into a call: pieces put together, stream items put in order, credit
//! granted.
//!
//! A message of at most the unscheduled bytes passes straight through. Anything longer, and every
//! stream, has an `Assembly` until it is whole. Credit for messages goes first to the one with the
//! fewest bytes left (Homa's order) in powers of two, and among these to who waits longest, so that
//! streams that go on for ever take turns. Streams get a window ahead of what the application has
//! read. Root branches have `Shares` of it, where there are several.
//!
//! A message, or an item that is larger than its window, is granted whole or waits, and windows
//! leave room for the largest message. So whatever has begun and waits, there is a message that
//! needs nothing more to come and to be read, or one can be granted (as the banker's algorithm has
//! it, Dijkstra, EWD 623).
//!
//! Once nobody reads the call, what comes is counted and dropped. It takes no room, so late tasks
//! are granted what they ask for, and none of them waits for what another was granted and does not
//! send.

mod shares;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::id::{NodeId, Path};
use crate::time::Timestamp;
use crate::wire::{Extension, Reply, ReplyKind};

use super::flow::{
    Accepted, Assembly, IN_BUFFERS_MAX, Piece, PieceFault, ReceiveWindow, Wants, Whole, cost,
    cost_of, kept,
};
use super::limits::Limits;
use shares::{Amounts, Held, Reason, Shares, Turn};

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
    /// Replies of which nothing more comes, and what of them is unread, as the window counts it.
    over: BTreeMap<ReplyName, Held>,
    /// Sums over both, and over the messages of one frame that are unread.
    sums: Sums,
    unread: u64,
    /// Messages whole and unread.
    unread_count: u64,
    /// Bytes gathered of messages that are not whole.
    gathered: u64,
    /// Bytes of extensions, of messages unread and not whole.
    beside: u64,
    /// Replies that came whole while the one before them did not: their indices are kept apart.
    gaps: u64,
    /// Shares of the root branches in all this, where there are several.
    shares: Option<Shares>,
    /// Drops what comes, as nobody reads it.
    is_discarded: bool,
    limits: InboxLimits,
    credits: VecDeque<(ReplyName, u64)>,
}

/// Sender of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The node, or the one that is said to have sent it.
    pub node: NodeId,
    /// Its own connection brought it.
    pub is_authenticated: bool,
}

impl Sender {
    /// The same, once another has brought a part of what it has begun: who has the key of a branch
    /// can say some of what its task does not.
    fn joined_by(self, other: Self) -> Self {
        Self { is_authenticated: self.is_authenticated && self == other, ..self }
    }
}

/// A reply that is not whole, and what of it the sums say.
#[derive(Debug)]
struct Opened {
    assembly: Assembly,
    by: Sender,
    /// Reason of its last grant.
    granted_for: Reason,
    summed: Summed,
    /// Time at which the last piece came in its turn, where that was noted.
    in_turn: Option<Timestamp>,
}

/// Part of the sums that one reply is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summed {
    /// Bytes of it that are here, granted, or kept for it.
    held: Held,
    /// Bytes that it should be granted now, and since when, as a number that grows; 0 for none.
    wants: Wants,
    since: u64,
    /// It may get no further without a grant.
    waits: bool,
}

/// Sums over all replies. A frame and a reader change what one of them is alone, so none looks at
/// the others.
#[derive(Debug)]
struct Sums {
    /// Bytes of messages that are here, or may come.
    held: Held,
    /// Those that should be granted something, by root branch, in their turn.
    wanting: BTreeSet<(u32, Reason, Turn, ReplyName)>,
    /// The last to begin to wait.
    since: u64,
    waiting_count: usize,
    unscheduled: u64,
    stream_window: u64,
}

impl Sums {
    fn new(limits: &InboxLimits) -> Self {
        let InboxLimits { unscheduled, stream_window, .. } = *limits;
        let (held, wanting) = (Held::default(), BTreeSet::new());
        Self { held, wanting, since: 0, waiting_count: 0, unscheduled, stream_window }
    }

    /// A reply that is not whole has changed.
    fn update(&mut self, path: &Path, index: u32, reply: &mut Opened) {
        let since = reply.summed.since;
        self.update_since(path, index, reply, since);
    }

    /// The same of one that waits since then, or from now on where that is 0.
    fn update_since(&mut self, path: &Path, index: u32, reply: &mut Opened, since: u64) {
        let held = reply.held_with(0, reply.granted_for, self.unscheduled);
        let wants = reply.assembly.wants(self.stream_window);
        let is_wanting = wants.most() > 0;
        let since = match since {
            _ if !is_wanting => 0,
            0 => {
                self.since += 1;
                self.since
            }
            since => since,
        };
        let waits = is_wanting || reply.assembly.outstanding() == 0;
        let now = Summed { held, wants, since, waits };
        self.replace((path, index), &mut reply.summed, now);
    }

    fn replace(&mut self, name: (&Path, u32), summed: &mut Summed, now: Summed) {
        let before = std::mem::replace(summed, now);
        self.held = self.held.with(before.held, now.held);
        self.waiting_count =
            self.waiting_count + usize::from(now.waits) - usize::from(before.waits);
        // As after most items: it has not wanted anything, and does not.
        if (before.wants, before.since) != (now.wants, now.since) {
            self.queue(name, before.turn(), now.turn());
        }
    }

    /// A reply waits in another turn than before.
    fn queue(
        &mut self,
        (path, index): (&Path, u32),
        before: Option<(Reason, Turn)>,
        now: Option<(Reason, Turn)>,
    ) {
        let entry = |(reason, turn)| (root_of(path), reason, turn, (path.clone(), index));
        if let Some(before) = before {
            self.wanting.remove(&entry(before));
        }
        self.wanting.extend(now.map(entry));
    }

    /// The first of a root branch that should be granted something for a reason.
    fn first_wanting(&self, root: u32, reason: Reason) -> Option<&ReplyName> {
        let least = (root, reason, Turn::default(), (Path::root(), 0));
        let first = self.wanting.range(least..).next();
        first.filter(|(of, why, ..)| (*of, *why) == (root, reason)).map(|(.., name)| name)
    }
}

impl Opened {
    /// Bytes of it that are here, granted, or kept for it, once it is granted so many more.
    fn held_with(&self, bytes: u64, reason: Reason, unscheduled: u64) -> Held {
        Held::of(self.assembly.held_with(bytes), unscheduled, reason)
    }
}

impl Summed {
    /// Reason for which it waits to be granted something, and its turn.
    fn turn(&self) -> Option<(Reason, Turn)> {
        let turn = |bytes| Turn::of(bytes, self.since);
        match self.wants {
            Wants { rest: 0, ahead: 0 } => None,
            Wants { rest: 0, ahead } => Some((Reason::Ahead, turn(ahead))),
            Wants { rest, .. } => Some((Reason::Whole, turn(rest))),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct InboxLimits {
    unscheduled: u64,
    stream_window: u64,
    total: u64,
    /// Bytes of messages: at least the total.
    bytes: u64,
    message: u64,
}

impl Inbox {
    /// An inbox of a call of so many root branches, with these bounds.
    pub fn new(root_count: usize, limits: &Limits) -> Self {
        let mut limits = InboxLimits {
            unscheduled: limits.unscheduled_bytes,
            stream_window: limits.stream_window_bytes,
            total: limits.reply_bytes_max,
            bytes: limits.reply_bytes_max,
            message: limits.message_bytes_max as u64,
        };
        let shares = (root_count > 1).then(|| Shares::new(root_count, &limits));
        if let Some(shares) = &shares {
            limits.stream_window = shares.stream_window(limits.stream_window);
            limits.bytes = shares.bytes_max();
        }
        Self {
            assemblies: BTreeMap::new(),
            over: BTreeMap::new(),
            sums: Sums::new(&limits),
            unread: 0,
            unread_count: 0,
            gathered: 0,
            beside: 0,
            gaps: 0,
            shares,
            is_discarded: false,
            limits,
            credits: VecDeque::new(),
        }
    }

    /// Takes a frame of a reply that is not whole yet, by this sender, and makes that the one of
    /// its messages: who began them.
    ///
    /// # Errors
    /// [`InboxFault`] when the sender broke a rule.
    pub fn accept(
        &mut self,
        path: &Path,
        by: &mut Sender,
        reply: &Reply,
    ) -> Result<Accepted, InboxFault> {
        if self.shares.as_ref().is_some_and(|shares| !self.has_share(shares, path, reply)) {
            return Err(InboxFault::OverShare);
        }
        let taken = self.counted(path, |inbox| inbox.take(path, by, reply));
        if taken.is_ok() {
            self.grant(path, reply.index);
        }
        taken
    }

    /// True when the root branch of a frame may have what was not granted of it.
    fn has_share(&self, shares: &Shares, path: &Path, reply: &Reply) -> bool {
        let root = root_of(path);
        let free_beside = self.limits.total.saturating_sub(self.beside());
        let beside = shares.beside(root);
        let is_simple = reply.is_simple();
        let brings = if is_simple { reply.payload.len() as u64 } else { self.limits.unscheduled };
        let begins = || is_simple || !self.assemblies.contains_key(&(path.clone(), reply.index));
        (beside == 0 || beside < free_beside) && (shares.may_bring(root, brings) || !begins())
    }

    /// Counts what `act` changes for the root branch of a path, where there are several.
    fn counted<T>(&mut self, path: &Path, act: impl FnOnce(&mut Self) -> T) -> T {
        if self.shares.is_none() {
            return act(self);
        }
        let before = self.amounts();
        let result = act(self);
        let now = self.amounts();
        if let Some(shares) = &mut self.shares {
            shares.count(root_of(path), before, now);
        }
        result
    }

    fn amounts(&self) -> Amounts {
        Amounts { held: self.sums.held, beside: self.beside() }
    }

    /// Memory besides the bytes of messages.
    fn beside(&self) -> u64 {
        self.beside + self.count() * MESSAGE_BYTES
    }

    /// Number of what takes memory besides its bytes.
    fn count(&self) -> u64 {
        self.unread_count + self.assemblies.len() as u64 + self.gaps
    }

    fn take(
        &mut self,
        path: &Path,
        by: &mut Sender,
        reply: &Reply,
    ) -> Result<Accepted, InboxFault> {
        let is_behind = reply.part.is_none() && self.unread_count >= IN_BUFFERS_MAX as u64;
        let payload = reply.payload.clone();
        let payload = if is_behind { kept(payload) } else { payload };
        if reply.is_simple() {
            if self.is_known(path, reply.index) {
                return Err(PieceFault::Malformed.into());
            }
            let (size, limit) = (reply.payload.len() as u64, self.limits.message);
            if size > limit {
                return Err(PieceFault::TooLarge { size, limit }.into());
            }
            ReceiveWindow::new(self.limits.unscheduled)
                .receive(reply.payload.len())
                .map_err(PieceFault::from)?;
            if self.is_discarded {
                return Ok(Accepted { is_whole: true, ..Accepted::default() });
            }
            self.unread += reply.payload.len() as u64;
            self.sums.held.brought += reply.payload.len() as u64;
            self.unread_count += 1;
            self.beside += cost_of(&reply.extensions);
            let extensions = extensions_of(reply);
            let messages = SmallVec::from_buf([Whole { item: None, extensions, payload }]);
            return Ok(Accepted { messages, is_whole: true, has_gap: false });
        }
        let (unscheduled, message_max) = (self.limits.unscheduled, self.limits.message);
        let is_stream = reply.kind != ReplyKind::Message;
        let name = (path.clone(), reply.index);
        let opened = self.assemblies.entry(name).or_insert_with(|| {
            let mut assembly = Assembly::new(unscheduled, is_stream);
            if self.is_discarded {
                assembly.discard();
            }
            let (granted_for, summed) = (Reason::default(), Summed::default());
            Opened { assembly, by: *by, granted_for, summed, in_turn: None }
        });
        let assembly = &mut opened.assembly;
        let (before, beside_before) = (assembly.unfinished(), assembly.beside());
        // Of what is here and not whole others may have sent a part, and of nothing else.
        if before > 0 || assembly.has_gap() {
            *by = if reply.is_mark() { opened.by } else { opened.by.joined_by(*by) };
        }
        opened.by = *by;
        let (kind, part, extensions) = (reply.kind, reply.part, extensions_of(reply));
        let accepted = assembly.accept(Piece { kind, part, extensions, payload }, message_max);
        let has_gap = assembly.has_gap();
        self.gathered = self.gathered + assembly.unfinished() - before;
        self.beside = self.beside + assembly.beside() - beside_before;
        if accepted.as_ref().is_ok_and(|accepted| accepted.is_whole) {
            self.end((path.clone(), reply.index));
        } else {
            self.sums.update(path, reply.index, opened);
        }
        let mut accepted = accepted?;
        accepted.has_gap |= has_gap;
        self.unread_count += accepted.messages.len() as u64;
        for message in &accepted.messages {
            self.unread += message.payload.len() as u64;
            self.beside += cost_of(&message.extensions);
        }
        Ok(accepted)
    }

    /// True of a reply in parts, or a stream, that is not whole or not read.
    fn is_known(&self, path: &Path, index: u32) -> bool {
        if self.assemblies.is_empty() && self.over.is_empty() {
            return false;
        }
        let name = (path.clone(), index);
        self.assemblies.contains_key(&name) || self.over.contains_key(&name)
    }

    /// The application has read these messages, or wants none of them.
    pub fn consume_all<'a>(&mut self, read: impl IntoIterator<Item = Read<'a>>) {
        for (path, index, len, extensions) in read {
            self.counted(path, |inbox| inbox.count_read((path, index, len, extensions)));
            self.grant(path, index);
        }
    }

    fn count_read(&mut self, (path, index, len, extensions): Read<'_>) {
        self.unread -= len as u64;
        self.unread_count -= 1;
        self.beside -= cost_of(extensions);
        let name = (path.clone(), index);
        if let Some(unread) = self.over.get_mut(&name) {
            let left = unread.less(cost(len));
            self.sums.held = self.sums.held.with(std::mem::replace(unread, left), left);
            if left == Held::default() {
                self.over.remove(&name);
            }
        } else if let Some(opened) = self.assemblies.get_mut(&name) {
            opened.assembly.consume(cost(len));
            self.sums.update(path, index, opened);
        } else {
            self.sums.held.brought -= len as u64;
        }
    }

    /// Gives up the replies of a branch that are not whole. Their indices.
    pub fn forget(&mut self, path: &Path) -> Vec<u32> {
        let of_branch = self.assemblies.range(all_of(path)).map(|((_, index), _)| *index);
        let indices: Vec<u32> = of_branch.collect();
        for index in &indices {
            self.counted(path, |inbox| inbox.end((path.clone(), *index)));
        }
        if !indices.is_empty() {
            self.grant(path, 0);
        }
        indices
    }

    /// Drops what has come of replies that are not whole, and what comes from now on as it comes:
    /// nobody reads it. Nothing of it takes room, so each reply is granted what it needs, whatever
    /// has become of the others. What is unread has been [consumed](Self::consume_all).
    pub fn discard(&mut self) {
        self.is_discarded = true;
        let names: Vec<ReplyName> = self.assemblies.keys().cloned().collect();
        for name in &names {
            self.counted(&name.0, |inbox| inbox.discard_reply(name));
        }
        names.iter().for_each(|(path, index)| self.grant(path, *index));
    }

    fn discard_reply(&mut self, name: &ReplyName) {
        let Some(opened) = self.assemblies.get_mut(name) else { return };
        self.gathered -= opened.assembly.unfinished();
        let before = opened.assembly.beside();
        opened.assembly.discard();
        self.beside = self.beside + opened.assembly.beside() - before;
        self.sums.update(&name.0, name.1, opened);
    }

    /// Nothing more comes of a reply. It holds what of it is unread.
    fn end(&mut self, name: ReplyName) {
        if let Some(mut opened) = self.assemblies.remove(&name) {
            self.gathered -= opened.assembly.unfinished();
            self.beside -= opened.assembly.beside();
            let held = opened.held_with(0, opened.granted_for, self.limits.unscheduled);
            self.sums.replace((&name.0, name.1), &mut opened.summed, Summed::default());
            let unread = opened.assembly.unread();
            if unread > 0 {
                let unread = held.less(held.all() - unread);
                self.sums.held = self.sums.held.with(Held::default(), unread);
                // A liar may have begun by the same name before.
                let over = self.over.entry(name).or_default();
                *over = over.with(Held::default(), unread);
            }
        }
    }

    /// The indices of the replies that came of a branch have so many gaps more or fewer, each of
    /// which takes memory as a message does.
    pub fn note_gaps(&mut self, path: &Path, before: usize, now: usize) {
        if before != now {
            let (before, now) = (before as u64, now as u64);
            self.counted(path, |inbox| inbox.gaps = inbox.gaps + now - before);
        }
    }

    /// True when the call holds more than it may: what came without being granted is bounded by
    /// this alone. Messages are bounded in number, too, for an empty one takes memory, and what
    /// comes beside them in bytes; each apart from the bytes of messages, so that what was granted
    /// always fits.
    pub fn is_over(&self) -> bool {
        let beside = self.beside.max(self.count() * MESSAGE_BYTES);
        self.unread + self.gathered > self.limits.bytes || beside > self.limits.total
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
        let granted = of_branch.filter(|(_, opened)| opened.assembly.outstanding() > 0);
        self.credits.extend(granted.map(|(name, of)| (name.clone(), of.assembly.limit())));
    }

    /// True when nobody reads a reply, and a piece of it was lost: pieces behind it would pile up.
    #[inline]
    pub fn has_lost_piece(&self, path: &Path, index: u32) -> bool {
        self.is_discarded && self.has_early_pieces(path, index)
    }

    #[cold]
    fn has_early_pieces(&self, path: &Path, index: u32) -> bool {
        let opened = self.assemblies.get(&(path.clone(), index));
        opened.is_some_and(|opened| opened.assembly.has_lost_piece())
    }

    /// Branches with replies that are not whole.
    pub fn begun(&self) -> impl Iterator<Item = &Path> {
        self.assemblies.keys().map(|(path, _)| path)
    }

    /// Grants the replies of a branch once more what was granted and has not come: it may have been
    /// lost with a connection, and so may what was said of it. For what is
    /// [discarded](Self::discard), and so takes no room.
    pub fn grant_again(&mut self, path: &Path) {
        let of_branch = self.assemblies.range_mut(all_of(path));
        let lost = of_branch.map(|(name, opened)| {
            (name.clone(), opened.assembly.lose_granted(), opened.granted_for)
        });
        let lost: Vec<_> = lost.collect();
        lost.into_iter().for_each(|(name, bytes, reason)| self.raise(name, bytes, reason));
    }

    /// Bytes unread, gathered, and granted or kept to be: what the call may come to hold.
    pub fn committed(&self) -> u64 {
        self.sums.held.all()
    }

    /// Notes when a piece of a reply that is not whole has come in its turn.
    pub fn note_in_turn(&mut self, path: &Path, index: u32, at: Timestamp) {
        if let Some(opened) = self.assemblies.get_mut(&(path.clone(), index)) {
            opened.in_turn = Some(at);
        }
    }

    /// The last time that was noted of a reply that is not whole.
    pub fn in_turn(&self, path: &Path, index: u32) -> Option<Timestamp> {
        self.assemblies.get(&(path.clone(), index))?.in_turn
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

    /// Grants what there is room for, now that a reply has changed.
    fn grant(&mut self, path: &Path, index: u32) {
        let is_needed = self.shares.as_ref().is_some_and(Shares::is_needed);
        if self.sums.wanting.is_empty() && !is_needed {
            return;
        }
        // Others may have waited for longer than the root branch that has made room.
        self.grant_freed();
        Reason::ALL.into_iter().for_each(|reason| self.grant_root(root_of(path), reason));
        self.grant_freed();
        self.grant_least(path, index);
    }

    /// Grants the replies of a root branch what they may have for a reason.
    fn grant_root(&mut self, root: u32, reason: Reason) {
        let mut lacks = None;
        while lacks.is_none()
            && let Some(name) = self.sums.first_wanting(root, reason)
        {
            let opened = &self.assemblies[name];
            match self.may_grant(root, opened) {
                Ok((bytes, reason)) => self.raise(name.clone(), bytes, reason),
                Err(need) => lacks = Some(Turn::of(need, opened.summed.since)),
            }
        }
        if let Some(shares) = &mut self.shares {
            shares.note_need(root, reason, lacks);
        }
    }

    /// Grants what has come back to the pool to those that wait for it.
    fn grant_freed(&mut self) {
        while self.shares.as_mut().is_some_and(Shares::take_freed) {
            Reason::ALL.into_iter().for_each(|reason| self.grant_needing(reason));
        }
    }

    fn grant_needing(&mut self, reason: Reason) {
        let mut last = (Turn::default(), 0);
        while let Some(next) = self.shares.as_ref().and_then(|of| of.next_needing(reason, last)) {
            self.grant_root(next.1, reason);
            last = next;
        }
    }

    /// Bytes that a reply may be granted now, and for which reason; or those that it lacks.
    fn may_grant(&self, root: u32, opened: &Opened) -> Result<(u64, Reason), u64> {
        let Wants { rest, ahead } = opened.summed.wants;
        let lacks = |bytes, reason| {
            let now = opened.held_with(bytes, reason, self.limits.unscheduled);
            match &self.shares {
                Some(shares) => shares.lacks(root, opened.summed.held, now, reason),
                None if self.has_room(opened.summed.held, now, reason) => 0,
                None => bytes,
            }
        };
        if ahead >= rest {
            match lacks(ahead, Reason::Ahead) {
                0 => return Ok((ahead, Reason::Ahead)),
                need if rest == 0 => return Err(need),
                _ => {}
            }
        }
        match lacks(rest, Reason::Whole) {
            0 => Ok((rest, Reason::Whole)),
            need => Err(need),
        }
    }

    /// True when a reply of the only root branch may hold other bytes than before. That has all of
    /// the call, and where nothing is left to be read one message at a time is granted whatever
    /// else there is: what has begun may have taken the room for it. Streams run ahead by half of
    /// what the largest message leaves: others can begin in the other half.
    fn has_room(&self, before: Held, now: Held, reason: Reason) -> bool {
        let (all, total) = (self.sums.held.with(before, now), self.limits.total);
        match reason {
            Reason::Whole => all.all() <= total || (all.whole == now.whole && self.unread == 0),
            Reason::Ahead => {
                let message = self.limits.message;
                let brought = all.brought.max(total.saturating_sub(message) / 2);
                let granted = all.ahead.saturating_add(all.whole.max(message));
                brought.saturating_add(granted) <= total
            }
        }
    }

    /// Grants a stream that wants more, and of which all was read, the least that is kept for it.
    fn grant_least(&mut self, path: &Path, index: u32) {
        let name = (path.clone(), index);
        let wanting = self.assemblies.get(&name).filter(|opened| opened.summed.wants.most() > 0);
        if let Some(least) = wanting.and_then(|opened| opened.assembly.least()) {
            self.raise(name, least, Reason::Ahead);
        }
    }

    /// Grants a reply so many bytes more.
    fn raise(&mut self, name: ReplyName, bytes: u64, reason: Reason) {
        let limit = self.counted(&name.0, |inbox| {
            let opened = inbox.assemblies.get_mut(&name).expect("what is granted is not whole");
            opened.granted_for = reason;
            opened.assembly.raise(opened.assembly.limit() + bytes);
            inbox.sums.update_since(&name.0, name.1, opened, 0); // Others have their turn.
            opened.assembly.limit()
        });
        self.credits.push_back((name, limit));
    }
}

/// The fields beside a reply. Most have none, for which a copy would ask for memory of no length.
fn extensions_of(reply: &Reply) -> Vec<Extension> {
    if reply.extensions.is_empty() { Vec::new() } else { reply.extensions.clone() }
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
