//! The rows of each query's answer.
//!
//! Columns and orders are those of the LDBC specification.

use std::cmp::Reverse;

use super::{Cell, Query};
use crate::model::{DateTime, ForumId, MessageId, PersonId, PlaceId};

/// A row of the answer to one query.
pub trait Row: Sized {
    /// The query.
    const QUERY: Query;
    /// The names of its columns, from left to right.
    const COLUMNS: &'static [&'static str];

    /// The values, from left to right.
    fn into_cells(self) -> Vec<Cell>;

    /// Puts rows in the order of the query and drops those beyond its limit. Queries of a single
    /// row need neither.
    fn order(_rows: &mut Vec<Self>) {}
}

/// How many messages [`Query::Is2`] asks for.
pub const RECENT_MESSAGES_MAX: usize = 10;

/// IS1: who a person is. One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Given name.
    pub first_name: String,
    /// Family name.
    pub last_name: String,
    /// Midnight of the day of birth.
    pub birthday: DateTime,
    /// The address the person joined from.
    pub location_ip: String,
    /// The browser the person joined with.
    pub browser_used: String,
    /// City that the person lives in.
    pub city: PlaceId,
    /// As the data has it.
    pub gender: String,
    /// When the person joined.
    pub creation_date: DateTime,
}

impl Row for Profile {
    const QUERY: Query = Query::Is1;
    const COLUMNS: &'static [&'static str] = &[
        "firstName",
        "lastName",
        "birthday",
        "locationIP",
        "browserUsed",
        "cityId",
        "gender",
        "creationDate",
    ];

    fn into_cells(self) -> Vec<Cell> {
        vec![
            self.first_name.into(),
            self.last_name.into(),
            self.birthday.into(),
            self.location_ip.into(),
            self.browser_used.into(),
            self.city.into(),
            self.gender.into(),
            self.creation_date.into(),
        ]
    }
}

/// IS2: one of the last messages of a person, with the post its thread started from. Newest first,
/// of equally old ones the highest id first, [`RECENT_MESSAGES_MAX`] at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentMessage {
    /// The message.
    pub message: MessageId,
    /// Its text.
    pub content: String,
    /// When it was written.
    pub creation_date: DateTime,
    /// The post its thread started from; itself, if it is a post.
    pub root_post: MessageId,
    /// The person who wrote that post.
    pub root_author: PersonId,
    /// Their given name.
    pub root_author_first_name: String,
    /// Their family name.
    pub root_author_last_name: String,
}

impl Row for RecentMessage {
    const QUERY: Query = Query::Is2;
    const COLUMNS: &'static [&'static str] = &[
        "messageId",
        "content",
        "creationDate",
        "rootPostId",
        "rootAuthorId",
        "rootAuthorFirstName",
        "rootAuthorLastName",
    ];

    fn into_cells(self) -> Vec<Cell> {
        vec![
            self.message.into(),
            self.content.into(),
            self.creation_date.into(),
            self.root_post.into(),
            self.root_author.into(),
            self.root_author_first_name.into(),
            self.root_author_last_name.into(),
        ]
    }

    fn order(rows: &mut Vec<Self>) {
        rows.sort_unstable_by_key(|row| Reverse((row.creation_date, row.message)));
        rows.truncate(RECENT_MESSAGES_MAX);
    }
}

/// IS3: a friend of a person. The latest friendship first, of equally old ones the lowest id first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Friend {
    /// The friend.
    pub person: PersonId,
    /// Their given name.
    pub first_name: String,
    /// Their family name.
    pub last_name: String,
    /// When they became friends.
    pub since: DateTime,
}

impl Row for Friend {
    const QUERY: Query = Query::Is3;
    const COLUMNS: &'static [&'static str] =
        &["personId", "firstName", "lastName", "friendshipCreationDate"];

    fn into_cells(self) -> Vec<Cell> {
        vec![self.person.into(), self.first_name.into(), self.last_name.into(), self.since.into()]
    }

    fn order(rows: &mut Vec<Self>) {
        rows.sort_unstable_by_key(|row| (Reverse(row.since), row.person));
    }
}

/// IS4: what a message says. One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// When it was written.
    pub creation_date: DateTime,
    /// Its text.
    pub content: String,
}

impl Row for Content {
    const QUERY: Query = Query::Is4;
    const COLUMNS: &'static [&'static str] = &["creationDate", "content"];

    fn into_cells(self) -> Vec<Cell> {
        vec![self.creation_date.into(), self.content.into()]
    }
}

/// IS5: who wrote a message. One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    /// The creator.
    pub person: PersonId,
    /// Their given name.
    pub first_name: String,
    /// Their family name.
    pub last_name: String,
}

impl Row for Creator {
    const QUERY: Query = Query::Is5;
    const COLUMNS: &'static [&'static str] = &["personId", "firstName", "lastName"];

    fn into_cells(self) -> Vec<Cell> {
        vec![self.person.into(), self.first_name.into(), self.last_name.into()]
    }
}

/// IS6: where a message was written. One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForumOfMessage {
    /// The forum of the message's root post.
    pub forum: ForumId,
    /// Its title.
    pub title: String,
    /// The person who looks after it.
    pub moderator: PersonId,
    /// Their given name.
    pub moderator_first_name: String,
    /// Their family name.
    pub moderator_last_name: String,
}

impl Row for ForumOfMessage {
    const QUERY: Query = Query::Is6;
    const COLUMNS: &'static [&'static str] =
        &["forumId", "title", "moderatorId", "moderatorFirstName", "moderatorLastName"];

    fn into_cells(self) -> Vec<Cell> {
        vec![
            self.forum.into(),
            self.title.into(),
            self.moderator.into(),
            self.moderator_first_name.into(),
            self.moderator_last_name.into(),
        ]
    }
}

/// IS7: a direct reply to a message. Newest first, then the lowest author, then the lowest id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The reply.
    pub comment: MessageId,
    /// Its text.
    pub content: String,
    /// When it was written.
    pub creation_date: DateTime,
    /// The person who wrote it.
    pub author: PersonId,
    /// Their given name.
    pub author_first_name: String,
    /// Their family name.
    pub author_last_name: String,
    /// True when they are a friend of the author of the message; nobody is their own friend.
    pub knows_original_author: bool,
}

impl Row for Reply {
    const QUERY: Query = Query::Is7;
    const COLUMNS: &'static [&'static str] = &[
        "commentId",
        "content",
        "creationDate",
        "authorId",
        "authorFirstName",
        "authorLastName",
        "authorKnowsOriginalAuthor",
    ];

    fn into_cells(self) -> Vec<Cell> {
        vec![
            self.comment.into(),
            self.content.into(),
            self.creation_date.into(),
            self.author.into(),
            self.author_first_name.into(),
            self.author_last_name.into(),
            self.knows_original_author.into(),
        ]
    }

    fn order(rows: &mut Vec<Self>) {
        rows.sort_unstable_by_key(|row| (Reverse(row.creation_date), row.author, row.comment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Answer;

    fn recent(message: i64, written: i64) -> RecentMessage {
        RecentMessage {
            message: MessageId(message),
            content: String::new(),
            creation_date: DateTime(written),
            root_post: MessageId(message),
            root_author: PersonId(1),
            root_author_first_name: String::new(),
            root_author_last_name: String::new(),
        }
    }

    fn friend(person: i64, since: i64) -> Friend {
        Friend {
            person: PersonId(person),
            first_name: String::new(),
            last_name: String::new(),
            since: DateTime(since),
        }
    }

    fn reply(comment: i64, author: i64, written: i64) -> Reply {
        Reply {
            comment: MessageId(comment),
            content: String::new(),
            creation_date: DateTime(written),
            author: PersonId(author),
            author_first_name: String::new(),
            author_last_name: String::new(),
            knows_original_author: false,
        }
    }

    /// The first columns of the answer, which tell the rows apart.
    fn ids<R: Row>(rows: impl IntoIterator<Item = R>) -> Vec<i64> {
        let first = |row: Vec<Cell>| match row[0] {
            Cell::Number(id) => id,
            ref other => panic!("not an id: {other}"),
        };
        Answer::of(0, rows).rows.into_iter().map(first).collect()
    }

    #[test]
    fn recent_messages_are_the_ten_newest_and_of_equally_old_ones_the_highest() {
        let gathered = [4, 11, 1, 9, 2, 12, 7, 3, 10, 5, 8, 6].map(|id| recent(id, 100 + id / 4));
        assert_eq!(ids(gathered), [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]);
        assert_eq!(ids([recent(9, 1), recent(1, 9)]), [1, 9]);
    }

    #[test]
    fn the_latest_friend_is_first_and_of_equally_late_ones_the_lowest() {
        let gathered = [friend(3, 5), friend(1, 4), friend(2, 5), friend(4, 6)];
        assert_eq!(ids(gathered), [4, 2, 3, 1]);
    }

    #[test]
    fn replies_are_newest_first_then_by_author_then_by_id() {
        let gathered =
            [reply(4, 2, 5), reply(1, 9, 4), reply(3, 2, 5), reply(5, 1, 5), reply(2, 9, 6)];
        assert_eq!(ids(gathered), [2, 5, 3, 4, 1]);
    }

    #[test]
    fn each_row_has_a_cell_for_each_column() {
        assert_eq!(recent(1, 1).into_cells().len(), RecentMessage::COLUMNS.len());
        assert_eq!(friend(1, 1).into_cells().len(), Friend::COLUMNS.len());
        assert_eq!(reply(1, 1, 1).into_cells().len(), Reply::COLUMNS.len());
    }
}
