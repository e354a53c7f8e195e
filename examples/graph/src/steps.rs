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
//! however much it asks for.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{DateTime, ForumId, MessageId, Parent, PersonId, PlaceId};
use crate::proto::{
    City, Climb, Comment, Content, Facts, ForumInfo, Friend, Known, Name, Profile, Root,
    RootAuthor, Step,
};
use crate::query::{self, Answer, Query, RECENT_MESSAGES_MAX};
use crate::store::{PersonRecord, Shard, Sharding};

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
    let mut walk = Walk { sharding, depth: 1, next: BTreeMap::new() };
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
pub fn run(shard: &Shard, step: Step) -> Sight {
    let (own, sharding) = (shard.part().index(), shard.part().sharding());
    let mut facts = Facts { depth: step.depth, ..Facts::default() };
    let depth = step.depth.saturating_add(1);
    let mut walk = Walk { sharding, depth, next: BTreeMap::new() };
    let mut here = Some(step);
    while let Some(step) = here {
        look_up(shard, &step, &mut facts, &mut walk);
        here = walk.next.remove(&own);
    }
    Sight { facts, next: walk.next }
}

/// The steps being collected, by shard.
struct Walk {
    sharding: Sharding,
    depth: u32,
    next: BTreeMap<usize, Step>,
}

impl Walk {
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

fn look_up(shard: &Shard, step: &Step, facts: &mut Facts, walk: &mut Walk) {
    look_up_persons(shard, step, facts, walk);
    look_up_messages(shard, step, facts, walk);
    climb_threads(shard, step, walk);
    look_up_forums(shard, step, facts, walk);
    look_up_replies(shard, step, facts, walk);
}

fn look_up_persons(shard: &Shard, step: &Step, facts: &mut Facts, walk: &mut Walk) {
    let person = |id: &i64| shard.person(PersonId(*id));
    facts.profiles.extend(step.profiles.iter().filter_map(person).map(profile));
    facts.names.extend(step.names.iter().filter_map(person).map(name));
    facts.cities.extend(step.cities.iter().filter_map(|id| {
        let city = shard.city_of(PersonId(*id))?;
        Some(City { person: *id, city: city.0 })
    }));
    facts.root_authors.extend(step.roots.iter().filter_map(|root| {
        let Name { first_name, last_name, .. } = name(person(&root.author)?);
        Some(RootAuthor { root: Some(*root), first_name, last_name })
    }));
    facts.knows.extend(
        step.knows
            .iter()
            .filter_map(person)
            .map(|record| Known { persons: record.knows.keys().map(|person| person.0).collect() }),
    );
    for record in step.friends_of.iter().filter_map(person) {
        for (friend, since) in &record.knows {
            facts.friends.push(Friend { person: friend.0, since: since.0 });
            walk.at_person(*friend).names.push(friend.0);
        }
    }
    for author in step.recent_of.iter().filter_map(person) {
        for id in author.newest_messages(RECENT_MESSAGES_MAX) {
            let step = walk.at_message(id);
            step.contents.push(id.0);
            step.climbs.push(Climb { message: id.0, at: id.0 });
        }
    }
}

fn look_up_messages(shard: &Shard, step: &Step, facts: &mut Facts, walk: &mut Walk) {
    let message = |id: &i64| shard.message(MessageId(*id));
    facts.contents.extend(step.contents.iter().filter_map(message).map(|record| Content {
        message: record.message.id.0,
        content: record.message.content.clone(),
        creation_date: record.message.creation_date.0,
    }));
    for record in step.authors_of.iter().filter_map(message) {
        let author = record.message.creator;
        walk.at_person(author).names.push(author.0);
    }
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

fn look_up_forums(shard: &Shard, step: &Step, facts: &mut Facts, walk: &mut Walk) {
    for id in &step.forums_of {
        let Some(record) = shard.message(MessageId(*id)) else { continue };
        match record.message.parent {
            Parent::Message(parent) => walk.at_message(parent).forums_of.push(parent.0),
            Parent::Forum(forum) => walk.at(walk.sharding.of_forum(forum)).forums.push(forum.0),
        }
    }
    for forum in step.forums.iter().filter_map(|id| shard.forum(ForumId(*id))) {
        let title = forum.title.clone();
        facts.forums.push(ForumInfo { forum: forum.id.0, title, moderator: forum.moderator.0 });
        walk.at_person(forum.moderator).names.push(forum.moderator.0);
    }
}

fn look_up_replies(shard: &Shard, step: &Step, facts: &mut Facts, walk: &mut Walk) {
    let message = |id: &i64| shard.message(MessageId(*id));
    for record in step.replies_to.iter().filter_map(message) {
        for reply in &record.replies {
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
        facts.comments.push(Comment {
            comment: comment.id.0,
            content: comment.content.clone(),
            creation_date: comment.creation_date.0,
            author: author.0,
        });
        let names = &mut walk.at_person(author).names;
        if !names.contains(&author.0) {
            names.push(author.0);
        }
    }
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
        *self == Self { depth: self.depth, ..Self::default() }
    }

    /// Takes over what others found.
    pub fn absorb(&mut self, other: Self) {
        self.depth = self.depth.max(other.depth);
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
                    let expected = reference::answer(&graph, query, id);
                    assert_eq!(assemble(query, id, facts), expected, "{query} of {id}");
                }
            }
        }
    }

    fn walk(shards: &[Shard], steps: BTreeMap<usize, Step>) -> Facts {
        let mut facts = Facts::default();
        for (shard, step) in steps {
            let sight = run(&shards[shard], step);
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
