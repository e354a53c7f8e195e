//! From the files to a [`Shard`].
//!
//! The parts of a message lie scattered over several files. The edges that start at it are read
//! first; then its own line finds them, and all of it goes into the shard at once.

use std::collections::BTreeSet;
use std::path::Path;

use super::layout;
use super::links::{Link, LinkFile, Links};
use super::table::{Row, Table};
use crate::file::{DataError, Reason};
use crate::model::{
    DateTime, Entity, Forum, ForumId, Friendship, Message, MessageId, Parent, Person, PersonId,
    PlaceId,
};
use crate::store::{Defect, Part, Shard};

/// Reads `part` of the graph in the folder `dir`.
///
/// # Errors
///
/// A [`DataError`] names the first file, line and reason that do not fit.
pub fn read(dir: &Path, part: Part) -> Result<Shard, DataError> {
    let mut reader = Reader { dir, part, shard: Shard::empty(part) };
    reader.read_persons()?;
    reader.read_friendships()?;
    reader.read_forums()?;
    reader.read_posts()?;
    reader.read_comments()?;
    Ok(reader.shard)
}

struct Reader<'a> {
    dir: &'a Path,
    part: Part,
    shard: Shard,
}

/// A comment's edge to what it replies to, until all messages are known.
struct Reply {
    link: Link<(Entity, MessageId)>,
    comment: MessageId,
    written: DateTime,
}

impl Reader<'_> {
    fn read_persons(&mut self) -> Result<(), DataError> {
        let (dir, part) = (self.dir, self.part);
        let places = self.read_cities()?;
        let mut cities = Links::<PersonId, PlaceId>::new();
        cities.read(dir, &layout::PERSON_IS_LOCATED_IN_PLACE, |person, city: PlaceId| {
            if !places.contains(&city) {
                return Err(Defect::Unknown { entity: Entity::City, id: city.0 });
            }
            let kept = part.has_person(person) || part.has_city_of(person);
            Ok(kept.then_some(city))
        })?;
        Table::open(dir, &layout::PERSON)?.for_each(|row| {
            let person = person_of(&row)?;
            let id = person.id;
            self.shard.insert_person(person)?;
            match cities.follow(id) {
                Some(city) => self.shard.insert_city(id, city.target),
                None if part.has_person(id) => {
                    return Err(incomplete(Entity::Person, id.0, "city"));
                }
                None => {}
            }
            Ok(())
        })?;
        cities.finish(dir)
    }

    /// Places are few, whatever the size of the graph.
    fn read_cities(&self) -> Result<BTreeSet<PlaceId>, DataError> {
        let mut cities = BTreeSet::new();
        Table::open(self.dir, &layout::PLACE)?.for_each(|row| {
            let [id, kind] = row.fields;
            let id: PlaceId = id.number()?;
            if kind.text() == "city" {
                cities.insert(id);
            }
            Ok(())
        })?;
        Ok(cities)
    }

    fn read_friendships(&mut self) -> Result<(), DataError> {
        Table::open(self.dir, &layout::PERSON_KNOWS_PERSON)?.for_each(|row| {
            let [a, b, creation_date] = row.fields;
            let friendship = Friendship {
                persons: [a.number()?, b.number()?],
                creation_date: creation_date.number()?,
            };
            Ok(self.shard.insert_friendship(friendship)?)
        })
    }

    fn read_forums(&mut self) -> Result<(), DataError> {
        let (dir, part) = (self.dir, self.part);
        let mut moderators = Links::<ForumId, PersonId>::new();
        moderators.read(dir, &layout::FORUM_HAS_MODERATOR_PERSON, |forum, moderator| {
            self.shard.check_person(moderator)?;
            Ok(part.has_forum(forum).then_some(moderator))
        })?;
        Table::open(dir, &layout::FORUM)?.for_each(|row| {
            let [id, title] = row.fields;
            let id: ForumId = id.number()?;
            if !part.has_forum(id) {
                return Ok(());
            }
            let Some(moderator) = moderators.follow(id) else {
                return Err(incomplete(Entity::Forum, id.0, "moderator"));
            };
            let (title, moderator) = (title.text().to_owned(), moderator.target);
            Ok(self.shard.insert_forum(Forum { id, title, moderator })?)
        })?;
        moderators.finish(dir)
    }

    fn read_posts(&mut self) -> Result<(), DataError> {
        let (dir, part) = (self.dir, self.part);
        let mut creators = self.read_creators(&layout::POST_HAS_CREATOR_PERSON)?;
        let mut forums = Links::<MessageId, ForumId>::new();
        forums.read(dir, &layout::FORUM_CONTAINER_OF_POST, |post, forum| {
            self.shard.check_forum(forum)?;
            Ok(part.has_message(post).then_some(forum))
        })?;
        Table::open(dir, &layout::POST)?.for_each(|row| {
            let [id, image_file, creation_date, content] = row.fields;
            let id = id.number()?;
            let is_photo = !image_file.text().is_empty();
            self.insert_message(Draft {
                kind: Entity::Post,
                id,
                creation_date: creation_date.number()?,
                content: if is_photo { image_file.text() } else { content.text() },
                creator: creators.follow(id).map(|link| link.target),
                parent: forums.follow(id).map(|link| Parent::Forum(link.target)),
            })
        })?;
        creators.finish(dir)?;
        forums.finish(dir)
    }

    fn read_comments(&mut self) -> Result<(), DataError> {
        let dir = self.dir;
        let mut creators = self.read_creators(&layout::COMMENT_HAS_CREATOR_PERSON)?;
        let mut parents = self.read_parents()?;
        let mut replies = Vec::new();
        Table::open(dir, &layout::COMMENT)?.for_each(|row| {
            let [id, creation_date, content] = row.fields;
            let (id, creation_date) = (id.number()?, creation_date.number()?);
            let parent = parents.follow(id);
            self.insert_message(Draft {
                kind: Entity::Comment,
                id,
                creation_date,
                content: content.text(),
                creator: creators.follow(id).map(|link| link.target),
                parent: parent.map(|link| Parent::Message(link.target.1)),
            })?;
            replies.extend(parent.map(|link| Reply { link, comment: id, written: creation_date }));
            Ok(())
        })?;
        creators.finish(dir)?;
        parents.finish(dir)?;
        self.insert_replies(replies)
    }

    /// Both the message and its creator need the edge between them, each at its home.
    fn read_creators(
        &self,
        file: &'static LinkFile,
    ) -> Result<Links<MessageId, PersonId>, DataError> {
        let mut creators = Links::new();
        creators.read(self.dir, file, |message, creator| {
            self.shard.check_person(creator)?;
            let kept = self.part.has_message(message) || self.part.has_person(creator);
            Ok(kept.then_some(creator))
        })?;
        Ok(creators)
    }

    /// A comment replies to a post or to a comment, so one of two files has its edge.
    fn read_parents(&self) -> Result<Links<MessageId, (Entity, MessageId)>, DataError> {
        let mut parents = Links::new();
        for (file, kind) in [
            (&layout::COMMENT_REPLY_OF_POST, Entity::Post),
            (&layout::COMMENT_REPLY_OF_COMMENT, Entity::Comment),
        ] {
            parents.read(self.dir, file, |comment, parent| {
                let kept = self.part.has_message(comment) || self.part.has_message(parent);
                Ok(kept.then_some((kind, parent)))
            })?;
        }
        Ok(parents)
    }

    /// A message's creator gets the edge to it wherever the message itself is kept.
    fn insert_message(&mut self, draft: Draft<'_>) -> Result<(), Reason> {
        let Draft { id, creation_date, creator, .. } = draft;
        if self.part.has_message(id) {
            self.shard.insert_message(draft.finish()?)?;
        }
        if let Some(creator) = creator {
            self.shard.insert_authored(creator, id, creation_date)?;
        }
        Ok(())
    }

    /// A comment may stand before the comment it replies to, so this waits for all of them.
    fn insert_replies(&mut self, replies: Vec<Reply>) -> Result<(), DataError> {
        for Reply { link, comment, written } in replies {
            let (kind, parent) = link.target;
            self.shard
                .insert_reply(kind, parent, comment, written)
                .map_err(|defect| link.error(self.dir, defect))?;
        }
        Ok(())
    }
}

/// A message as far as the files tell of it. Those whose home is elsewhere may lack edges.
struct Draft<'a> {
    kind: Entity,
    id: MessageId,
    creation_date: DateTime,
    content: &'a str,
    creator: Option<PersonId>,
    parent: Option<Parent>,
}

impl Draft<'_> {
    fn finish(self) -> Result<Message, Reason> {
        let lacks = |what| incomplete(self.kind, self.id.0, what);
        let above = if self.kind == Entity::Post { "forum" } else { "message that it replies to" };
        Ok(Message {
            id: self.id,
            creation_date: self.creation_date,
            content: self.content.to_owned(),
            creator: self.creator.ok_or_else(|| lacks("creator"))?,
            parent: self.parent.ok_or_else(|| lacks(above))?,
        })
    }
}

fn person_of(row: &Row<'_, 8>) -> Result<Person, Reason> {
    let [id, first_name, last_name, gender, birthday, creation_date, ip, browser] = row.fields;
    Ok(Person {
        id: id.number()?,
        first_name: first_name.text().to_owned(),
        last_name: last_name.text().to_owned(),
        gender: gender.text().to_owned(),
        birthday: birthday.number()?,
        creation_date: creation_date.number()?,
        location_ip: ip.text().to_owned(),
        browser_used: browser.text().to_owned(),
    })
}

fn incomplete(entity: Entity, id: i64, lacks: &'static str) -> Reason {
    Reason::Incomplete { entity, id, lacks }
}
