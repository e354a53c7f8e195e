//! All casts of a space in one stream, for a protocol that keeps its own books: one of each member
//! in turn, whatever they are about.

use std::collections::{BTreeMap, VecDeque};

use crate::id::NodeId;
use crate::mutant::{self, Mutant};
use crate::time::Timestamp;
use crate::wire::Cast;

use super::mail::Post;
use super::{MailKey, MailReader, Mailboxes, State, Tag};

/// A cast that waits, and what it is about.
type Entry = (Tag, Post);

/// Places beyond which a queue that has become short gives its room back.
const KEPT: usize = 64;

/// Casts that wait, by sender.
#[derive(Debug, Default)]
pub(super) struct Stream {
    of: BTreeMap<NodeId, VecDeque<Entry>>,
    /// Those of whom something waits, whose turn is next first.
    turns: VecDeque<NodeId>,
}

impl Stream {
    fn push(&mut self, tag: Tag, post: Post) {
        let from = post.from;
        let of = self.of.entry(from).or_default();
        if of.is_empty() {
            self.turns.push_back(from);
        }
        if of.len() == of.capacity() {
            of.reserve_exact(1 + of.len() / 8);
        }
        of.push_back((tag, post));
    }

    fn len_of(&self, from: NodeId) -> usize {
        self.of.get(&from).map_or(0, VecDeque::len)
    }

    fn pop(&mut self) -> Option<Entry> {
        let from = self.turns.pop_front()?;
        let of = self.of.get_mut(&from)?;
        let popped = of.pop_front();
        give_room_back(of);
        match of.is_empty() {
            true => drop(self.of.remove(&from)),
            false if mutant::is(Mutant::TurnsIgnored) => self.turns.push_front(from),
            false => self.turns.push_back(from),
        }
        popped
    }

    /// Drops what is about a tag of which `is_over` is true.
    pub(super) fn drop_over(
        &mut self,
        is_over: impl Fn(Tag) -> bool,
        mut dropped: impl FnMut(NodeId, usize),
    ) {
        for (from, posts) in &mut self.of {
            posts.retain(|(tag, post)| {
                let is_over = is_over(*tag);
                if is_over {
                    dropped(*from, post.cost_as::<Entry>());
                }
                !is_over
            });
            give_room_back(posts);
        }
        self.of.retain(|_, posts| !posts.is_empty());
        self.turns.retain(|from| self.of.contains_key(from));
    }
}

fn give_room_back(of: &mut VecDeque<Entry>) {
    if of.capacity() > KEPT.max(of.len() * 4) {
        of.shrink_to(of.len() * 2);
    }
}

#[cfg(test)]
impl Stream {
    pub(super) fn bytes(&self) -> usize {
        self.of.values().flatten().map(|(_, post)| post.cost_as::<Entry>()).sum()
    }
}

impl Mailboxes {
    /// Reads all casts of a space as one stream from now on, as [`Self::poll_cast`] gives them: no
    /// tag of it is opened. What came before is in it.
    pub fn stream_space(&mut self, name: u64) {
        let keys = super::space::all_of(name);
        let early =
            self.boxes.range(keys).filter(|(_, state)| matches!(state, State::Early { .. }));
        let early: Vec<MailKey> = early.map(|(key, _)| *key).collect();
        let Some(space) = self.spaces.get_mut(name) else { return };
        space.stream = Some(Stream::default());
        for key in early {
            let Some(State::Early { mut mail, at, .. }) = self.boxes.remove(&key) else { continue };
            mail.take_bytes().for_each(|(node, bytes)| self.books.give(node, bytes));
            let posts: Vec<Post> = mail.take_posts().collect();
            self.end_early(at, key, mail.begun_by);
            let MailKey::Tag(tag) = key else { continue };
            for post in posts {
                if let Some(space) =
                    self.spaces.get_mut(name).filter(|space| space.is_of(post.from))
                {
                    self.books.take(post.from, post.cost_as::<Entry>());
                    space.stream.get_or_insert_default().push(tag, post);
                }
            }
        }
    }

    pub(super) fn post_to_stream(
        &mut self,
        from: NodeId,
        tag: Tag,
        cast: Cast,
    ) -> Result<(), &mut u64> {
        let post = Post::new(from, Timestamp::MAX, cast);
        let cost = post.cost_as::<Entry>();
        let stream = self.spaces.get_mut(tag.space).and_then(|space| space.stream.as_mut());
        let has_room = cost <= self.bounds.box_bytes_max && self.books.may_take(from, cost);
        let stream =
            stream.filter(|stream| has_room && stream.len_of(from) < self.bounds.casts_max);
        let Some(stream) = stream else { return Err(&mut self.dropped.over_limit) };
        stream.push(tag, post);
        self.books.take(from, cost);
        if self.spaces.tell(tag.space) {
            self.ready.push_back(MailReader::Space(tag.space));
        }
        Ok(())
    }

    /// The next cast of a space that is read as a stream: of each member in turn. The space's
    /// reader is ready once there is one.
    pub fn poll_cast(&mut self, name: u64) -> Option<(NodeId, Tag, Cast)> {
        let space = self.spaces.get_mut(name)?;
        let next = space.stream.as_mut().and_then(Stream::pop);
        space.is_waiting = next.is_none();
        let (tag, post) = next?;
        self.books.give(post.from, post.cost_as::<Entry>());
        Some((post.from, tag, post.into_cast(MailKey::Tag(tag).about())))
    }
}
