//! Parts of the social network: persons, friendships, forums and messages.
//!
//! Names follow the LDBC Social Network Benchmark. Only what the short queries read is here.

use std::fmt;

/// A name that is a number.
pub trait Id: Copy + Ord + From<i64> + Into<i64> + fmt::Display {}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl From<i64> for $name {
            fn from(id: i64) -> Self {
                Self(id)
            }
        }

        impl From<$name> for i64 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl Id for $name {}

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// The name of a [`Person`].
    PersonId;
    /// The name of a [`Message`]; posts and comments share one space of ids.
    MessageId;
    /// The name of a [`Forum`].
    ForumId;
    /// The name of a place; here always a city.
    PlaceId;
}

/// A moment, in milliseconds since the start of 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime(pub i64);

impl From<i64> for DateTime {
    fn from(millis: i64) -> Self {
        Self(millis)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member of the network. The city is kept apart: see
/// [`Shard::city_of`](crate::store::Shard::city_of).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The person's name in the graph.
    pub id: PersonId,
    /// Given name.
    pub first_name: String,
    /// Family name.
    pub last_name: String,
    /// As the data has it: `male` or `female`.
    pub gender: String,
    /// Midnight of the day of birth.
    pub birthday: DateTime,
    /// When the person joined.
    pub creation_date: DateTime,
    /// The address the person joined from.
    pub location_ip: String,
    /// The browser the person joined with.
    pub browser_used: String,
}

/// Two persons who know each other; it holds in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Friendship {
    /// The two friends, in no particular order.
    pub persons: [PersonId; 2],
    /// When they became friends.
    pub creation_date: DateTime,
}

/// A place for posts: somebody's wall or album, or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forum {
    /// The forum's name in the graph.
    pub id: ForumId,
    /// Title that people see above it.
    pub title: String,
    /// The person who looks after it.
    pub moderator: PersonId,
}

/// A post or a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's name in the graph.
    pub id: MessageId,
    /// When it was written.
    pub creation_date: DateTime,
    /// The text; of a photo the file name; may be empty.
    pub content: String,
    /// The person who wrote it.
    pub creator: PersonId,
    /// The forum or message that it hangs below.
    pub parent: Parent,
}

impl Message {
    /// The forum of a post; `None` for a comment, whose forum is that of its root post.
    pub fn forum(&self) -> Option<ForumId> {
        match self.parent {
            Parent::Forum(forum) => Some(forum),
            Parent::Message(_) => None,
        }
    }

    /// The message that a comment replies to; `None` for a post.
    pub fn reply_of(&self) -> Option<MessageId> {
        match self.parent {
            Parent::Forum(_) => None,
            Parent::Message(message) => Some(message),
        }
    }
}

/// The forum or message that a message hangs below. It also tells posts from comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The message is a post in this forum.
    Forum(ForumId),
    /// The message is a comment on this post or comment.
    Message(MessageId),
}

/// The kinds of things that ids name, to speak of them in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A [`Person`].
    Person,
    /// A place that is a city.
    City,
    /// A [`Forum`].
    Forum,
    /// A [`Message`] in a forum.
    Post,
    /// A [`Message`] that replies to another.
    Comment,
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Person => "person",
            Self::City => "city",
            Self::Forum => "forum",
            Self::Post => "post",
            Self::Comment => "comment",
        })
    }
}
