//! Store of the graph: a [`Shard`] holds one part of it, a [`Graph`] all of it.
//!
//! Every fact has one home. [`Sharding`] finds it by hashing the id of what the fact is about:
//!
//! | at the shard of | is kept |
//! |---|---|
//! | a person | the person, whom they know and which messages they wrote |
//! | a person's city | the edge from the person to the city |
//! | a message | the message and which comments reply to it directly |
//! | a forum | the forum |
//!
//! An edge kept on both its ends, such as creator and message, is thus at two homes; a query that
//! follows it needs one hop in either direction.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::csv;
use crate::file::DataError;
use crate::model::{
    DateTime, Entity, Forum, ForumId, Friendship, Message, MessageId, Parent, Person, PersonId,
    PlaceId,
};

mod sharding;
#[cfg(test)]
mod tests;

pub(crate) use sharding::mix;
pub use sharding::{Part, Sharding};

/// The part of the graph that one process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    part: Part,
    persons: BTreeMap<PersonId, PersonRecord>,
    cities: BTreeMap<PersonId, PlaceId>,
    forums: BTreeMap<ForumId, Forum>,
    messages: BTreeMap<MessageId, MessageRecord>,
}

/// Facts kept at a person's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonRecord {
    /// The person.
    pub person: Person,
    /// The person's friends, and since when.
    pub knows: BTreeMap<PersonId, DateTime>,
    /// Messages that the person wrote. Iterates newest first, of equally old ones the highest id
    /// first.
    pub messages: BTreeSet<Reverse<(DateTime, MessageId)>>,
}

impl PersonRecord {
    /// The newest `count` messages that the person wrote, newest first.
    pub fn newest_messages(&self, count: usize) -> impl Iterator<Item = MessageId> + '_ {
        self.messages.iter().take(count).map(|Reverse((_, message))| *message)
    }
}

/// Facts kept at a message's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    /// The message.
    pub message: Message,
    /// The comments that reply to it directly.
    pub replies: BTreeSet<MessageId>,
}

/// Reason why a fact does not fit the graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// A fact names something that is not in the graph.
    #[error("unknown {entity} {id}")]
    Unknown {
        /// Kind of the missing thing.
        entity: Entity,
        /// Its id.
        id: i64,
    },
    /// Two things have one id.
    #[error("duplicate id: there already is a {entity} {id}")]
    Duplicate {
        /// Kind of the thing that has the id already.
        entity: Entity,
        /// Its id.
        id: i64,
    },
    /// A friendship was given twice; either direction counts.
    #[error("duplicate friendship: {0} and {1} already know each other")]
    DuplicateFriendship(PersonId, PersonId),
    /// A friendship with oneself.
    #[error("person {0} cannot be their own friend")]
    OwnFriend(PersonId),
    /// A comment is not newer than what it replies to. Since all comments have to be, walking up
    /// from a comment always ends at a post, and each shard can check its part of that alone.
    #[error("comment {comment} is not newer than message {parent}, to which it replies")]
    ReplyNotNewer {
        /// The comment.
        comment: MessageId,
        /// The message that it replies to.
        parent: MessageId,
    },
}

/// Each insert keeps a fact if its home is here, checks it as far as that can be known here, and
/// ignores it otherwise. What is named must be inserted before what names it.
impl Shard {
    /// A shard for `part` of the graph that holds nothing yet.
    pub(crate) fn empty(part: Part) -> Self {
        Self {
            part,
            persons: BTreeMap::new(),
            cities: BTreeMap::new(),
            forums: BTreeMap::new(),
            messages: BTreeMap::new(),
        }
    }

    pub(crate) fn insert_person(&mut self, person: Person) -> Result<(), Defect> {
        let id = person.id;
        if !self.part.has_person(id) {
            return Ok(());
        }
        let record = PersonRecord { person, knows: BTreeMap::new(), messages: BTreeSet::new() };
        insert_new(&mut self.persons, id, record, || duplicate(Entity::Person, id.0))
    }

    pub(crate) fn insert_city(&mut self, person: PersonId, city: PlaceId) {
        if self.part.has_city_of(person) {
            self.cities.insert(person, city);
        }
    }

    pub(crate) fn insert_friendship(&mut self, friendship: Friendship) -> Result<(), Defect> {
        let [a, b] = friendship.persons;
        if a == b {
            return Err(Defect::OwnFriend(a));
        }
        self.insert_friend(a, b, friendship.creation_date)?;
        self.insert_friend(b, a, friendship.creation_date)
    }

    fn insert_friend(
        &mut self,
        of: PersonId,
        friend: PersonId,
        since: DateTime,
    ) -> Result<(), Defect> {
        if !self.part.has_person(of) {
            return Ok(());
        }
        let record = self.persons.get_mut(&of).ok_or(unknown(Entity::Person, of.0))?;
        insert_new(&mut record.knows, friend, since, || Defect::DuplicateFriendship(of, friend))
    }

    pub(crate) fn insert_forum(&mut self, forum: Forum) -> Result<(), Defect> {
        let id = forum.id;
        if !self.part.has_forum(id) {
            return Ok(());
        }
        insert_new(&mut self.forums, id, forum, || duplicate(Entity::Forum, id.0))
    }

    /// Keeps the message itself; its edges are [`Self::insert_authored`] and
    /// [`Self::insert_reply`].
    pub(crate) fn insert_message(&mut self, message: Message) -> Result<(), Defect> {
        let id = message.id;
        if !self.part.has_message(id) {
            return Ok(());
        }
        match self.messages.entry(id) {
            Entry::Occupied(there) => Err(duplicate(entity(&there.get().message), id.0)),
            Entry::Vacant(free) => {
                free.insert(MessageRecord { message, replies: BTreeSet::new() });
                Ok(())
            }
        }
    }

    /// Keeps the edge from a person to a message they wrote.
    pub(crate) fn insert_authored(
        &mut self,
        creator: PersonId,
        message: MessageId,
        written: DateTime,
    ) -> Result<(), Defect> {
        if !self.part.has_person(creator) {
            return Ok(());
        }
        let record = self.persons.get_mut(&creator).ok_or(unknown(Entity::Person, creator.0))?;
        record.messages.insert(Reverse((written, message)));
        Ok(())
    }

    /// Keeps the edge from `parent`, which has to be a `kind`, to a comment that replies to it.
    pub(crate) fn insert_reply(
        &mut self,
        kind: Entity,
        parent: MessageId,
        comment: MessageId,
        written: DateTime,
    ) -> Result<(), Defect> {
        if !self.part.has_message(parent) {
            return Ok(());
        }
        let record = self
            .messages
            .get_mut(&parent)
            .filter(|record| entity(&record.message) == kind)
            .ok_or(unknown(kind, parent.0))?;
        if written <= record.message.creation_date {
            return Err(Defect::ReplyNotNewer { comment, parent });
        }
        record.replies.insert(comment);
        Ok(())
    }

    /// Complains when the person has to be here and is not.
    pub(crate) fn check_person(&self, id: PersonId) -> Result<(), Defect> {
        if self.part.has_person(id) && !self.persons.contains_key(&id) {
            return Err(unknown(Entity::Person, id.0));
        }
        Ok(())
    }

    /// Complains when the forum has to be here and is not.
    pub(crate) fn check_forum(&self, id: ForumId) -> Result<(), Defect> {
        if self.part.has_forum(id) && !self.forums.contains_key(&id) {
            return Err(unknown(Entity::Forum, id.0));
        }
        Ok(())
    }
}

impl Shard {
    /// Reads one part of the graph in the folder `dir`, which has the LDBC layout of [`csv`].
    ///
    /// All lines are read and only those of `part` are kept. Ids are checked by the shard they
    /// belong to, so a folder is sound when every shard could read it.
    ///
    /// # Errors
    ///
    /// A [`DataError`] names the first file, line and reason that do not fit.
    pub fn read(dir: &Path, part: Part) -> Result<Self, DataError> {
        csv::read(dir, part)
    }

    /// The part of the graph that this is.
    pub fn part(&self) -> Part {
        self.part
    }

    /// The person, if their home is here.
    pub fn person(&self, id: PersonId) -> Option<&PersonRecord> {
        self.persons.get(&id)
    }

    /// The city the person lives in, if the home of that edge is here.
    pub fn city_of(&self, person: PersonId) -> Option<PlaceId> {
        self.cities.get(&person).copied()
    }

    /// The forum, if its home is here.
    pub fn forum(&self, id: ForumId) -> Option<&Forum> {
        self.forums.get(&id)
    }

    /// The message, if its home is here.
    pub fn message(&self, id: MessageId) -> Option<&MessageRecord> {
        self.messages.get(&id)
    }

    /// All persons kept here, by id.
    pub fn persons(&self) -> impl Iterator<Item = &PersonRecord> + '_ {
        self.persons.values()
    }

    /// All edges from a person to a city kept here, by person.
    pub fn cities(&self) -> impl Iterator<Item = (PersonId, PlaceId)> + '_ {
        self.cities.iter().map(|(person, city)| (*person, *city))
    }

    /// All forums kept here, by id.
    pub fn forums(&self) -> impl Iterator<Item = &Forum> + '_ {
        self.forums.values()
    }

    /// All messages kept here, by id.
    pub fn messages(&self) -> impl Iterator<Item = &MessageRecord> + '_ {
        self.messages.values()
    }
}

/// The whole graph in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph(Shard);

impl Graph {
    /// Reads the graph in the folder `dir`, which has the LDBC layout of [`csv`].
    ///
    /// # Errors
    ///
    /// A [`DataError`] names the first file, line and reason that do not fit.
    pub fn read(dir: &Path) -> Result<Self, DataError> {
        Shard::read(dir, Part::WHOLE).map(Self)
    }

    /// Writes the graph to the folder `dir` in the LDBC layout of [`csv`], making the folder if
    /// need be. Columns that no query reads are filled with something plausible.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, or a text holds what the format cannot: `|` or a line break.
    pub fn write_csv(&self, dir: &Path) -> std::io::Result<()> {
        csv::write(self, dir)
    }

    /// The graph that `whole` holds; it must be a shard of [`Part::WHOLE`].
    pub(crate) fn from_whole(whole: Shard) -> Self {
        debug_assert_eq!(whole.part, Part::WHOLE);
        Self(whole)
    }

    /// The graph as the one shard that holds everything.
    pub fn whole(&self) -> &Shard {
        &self.0
    }

    /// A copy of one part of the graph.
    pub fn shard(&self, part: Part) -> Shard {
        let mut shard = self.0.clone();
        shard.part = part;
        shard.persons.retain(|id, _| part.has_person(*id));
        shard.cities.retain(|person, _| part.has_city_of(*person));
        shard.forums.retain(|id, _| part.has_forum(*id));
        shard.messages.retain(|id, _| part.has_message(*id));
        shard
    }
}

fn insert_new<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: V,
    taken: impl FnOnce() -> Defect,
) -> Result<(), Defect> {
    match map.entry(key) {
        Entry::Occupied(_) => Err(taken()),
        Entry::Vacant(free) => {
            free.insert(value);
            Ok(())
        }
    }
}

fn entity(message: &Message) -> Entity {
    match message.parent {
        Parent::Forum(_) => Entity::Post,
        Parent::Message(_) => Entity::Comment,
    }
}

fn unknown(entity: Entity, id: i64) -> Defect {
    Defect::Unknown { entity, id }
}

fn duplicate(entity: Entity, id: i64) -> Defect {
    Defect::Duplicate { entity, id }
}
