//! Word of members that a client has made a request.

use std::collections::BTreeMap;

use convoke::NodeId;

use super::group::{ClientId, Digest};
use super::message::Vouch;

/// Vouches of other members: of each, for each client, so many at most. What was said the longest
/// time ago gives way: what still waits is said again. A member that lies takes places of its own
/// alone.
#[derive(Clone, Debug, Hash)]
pub(super) struct Vouches {
    each_max: usize,
    /// Counts words.
    said: u64,
    /// Requests by number and digest, and the count of words when it was said the last time.
    places: BTreeMap<(ClientId, NodeId), BTreeMap<(u64, Digest), u64>>,
}

impl Vouches {
    pub(super) fn new(each_max: usize) -> Self {
        Self { each_max: each_max.max(1), said: 0, places: BTreeMap::new() }
    }

    /// Takes the word of a member.
    pub(super) fn add(&mut self, by: NodeId, vouch: Vouch) {
        self.said += 1;
        let said = self.places.entry((vouch.client, by)).or_default();
        said.insert((vouch.number, vouch.digest), self.said);
        if said.len() > self.each_max
            && let Some((oldest, _)) = said.iter().min_by_key(|(_, last)| **last)
        {
            let oldest = *oldest;
            said.remove(&oldest);
        }
    }

    /// The count of members that vouch for it.
    pub(super) fn count(&self, vouch: Vouch) -> usize {
        let place = (vouch.number, vouch.digest);
        let from = (vouch.client, NodeId::new(1));
        let of_client = self.places.range(from..).take_while(|((of, _), _)| *of == vouch.client);
        of_client.filter(|(_, said)| said.contains_key(&place)).count()
    }

    /// Forgets what is said about those that are decided.
    pub(super) fn retain(&mut self, is_open: impl Fn(ClientId, u64) -> bool) {
        self.places.retain(|(client, _), said| {
            said.retain(|(number, _), _| is_open(*client, *number));
            !said.is_empty()
        });
    }

    /// Forgets what is said about requests by one number.
    pub(super) fn forget(&mut self, client: ClientId, number: u64) {
        let from = (client, NodeId::new(1));
        let of_client = self.places.range_mut(from..).take_while(|((of, _), _)| *of == client);
        of_client.for_each(|(_, said)| said.retain(|(of, _), _| *of != number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vouch(number: u64, digest: u8) -> Vouch {
        Vouch { client: ClientId(7), number, digest: Digest([digest; 32]) }
    }

    #[test]
    fn members_are_counted_not_words() {
        let mut vouches = Vouches::new(4);
        for by in [1, 1, 2] {
            vouches.add(NodeId::new(by), vouch(5, 1));
        }
        assert_eq!((vouches.count(vouch(5, 1)), vouches.count(vouch(5, 2))), (2, 0));
        vouches.add(NodeId::new(2), vouch(5, 2));
        assert_eq!((vouches.count(vouch(5, 1)), vouches.count(vouch(5, 2))), (2, 1));
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
        assert_eq!(vouches.places.values().map(BTreeMap::len).sum::<usize>(), 5);
        vouches.add(NodeId::new(2), vouch(96, 1));
        vouches.add(NodeId::new(2), vouch(3, 1));
        assert_eq!(vouches.count(vouch(96, 1)), 1, "it was said again");
        assert_eq!(vouches.count(vouch(97, 1)), 0, "it was not");
        vouches.retain(|_, number| number > 98);
        assert_eq!(vouches.places.values().map(BTreeMap::len).sum::<usize>(), 1);
    }
}
