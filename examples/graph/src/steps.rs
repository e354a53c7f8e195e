//! The queries as steps: which shard is asked first, what a shard finds and where it points, and
//! how the facts become rows. Pure: the three forms of a query (`forms`) differ only in who does
//! the walking.
//!
//! | query | steps, a shard each |
//! |---|---|
//! | IS1 | profile; city, at once |
//! | IS2 | person's last messages → each message → … up its thread … → root post → its author |
//! | IS3 | person's friends → each friend's name |
//! | IS4 | message |
//! | IS5 | message → author's name |
//! | IS6 | message → … up its thread … → root post → forum → moderator's name |
//! | IS7 | message → each reply → its author's name; message → whom the author knows |
//!
//! Facts that follow at the same shard are looked up in the same step, so a step costs one request
//! however much it asks for. An id that a step names again finds nothing more, and a step that
//! finds more than [`FOUND_BYTES_MAX`] is refused: whoever asks may name what they like.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use crate::model::{DateTime, ForumId, MessageId, Parent, PersonId, PlaceId};
use crate::proto::{
    City, Climb, Comment, Content, Facts, ForumInfo, Friend, Known, Name, Profile, Root,
    RootAuthor, Step,
};
use crate::query::{self, Answer, Query, RECENT_MESSAGES_MAX};
use crate::store::{PersonRecord, Shard, Sharding};

/// Most bytes that one step may find, and that the facts of a query may have where shards wait for
/// each other: half of the largest message, by default, and far above what the queries find.
pub const FOUND_BYTES_MAX: usize = 2 << 20;

/// Fingerprint of facts that are not of one graph: the shards that found them have different data.
pub const MIXED: u64 = u64::MAX;

/// Bytes of an id in a step, at most.
const ID_BYTES: usize = 11;

/// A step finds more than [`FOUND_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it finds more than {FOUND_BYTES_MAX} bytes: ask for fewer ids at once")]
pub struct TooMuch;

/// Facts that a step found, and the steps it leads to, one for each shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    /// Facts that were found.
    pub facts: Facts,
    /// Steps to go on with, by shard.
    pub next: BTreeMap<usize, Step>,
}

/// The steps a query begins with, one for each shard.
pub fn first(query: Query, id: i64, sharding: Sharding) -> BTreeMap<usize, Step> {
    let mut walk = Walk::new(sharding, 1);
    match query {
        Query::Is1 => {
            walk.at(sharding.of_person(PersonId(id))).profiles.push(id);
            walk.at(sharding.of_city_of(PersonId(id))).cities.push(id);
        }
        Query::Is2 => walk.at(sharding.of_person(PersonId(id))).recent_of.push(id),
        Query::Is3 => walk.at(sharding.of_person(PersonId(id))).friends_of.push(id),
        Query::Is4 => walk.at_message(MessageId(id)).contents.push(id),
        Query::Is5 => walk.at_message(MessageId(id)).authors_of.push(id),
        Query::Is6 => walk.at_message(MessageId(id)).forums_of.push(id),
        Query::Is7 => walk.at_message(MessageId(id)).replies_to.push(id),
    }
    walk.next
}

/// Runs a step at the shard that is the home of what it names. Ids that are not there find nothing.
///
/// # Errors
/// [`TooMuch`].
pub fn run(shard: &Shard, step: Step) -> Result<Sight, TooMuch> {
    let (own, sharding) = (shard.part().index(), shard.part().sharding());
    let mut walk = Walk::new(sharding, step.depth.saturating_add(1));
    walk.facts.depth = step.depth;
    let mut here = Some(step);
    while let Some(mut step) = here {
        step.name_once();
        look_up(shard, &step, &mut walk)?;
        here = walk.next.remove(&own);
    }
    Ok(Sight { facts: walk.facts, next: walk.next })
}

impl Step {
    /// Leaves out what is named more than once.
    fn name_once(&mut self) {
        let lists = [
            &mut self.profiles,
            &mut self.cities,
            &mut self.recent_of,
            &mut self.contents,
            &mut self.friends_of,
            &mut self.names,
            &mut self.authors_of,
            &mut self.forums_of,
            &mut self.forums,
            &mut self.replies_to,
            &mut self.comments,
            &mut self.knows,
        ];
        for ids in lists {
            ids.sort_unstable();
            ids.dedup();
        }
        self.climbs.sort_unstable_by_key(|climb| (climb.message, climb.at));
        self.climbs.dedup();
        self.roots.sort_unstable_by_key(|root| (root.message, root.post, root.author));
        self.roots.dedup();
    }
}

/// Findings of a step: its facts, and the steps being collected, by shard.
struct Walk {
    sharding: Sharding,
    depth: u32,
    next: BTreeMap<usize, Step>,
    /// Persons whose names are asked for by now.
    named: BTreeSet<i64>,
    facts: Facts,
    /// Bytes found so far. Ids of which each comes of one that was asked for are not among them.
    bytes: usize,
}

impl Walk {
    fn new(sharding: Sharding, depth: u32) -> Self {
        let (next, named, facts) = (BTreeMap::new(), BTreeSet::new(), Facts::default());
        Self { sharding, depth, next, named, facts, bytes: 0 }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), TooMuch> {
        self.bytes += bytes;
        if self.bytes > FOUND_BYTES_MAX { Err(TooMuch) } else { Ok(()) }
    }

    /// Adds a fact to one of the lists.
    fn find<T: prost::Message>(
        &mut self,
        list: fn(&mut Facts) -> &mut Vec<T>,
        fact: T,
    ) -> Result<(), TooMuch> {
        let bytes = fact.encoded_len();
        self.spend(1 + prost::length_delimiter_len(bytes) + bytes)?;
        list(&mut self.facts).push(fact);
        Ok(())
    }

    fn ask_name(&mut self, person: PersonId) {
        if self.named.insert(person.0) {
            self.at_person(person).names.push(person.0);
        }
    }

    fn at(&mut self, shard: usize) -> &mut Step {
        let (depth, shards) = (self.depth, self.sharding.shards() as u64);
        self.next.entry(shard).or_insert_with(|| Step { depth, shards, ..Step::default() })
    }

    fn at_message(&mut self, id: MessageId) -> &mut Step {
        self.at(self.sharding.of_message(id))
    }

    fn at_person(&mut self, id: PersonId) -> &mut Step {
        self.at(self.sharding.of_person(id))
    }
}

fn look_up(shard: &Shard, step: &Step, walk: &mut Walk) -> Result<(), TooMuch> {
    look_up_persons(shard, step, walk)?;
    look_up_friends(shard, step, walk)?;
    look_up_messages(shard, step, walk)?;
    climb_threads(shard, step, walk);
    look_up_forums(shard, step, walk)?;
    look_up_replies(shard, step, walk)
}

fn look_up_persons(shard: &Shard, step: &Step, walk: &mut Walk) -> Result<(), TooMuch> {
    let person = |id: &i64| shard.person(PersonId(*id));
    for record in step.profiles.iter().filter_map(person) {
        walk.find(|facts| &mut facts.profiles, profile(record))?;
    }
    for record in step.names.iter().filter_map(person) {
        walk.find(|facts| &mut facts.names, name(record))?;
    }
    for id in &step.cities {
        if let Some(city) = shard.city_of(PersonId(*id)) {
            walk.find(|facts| &mut facts.cities, City { person: *id, city: city.0 })?;
        }
    }
    for root in &step.roots {
        let Some(record) = person(&root.author) else { continue };
        let Name { first_name, last_name, .. } = name(record);
        let author = RootAuthor { root: Some(*root), first_name, last_name };
        walk.find(|facts| &mut facts.root_authors, author)?;
    }
    for record in step.knows.iter().filter_map(person) {
        let persons = record.knows.keys().map(|person| person.0).collect();
        walk.find(|facts| &mut facts.knows, Known { persons })?;
    }
    Ok(())
}

/// Finds all that leads from a person to many.
fn look_up_friends(shard: &Shard, step: &Step, walk: &mut Walk) -> Result<(), TooMuch> {
    let person = |id: &i64| shard.person(PersonId(*id));
    for record in step.friends_of.iter().filter_map(person) {
        for (friend, since) in &record.knows {
            let fact = Friend { person: friend.0, since: since.0 };
            walk.find(|facts| &mut facts.friends, fact)?;
            walk.ask_name(*friend);
        }
    }
    for author in step.recent_of.iter().filter_map(person) {
        for id in author.newest_messages(RECENT_MESSAGES_MAX) {
            walk.spend(3 * ID_BYTES)?;
            let step = walk.at_message(id);
            step.contents.push(id.0);
            step.climbs.push(Climb { message: id.0, at: id.0 });
        }
    }
    Ok(())
}

fn look_up_messages(shard: &Shard, step: &Step, walk: &mut Walk) -> Result<(), TooMuch> {
    let message = |id: &i64| shard.message(MessageId(*id));
    for record in step.contents.iter().filter_map(message) {
        let content = Content {
            message: record.message.id.0,
            content: record.message.content.clone(),
            creation_date: record.message.creation_date.0,
        };
        walk.find(|facts| &mut facts.contents, content)?;
    }
    for record in step.authors_of.iter().filter_map(message) {
        walk.ask_name(record.message.creator);
    }
    Ok(())
}

/// One step up each thread; further ones at the same shard follow at once.
fn climb_threads(shard: &Shard, step: &Step, walk: &mut Walk) {
    for climb in &step.climbs {
        let Some(record) = shard.message(MessageId(climb.at)) else { continue };
        match record.message.parent {
            Parent::Message(parent) => {
                let climb = Climb { message: climb.message, at: parent.0 };
                walk.at_message(parent).climbs.push(climb);
            }
            Parent::Forum(_) => {
                let author = record.message.creator;
                let root = Root { message: climb.message, post: climb.at, author: author.0 };
                walk.at_person(author).roots.push(root);
            }
        }
    }
}

fn look_up_forums(shard: &Shard, step: &Step, walk: &mut Walk) -> Result<(), TooMuch> {
    for id in &step.forums_of {
        let Some(record) = shard.message(MessageId(*id)) else { continue };
        match record.message.parent {
            Parent::Message(parent) => walk.at_message(parent).forums_of.push(parent.0),
            Parent::Forum(forum) => walk.at(walk.sharding.of_forum(forum)).forums.push(forum.0),
        }
    }
    for forum in step.forums.iter().filter_map(|id| shard.forum(ForumId(*id))) {
        let title = forum.title.clone();
        let fact = ForumInfo { forum: forum.id.0, title, moderator: forum.moderator.0 };
        walk.find(|facts| &mut facts.forums, fact)?;
        walk.ask_name(forum.moderator);
    }
    Ok(())
}

fn look_up_replies(shard: &Shard, step: &Step, walk: &mut Walk) -> Result<(), TooMuch> {
    let message = |id: &i64| shard.message(MessageId(*id));
    for record in step.replies_to.iter().filter_map(message) {
        for reply in &record.replies {
            walk.spend(ID_BYTES)?;
            walk.at_message(*reply).comments.push(reply.0);
        }
        if !record.replies.is_empty() {
            let author = record.message.creator;
            walk.at_person(author).knows.push(author.0);
        }
    }
    for record in step.comments.iter().filter_map(message) {
        let comment = &record.message;
        let author = comment.creator;
        let fact = Comment {
            comment: comment.id.0,
            content: comment.content.clone(),
            creation_date: comment.creation_date.0,
            author: author.0,
        };
        walk.find(|facts| &mut facts.comments, fact)?;
        walk.ask_name(author);
    }
    Ok(())
}

fn profile(record: &PersonRecord) -> Profile {
    let person = record.person.clone();
    Profile {
        person: person.id.0,
        first_name: person.first_name,
        last_name: person.last_name,
        birthday: person.birthday.0,
        location_ip: person.location_ip,
        browser_used: person.browser_used,
        gender: person.gender,
        creation_date: person.creation_date.0,
    }
}

fn name(record: &PersonRecord) -> Name {
    let person = &record.person;
    let (first_name, last_name) = (person.first_name.clone(), person.last_name.clone());
    Name { person: person.id.0, first_name, last_name }
}

impl Facts {
    /// True when nothing was found.
    pub fn is_empty(&self) -> bool {
        *self == Self { depth: self.depth, data: self.data, ..Self::default() }
    }

    /// Refuses what is above [`FOUND_BYTES_MAX`].
    ///
    /// # Errors
    /// [`TooMuch`].
    pub fn check_size(&self) -> Result<(), TooMuch> {
        if self.encoded_len() > FOUND_BYTES_MAX { Err(TooMuch) } else { Ok(()) }
    }

    /// Takes over what others found.
    pub fn absorb(&mut self, other: Self) {
        self.depth = self.depth.max(other.depth);
        self.data = match (self.data, other.data) {
            (0, data) | (data, 0) => data,
            (one, other) if one == other => one,
            _ => MIXED,
        };
        self.profiles.extend(other.profiles);
        self.cities.extend(other.cities);
        self.contents.extend(other.contents);
        self.root_authors.extend(other.root_authors);
        self.friends.extend(other.friends);
        self.names.extend(other.names);
        self.forums.extend(other.forums);
        self.comments.extend(other.comments);
        self.knows.extend(other.knows);
    }
}

/// Rows of which these facts have a part. More than [`assemble`] makes of them, and no shard was
/// lost: then the shards have different data.
pub fn rows_begun(query: Query, facts: &Facts) -> usize {
    match query {
        Query::Is1 => facts.profiles.len().max(facts.cities.len()),
        Query::Is2 | Query::Is4 => facts.contents.len(),
        Query::Is3 => facts.friends.len(),
        Query::Is5 => facts.names.len(),
        Query::Is6 => facts.forums.len(),
        Query::Is7 => facts.comments.len(),
    }
}

/// The rows that the facts of a query make. A row of which a part is missing, for its shard was
/// lost, is left out.
pub fn assemble(query: Query, id: i64, facts: Facts) -> Answer {
    let mut names: BTreeMap<i64, Name> = BTreeMap::new();
    names.extend(facts.names.into_iter().map(|name| (name.person, name)));
    let name = |person: i64| names.get(&person).cloned();
    match query {
        Query::Is1 => {
            let city = facts.cities.first().map(|city| PlaceId(city.city));
            let rows = facts.profiles.into_iter().zip(city).map(|(p, city)| query::Profile {
                first_name: p.first_name,
                last_name: p.last_name,
                birthday: DateTime(p.birthday),
                location_ip: p.location_ip,
                browser_used: p.browser_used,
                city,
                gender: p.gender,
                creation_date: DateTime(p.creation_date),
            });
            Answer::of(id, rows)
        }
        Query::Is2 => Answer::of(id, recent_messages(facts.contents, facts.root_authors)),
        Query::Is3 => {
            let rows = facts.friends.into_iter().filter_map(|friend| {
                let Name { first_name, last_name, .. } = name(friend.person)?;
                let (person, since) = (PersonId(friend.person), DateTime(friend.since));
                Some(query::Friend { person, first_name, last_name, since })
            });
            Answer::of(id, rows)
        }
        Query::Is4 => {
            let rows = facts.contents.into_iter().map(|content| query::Content {
                creation_date: DateTime(content.creation_date),
                content: content.content,
            });
            Answer::of(id, rows)
        }
        Query::Is5 => {
            let rows = names.into_values().map(|Name { person, first_name, last_name }| {
                query::Creator { person: PersonId(person), first_name, last_name }
            });
            Answer::of(id, rows)
        }
        Query::Is6 => {
            let rows = facts.forums.into_iter().filter_map(|forum| {
                let moderator = name(forum.moderator)?;
                Some(query::ForumOfMessage {
                    forum: ForumId(forum.forum),
                    title: forum.title,
                    moderator: PersonId(moderator.person),
                    moderator_first_name: moderator.first_name,
                    moderator_last_name: moderator.last_name,
                })
            });
            Answer::of(id, rows)
        }
        Query::Is7 => {
            let knows: Option<BTreeSet<i64>> =
                facts.knows.into_iter().map(|known| known.persons.into_iter().collect()).next();
            let rows = facts.comments.into_iter().filter_map(|comment| {
                let author = name(comment.author)?;
                Some(query::Reply {
                    comment: MessageId(comment.comment),
                    content: comment.content,
                    creation_date: DateTime(comment.creation_date),
                    author: PersonId(comment.author),
                    author_first_name: author.first_name,
                    author_last_name: author.last_name,
                    knows_original_author: knows.as_ref()?.contains(&comment.author),
                })
            });
            Answer::of(id, rows)
        }
    }
}

fn recent_messages(
    contents: Vec<Content>,
    root_authors: Vec<RootAuthor>,
) -> impl Iterator<Item = query::RecentMessage> {
    let by_message = |author: RootAuthor| Some((author.root?.message, author));
    let mut roots: BTreeMap<i64, RootAuthor> =
        root_authors.into_iter().filter_map(by_message).collect();
    contents.into_iter().filter_map(move |content| {
        let author = roots.remove(&content.message)?;
        let root = author.root?;
        Some(query::RecentMessage {
            message: MessageId(content.message),
            content: content.content,
            creation_date: DateTime(content.creation_date),
            root_post: MessageId(root.post),
            root_author: PersonId(root.author),
            root_author_first_name: author.first_name,
            root_author_last_name: author.last_name,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::generate::{Recipe, generate};
    use crate::reference;
    use crate::store::Part;

    #[test]
    fn every_query_answers_as_the_reference_however_it_is_sharded() {
        let graph = generate(Recipe { persons: 60, seed: 3 });
        for count in [1, 4, 7] {
            let sharding = Sharding::over(NonZeroUsize::new(count).unwrap());
            let shards: Vec<Shard> = Part::all(sharding).map(|part| graph.shard(part)).collect();
            for query in Query::ALL {
                for id in ids(&graph, query).into_iter().chain([-1, 0]) {
                    let facts = walk(&shards, first(query, id, sharding));
                    let begun = rows_begun(query, &facts);
                    let expected = reference::answer(&graph, query, id);
                    assert_eq!(begun, expected.rows.len(), "{query} of {id}");
                    assert_eq!(assemble(query, id, facts), expected, "{query} of {id}");
                }
            }
        }
    }

    #[test]
    fn an_id_that_is_named_a_million_times_finds_what_it_finds_once() {
        let shard = generate(Recipe { persons: 60, seed: 3 }).whole().clone();
        let person = shard.persons().max_by_key(|record| record.knows.len()).unwrap();
        let id = person.person.id.0;
        let message = shard.messages().max_by_key(|record| record.replies.len()).unwrap();
        let replies_to = message.message.id.0;
        let once = Step {
            friends_of: vec![id],
            knows: vec![id],
            recent_of: vec![id],
            replies_to: vec![replies_to],
            ..Step::default()
        };
        let often = Step {
            friends_of: vec![id; 1_000_000],
            knows: vec![id; 100_000],
            recent_of: vec![id; 100_000],
            replies_to: vec![replies_to; 100_000],
            ..Step::default()
        };
        let found = run(&shard, once).unwrap();
        assert!(found.facts.friends.len() > 1 && found.facts.comments.len() > 1);
        assert_eq!(run(&shard, often).unwrap(), found);
    }

    #[test]
    fn a_step_that_finds_too_much_is_refused_and_one_below_is_not() {
        let shard = generate(Recipe { persons: 2_000, seed: 3 }).whole().clone();
        let all: Vec<i64> = shard.messages().map(|record| record.message.id.0).collect();
        let contents = |count: usize| Step {
            contents: all.iter().take(count).copied().collect(),
            ..Step::default()
        };
        assert_eq!(run(&shard, contents(all.len())), Err(TooMuch), "{} messages", all.len());
        let (mut fits, mut too_many) = (0, all.len());
        while too_many - fits > 1 {
            let count = usize::midpoint(fits, too_many);
            match run(&shard, contents(count)) {
                Ok(_) => fits = count,
                Err(TooMuch) => too_many = count,
            }
        }
        let found = run(&shard, contents(fits)).unwrap().facts.encoded_len();
        assert!(found <= FOUND_BYTES_MAX && found > FOUND_BYTES_MAX * 9 / 10, "{found}");
    }

    fn walk(shards: &[Shard], steps: BTreeMap<usize, Step>) -> Facts {
        let mut facts = Facts::default();
        for (shard, step) in steps {
            let sight = run(&shards[shard], step).unwrap();
            facts.absorb(sight.facts);
            facts.absorb(walk(shards, sight.next));
        }
        facts
    }

    fn ids(graph: &crate::store::Graph, query: Query) -> Vec<i64> {
        match query {
            Query::Is1 | Query::Is2 | Query::Is3 => {
                graph.whole().persons().map(|record| record.person.id.0).collect()
            }
            _ => graph.whole().messages().map(|record| record.message.id.0).take(400).collect(),
        }
    }
}
