//! Spaces: the tags of one service or group, which somebody here reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;

use super::{MailKey, Mailboxes, State, Tag};

/// When a tag that nobody has opened is worth to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// Once so many nodes have cast about it.
    pub senders_min: usize,
    /// Or once this one has.
    pub source: Option<NodeId>,
}

/// The space is open at this node already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the space is open at this node already")]
pub struct SpaceTaken;

#[derive(Debug, Default)]
pub(super) struct Spaces(BTreeMap<u64, Space>);

#[derive(Debug)]
pub(super) struct Space {
    /// All tags below are over.
    floor: (u64, u64),
    /// Tags without a reader that one node may begin.
    window: usize,
    /// Whose casts are taken; of every node's where nobody was named.
    members: Option<BTreeSet<NodeId>>,
    begun: BTreeMap<NodeId, usize>,
    announce: Announce,
    /// Worth a reader, and not told of yet.
    announced: BTreeSet<Tag>,
    is_waiting: bool,
}

impl Space {
    pub(super) fn is_over(&self, tag: Tag) -> bool {
        (tag.view, tag.sequence) < self.floor
    }

    pub(super) fn is_of(&self, node: NodeId) -> bool {
        self.members.as_ref().is_none_or(|members| members.contains(&node))
    }

    pub(super) fn has_room(&self, from: NodeId) -> bool {
        self.begun.get(&from).is_none_or(|begun| *begun < self.window)
    }

    pub(super) fn is_worth_it(&self, senders: impl Iterator<Item = NodeId> + Clone) -> bool {
        let Announce { senders_min, source } = self.announce;
        // Strangers may have cast before the space was opened.
        let mut senders = senders.filter(|sender| self.is_of(*sender));
        senders.clone().count() >= senders_min
            || source.is_some_and(|source| senders.any(|sender| sender == source))
    }

    /// Announces a tag. True when its reader has waited for one.
    pub(super) fn announce(&mut self, tag: Tag) -> bool {
        self.announced.insert(tag);
        std::mem::take(&mut self.is_waiting)
    }
}

impl Spaces {
    pub(super) fn get(&self, space: u64) -> Option<&Space> {
        self.0.get(&space)
    }

    pub(super) fn get_mut(&mut self, space: u64) -> Option<&mut Space> {
        self.0.get_mut(&space)
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
}

impl Mailboxes {
    /// Somebody reads the tags of a space from now on, as far as they come from `members`, or from
    /// all. What came before is announced, too.
    ///
    /// # Errors
    /// [`SpaceTaken`].
    pub fn open_space(
        &mut self,
        name: u64,
        window: usize,
        announce: Announce,
        members: Option<BTreeSet<NodeId>>,
    ) -> Result<(), SpaceTaken> {
        if self.spaces.get(name).is_some() {
            return Err(SpaceTaken);
        }
        let mut space = Space {
            floor: (0, 0),
            window,
            members,
            begun: BTreeMap::new(),
            announce,
            announced: BTreeSet::new(),
            is_waiting: false,
        };
        for (key, state) in self.boxes.range_mut(tags_from(name, (0, 0))..=last_of(name)) {
            let (MailKey::Tag(tag), State::Early(mail, _)) = (key, state) else { continue };
            if let Some(first) = mail.senders.first() {
                *space.begun.entry(first.node).or_default() += 1;
            }
            if space.is_worth_it(mail.senders.iter().map(|sender| sender.node)) {
                mail.is_announced = true;
                space.announced.insert(*tag);
            }
        }
        self.spaces.0.insert(name, space);
        Ok(())
    }

    /// The next tag that is worth a reader and has none; the space's is ready once there is such.
    pub fn poll_announced(&mut self, name: u64) -> Option<Tag> {
        let space = self.spaces.get_mut(name)?;
        let tag = space.announced.pop_first();
        space.is_waiting = tag.is_none();
        tag
    }

    /// All tags below are over: what waits for them goes, and what comes for them is late.
    pub fn raise_floor(&mut self, name: u64, floor: (u64, u64)) {
        let Some(space) = self.spaces.get_mut(name) else { return };
        if floor <= space.floor {
            return;
        }
        space.floor = floor;
        self.drop_readerless(tags_from(name, (0, 0))..tags_from(name, floor));
    }

    /// The lowest tag that is not over.
    pub fn floor(&self, name: u64) -> (u64, u64) {
        self.spaces.get(name).map_or((0, 0), |space| space.floor)
    }

    /// Nobody reads the tags of a space any more.
    pub fn close_space(&mut self, name: u64) {
        self.drop_readerless(tags_from(name, (0, 0))..=last_of(name));
        self.spaces.0.remove(&name);
    }

    fn drop_readerless(&mut self, keys: impl std::ops::RangeBounds<MailKey>) {
        let keys: Vec<MailKey> = self.boxes.range(keys).map(|(key, _)| *key).collect();
        for key in keys {
            match self.boxes.get(&key) {
                Some(State::Early(_, at)) => {
                    let at = *at;
                    let late = self.drop_early(at, key);
                    self.dropped.late += late as u64;
                }
                Some(State::Closed { forget_at, .. }) => {
                    let at = *forget_at;
                    self.forget_closed(at, key);
                }
                Some(State::Open(..)) | None => {}
            }
        }
    }
}

fn tags_from(space: u64, (view, sequence): (u64, u64)) -> MailKey {
    MailKey::Tag(Tag { space, view, sequence })
}

fn last_of(space: u64) -> MailKey {
    tags_from(space, (u64::MAX, u64::MAX))
}
