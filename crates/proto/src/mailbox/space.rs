//! Spaces: the tags of one service or group, which somebody here reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;
use crate::mutant::{self, Mutant};

use super::closed::ClosedTags;
use super::known::Group;
use super::mail::Mail;
use super::stream::Stream;
use super::{JoinRefusal, MailKey, MailReader, Mailboxes, State, Tag};

/// When a tag that nobody has opened is worth to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// Once so many nodes have cast about it.
    pub senders_min: usize,
    /// Or once this one has.
    pub source: Option<NodeId>,
}

/// Reason why a space cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceRefusal {
    /// Somebody here has it open.
    #[error("the space is open at this node already")]
    Taken,
    /// That it was open could not be remembered: too many others are.
    #[error("more spaces than can be remembered")]
    Full,
}

#[derive(Debug, Default)]
pub(super) struct Spaces {
    open: BTreeMap<u64, Space>,
    /// Closed tags of spaces that nobody reads any more.
    past: BTreeMap<u64, ClosedTags>,
}

#[derive(Debug)]
pub(super) struct Space {
    closed: ClosedTags,
    /// Tags that are open.
    opened: usize,
    /// Tags without a reader that one node may begin.
    window: usize,
    /// Nodes whose casts are taken; every known node where nobody was named.
    members: Option<BTreeSet<NodeId>>,
    /// Nodes that are to become members: their casts are kept.
    next: BTreeSet<NodeId>,
    begun: BTreeMap<NodeId, usize>,
    announce: Announce,
    /// Worth a reader, and not told of yet.
    announced: BTreeSet<Tag>,
    /// Casts of all tags, where they are read so.
    pub(super) stream: Option<Stream>,
    /// Members to which something could not be sent.
    missed: BTreeSet<NodeId>,
    pub(super) is_waiting: bool,
}

/// Use of a cast about a tag.
pub(super) enum Heard {
    Stranger,
    Late,
    Post,
    Stream,
}

/// Spaces that are open or have closed tags. Names are the application's own.
const SPACES_MAX: usize = 4_096;

impl Space {
    fn is_over(&self, tag: Tag) -> bool {
        self.closed.is_below(place(tag))
    }

    pub(super) fn is_of(&self, node: NodeId) -> bool {
        self.members.as_ref().is_none_or(|members| members.contains(&node))
    }

    /// True of a known node whose casts are taken.
    pub(super) fn is_heard(&self, node: NodeId) -> bool {
        self.is_of(node) || self.next.contains(&node)
    }

    fn is_worth_it(&self, senders: impl Iterator<Item = NodeId> + Clone) -> bool {
        let Announce { senders_min, source } = self.announce;
        // Strangers may have cast before the space was opened.
        let mut senders = senders.filter(|sender| self.is_of(*sender));
        senders.clone().count() >= senders_min
            || mutant::is(Mutant::AnnouncedByAnyone)
            || source.is_some_and(|source| senders.any(|sender| sender == source))
    }
}

impl Spaces {
    pub(super) fn get_mut(&mut self, space: u64) -> Option<&mut Space> {
        self.open.get_mut(&space)
    }

    /// Says what a cast about a tag is worth.
    pub(super) fn hear(&self, tag: Tag, from: NodeId, is_known: bool) -> Heard {
        let Some(space) = self.open.get(&tag.space) else {
            let is_over = |past: &ClosedTags| past.is_below(place(tag));
            return match is_known {
                false => Heard::Stranger,
                true if self.past.get(&tag.space).is_some_and(is_over) => Heard::Late,
                true => Heard::Post,
            };
        };
        let is_member = match &space.members {
            Some(members) => members.contains(&from) || space.next.contains(&from),
            None => is_known,
        };
        match () {
            () if !is_member && !mutant::is(Mutant::StrangersCast) => Heard::Stranger,
            () if space.is_over(tag) => Heard::Late,
            () if space.stream.is_some() => Heard::Stream,
            () => Heard::Post,
        }
    }

    /// True when a node may begin a mailbox.
    pub(super) fn has_window(&self, key: MailKey, from: NodeId) -> bool {
        let MailKey::Tag(tag) = key else { return true };
        let Some(space) = self.open.get(&tag.space) else { return true };
        let has_window = space.begun.get(&from).copied().unwrap_or(0) < space.window;
        has_window || mutant::is(Mutant::WindowIgnored)
    }

    /// True of a tag that was open before, and is not to be opened again.
    pub(super) fn is_closed(&self, key: MailKey) -> bool {
        let MailKey::Tag(tag) = key else { return false };
        let open = self.open.get(&tag.space).map(|space| &space.closed);
        let closed = open.or_else(|| self.past.get(&tag.space));
        closed.is_some_and(|closed| closed.contains(place(tag)))
    }

    pub(super) fn note_begun(&mut self, tag: Tag, by: NodeId) {
        if let Some(space) = self.get_mut(tag.space) {
            *space.begun.entry(by).or_default() += 1;
        }
    }

    pub(super) fn note_ended(&mut self, tag: Tag, begun_by: NodeId) {
        let Some(space) = self.get_mut(tag.space) else { return };
        space.announced.remove(&tag);
        if let Some(begun) = space.begun.get_mut(&begun_by) {
            *begun -= 1;
            if *begun == 0 {
                space.begun.remove(&begun_by);
            }
        }
    }

    /// A tag is opened.
    pub(super) fn open(&mut self, tag: Tag, is_again: bool) -> Result<(), JoinRefusal> {
        let space = self.open.get_mut(&tag.space);
        let past = self.past.get(&tag.space);
        let (closed, opened) = match &space {
            Some(space) => (Some(&space.closed), space.opened),
            None => (past, 0),
        };
        if let Some(closed) = closed {
            let was_open = match is_again {
                true => closed.is_below(place(tag)),
                false => closed.contains(place(tag)),
            };
            if was_open && !mutant::is(Mutant::ClosedTagForgotten) {
                return Err(JoinRefusal::Closed);
            }
            if !closed.has_room(place(tag), opened) {
                return Err(JoinRefusal::Full);
            }
        }
        if let Some(space) = space {
            space.opened += 1;
        }
        Ok(())
    }

    /// A tag was open, and is to be remembered if anything was cast about it.
    pub(super) fn close(&mut self, tag: Tag, has_voted: bool) {
        let closed = match self.open.get_mut(&tag.space) {
            Some(space) => {
                space.opened = space.opened.saturating_sub(1);
                &mut space.closed
            }
            None if has_voted => self.past.entry(tag.space).or_default(),
            None => return,
        };
        if has_voted {
            closed.insert(place(tag));
        }
    }

    /// Tells who waits for tags of a space, once there is reason to. True when somebody does.
    pub(super) fn announce(&mut self, tag: Tag, mail: &Mail, is_announced: &mut bool) -> bool {
        let Some(space) = self.get_mut(tag.space) else { return false };
        if *is_announced || !space.is_worth_it(mail.senders()) {
            return false;
        }
        *is_announced = true;
        space.announced.insert(tag);
        std::mem::take(&mut space.is_waiting)
    }

    /// Something could not be sent to a member. True when the reader waited.
    pub(super) fn note_unsent(&mut self, space: u64, to: NodeId) -> bool {
        let Some(space) = self.get_mut(space) else { return false };
        space.missed.insert(to);
        std::mem::take(&mut space.is_waiting)
    }

    /// True when the reader of a space waited, which it does no longer.
    pub(super) fn tell(&mut self, space: u64) -> bool {
        self.get_mut(space).is_some_and(|space| std::mem::take(&mut space.is_waiting))
    }

    /// Those of these spaces whose readers waited, which they do no longer.
    pub(super) fn tell_those(&mut self, of: impl Fn(&Space) -> bool) -> impl Iterator<Item = u64> {
        let told = move |space: &mut Space| of(space) && std::mem::take(&mut space.is_waiting);
        self.open.iter_mut().filter_map(move |(name, space)| told(space).then_some(*name))
    }

    pub(super) fn closed_count(&self) -> usize {
        let open = self.open.values().map(|space| space.closed.len());
        open.chain(self.past.values().map(ClosedTags::len)).sum()
    }
}

impl Mailboxes {
    /// Somebody reads the tags of a space from now on, as far as they come from `members`, or from
    /// all known nodes. What came before is announced, too.
    ///
    /// # Errors
    /// [`SpaceRefusal`].
    pub fn open_space(
        &mut self,
        name: u64,
        window: usize,
        announce: Announce,
        members: Option<BTreeSet<NodeId>>,
    ) -> Result<(), SpaceRefusal> {
        if self.spaces.open.contains_key(&name) {
            return Err(SpaceRefusal::Taken);
        }
        let past = self.spaces.past.remove(&name);
        if past.is_none() && self.spaces.open.len() + self.spaces.past.len() >= SPACES_MAX {
            return Err(SpaceRefusal::Full);
        }
        self.known.set(Group::Here(name), members.clone().unwrap_or_default());
        let mut space = Space {
            closed: past.unwrap_or_default(),
            opened: 0,
            window,
            members,
            next: BTreeSet::new(),
            begun: BTreeMap::new(),
            announce,
            announced: BTreeSet::new(),
            stream: None,
            missed: BTreeSet::new(),
            is_waiting: false,
        };
        for (_, state) in self.boxes.range(all_of(name)) {
            match state {
                State::Early { mail, .. } => {
                    if let Some(first) = mail.begun_by {
                        *space.begun.entry(first).or_default() += 1;
                    }
                }
                State::Open { .. } => space.opened += 1,
            }
        }
        self.spaces.open.insert(name, space);
        self.announce_kept(name);
        Ok(())
    }

    /// Announces the tags of a space whose casts are kept, as far as they are worth it by now.
    fn announce_kept(&mut self, name: u64) {
        for (key, state) in self.boxes.range_mut(all_of(name)) {
            if let (MailKey::Tag(tag), State::Early { mail, is_announced, .. }) = (key, state)
                && self.spaces.announce(*tag, mail, is_announced)
            {
                self.ready.push_back(MailReader::Space(name));
            }
        }
    }

    /// The next tag that is worth a reader and has none; the space's is ready once there is such.
    pub fn poll_announced(&mut self, name: u64) -> Option<Tag> {
        let space = self.spaces.get_mut(name)?;
        let tag = space.announced.pop_first();
        space.is_waiting = tag.is_none();
        tag
    }

    /// Members to which something about a tag of a space could not be sent since it was last asked.
    pub fn take_missed_of_space(&mut self, name: u64) -> BTreeSet<NodeId> {
        self.spaces.get_mut(name).map(|space| std::mem::take(&mut space.missed)).unwrap_or_default()
    }

    /// Other members of a space from now on. What waits of those who are no longer stays until its
    /// time; nothing more of theirs is taken. What came before of the others counts.
    pub fn change_members(&mut self, name: u64, members: BTreeSet<NodeId>) {
        if let Some(space) = self.spaces.get_mut(name) {
            self.known.set(Group::Here(name), members.clone());
            space.members = Some(members);
            space.next.clear();
        }
        self.announce_kept(name);
    }

    /// Takes the casts of these nodes, too, until the members of a space change.
    pub fn hear_next(&mut self, name: u64, members: BTreeSet<NodeId>) {
        if let Some(space) = self.spaces.get_mut(name) {
            let now = space.members.iter().flatten();
            self.known.set(Group::Here(name), now.chain(&members).copied().collect());
            space.next = members;
        }
    }

    /// All tags below are over: what waits for them goes, and what comes for them is late.
    pub fn raise_floor(&mut self, name: u64, floor: (u64, u64)) {
        let Some(space) = self.spaces.get_mut(name) else { return };
        if !space.closed.raise_floor(floor) {
            return;
        }
        let (books, dropped) = (&mut self.books, &mut self.dropped);
        if let Some(stream) = &mut space.stream {
            stream.drop_over(
                |tag| place(tag) < floor,
                |from, cost| {
                    books.give(from, cost);
                    dropped.late += 1;
                },
            );
        }
        self.drop_readerless(tags_from(name, (0, 0))..tags_from(name, floor));
    }

    /// The lowest tag that is not over.
    pub fn floor(&self, name: u64) -> (u64, u64) {
        self.spaces.open.get(&name).map_or((0, 0), |space| space.closed.floor())
    }

    /// Nobody reads the tags of a space any more. What is closed of it stays so.
    pub fn close_space(&mut self, name: u64) {
        self.drop_readerless(all_of(name));
        let Some(mut space) = self.spaces.open.remove(&name) else { return };
        if let Some(stream) = &mut space.stream {
            stream.drop_over(|_| true, |from, cost| self.books.give(from, cost));
        }
        if !space.closed.is_empty() {
            self.spaces.past.insert(name, space.closed);
        }
        self.forget_members(name);
    }

    /// Knows the members of a space no more that is closed, as all of its tags are.
    pub(super) fn forget_members(&mut self, name: u64) {
        let is_open = |(_, state): (&MailKey, &State)| matches!(state, State::Open { .. });
        if !self.spaces.open.contains_key(&name) && !self.boxes.range(all_of(name)).any(is_open) {
            self.known.set(Group::Here(name), BTreeSet::new());
        }
    }

    fn drop_readerless(&mut self, keys: impl std::ops::RangeBounds<MailKey>) {
        let early =
            self.boxes.range(keys).filter(|(_, state)| matches!(state, State::Early { .. }));
        let early: Vec<MailKey> = early.map(|(key, _)| *key).collect();
        for key in early {
            let late = self.drop_early(key);
            self.dropped.late += late as u64;
        }
    }
}

fn place(tag: Tag) -> (u64, u64) {
    (tag.view, tag.sequence)
}

fn tags_from(space: u64, (view, sequence): (u64, u64)) -> MailKey {
    MailKey::Tag(Tag { space, view, sequence })
}

pub(super) fn all_of(space: u64) -> std::ops::RangeInclusive<MailKey> {
    tags_from(space, (0, 0))..=tags_from(space, (u64::MAX, u64::MAX))
}
