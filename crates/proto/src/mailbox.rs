//! Casts that nobody has counted yet: they may come before their reader is there, and they wait
//! until as many have come as it needs.
//!
//! ```text
//!   none ──cast──▶ Early ──join──▶ Open ──close──▶ closed ──settled, or below the floor──▶ none
//!                    └──time──▶ none
//! ```
//! One mechanism for two kinds of names: the participants of a call cast about the call, members
//! with phases that outlive a call about a [`Tag`]. What is closed keeps no cast; it is remembered
//! so that nobody votes twice: a call until it is settled here, a tag until its space is told that
//! all below another are over.
//!
//! Only nodes that this one knows are heard, and of a space only its members. What waits is taken
//! from the share of who said it, so that no member crowds out another, and each cast has an expiry
//! of its own, so that none shortens the life of another's.

mod books;
mod closed;
mod known;
mod mail;
mod space;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use crate::id::{CallId, Incarnation, NodeId, NodeLife};
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::mutant::{self, Mutant};
use crate::time::{Timestamp, earliest};
use crate::wire::{About, Cast};

use books::Books;
use closed::ClosedCalls;
use known::{Group, Known};
pub(crate) use mail::OVERHEAD_BYTES_MAX;
use mail::{Mail, Post};
pub use space::{Announce, SpaceRefusal};
use space::{Heard, Space, Spaces};

/// Subject of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MailKey {
    /// A call.
    Call(CallName),
    /// A tag of the application's own.
    Tag(Tag),
}

impl MailKey {
    /// The origin by which it is found: that of the call, or the space of the tag.
    pub fn origin(self) -> Incarnation {
        match self {
            Self::Call(name) => name.origin.life,
            Self::Tag(tag) => Incarnation(tag.space),
        }
    }

    /// Words of a cast about it beside its header.
    fn about(self) -> About {
        match self {
            Self::Call(name) => About::Call { initiator: name.origin.node },
            Self::Tag(tag) => About::Tag { view: tag.view },
        }
    }

    /// Key of a cast, from its header and what it says it is about.
    pub(crate) fn of(call: CallId, about: About) -> Self {
        match about {
            About::Call { initiator: node } => {
                let origin = NodeLife { node, life: call.origin };
                Self::Call(CallName { origin, seq: call.seq })
            }
            About::Tag { view } => {
                Self::Tag(Tag { space: call.origin.0, view, sequence: call.seq })
            }
        }
    }
}

/// Name of a call among those of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallName {
    /// Its initiator: two nodes may say the same life.
    pub origin: NodeLife,
    /// Its number there.
    pub seq: u64,
}

/// A name of the application's own for what members vote on, such as a slot of a log in a view.
/// Tags of a space are ordered, and closed in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// Service or group that the tag belongs to.
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

impl MailReader {
    /// The origin by which it is found.
    pub fn origin(self) -> Incarnation {
        match self {
            Self::Mailbox(key) => key.origin(),
            Self::Space(name) => Incarnation(name),
        }
    }
}

/// Reason why a mailbox cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinRefusal {
    /// Another reader has it.
    #[error("another round about the same runs at this node")]
    Taken,
    /// It was open before: nobody may vote twice.
    #[error("a round about the same has ended at this node")]
    Closed,
    /// That it was open could not be remembered: too many tags of its space are closed with gaps
    /// between them.
    #[error("more closed tags than can be remembered: close all below one")]
    Full,
    /// The request was not sent by the initiator of the call itself.
    #[error("the request does not come from the initiator of the call itself")]
    NotAsked,
}

/// Numbers of casts that were not kept, since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CastsDropped {
    /// Nobody needed them any more: harmless.
    pub late: u64,
    /// Their sender had used up its share, or had too much waiting about one call or tag.
    pub over_limit: u64,
    /// They were of an earlier epoch than this node's.
    pub stale_epoch: u64,
    /// No reader came in their time.
    pub expired: u64,
    /// Their sender is no node that this one knows, or not a member of the tag's space.
    pub strangers: u64,
    /// Of this node's own: there was no way to the member, or no room on it.
    pub unsent: u64,
    /// Their values, which travel beside them, did not come.
    pub missing: u64,
}

impl std::ops::Add for CastsDropped {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            late: self.late + other.late,
            over_limit: self.over_limit + other.over_limit,
            stale_epoch: self.stale_epoch + other.stale_epoch,
            expired: self.expired + other.expired,
            strangers: self.strangers + other.strangers,
            unsent: self.unsent + other.unsent,
            missing: self.missing + other.missing,
        }
    }
}

/// All mailboxes of a node.
#[derive(Debug)]
pub struct Mailboxes {
    boxes: BTreeMap<MailKey, State>,
    /// When something is to be dropped of the mailboxes without a reader.
    expiries: BTreeSet<(Timestamp, MailKey)>,
    closed_calls: ClosedCalls,
    spaces: Spaces,
    known: Known,
    books: Books,
    /// Readers that waited, and wait no longer.
    ready: VecDeque<MailReader>,
    dropped: CastsDropped,
    bounds: Bounds,
}

#[derive(Debug)]
struct Bounds {
    casts_max: usize,
    box_bytes_max: usize,
    lifetime_max: Duration,
}

#[derive(Debug)]
enum State {
    /// Nobody has opened it: something is to be dropped of it at this time.
    Early { mail: Box<Mail>, at: Timestamp, is_announced: bool },
    /// Its reader, which may wait for so many casts.
    Open {
        mail: Box<Mail>,
        is_waiting: bool,
        wake_at: u32,
        /// None while nothing but casts concerns it.
        ways: Option<Box<Ways>>,
    },
}

/// Concerns of the reader of a mailbox beside casts.
#[derive(Debug, Default)]
struct Ways {
    /// Nodes whose connections concern it: those of all who may cast where it named none.
    watched: SmallVec<[NodeId; 8]>,
    /// Number of times that it was told.
    changes: u64,
    /// Members to which something about it could not be sent.
    missed: SmallVec<[NodeId; 4]>,
}

/// Place of a cast that counts.
enum Worth {
    /// The mailbox of what it is about.
    Post,
    /// The stream of its tag's space.
    Stream(Tag),
}

/// The count of a cast that is not kept.
type Count = fn(&mut CastsDropped) -> &mut u64;

impl State {
    fn mail(&self) -> &Mail {
        let (Self::Early { mail, .. } | Self::Open { mail, .. }) = self;
        mail
    }
}

/// Least time between two looks at which casts of a mailbox have expired, and so the most by which
/// one outlives its time. Each look is at all that wait in it, and without it a member that gives
/// each of its casts a time of its own would have one for each.
const EXPIRY_PAUSE: Duration = Duration::from_millis(250);

impl Mailboxes {
    /// Those of one of so many cores.
    pub(crate) fn new(limits: &Limits, cores: usize) -> Self {
        let bounds = Bounds {
            casts_max: limits.casts_max,
            box_bytes_max: limits.cast_bytes_max,
            lifetime_max: limits.deadline_max,
        };
        Self {
            boxes: BTreeMap::new(),
            expiries: BTreeSet::new(),
            closed_calls: ClosedCalls::default(),
            spaces: Spaces::default(),
            known: Known::default(),
            books: Books::new(limits.cast_bytes_total_max, cores),
            ready: VecDeque::new(),
            dropped: CastsDropped::default(),
            bounds,
        }
    }

    /// Members that vote at this node: their casts are kept, also before a round is there. The
    /// 65,536 are remembered that were named last.
    pub fn know(&mut self, members: impl IntoIterator<Item = NodeId>) {
        members.into_iter().for_each(|member| self.known.name(member));
    }

    /// Sets the members of a space that any core of the node has: they may cast about calls here,
    /// too. None once it is closed.
    pub fn know_of_space(&mut self, name: u64, members: BTreeSet<NodeId>) {
        self.known.set(Group::AtAny(name), members);
    }

    /// Members of a space that is open here, and those that are to be.
    pub fn members_of_space(&self, name: u64) -> BTreeSet<NodeId> {
        self.known.of(Group::Here(name)).collect()
    }

    /// True when the casts of a node are kept before a round is there.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        self.known.contains(node)
    }

    /// True when the ledger is to be told.
    #[inline]
    pub(crate) fn has_to_tell(&self) -> bool {
        self.books.has_news()
    }

    /// Tells the ledger which bytes wait here.
    pub(crate) fn tell(&mut self, ledger: &mut Ledger) {
        self.books.tell(ledger);
    }

    /// Hears from the ledger which bytes wait in other cores, in all and of a sender.
    pub(crate) fn hear(&mut self, sender: NodeId, ledger: &Ledger) {
        self.books.hear(sender, ledger);
    }

    /// A sender has no connection any more.
    pub(crate) fn handle_node_down(&mut self, sender: NodeId) {
        self.books.forget_elsewhere(sender);
    }

    /// True once members were named.
    pub(crate) fn knows_any(&self) -> bool {
        self.known.has_heard()
    }

    /// A cast came whose value could not be waited for: too many were.
    pub fn note_over_limit(&mut self) {
        self.dropped.over_limit += 1;
    }

    /// The value of a cast did not come.
    pub fn note_missing(&mut self) {
        self.dropped.missing += 1;
    }

    /// A cast came about a call that is over.
    pub(crate) fn note_late(&mut self) {
        self.dropped.late += 1;
    }

    /// A cast of the authenticated node `from` came, which this node knows or not. `epoch` is this
    /// node's own.
    pub(crate) fn handle_cast(
        &mut self,
        now: Timestamp,
        (from, is_known): (NodeId, bool),
        key: MailKey,
        cast: Cast,
        epoch: u64,
    ) {
        let kept = match self.judge((from, is_known), key, &cast, epoch) {
            Ok(Worth::Post) => self.post(now, from, key, cast),
            Ok(Worth::Stream(tag)) => self.post_to_stream(from, tag, cast),
            Err(count) => Err(count),
        };
        if let Err(count) = kept {
            *count += 1;
        }
    }

    /// True when a cast would be kept, were there room. One that would not is counted.
    pub(crate) fn would_keep(
        &mut self,
        from: (NodeId, bool),
        key: MailKey,
        cast: &Cast,
        epoch: u64,
    ) -> bool {
        let bar = match self.judge(from, key, cast, epoch).map_err(|count| *count += 1) {
            Ok(Worth::Post) if !self.boxes.contains_key(&key) => {
                self.bar_to_begin(from.0, key, cast)
            }
            Ok(_) => None,
            Err(()) => return false,
        };
        if let Some(count) = bar {
            *count(&mut self.dropped) += 1;
        }
        bar.is_none()
    }

    /// Destination of a cast, or the count that it adds to.
    fn judge(
        &mut self,
        (from, is_known): (NodeId, bool),
        key: MailKey,
        cast: &Cast,
        epoch: u64,
    ) -> Result<Worth, &mut u64> {
        // As everywhere, epoch zero stands for no epoch.
        if cast.epoch > 0 && cast.epoch < epoch {
            return Err(&mut self.dropped.stale_epoch);
        }
        let is_known = is_known || mutant::is(Mutant::StrangersCast);
        match key {
            MailKey::Call(_) if !is_known => Err(&mut self.dropped.strangers),
            MailKey::Call(name) if self.closed_calls.contains(name) => Err(&mut self.dropped.late),
            MailKey::Call(_) => Ok(Worth::Post),
            MailKey::Tag(tag) => match self.spaces.hear(tag, from, is_known) {
                Heard::Stranger => Err(&mut self.dropped.strangers),
                // Who reads it goes on until it ends.
                Heard::Late if self.is_open(key) => Ok(Worth::Post),
                Heard::Late => Err(&mut self.dropped.late),
                Heard::Post => Ok(Worth::Post),
                Heard::Stream => Ok(Worth::Stream(tag)),
            },
        }
    }

    /// True while somebody reads it.
    fn is_open(&self, key: MailKey) -> bool {
        matches!(self.boxes.get(&key), Some(State::Open { .. }))
    }

    /// Keeps a cast, or says what it is counted as.
    fn post(
        &mut self,
        now: Timestamp,
        from: NodeId,
        key: MailKey,
        cast: Cast,
    ) -> Result<(), &mut u64> {
        let there = self.boxes.get(&key).map(State::mail);
        let is_new = there.is_none();
        if is_new && let Some(count) = self.bar_to_begin(from, key, &cast) {
            return Err(count(&mut self.dropped));
        }
        let expires = now + Duration::from_micros(cast.budget_us).min(self.bounds.lifetime_max);
        let post = Post::new(from, expires, cast);
        let cost = there.map_or_else(|| post.cost(), |mail| mail.cost_with(&post));
        let whole = cost + if is_new { Mail::BYTES } else { 0 };
        if cost > self.bounds.box_bytes_max || !self.books.may_take(from, whole) {
            return Err(&mut self.dropped.over_limit);
        }
        if is_new {
            self.begin(from, key, expires);
        }
        let Self { boxes, expiries, bounds, books, ready, .. } = self;
        let has_room = match boxes.get_mut(&key) {
            Some(State::Early { mail, at, .. }) => {
                let has_room = mail.post(post, (bounds.casts_max, bounds.box_bytes_max));
                let sooner = full_pause(expires);
                if has_room && sooner < *at && !mutant::is(Mutant::ExpiryOfFirst) {
                    expiries.remove(&(*at, key));
                    expiries.insert((sooner, key));
                    *at = sooner;
                }
                has_room
            }
            Some(State::Open { mail, is_waiting, wake_at, .. }) => {
                let has_room = mail.post(post, (bounds.casts_max, bounds.box_bytes_max));
                if mail.len() >= *wake_at as usize {
                    tell(is_waiting, key, ready);
                }
                has_room
            }
            None => false,
        };
        if !has_room {
            return Err(&mut self.dropped.over_limit);
        }
        books.take(from, cost);
        if let (MailKey::Tag(tag), Some(State::Early { mail, is_announced, .. })) =
            (key, self.boxes.get_mut(&key))
            && self.spaces.announce(tag, mail, is_announced)
        {
            self.ready.push_back(MailReader::Space(tag.space));
        }
        Ok(())
    }

    /// Count of a cast that may not begin a mailbox.
    fn bar_to_begin(&self, from: NodeId, key: MailKey, cast: &Cast) -> Option<Count> {
        if cast.budget_us == 0 || self.spaces.is_closed(key) {
            return Some(|dropped| &mut dropped.late);
        }
        (!self.spaces.has_window(key, from)).then_some(|dropped| &mut dropped.over_limit)
    }

    fn begin(&mut self, from: NodeId, key: MailKey, expires: Timestamp) {
        let (mail, is_announced) = (Box::new(Mail::begun_by(from)), false);
        self.boxes.insert(key, State::Early { mail, at: expires, is_announced });
        self.expiries.insert((expires, key));
        self.books.take(from, Mail::BYTES);
        if let MailKey::Tag(tag) = key {
            self.spaces.note_begun(tag, from);
        }
    }

    /// Opens a mailbox for the one reader that it may have.
    ///
    /// # Errors
    /// [`JoinRefusal`].
    pub fn join(&mut self, key: MailKey) -> Result<(), JoinRefusal> {
        self.open(key, false)
    }

    /// Opens the mailbox of a tag that may have been open before, for a reader that says again what
    /// it has said.
    ///
    /// # Errors
    /// [`JoinRefusal`] when it is open, or below the floor.
    pub fn join_again(&mut self, key: MailKey) -> Result<(), JoinRefusal> {
        self.open(key, true)
    }

    fn open(&mut self, key: MailKey, is_again: bool) -> Result<(), JoinRefusal> {
        if self.is_open(key) {
            return Err(JoinRefusal::Taken);
        }
        match key {
            MailKey::Call(name) if self.closed_calls.contains(name) => {
                return Err(JoinRefusal::Closed);
            }
            MailKey::Call(_) => {}
            MailKey::Tag(tag) => self.spaces.open(tag, is_again)?,
        }
        let mail = match self.boxes.remove(&key) {
            Some(State::Early { mail, at, .. }) => {
                self.end_early(at, key, mail.begun_by);
                mail
            }
            _ => Box::default(),
        };
        let (is_waiting, wake_at, ways) = (false, 0, None);
        self.boxes.insert(key, State::Open { mail, is_waiting, wake_at, ways });
        Ok(())
    }

    /// Takes all that waits, oldest first, with the authenticated senders.
    pub fn take(&mut self, key: MailKey, into: &mut Vec<(NodeId, Cast)>) {
        let Some(State::Open { mail, .. }) = self.boxes.get_mut(&key) else { return };
        for (node, bytes) in mail.take_bytes() {
            self.books.give(node, bytes);
        }
        let about = key.about();
        into.extend(mail.take_posts().map(|post| (post.from, post.into_cast(about))));
    }

    /// True when `wake_at` casts wait; if not, the reader is ready once they do.
    pub fn poll_waiting(&mut self, key: MailKey, wake_at: usize) -> bool {
        let Some(State::Open { mail, is_waiting, wake_at: told_at, .. }) = self.boxes.get_mut(&key)
        else {
            return true;
        };
        *is_waiting = mail.len() < wake_at;
        *told_at = u32::try_from(wake_at).unwrap_or(u32::MAX);
        !*is_waiting
    }

    /// The reader is gone. `has_voted` when it may have cast: then nobody opens it again before the
    /// call is settled, or the tag is below the floor of its space; of a call, nobody does anyway.
    pub fn close(&mut self, now: Timestamp, key: MailKey, has_voted: bool) {
        let Some(State::Open { mail, .. }) = self.boxes.get_mut(&key) else { return };
        for (node, bytes) in mail.take_bytes() {
            self.books.give(node, bytes);
        }
        self.boxes.remove(&key);
        match key {
            MailKey::Call(name) => self.closed_calls.insert(now, name),
            MailKey::Tag(tag) => {
                self.spaces.close(tag, has_voted);
                self.forget_members(tag.space);
            }
        }
    }

    /// True when something is to be said of the calls that are closed; see [`Self::sweep_calls`].
    pub(crate) fn is_sweep_due(&self, now: Timestamp) -> bool {
        self.closed_calls.is_due(now)
    }

    /// Forgets the closed calls of which `is_over` says that no request can come any more.
    pub(crate) fn sweep_calls(&mut self, now: Timestamp, is_over: impl Fn(CallName) -> bool) {
        self.closed_calls.sweep(now, is_over);
    }

    /// A cast could not be sent to a member.
    pub(crate) fn note_unsent(&mut self, key: MailKey, to: NodeId) {
        self.dropped.unsent += 1;
        if let Some(State::Open { ways, is_waiting, .. }) = self.boxes.get_mut(&key) {
            let missed = &mut ways.get_or_insert_default().missed;
            if !missed.contains(&to) {
                missed.push(to);
            }
            tell(is_waiting, key, &mut self.ready);
        }
        if let MailKey::Tag(tag) = key
            && self.spaces.note_unsent(tag.space, to)
        {
            self.ready.push_back(MailReader::Space(tag.space));
        }
    }

    /// Members to which something about a call or tag could not be sent since it was last asked.
    pub fn take_missed(&mut self, key: MailKey) -> SmallVec<[NodeId; 4]> {
        match self.boxes.get_mut(&key) {
            Some(State::Open { ways: Some(ways), .. }) => std::mem::take(&mut ways.missed),
            _ => SmallVec::new(),
        }
    }

    /// The connections of these nodes concern the reader of a mailbox from now on, and those of no
    /// others.
    pub fn watch(&mut self, key: MailKey, nodes: &[NodeId]) {
        if let Some(State::Open { ways, .. }) = self.boxes.get_mut(&key) {
            let watched = &mut ways.get_or_insert_default().watched;
            if watched.as_slice() != nodes {
                *watched = SmallVec::from_slice(nodes);
            }
        }
    }

    /// Tells every reader that waits: something else than casts may concern it.
    pub(crate) fn tell_readers(&mut self) {
        self.tell_those(|_| true, |_| true);
    }

    /// The way to a node has changed, which may cast here or not. Tells those whom that concerns.
    pub(crate) fn tell_readers_of(&mut self, node: NodeId, may_cast: bool) {
        let concerns = |watched: &[NodeId]| match watched {
            [] => may_cast,
            watched => watched.contains(&node),
        };
        self.tell_those(concerns, |space| may_cast && space.is_heard(node));
    }

    fn tell_those(&mut self, concerns: impl Fn(&[NodeId]) -> bool, of: impl Fn(&Space) -> bool) {
        for (key, state) in &mut self.boxes {
            if let State::Open { is_waiting, ways, .. } = state
                && concerns(ways.as_ref().map_or(&[], |ways| &ways.watched))
            {
                ways.get_or_insert_default().changes += 1;
                tell(is_waiting, *key, &mut self.ready);
            }
        }
        let waiting = self.spaces.tell_those(of);
        self.ready.extend(waiting.map(MailReader::Space));
    }

    /// Number of times that the reader of a mailbox was told of anything but casts.
    pub fn changes(&self, key: MailKey) -> u64 {
        match self.boxes.get(&key) {
            Some(State::Open { ways: Some(ways), .. }) => ways.changes,
            _ => 0,
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A reader that waited for what is there now.
    pub fn poll_ready(&mut self) -> Option<MailReader> {
        self.ready.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.expiries.first().copied().filter(|(at, _)| *at <= now) {
            self.expire(now, at, key);
        }
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        earliest([expiry, self.closed_calls.sweep_at()])
    }

    /// Drops what has no time left of a mailbox without a reader.
    fn expire(&mut self, now: Timestamp, at: Timestamp, key: MailKey) {
        self.expiries.remove(&(at, key));
        let Some(State::Early { mail, at: next_at, .. }) = self.boxes.get_mut(&key) else { return };
        let (next, dropped) = match mutant::is(Mutant::ExpiryOfFirst) {
            true => (None, 0),
            false => mail.expire(now, |from, bytes| self.books.give(from, bytes)),
        };
        self.dropped.expired += dropped as u64;
        match next {
            Some(next) => {
                let next = next.max(now + EXPIRY_PAUSE);
                *next_at = next;
                self.expiries.insert((next, key));
            }
            None => {
                let left = self.drop_early(key);
                self.dropped.expired += left as u64;
            }
        }
    }

    /// Forgets a mailbox without a reader, and says how many casts waited in it.
    fn drop_early(&mut self, key: MailKey) -> usize {
        let Some(State::Early { mut mail, at, .. }) = self.boxes.remove(&key) else { return 0 };
        for (node, bytes) in mail.take_bytes() {
            self.books.give(node, bytes);
        }
        self.end_early(at, key, mail.begun_by);
        mail.len()
    }

    /// A mailbox has found its reader, or is forgotten without one.
    fn end_early(&mut self, at: Timestamp, key: MailKey, begun_by: Option<NodeId>) {
        self.expiries.remove(&(at, key));
        if let Some(begun_by) = begun_by {
            self.books.give(begun_by, Mail::BYTES);
            if let MailKey::Tag(tag) = key {
                self.spaces.note_ended(tag, begun_by);
            }
        }
    }

    /// Mailboxes that are read, or in which casts wait for their reader.
    pub fn count(&self) -> usize {
        self.boxes.len()
    }

    /// Closed calls and intervals of closed tags that are remembered.
    pub fn closed_count(&self) -> usize {
        self.closed_calls.len() + self.spaces.closed_count()
    }

    /// Bytes that what waits takes, with all that keeps it.
    pub fn held_bytes(&self) -> usize {
        self.books.used()
    }

    /// Numbers of casts that were not kept so far.
    pub fn dropped(&self) -> CastsDropped {
        self.dropped
    }
}

/// The first whole multiple of the pause from a time on. What shortens the time of a mailbox ends
/// at one of these, so that however many do, it is looked at once more in a pause at most.
fn full_pause(at: Timestamp) -> Timestamp {
    let pause = u64::try_from(EXPIRY_PAUSE.as_nanos()).unwrap_or(1);
    at.as_nanos().checked_next_multiple_of(pause).map_or(Timestamp::MAX, Timestamp::from_nanos)
}

/// Tells a reader, if it waits.
fn tell(is_waiting: &mut bool, key: MailKey, ready: &mut VecDeque<MailReader>) {
    if std::mem::take(is_waiting) {
        ready.push_back(MailReader::Mailbox(key));
    }
}
