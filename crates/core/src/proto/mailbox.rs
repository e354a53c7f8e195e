//! Casts of one call that nobody has taken yet: they may come before the request they belong to.
//!
//! Bounded in count and in bytes per sender, so that one member cannot crowd out the others. The
//! first cast of a sender for a phase and digest counts; copies are dropped, even of one that was taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::NodeId;
use crate::wire::Cast;

/// Senders that one call may have.
const SENDERS_MAX: usize = 1_024;

/// What the name of a cast costs, which is remembered when it was taken.
const NAME_BYTES: usize = 64;

/// Casts waiting for the participant of one call.
#[derive(Debug)]
pub struct Mailbox {
    casts: VecDeque<(NodeId, Cast)>,
    senders: BTreeMap<NodeId, Sender>,
    held_bytes: usize,
    casts_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Sender {
    /// Phase and digest of every cast taken from it.
    seen: BTreeSet<(u16, u64)>,
    /// Payload bytes that wait.
    bytes: usize,
}

/// What became of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It waits.
    Kept,
    /// The same came before.
    Duplicate,
    /// The sender is at its bound, or there are too many senders.
    Refused,
}

impl Mailbox {
    /// A mailbox for up to `casts_max` casts and up to `bytes_max` waiting bytes of each sender.
    pub fn new(casts_max: usize, bytes_max: usize) -> Self {
        Self {
            casts: VecDeque::new(),
            senders: BTreeMap::new(),
            held_bytes: 0,
            casts_max,
            bytes_max,
        }
    }

    /// What a cast adds to [`Self::held_bytes`].
    pub fn cost(cast: &Cast) -> usize {
        cast.payload.len() + NAME_BYTES
    }

    /// Takes a cast of the authenticated node `from`.
    pub fn post(&mut self, from: NodeId, cast: Cast) -> Posted {
        if !self.senders.contains_key(&from) && self.senders.len() >= SENDERS_MAX {
            return Posted::Refused;
        }
        let sender = self.senders.entry(from).or_default();
        let name = (cast.phase, cast.digest);
        if sender.seen.contains(&name) {
            return Posted::Duplicate;
        }
        let bytes = sender.bytes + cast.payload.len();
        if sender.seen.len() >= self.casts_max || bytes > self.bytes_max {
            return Posted::Refused;
        }
        sender.seen.insert(name);
        sender.bytes = bytes;
        self.held_bytes += Self::cost(&cast);
        self.casts.push_back((from, cast));
        Posted::Kept
    }

    /// The oldest cast, with its authenticated sender.
    pub fn take(&mut self) -> Option<(NodeId, Cast)> {
        let (from, cast) = self.casts.pop_front()?;
        self.held_bytes -= cast.payload.len();
        if let Some(sender) = self.senders.get_mut(&from) {
            sender.bytes -= cast.payload.len();
        }
        Some((from, cast))
    }

    /// Waiting payload bytes, and 64 for each cast that ever came.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn cast(phase: u16, digest: u64, len: usize) -> Cast {
        Cast {
            phase,
            sender: 0,
            budget_us: 1,
            epoch: 0,
            digest,
            payload: Bytes::from(vec![0; len]),
        }
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
    fn the_number_of_casts_of_a_sender_is_bounded_even_when_they_are_taken() {
        let (one, two) = (NodeId::new(1).unwrap(), NodeId::new(2).unwrap());
        let mut mailbox = Mailbox::new(10, 1000);
        let kept = (0..50).filter(|digest| {
            let posted = mailbox.post(one, cast(0, *digest, 0));
            mailbox.take();
            posted == Posted::Kept
        });
        assert_eq!(kept.count(), 10);
        assert_eq!(mailbox.post(two, cast(0, 0, 0)), Posted::Kept);
    }

    #[test]
    fn the_number_of_senders_is_bounded() {
        let mut mailbox = Mailbox::new(10, 1000);
        let kept = (1..=2_000).filter(|sender| {
            mailbox.post(NodeId::new(*sender).unwrap(), cast(0, 0, 0)) == Posted::Kept
        });
        assert_eq!(kept.count(), SENDERS_MAX);
        assert_eq!(mailbox.post(NodeId::new(1).unwrap(), cast(1, 0, 0)), Posted::Kept);
    }

    #[test]
    fn what_is_held_is_the_waiting_payload_and_every_name() {
        let mut mailbox = Mailbox::new(10, 1000);
        for digest in 0..3 {
            mailbox.post(NodeId::new(1).unwrap(), cast(0, digest, 100));
        }
        assert_eq!(mailbox.held_bytes(), 3 * (100 + NAME_BYTES));
        mailbox.take();
        assert_eq!(mailbox.held_bytes(), 2 * 100 + 3 * NAME_BYTES);
    }
}
