//! Casts of one call that nobody has taken yet: they may come before the request they belong to.
//!
//! Bounded in count and in bytes per sender, so that one member cannot crowd out the others. The
//! first cast of a sender for a phase and digest counts; copies are dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::NodeId;
use crate::wire::Cast;

/// Casts waiting for the participant of one call.
#[derive(Debug)]
pub struct Mailbox {
    casts: VecDeque<(NodeId, Cast)>,
    seen: BTreeSet<(NodeId, u16, u64)>,
    bytes: BTreeMap<NodeId, usize>,
    casts_max: usize,
    bytes_max: usize,
}

/// What became of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It waits.
    Kept,
    /// The same came before.
    Duplicate,
    /// The sender or the mailbox is at its bound.
    Refused,
}

impl Mailbox {
    /// A mailbox for up to `casts_max` casts, and up to `bytes_max` bytes of one sender.
    pub fn new(casts_max: usize, bytes_max: usize) -> Self {
        Self {
            casts: VecDeque::new(),
            seen: BTreeSet::new(),
            bytes: BTreeMap::new(),
            casts_max,
            bytes_max,
        }
    }

    /// Takes a cast of the authenticated node `from`.
    pub fn post(&mut self, from: NodeId, cast: Cast) -> Posted {
        let name = (from, cast.phase, cast.digest);
        if self.seen.contains(&name) {
            return Posted::Duplicate;
        }
        let bytes = self.bytes.get(&from).copied().unwrap_or(0) + cast.payload.len();
        if self.seen.len() >= self.casts_max || bytes > self.bytes_max {
            return Posted::Refused;
        }
        self.seen.insert(name);
        self.bytes.insert(from, bytes);
        self.casts.push_back((from, cast));
        Posted::Kept
    }

    /// The oldest cast, with its authenticated sender.
    pub fn take(&mut self) -> Option<(NodeId, Cast)> {
        let (from, cast) = self.casts.pop_front()?;
        if let Some(bytes) = self.bytes.get_mut(&from) {
            *bytes -= cast.payload.len();
        }
        Some((from, cast))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn cast(phase: u16, digest: u64, len: usize) -> Cast {
        Cast { phase, sender: 0, budget_us: 1, digest, payload: Bytes::from(vec![0; len]) }
    }

    #[test]
    fn a_flood_of_one_member_leaves_room_for_the_others() {
        let (one, two) = (NodeId::new(1).unwrap(), NodeId::new(2).unwrap());
        let mut mailbox = Mailbox::new(100, 1000);
        for digest in 0..50 {
            mailbox.post(one, cast(0, digest, 100));
        }
        assert_eq!(mailbox.post(two, cast(0, 0, 100)), Posted::Kept);
        assert_eq!(mailbox.post(two, cast(0, 0, 100)), Posted::Duplicate);
        let taken: Vec<NodeId> =
            std::iter::from_fn(|| mailbox.take()).map(|(from, _)| from).collect();
        assert_eq!(taken.iter().filter(|from| **from == one).count(), 10);
        assert_eq!(taken.last(), Some(&two));
    }

    #[test]
    fn the_number_of_casts_is_bounded_even_when_they_are_taken() {
        let one = NodeId::new(1).unwrap();
        let mut mailbox = Mailbox::new(10, 1000);
        let kept = (0..50).filter(|digest| {
            let posted = mailbox.post(one, cast(0, *digest, 0));
            mailbox.take();
            posted == Posted::Kept
        });
        assert_eq!(kept.count(), 10);
    }
}
