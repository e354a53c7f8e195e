//! A made-up graph, for when there is no folder with data.
//!
//! It has the traits of social networks that matter to the queries: a few persons have most of the
//! friends, a few write most of the messages, most messages get no reply, and now and then a thread
//! goes deep. The same [`Recipe`] gives the same graph, on every machine.
//!
//! ```
//! use graph::generate::{Recipe, generate};
//!
//! let recipe = Recipe { persons: 20, ..Recipe::default() };
//! assert_eq!(generate(recipe).whole().persons().count(), 20);
//! ```

use std::collections::BTreeSet;

use crate::model::{
    DateTime, Entity, Forum, ForumId, Friendship, Message, MessageId, Parent, Person, PersonId,
    PlaceId,
};
use crate::store::{Graph, Part, Shard};

mod random;
#[cfg(test)]
mod tests;
mod words;

use random::{MILLIS_PER_DAY, Random};

/// Recipe of a generated graph. The default has about the size of the small official graph: 222
/// persons, some thousand messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How many persons; everything else grows with it. Default 222.
    pub persons: u32,
    /// Other seeds give other graphs. Default 1.
    pub seed: u64,
}

impl Default for Recipe {
    fn default() -> Self {
        Self { persons: 222, seed: 1 }
    }
}

/// The graph of this recipe.
pub fn generate(recipe: Recipe) -> Graph {
    let mut generator = Generator {
        random: Random::new(recipe.seed),
        graph: Shard::empty(Part::WHOLE),
        members: Vec::new(),
        friendships: Vec::new(),
        last_forum: 0,
        last_message: 0,
    };
    generator.add_members(recipe.persons);
    generator.add_friendships();
    generator.add_forums();
    generator.add_posts_and_comments();
    Graph::from_whole(generator.graph)
}

/// The graph so far, and what the next steps need to know of it.
struct Generator {
    random: Random,
    graph: Shard,
    members: Vec<Member>,
    /// Both ends of every friendship, so whoever has more friends is in it more often.
    friendships: Vec<usize>,
    last_forum: i64,
    last_message: i64,
}

/// A person, named by the position in the list of members.
struct Member {
    id: PersonId,
    name: String,
    joined: DateTime,
    only_reads: bool,
    friends: BTreeSet<usize>,
    forums: Vec<Place>,
}

/// A forum to post in.
#[derive(Clone, Copy)]
struct Place {
    id: ForumId,
    opened: DateTime,
    holds_photos: bool,
}

/// A message to reply to.
#[derive(Clone, Copy)]
struct Said {
    id: MessageId,
    kind: Entity,
    at: DateTime,
    by: usize,
}

/// The start of 2010, when the network opened. New members come for a year.
const OPENING: DateTime = DateTime(1_262_304_000_000);
const DAYS_OF_JOINING: u64 = 365;
/// The start of 1970 to that of 1990: all are grown up.
const DAYS_OF_BIRTH: u64 = 7_305;
/// As many as there are cities in the official data, near enough; people prefer the first ones.
const CITIES: u64 = 1_300;
/// Reason why no insert fails.
const FRESH: &str = "every generated thing has a new id, and is newer than what it names";

impl Generator {
    fn add_members(&mut self, count: u32) {
        let millis_between = DAYS_OF_JOINING * MILLIS_PER_DAY / u64::from(count.max(1));
        for index in 0..count {
            let since_opening =
                u64::from(index) * millis_between + self.random.below(millis_between);
            let person = Person {
                id: PersonId(i64::from(index) + 1),
                first_name: (*self.random.pick(&words::FIRST_NAMES)).to_owned(),
                last_name: (*self.random.pick(&words::LAST_NAMES)).to_owned(),
                gender: (*self.random.pick(&["female", "male"])).to_owned(),
                birthday: DateTime(
                    (self.random.below(DAYS_OF_BIRTH) * MILLIS_PER_DAY).cast_signed(),
                ),
                creation_date: after(OPENING, since_opening.cast_signed()),
                location_ip: self.ip_address(),
                browser_used: (*self.random.pick_early(&words::BROWSERS)).to_owned(),
            };
            let city = PlaceId(self.random.low_below(CITIES).cast_signed());
            self.members.push(Member {
                id: person.id,
                name: format!("{} {}", person.first_name, person.last_name),
                joined: person.creation_date,
                only_reads: self.random.chance(12),
                friends: BTreeSet::new(),
                forums: Vec::new(),
            });
            self.graph.insert_city(person.id, city);
            self.graph.insert_person(person).expect(FRESH);
        }
    }

    fn ip_address(&mut self) -> String {
        let [a, b, c, d] = [223, 256, 256, 254].map(|end| self.random.below(end));
        format!("{}.{b}.{c}.{}", a + 1, d + 1)
    }

    /// Gives newcomers friends among those who are there, above all those who have many friends
    /// already. Some make none.
    fn add_friendships(&mut self) {
        for newcomer in 1..self.members.len() {
            for _ in 0..self.random.low_below(18) {
                let popular = !self.friendships.is_empty() && self.random.chance(60);
                let friend = if popular {
                    *self.random.pick(&self.friendships)
                } else {
                    self.index_below(newcomer)
                };
                self.befriend(newcomer, friend);
            }
        }
    }

    fn befriend(&mut self, a: usize, b: usize) {
        if a == b || !self.members[a].friends.insert(b) {
            return;
        }
        self.members[b].friends.insert(a);
        self.friendships.extend([a, b]);
        let both_joined = self.members[a].joined.max(self.members[b].joined);
        let creation_date = after(both_joined, self.random.millis_within_days(100));
        let persons = [self.members[a].id, self.members[b].id];
        self.graph.insert_friendship(Friendship { persons, creation_date }).expect(FRESH);
    }

    /// Everybody has a wall, most have albums, some run a group.
    fn add_forums(&mut self) {
        for owner in 0..self.members.len() {
            let name = self.members[owner].name.clone();
            self.add_forum(owner, format!("Wall of {name}"), false);
            for album in 0..self.random.low_below(9) {
                self.add_forum(owner, format!("Album {album} of {name}"), true);
            }
            if self.random.chance(60) {
                let topic = self.random.pick(&words::TOPICS);
                self.add_forum(owner, format!("Group for {topic}"), false);
            }
        }
    }

    fn add_forum(&mut self, owner: usize, title: String, holds_photos: bool) {
        self.last_forum += 1;
        let id = ForumId(self.last_forum);
        let opened = after(self.members[owner].joined, self.random.millis_within_days(30));
        self.members[owner].forums.push(Place { id, opened, holds_photos });
        let moderator = self.members[owner].id;
        self.graph.insert_forum(Forum { id, title, moderator }).expect(FRESH);
    }

    fn add_posts_and_comments(&mut self) {
        for author in 0..self.members.len() {
            if self.members[author].only_reads {
                continue;
            }
            for _ in 0..self.random.low_below(115) {
                let post = self.add_post(author);
                if self.random.chance(10) {
                    self.add_thread(post);
                }
            }
        }
    }

    fn add_post(&mut self, author: usize) -> Said {
        let host = if self.random.chance(30) { self.friend_of(author) } else { author };
        let place = *self.random.pick(&self.members[host].forums);
        let earliest = place.opened.max(self.members[author].joined);
        let at = after(earliest, self.random.millis_within_days(200));
        let content = if place.holds_photos {
            format!("photo{}.jpg", self.last_message + 1)
        } else {
            self.opinion()
        };
        self.say(author, at, content, Parent::Forum(place.id), Entity::Post)
    }

    /// In most threads people reply to whatever is there; now and then two go on and on.
    fn add_thread(&mut self, post: Said) {
        let mut thread = vec![post];
        let is_quarrel = self.random.chance(2);
        let comments =
            if is_quarrel { 15 + self.random.below(25) } else { 1 + self.random.low_below(14) };
        for _ in 0..comments {
            let latest = thread[thread.len() - 1];
            let reply_to = if is_quarrel {
                latest
            } else if self.random.chance(30) {
                post
            } else {
                *self.random.pick(&thread)
            };
            let comment = self.add_comment(reply_to);
            thread.push(comment);
        }
    }

    fn add_comment(&mut self, reply_to: Said) -> Said {
        let reader = self.friend_of(reply_to.by);
        let author = if self.members[reader].only_reads { reply_to.by } else { reader };
        let earliest = reply_to.at.max(self.members[author].joined);
        let at = after(earliest, self.random.millis_within_days(5));
        let content = if self.random.chance(60) {
            (*self.random.pick(&words::SHORT_REPLIES)).to_owned()
        } else {
            self.opinion()
        };
        let said = self.say(author, at, content, Parent::Message(reply_to.id), Entity::Comment);
        self.graph.insert_reply(reply_to.kind, reply_to.id, said.id, at).expect(FRESH);
        said
    }

    fn say(
        &mut self,
        author: usize,
        at: DateTime,
        content: String,
        parent: Parent,
        kind: Entity,
    ) -> Said {
        self.last_message += 1;
        let id = MessageId(self.last_message);
        let creator = self.members[author].id;
        let message = Message { id, creation_date: at, content, creator, parent };
        self.graph.insert_message(message).expect(FRESH);
        self.graph.insert_authored(creator, id, at).expect(FRESH);
        Said { id, kind, at, by: author }
    }

    fn opinion(&mut self) -> String {
        let topic = self.random.pick(&words::TOPICS);
        let opinion = self.random.pick(&words::OPINIONS);
        format!("About {topic}: {opinion}")
    }

    /// A friend, or anybody if there are none, and once in a while anyway.
    fn friend_of(&mut self, member: usize) -> usize {
        let friends: Vec<usize> = self.members[member].friends.iter().copied().collect();
        if friends.is_empty() || self.random.chance(15) {
            return self.index_below(self.members.len());
        }
        *self.random.pick(&friends)
    }

    fn index_below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).expect("it is below a usize")
    }
}

fn after(moment: DateTime, millis: i64) -> DateTime {
    DateTime(moment.0 + millis)
}
