//! Casts that nobody has counted yet: they may come before their reader is there, and they wait
//! until as many have come as it needs.
//!
//! ```text
//!   none ──cast──▶ Early ──join──▶ Open ──close──▶ Closed ──the last late cast──▶ none
//!                    └──time──▶ none                 └──time──▶ none
//! ```
//! One mechanism for two kinds of names: the participants of a call cast about the call, members
//! with phases that outlive a call about a [`Tag`]. A closed mailbox keeps nothing; it knows how
//! many casts may still come late and is forgotten with the last of them.
//!
//! Bounded in count and in bytes per sender and mailbox, in bytes per sender over all mailboxes,
//! and in bytes over all: one member cannot crowd out the others.

mod space;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use crate::id::{CallId, NodeId};
use crate::time::Timestamp;
use crate::wire::Cast;

use super::limits::Limits;
use space::Spaces;
pub use space::{Announce, SpaceTaken};

/// Subject of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MailKey {
    /// A call.
    Call(CallId),
    /// A tag of the application's own.
    Tag(Tag),
}

/// A name of the application's own for what members vote on, such as a slot of a log in a view.
/// Tags of a space are ordered, and closed in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// Which service or group the tag belongs to.
    pub space: u64,
    /// The first part.
    pub view: u64,
    /// The second part.
    pub sequence: u64,
}

/// Reader of casts, or of what is announced of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MailReader {
    /// The reader of a mailbox.
    Mailbox(MailKey),
    /// The reader of a space.
    Space(u64),
}

/// Why a mailbox cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinRefusal {
    /// Another reader has it.
    #[error("another round about the same runs at this node")]
    Taken,
    /// It was open before: nobody may vote twice.
    #[error("a round about the same has ended at this node")]
    Closed,
}

/// Numbers of casts that were not kept, since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CastsDropped {
    /// Nobody needed them any more: harmless.
    pub late: u64,
    /// Their sender, or all senders together, had too much waiting.
    pub over_limit: u64,
    /// They were of an earlier epoch than this node's.
    pub stale_epoch: u64,
    /// No reader came in their time.
    pub expired: u64,
    /// They were about a tag, and their sender is not a member of its space.
    pub strangers: u64,
}

/// All mailboxes of a node.
#[derive(Debug)]
pub struct Mailboxes {
    boxes: BTreeMap<MailKey, State>,
    /// When the mailboxes without a reader are forgotten.
    early: BTreeSet<(Timestamp, MailKey)>,
    /// And those whose reader is gone.
    closed: BTreeSet<(Timestamp, MailKey)>,
    spaces: Spaces,
    /// Bytes of each sender that wait, in all mailboxes.
    bytes_of: BTreeMap<NodeId, usize>,
    bytes: usize,
    /// Readers that waited, and wait no longer.
    ready: VecDeque<MailReader>,
    /// Number of times that something else than casts may have concerned the readers.
    changes: u64,
    dropped: CastsDropped,
    bounds: Bounds,
}

#[derive(Debug)]
struct Bounds {
    casts_max: usize,
    box_bytes_max: usize,
    sender_bytes_max: usize,
    bytes_max: usize,
    lifetime_max: Duration,
}

#[derive(Debug)]
enum State {
    Early(Box<Mail>, Timestamp),
    Open(Box<Mail>, Reader),
    Closed { left: u32, forget_at: Timestamp },
}

#[derive(Debug, Default)]
struct Mail {
    casts: Vec<(NodeId, Cast)>,
    senders: SmallVec<[Sender; 8]>,
    is_announced: bool,
}

#[derive(Debug)]
struct Sender {
    node: NodeId,
    /// Casts that came, read or not.
    count: usize,
    /// Bytes that wait.
    bytes: usize,
}

/// Reader that waits for casts.
#[derive(Debug, Default)]
struct Reader {
    is_waiting: bool,
    /// Number of casts that must wait before it is told.
    wake_at: usize,
}

/// Bytes that a waiting cast costs besides its payload.
const CAST_BYTES: usize = 128;

/// Senders that one mailbox may have.
const SENDERS_MAX: usize = 1_024;

/// Closed mailboxes remembered. What comes late for one that is not waits for its time and is
/// dropped then.
const CLOSED_MAX: usize = 1 << 16;

impl Mailboxes {
    pub(crate) fn new(limits: &Limits) -> Self {
        let bounds = Bounds {
            casts_max: limits.casts_max,
            box_bytes_max: limits.cast_bytes_max,
            sender_bytes_max: limits.cast_bytes_sender_max,
            bytes_max: limits.cast_bytes_total_max,
            lifetime_max: limits.deadline_max,
        };
        Self {
            boxes: BTreeMap::new(),
            early: BTreeSet::new(),
            closed: BTreeSet::new(),
            spaces: Spaces::default(),
            bytes_of: BTreeMap::new(),
            bytes: 0,
            ready: VecDeque::new(),
            changes: 0,
            dropped: CastsDropped::default(),
            bounds,
        }
    }

    /// A cast came whose value could not be waited for: too many were.
    pub fn note_over_limit(&mut self) {
        self.dropped.over_limit += 1;
    }

    /// A cast of the authenticated node `from` came. `epoch` is this node's own.
    pub(crate) fn handle_cast(
        &mut self,
        now: Timestamp,
        from: NodeId,
        key: MailKey,
        cast: Cast,
        epoch: u64,
    ) {
        // As everywhere, epoch zero stands for no epoch.
        if cast.epoch > 0 && cast.epoch < epoch {
            self.dropped.stale_epoch += 1;
            return;
        }
        if let Some(State::Closed { left, forget_at }) = self.boxes.get_mut(&key) {
            self.dropped.late += 1;
            *left -= 1;
            if *left == 0 {
                let at = *forget_at;
                self.forget_closed(at, key);
            }
            return;
        }
        if let MailKey::Tag(tag) = key
            && self.spaces.get(tag.space).is_some_and(|space| !space.is_of(from))
        {
            self.dropped.strangers += 1;
            return;
        }
        let is_new = !self.boxes.contains_key(&key);
        if is_new && !self.admits_new(from, key, &cast) {
            return;
        }
        let cost = cost(&cast);
        let of_sender = self.bytes_of.get(&from).map_or(0, |bytes| *bytes);
        let Bounds { box_bytes_max, sender_bytes_max, bytes_max, .. } = self.bounds;
        let is_over = of_sender + cost > sender_bytes_max || self.bytes + cost > bytes_max;
        if is_over || cost > box_bytes_max {
            self.dropped.over_limit += 1;
            return;
        }
        if is_new {
            self.begin_early(now, from, key, &cast);
        }
        let bounds = &self.bounds;
        let kept = match self.boxes.get_mut(&key) {
            Some(State::Early(mail, _)) => mail.post(from, cast, bounds),
            Some(State::Open(mail, reader)) => {
                let kept = mail.post(from, cast, bounds);
                if mail.casts.len() >= reader.wake_at {
                    reader.tell(key, &mut self.ready);
                }
                kept
            }
            Some(State::Closed { .. }) | None => false,
        };
        if !kept {
            self.dropped.over_limit += 1;
            return;
        }
        *self.bytes_of.entry(from).or_default() += cost;
        self.bytes += cost;
        if let (MailKey::Tag(tag), Some(State::Early(mail, _))) = (key, self.boxes.get_mut(&key)) {
            mail.announce(tag, &mut self.spaces, &mut self.ready);
        }
    }

    /// True when a cast may begin a mailbox.
    fn admits_new(&mut self, from: NodeId, key: MailKey, cast: &Cast) -> bool {
        let space = match key {
            MailKey::Call(_) => None,
            MailKey::Tag(tag) => self.spaces.get(tag.space).map(|space| (space, tag)),
        };
        if cast.budget_us == 0 || space.is_some_and(|(space, tag)| space.is_over(tag)) {
            self.dropped.late += 1;
            return false;
        }
        if space.is_some_and(|(space, _)| !space.has_room(from)) {
            self.dropped.over_limit += 1;
            return false;
        }
        true
    }

    fn begin_early(&mut self, now: Timestamp, from: NodeId, key: MailKey, cast: &Cast) {
        let lifetime = Duration::from_micros(cast.budget_us).min(self.bounds.lifetime_max);
        let forget_at = now + lifetime;
        self.boxes.insert(key, State::Early(Box::default(), forget_at));
        self.early.insert((forget_at, key));
        if let MailKey::Tag(tag) = key {
            self.spaces.note_begun(tag, from);
        }
    }

    /// Opens a mailbox for the one reader that it may have.
    ///
    /// # Errors
    /// [`JoinRefusal`].
    pub fn join(&mut self, key: MailKey) -> Result<(), JoinRefusal> {
        if let MailKey::Tag(tag) = key
            && self.spaces.get(tag.space).is_some_and(|space| space.is_over(tag))
        {
            return Err(JoinRefusal::Closed);
        }
        match self.boxes.get(&key) {
            Some(State::Open(..)) => return Err(JoinRefusal::Taken),
            Some(State::Closed { .. }) => return Err(JoinRefusal::Closed),
            Some(State::Early(..)) | None => {}
        }
        let mail = match self.boxes.remove(&key) {
            Some(State::Early(mail, forget_at)) => {
                self.end_early(forget_at, key, &mail);
                mail
            }
            _ => Box::default(),
        };
        self.boxes.insert(key, State::Open(mail, Reader::default()));
        Ok(())
    }

    /// Takes all that waits, oldest first, with the authenticated senders.
    pub fn take(&mut self, key: MailKey, into: &mut Vec<(NodeId, Cast)>) {
        let Some(State::Open(mail, _)) = self.boxes.get_mut(&key) else { return };
        for sender in &mut mail.senders {
            lower(&mut self.bytes_of, sender.node, sender.bytes);
            self.bytes -= sender.bytes;
            sender.bytes = 0;
        }
        into.append(&mut mail.casts);
    }

    /// True when `wake_at` casts wait; if not, the reader is ready once they do.
    pub fn poll_waiting(&mut self, key: MailKey, wake_at: usize) -> bool {
        let Some(State::Open(mail, reader)) = self.boxes.get_mut(&key) else { return true };
        *reader = Reader { is_waiting: mail.casts.len() < wake_at, wake_at };
        !reader.is_waiting
    }

    /// The reader is gone. `left` casts may still come; if nothing else does, they are remembered
    /// until `forget_at`. Returns what it has not taken.
    pub fn close(&mut self, key: MailKey, left: u32, forget_at: Timestamp) -> Vec<(NodeId, Cast)> {
        let mut casts = Vec::new();
        self.take(key, &mut casts);
        let Some(State::Open(..)) = self.boxes.get(&key) else { return casts };
        self.boxes.remove(&key);
        let is_over = match key {
            MailKey::Call(_) => false,
            MailKey::Tag(tag) => self.spaces.get(tag.space).is_none_or(|space| space.is_over(tag)),
        };
        if left > 0 && !is_over {
            if self.closed.len() >= CLOSED_MAX
                && let Some((at, oldest)) = self.closed.first().copied()
            {
                self.forget_closed(at, oldest);
            }
            self.boxes.insert(key, State::Closed { left, forget_at });
            self.closed.insert((forget_at, key));
        }
        casts
    }

    /// Tells every reader that waits: something else than casts may concern it.
    pub(crate) fn tell_readers(&mut self) {
        self.changes += 1;
        for (key, state) in &mut self.boxes {
            if let State::Open(_, reader) = state {
                reader.tell(*key, &mut self.ready);
            }
        }
    }

    /// Number of times that every reader was told.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A reader that waited for what is there now.
    pub fn poll_ready(&mut self) -> Option<MailReader> {
        self.ready.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.early.first().copied().filter(|(at, _)| *at <= now) {
            let expired = self.drop_early(at, key);
            self.dropped.expired += expired as u64;
        }
        while let Some((at, key)) = self.closed.first().copied().filter(|(at, _)| *at <= now) {
            self.forget_closed(at, key);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let first = |set: &BTreeSet<(Timestamp, MailKey)>| set.first().map(|(at, _)| *at);
        first(&self.early).into_iter().chain(first(&self.closed)).min()
    }

    /// Forgets a mailbox without a reader, and says how many casts waited in it.
    fn drop_early(&mut self, at: Timestamp, key: MailKey) -> usize {
        self.early.remove(&(at, key));
        let Some(State::Early(mail, _)) = self.boxes.remove(&key) else { return 0 };
        for sender in &mail.senders {
            lower(&mut self.bytes_of, sender.node, sender.bytes);
            self.bytes -= sender.bytes;
        }
        self.end_early(at, key, &mail);
        mail.casts.len()
    }

    /// A mailbox has found its reader, or is forgotten without one.
    fn end_early(&mut self, at: Timestamp, key: MailKey, mail: &Mail) {
        self.early.remove(&(at, key));
        if let (MailKey::Tag(tag), Some(first)) = (key, mail.senders.first()) {
            self.spaces.note_ended(tag, first.node);
        }
    }

    fn forget_closed(&mut self, at: Timestamp, key: MailKey) {
        self.closed.remove(&(at, key));
        if let Some(State::Closed { .. }) = self.boxes.get(&key) {
            self.boxes.remove(&key);
        }
    }

    /// Mailboxes of which anything is known.
    pub fn count(&self) -> usize {
        self.boxes.len()
    }

    /// Bytes that wait, 128 for each cast included.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Numbers of casts that were not kept so far.
    pub fn dropped(&self) -> CastsDropped {
        self.dropped
    }
}

impl Reader {
    fn tell(&mut self, key: MailKey, ready: &mut VecDeque<MailReader>) {
        if std::mem::take(&mut self.is_waiting) {
            ready.push_back(MailReader::Mailbox(key));
        }
    }
}

impl Mail {
    /// Keeps a cast. False when there was no room.
    fn post(&mut self, from: NodeId, cast: Cast, bounds: &Bounds) -> bool {
        let cost = cost(&cast);
        match self.senders.iter().position(|sender| sender.node == from) {
            Some(at) => {
                let sender = &mut self.senders[at];
                if sender.count >= bounds.casts_max || sender.bytes + cost > bounds.box_bytes_max {
                    return false;
                }
                sender.count += 1;
                sender.bytes += cost;
            }
            None if self.senders.len() >= SENDERS_MAX || cost > bounds.box_bytes_max => {
                return false;
            }
            None => self.senders.push(Sender { node: from, count: 1, bytes: cost }),
        }
        self.casts.push((from, cast));
        true
    }

    /// Tells who waits for tags of a space, once there is reason to.
    fn announce(&mut self, tag: Tag, spaces: &mut Spaces, ready: &mut VecDeque<MailReader>) {
        let Some(space) = spaces.get_mut(tag.space) else { return };
        let senders = || self.senders.iter().map(|sender| sender.node);
        if !self.is_announced && space.is_worth_it(senders()) {
            self.is_announced = true;
            if space.announce(tag) {
                ready.push_back(MailReader::Space(tag.space));
            }
        }
    }
}

fn cost(cast: &Cast) -> usize {
    cast.payload.len() + CAST_BYTES
}

fn lower(bytes_of: &mut BTreeMap<NodeId, usize>, node: NodeId, by: usize) {
    if by > 0
        && let Some(bytes) = bytes_of.get_mut(&node)
    {
        *bytes -= by;
        if *bytes == 0 {
            bytes_of.remove(&node);
        }
    }
}
