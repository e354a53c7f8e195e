//! The cores of a node: each a whole [`Node`](crate::node::Node), with calls, tasks and mailboxes
//! of its own, and the same connections. They share nothing, so that each can have its lock.
//!
//! Frames find their core by the origin that they name. A core opens calls on the call stream of
//! its number (`streams.md` R1), and keeps the tasks and mailboxes of these; those of other nodes'
//! calls are where a mix of their origin says. So all that is ever known of one call is in one
//! core, and a node's frames to itself never leave theirs.

use crate::id::{Incarnation, NodeId};
use crate::mutant::{self, Mutant};
use crate::wire::{Ask, Frame, Message, Settled, Subject};

/// Most cores of a node.
pub const CORES_MAX: u8 = 64;

/// The way to the core of each frame and call: the number of a node's cores, and the life by which
/// it knows calls of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    life: Incarnation,
    /// A power of two.
    count: usize,
}

/// One core of a node among so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: u8,
    count: u8,
}

impl Place {
    /// That of the only one.
    pub const SOLE: Self = Self { index: 0, count: 1 };

    /// The call stream of its calls.
    pub(crate) fn stream(self) -> u8 {
        self.index
    }

    /// Number of cores of the node.
    pub(crate) fn count(self) -> usize {
        usize::from(self.count)
    }

    /// Its part of what the node may have: the parts of all are the whole.
    pub(crate) fn part(self, whole: usize) -> usize {
        let (index, count) = (usize::from(self.index), self.count());
        whole / count + usize::from(index < whole % count)
    }
}

impl Routes {
    /// So many cores of a life, or the next power of two; more than [`CORES_MAX`] are as many.
    pub fn new(life: Incarnation, count: u8) -> Self {
        Self { life, count: usize::from(count.min(CORES_MAX)).next_power_of_two() }
    }

    /// All cores in order.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let count = u8::try_from(self.count).unwrap_or(CORES_MAX);
        (0..count).map(move |index| Place { index, count })
    }

    /// Number of cores.
    #[expect(clippy::len_without_is_empty, reason = "there is one at least")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The core of what has this origin: calls, tasks, casts. For casts about a tag the space of
    /// the tag stands in its place.
    #[inline]
    pub fn of(&self, origin: Incarnation) -> usize {
        let mask = self.count - 1;
        if mask == 0 {
            return 0;
        }
        let is_own = match mutant::is(Mutant::LifeWithStream) {
            true => self.life == origin,
            false => self.life.is_life_of(origin),
        };
        if is_own {
            return usize::from(origin.stream()) & mask;
        }
        mix(origin.0) & mask
    }

    /// The core in which calls to a node are opened: what goes to it and comes back stays together,
    /// so that a batch of frames is for few cores.
    #[inline]
    pub fn of_peer(&self, node: NodeId) -> usize {
        mix(node.get()) & (self.count - 1)
    }

    /// The core of a frame of these bytes. `None` when several may have a part in it, which
    /// [`Self::parts`] says. Of bytes that are no frame the first core complains.
    #[inline]
    pub fn of_frame(&self, bytes: &[u8]) -> Option<usize> {
        if self.count == 1 {
            return Some(0);
        }
        match Subject::of(bytes) {
            None => Some(0),
            Some(Subject::One(origin)) => Some(self.of(origin)),
            Some(Subject::Several) => None,
        }
    }

    /// The parts of a question about several origins, or of its answer, each with its core. Other
    /// frames are whole.
    pub fn parts(&self, frame: Frame) -> Vec<(usize, Frame)> {
        let Frame { header, relayed, key, message } = frame;
        let messages: Vec<(usize, Message)> = match message {
            Message::Ask(Ask { origins }) => self
                .sorted(origins, |(origin, _)| *origin)
                .map(|(core, origins)| (core, Message::Ask(Ask { origins })))
                .collect(),
            Message::Settled(Settled { statements }) => self
                .sorted(statements, |statement| statement.origin)
                .map(|(core, statements)| (core, Message::Settled(Settled { statements })))
                .collect(),
            message => vec![(self.of(header.call.origin), message)],
        };
        let part =
            |(core, message)| (core, Frame { header: header.clone(), relayed, key, message });
        messages.into_iter().map(part).collect()
    }

    /// The things for each core, in their order; nothing for cores without any.
    fn sorted<T>(
        &self,
        all: Vec<T>,
        origin: impl Fn(&T) -> Incarnation,
    ) -> impl Iterator<Item = (usize, Vec<T>)> {
        let mut of_cores: Vec<Vec<T>> = (0..self.count).map(|_| Vec::new()).collect();
        for one in all {
            of_cores[self.of(origin(&one))].push(one);
        }
        of_cores.into_iter().enumerate().filter(|(_, of_core)| !of_core.is_empty())
    }
}

/// The golden ratio spreads what differs in a few bits over the upper half.
fn mix(name: u64) -> usize {
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> u32::BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Header;

    const LIFE: Incarnation = Incarnation::of_random(7 << 40);

    #[test]
    fn calls_of_the_node_itself_are_where_they_were_opened() {
        for (asked, count) in [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (200, 64)] {
            let routes = Routes::new(LIFE, asked);
            assert_eq!(routes.len(), count, "{asked}");
            for core in 0..count {
                let stream = u8::try_from(core).expect("they are few");
                assert_eq!(routes.of(LIFE.of_stream(stream)), core);
            }
            assert!(routes.of(LIFE.of_stream(255)) < count, "nobody opened it");
        }
    }

    #[test]
    fn the_parts_of_all_are_the_whole() {
        for whole in [0, 1, 3, 4, 5, 131_072] {
            let parts = Routes::new(LIFE, 4).places().map(|place| place.part(whole));
            assert_eq!(parts.sum::<usize>(), whole);
        }
    }

    #[test]
    fn those_of_others_are_spread_by_life_and_by_stream() {
        let routes = Routes::new(LIFE, 4);
        let mut counts = [0; 4];
        for life in 1..=64 {
            for stream in 0..4 {
                counts[routes.of(Incarnation::of_random(life << 32).of_stream(stream))] += 1;
            }
        }
        assert!(counts.iter().all(|count| (40..90).contains(count)), "{counts:?}");
    }

    #[test]
    fn calls_to_one_node_are_in_one_core_and_those_to_many_in_all() {
        let routes = Routes::new(LIFE, 4);
        let mut counts = [0; 4];
        for node in 1..=64 {
            counts[routes.of_peer(NodeId::new(node))] += 1;
        }
        assert!(counts.iter().all(|count| (12..20).contains(count)), "{counts:?}");
        assert_eq!(Routes::new(LIFE, 1).of_peer(NodeId::new(9)), 0);
    }

    #[test]
    fn a_question_about_several_origins_and_its_answer_go_to_the_core_of_each() {
        let routes = Routes::new(LIFE, 4);
        let origins: Vec<_> = (0..4).map(|stream| (LIFE.of_stream(stream), 9)).collect();
        let ask = Message::Ask(Ask { origins });
        let frame =
            Frame { header: Header::of_question(5), relayed: None, key: None, message: ask };
        let bytes = frame.to_bytes();
        assert_eq!(routes.of_frame(&bytes), None);
        assert_eq!(Routes::new(LIFE, 1).of_frame(&bytes), Some(0));
        let parts = routes.parts(frame.clone());
        assert_eq!(parts.iter().map(|(core, _)| *core).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for (core, part) in parts {
            assert_eq!(part.header, frame.header);
            let Message::Ask(Ask { origins }) = part.message else { panic!("it is a question") };
            let stream = u8::try_from(core).expect("they are few");
            assert_eq!(origins, [(LIFE.of_stream(stream), 9)]);
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_for_the_first() {
        let routes = Routes::new(LIFE, 4);
        for bytes in [&b""[..], b"\x01", b"\x01\x00\x00\x00\x00\x00\x00\x00\x00"] {
            assert_eq!(routes.of_frame(bytes), Some(0));
        }
    }
}
