//! Homes of facts: the shard that keeps each of them.

use std::num::NonZeroUsize;

use crate::model::{ForumId, MessageId, PersonId};

/// Spreads the graph over a fixed number of shards, numbered from 0, by hashing ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    shards: NonZeroUsize,
}

impl Sharding {
    /// Over so many shards.
    pub const fn over(shards: NonZeroUsize) -> Self {
        Self { shards }
    }

    /// How many shards there are.
    pub const fn shards(self) -> usize {
        self.shards.get()
    }

    /// The home of a person.
    pub fn of_person(self, id: PersonId) -> usize {
        self.of(Salt::Person, id.0)
    }

    /// The home of the edge from a person to their city. It is salted, so most often it is not the
    /// person's own home, as in a store that spreads edges by themselves.
    pub fn of_city_of(self, person: PersonId) -> usize {
        self.of(Salt::City, person.0)
    }

    /// The home of a message.
    pub fn of_message(self, id: MessageId) -> usize {
        self.of(Salt::Message, id.0)
    }

    /// The home of a forum.
    pub fn of_forum(self, id: ForumId) -> usize {
        self.of(Salt::Forum, id.0)
    }

    /// LDBC ids count up inside slices of time, so they need a hash that mixes all bits.
    fn of(self, salt: Salt, id: i64) -> usize {
        let hash = mix(mix(salt as u64) ^ id.cast_unsigned());
        let shard = hash % self.shards() as u64;
        usize::try_from(shard).expect("it is below the number of shards, a usize")
    }
}

/// Keeps equal ids of different kinds apart. Part of the layout: all nodes must use the same.
#[derive(Clone, Copy)]
enum Salt {
    Person = 1,
    City = 2,
    Message = 3,
    Forum = 4,
}

/// One shard's share of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    sharding: Sharding,
}

impl Part {
    /// Everything: the only part when there is one shard.
    pub const WHOLE: Self = Self { index: 0, sharding: Sharding::over(NonZeroUsize::MIN) };

    /// The part that the shard with this number holds, or `None` if there is no such shard.
    pub fn new(index: usize, sharding: Sharding) -> Option<Self> {
        (index < sharding.shards()).then_some(Self { index, sharding })
    }

    /// All parts, by number.
    pub fn all(sharding: Sharding) -> impl Iterator<Item = Self> {
        (0..sharding.shards()).map(move |index| Self { index, sharding })
    }

    /// The number of the shard that holds it.
    pub const fn index(self) -> usize {
        self.index
    }

    /// How the graph is spread.
    pub const fn sharding(self) -> Sharding {
        self.sharding
    }

    /// True when the person's home is here.
    pub fn has_person(self, id: PersonId) -> bool {
        self.sharding.of_person(id) == self.index
    }

    /// True when the home of the edge from the person to their city is here.
    pub fn has_city_of(self, person: PersonId) -> bool {
        self.sharding.of_city_of(person) == self.index
    }

    /// True when the message's home is here.
    pub fn has_message(self, id: MessageId) -> bool {
        self.sharding.of_message(id) == self.index
    }

    /// True when the forum's home is here.
    pub fn has_forum(self, id: ForumId) -> bool {
        self.sharding.of_forum(id) == self.index
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014), one to one and well mixed.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
