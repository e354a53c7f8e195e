//! The seven short queries: what each asks, the rows of its answer, and their order.
//!
//! A query is asked of a person ([`Query::Is1`] to [`Query::Is3`]) or of a message (the rest). What
//! finds the rows may be the [`reference`](crate::reference) or a call tree over many shards; both
//! hand them, in whatever order they came, to [`Answer::of`], which puts them right.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::{DateTime, ForumId, MessageId, PersonId, PlaceId};

mod rows;

pub use rows::{
    Content, Creator, ForumOfMessage, Friend, Profile, RECENT_MESSAGES_MAX, RecentMessage, Reply,
    Row,
};

/// One of the short queries of the LDBC Social Network Benchmark (Interactive workload, version 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Query {
    /// The profile of a person: [`Profile`].
    Is1,
    /// The last ten messages of a person, with their root posts: [`RecentMessage`].
    Is2,
    /// The friends of a person: [`Friend`].
    Is3,
    /// The content of a message: [`Content`].
    Is4,
    /// The creator of a message: [`Creator`].
    Is5,
    /// The forum of a message: [`ForumOfMessage`].
    Is6,
    /// The replies to a message: [`Reply`].
    Is7,
}

impl Query {
    /// All of them, in order.
    pub const ALL: [Self; 7] =
        [Self::Is1, Self::Is2, Self::Is3, Self::Is4, Self::Is5, Self::Is6, Self::Is7];

    /// The names of the columns of its rows, from left to right.
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Is1 => Profile::COLUMNS,
            Self::Is2 => RecentMessage::COLUMNS,
            Self::Is3 => Friend::COLUMNS,
            Self::Is4 => Content::COLUMNS,
            Self::Is5 => Creator::COLUMNS,
            Self::Is6 => ForumOfMessage::COLUMNS,
            Self::Is7 => Reply::COLUMNS,
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Is1 => "IS1",
            Self::Is2 => "IS2",
            Self::Is3 => "IS3",
            Self::Is4 => "IS4",
            Self::Is5 => "IS5",
            Self::Is6 => "IS6",
            Self::Is7 => "IS7",
        })
    }
}

/// There is no such query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown query {0:?}: the queries are IS1 to IS7")]
pub struct UnknownQuery(String);

impl FromStr for Query {
    type Err = UnknownQuery;

    fn from_str(name: &str) -> Result<Self, UnknownQuery> {
        let known =
            Self::ALL.into_iter().find(|query| query.to_string().eq_ignore_ascii_case(name));
        known.ok_or_else(|| UnknownQuery(name.to_owned()))
    }
}

impl TryFrom<String> for Query {
    type Error = UnknownQuery;

    fn try_from(name: String) -> Result<Self, UnknownQuery> {
        name.parse()
    }
}

impl From<Query> for String {
    fn from(query: Query) -> Self {
        query.to_string()
    }
}

/// Answer to a query. As JSON it is a line of the expected answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Answer {
    /// The query.
    pub query: Query,
    /// The id of the person or message it was asked of.
    pub id: i64,
    /// The rows in the order of the query, one cell for each of [`Query::columns`]. There are none
    /// when the id is unknown.
    pub rows: Vec<Vec<Cell>>,
}

impl Answer {
    /// The answer made of these rows, which may come in any order.
    pub fn of<R: Row>(id: i64, rows: impl IntoIterator<Item = R>) -> Self {
        let mut rows: Vec<R> = rows.into_iter().collect();
        R::order(&mut rows);
        Self { query: R::QUERY, id, rows: rows.into_iter().map(R::into_cells).collect() }
    }
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A yes or no.
    Flag(bool),
    /// An id, or a date in milliseconds since 1970.
    Number(i64),
    /// A name or a content.
    Text(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

macro_rules! number_cells {
    ($($name:ident),*) => {$(
        impl From<$name> for Cell {
            fn from(number: $name) -> Self {
                Self::Number(number.0)
            }
        }
    )*};
}

number_cells!(PersonId, MessageId, ForumId, PlaceId, DateTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_it_is_written() {
        for query in Query::ALL {
            assert_eq!(query.to_string().parse(), Ok(query));
            assert_eq!(query.to_string().to_lowercase().parse(), Ok(query));
        }
        let error = "IS8".parse::<Query>().unwrap_err();
        assert_eq!(error.to_string(), "unknown query \"IS8\": the queries are IS1 to IS7");
    }

    #[test]
    fn an_answer_is_read_from_json_as_it_is_written() {
        let answer = Answer {
            query: Query::Is7,
            id: -1,
            rows: vec![vec![Cell::Number(2), Cell::Text("né \"x\"".to_owned()), Cell::Flag(true)]],
        };
        let json = serde_json::to_string(&answer).unwrap();
        assert_eq!(json, r#"{"query":"IS7","id":-1,"rows":[[2,"né \"x\"",true]]}"#);
        assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), answer);
    }
}
