//! Word of members that a client has made a request.

use std::collections::BTreeMap;

use convoke::NodeId;

use super::group::{ClientId, Digest};
use super::message::Vouch;

/// Vouches of other members: of each, for each client, so many numbers at most. The lowest give
/// way, so a member that lies takes places of its own alone.
#[derive(Clone, Debug)]
pub(super) struct Vouches {
    each_max: usize,
    places: BTreeMap<(ClientId, NodeId), BTreeMap<u64, Digest>>,
}

impl Vouches {
    pub(super) fn new(each_max: usize) -> Self {
        Self { each_max: each_max.max(1), places: BTreeMap::new() }
    }

    /// Takes the word of a member. The first of a number counts.
    pub(super) fn add(&mut self, by: NodeId, vouch: Vouch) {
        let numbers = self.places.entry((vouch.client, by)).or_default();
        numbers.entry(vouch.number).or_insert(vouch.digest);
        if numbers.len() > self.each_max {
            numbers.pop_first();
        }
    }

    /// The count of members that vouch for it.
    pub(super) fn count(&self, vouch: Vouch) -> usize {
        let vouches =
            |numbers: &BTreeMap<u64, Digest>| numbers.get(&vouch.number) == Some(&vouch.digest);
        self.of(vouch.client).filter(|numbers| vouches(numbers)).count()
    }

    fn of(&self, client: ClientId) -> impl Iterator<Item = &BTreeMap<u64, Digest>> {
        let from = (client, NodeId::new(1));
        let places = self.places.range(from..).take_while(move |((of, _), _)| *of == client);
        places.map(|(_, numbers)| numbers)
    }

    /// Forgets what is said about those that are decided.
    pub(super) fn retain(&mut self, is_open: impl Fn(ClientId, u64) -> bool) {
        self.places.retain(|(client, _), numbers| {
            numbers.retain(|number, _| is_open(*client, *number));
            !numbers.is_empty()
        });
    }

    /// Forgets what is said about one.
    pub(super) fn forget(&mut self, client: ClientId, number: u64) {
        let from = (client, NodeId::new(1));
        let places = self.places.range_mut(from..).take_while(|((of, _), _)| *of == client);
        places.for_each(|(_, numbers)| {
            numbers.remove(&number);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vouch(number: u64, digest: u8) -> Vouch {
        Vouch { client: ClientId(7), number, digest: Digest([digest; 32]) }
    }

    #[test]
    fn members_are_counted_and_the_first_word_of_each_counts() {
        let mut vouches = Vouches::new(4);
        for by in [1, 1, 2] {
            vouches.add(NodeId::new(by), vouch(5, 1));
        }
        vouches.add(NodeId::new(2), vouch(5, 2));
        assert_eq!((vouches.count(vouch(5, 1)), vouches.count(vouch(5, 2))), (2, 0));
        vouches.forget(ClientId(7), 5);
        assert_eq!(vouches.count(vouch(5, 1)), 0);
    }

    #[test]
    fn a_member_has_places_of_its_own() {
        let mut vouches = Vouches::new(4);
        vouches.add(NodeId::new(1), vouch(0, 1));
        for number in 0..100 {
            vouches.add(NodeId::new(2), vouch(number, 1));
        }
        assert_eq!(vouches.count(vouch(0, 1)), 1, "the other's word is not lost");
        assert_eq!(vouches.of(ClientId(7)).map(BTreeMap::len).sum::<usize>(), 5);
        vouches.retain(|_, number| number > 98);
        assert_eq!(vouches.of(ClientId(7)).map(BTreeMap::len).sum::<usize>(), 1);
    }
}
