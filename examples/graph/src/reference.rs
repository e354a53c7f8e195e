//! The short queries answered over the whole graph in one place.
//!
//! Plain code that follows the specification: the yardstick for the same queries as call trees.

use crate::model::{DateTime, Forum, ForumId, Message, MessageId, Parent, PersonId, PlaceId};
use crate::query::{
    Answer, Content, Creator, ForumOfMessage, Friend, Profile, Query, RECENT_MESSAGES_MAX,
    RecentMessage, Reply,
};
use crate::store::{Graph, MessageRecord, PersonRecord};

/// The answer to `query` asked of the person or message `id`; without rows if there is none.
pub fn answer(graph: &Graph, query: Query, id: i64) -> Answer {
    let (person, message) = (PersonId(id), MessageId(id));
    match query {
        Query::Is1 => Answer::of(id, profile(graph, person)),
        Query::Is2 => Answer::of(id, recent_messages(graph, person)),
        Query::Is3 => Answer::of(id, friends(graph, person)),
        Query::Is4 => Answer::of(id, content(graph, message)),
        Query::Is5 => Answer::of(id, creator(graph, message)),
        Query::Is6 => Answer::of(id, forum_of(graph, message)),
        Query::Is7 => Answer::of(id, replies(graph, message)),
    }
}

/// IS1: who the person is.
pub fn profile(graph: &Graph, id: PersonId) -> Option<Profile> {
    let person = graph.whole().person(id)?.person.clone();
    Some(Profile {
        first_name: person.first_name,
        last_name: person.last_name,
        birthday: person.birthday,
        location_ip: person.location_ip,
        browser_used: person.browser_used,
        city: city_of(graph, id),
        gender: person.gender,
        creation_date: person.creation_date,
    })
}

/// IS2: the last messages of the person, with their root posts.
pub fn recent_messages(graph: &Graph, id: PersonId) -> Vec<RecentMessage> {
    let Some(author) = graph.whole().person(id) else { return Vec::new() };
    let messages = author.newest_messages(RECENT_MESSAGES_MAX).map(|id| message(graph, id));
    let row = |MessageRecord { message, .. }: &MessageRecord| {
        let (post, _) = root_post(graph, message);
        let root_author = &person(graph, post.creator).person;
        RecentMessage {
            message: message.id,
            content: message.content.clone(),
            creation_date: message.creation_date,
            root_post: post.id,
            root_author: root_author.id,
            root_author_first_name: root_author.first_name.clone(),
            root_author_last_name: root_author.last_name.clone(),
        }
    };
    messages.map(row).collect()
}

/// IS3: the friends of the person.
pub fn friends(graph: &Graph, id: PersonId) -> Vec<Friend> {
    let Some(record) = graph.whole().person(id) else { return Vec::new() };
    let row = |(id, since): (&PersonId, &DateTime)| {
        let friend = &person(graph, *id).person;
        Friend {
            person: friend.id,
            first_name: friend.first_name.clone(),
            last_name: friend.last_name.clone(),
            since: *since,
        }
    };
    record.knows.iter().map(row).collect()
}

/// IS4: what the message says.
pub fn content(graph: &Graph, id: MessageId) -> Option<Content> {
    let message = &graph.whole().message(id)?.message;
    Some(Content { creation_date: message.creation_date, content: message.content.clone() })
}

/// IS5: who wrote the message.
pub fn creator(graph: &Graph, id: MessageId) -> Option<Creator> {
    let message = &graph.whole().message(id)?.message;
    let creator = &person(graph, message.creator).person;
    Some(Creator {
        person: creator.id,
        first_name: creator.first_name.clone(),
        last_name: creator.last_name.clone(),
    })
}

/// IS6: the forum of the message's root post.
pub fn forum_of(graph: &Graph, id: MessageId) -> Option<ForumOfMessage> {
    let message = &graph.whole().message(id)?.message;
    let (_, forum) = root_post(graph, message);
    let forum = self::forum(graph, forum);
    let moderator = &person(graph, forum.moderator).person;
    Some(ForumOfMessage {
        forum: forum.id,
        title: forum.title.clone(),
        moderator: moderator.id,
        moderator_first_name: moderator.first_name.clone(),
        moderator_last_name: moderator.last_name.clone(),
    })
}

/// IS7: the direct replies to the message.
pub fn replies(graph: &Graph, id: MessageId) -> Vec<Reply> {
    let Some(original) = graph.whole().message(id) else { return Vec::new() };
    let original_author = person(graph, original.message.creator);
    let row = |id: MessageId| {
        let comment = &message(graph, id).message;
        let author = &person(graph, comment.creator).person;
        Reply {
            comment: comment.id,
            content: comment.content.clone(),
            creation_date: comment.creation_date,
            author: author.id,
            author_first_name: author.first_name.clone(),
            author_last_name: author.last_name.clone(),
            knows_original_author: original_author.knows.contains_key(&author.id),
        }
    };
    original.replies.iter().map(|id| row(*id)).collect()
}

/// Walks up from a message to the post its thread started from, and that post's forum. A comment is
/// always newer than what it replies to, so this ends.
fn root_post<'a>(graph: &'a Graph, message: &'a Message) -> (&'a Message, ForumId) {
    let mut message = message;
    loop {
        match message.parent {
            Parent::Forum(forum) => return (message, forum),
            Parent::Message(parent) => message = &self::message(graph, parent).message,
        }
    }
}

// What a whole graph names it has too, so these lookups cannot fail.

fn person(graph: &Graph, id: PersonId) -> &PersonRecord {
    graph.whole().person(id).expect("every person who is named is there")
}

fn city_of(graph: &Graph, person: PersonId) -> PlaceId {
    graph.whole().city_of(person).expect("every person has a city")
}

fn forum(graph: &Graph, id: ForumId) -> &Forum {
    graph.whole().forum(id).expect("every forum that is named is there")
}

fn message(graph: &Graph, id: MessageId) -> &MessageRecord {
    graph.whole().message(id).expect("every message that is named is there")
}

#[cfg(test)]
mod tests;
