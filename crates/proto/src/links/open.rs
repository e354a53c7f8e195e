//! The connections of a node that are up, each by an id that is never used twice.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Arrival;
use crate::id::{LinkId, LinkNonce, NodeId, NodeLife};
use crate::share::PeerIndex;
use crate::time::Timestamp;

/// Those that are up.
#[derive(Debug)]
pub(super) struct OpenLinks {
    /// By index of their id, with its generation; the first is the node's own to itself.
    places: Vec<(u32, Option<Open>)>,
    free: VecDeque<u32>,
    full_count: usize,
    leaving_count: usize,
}

/// A connection that is up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) peer: NodeLife,
    pub(super) nonce: LinkNonce,
    pub(super) share: PeerIndex,
    /// Version of the ledger by which this core knows what the peer has in others.
    pub(super) heard_at: u64,
    pub(super) up_since: Timestamp,
    /// The first turn in which new frames took another connection, if they do.
    pub(super) left_at: Option<u64>,
    /// It takes only what cannot wait.
    pub(super) is_full: bool,
    /// Its peer takes no requests any more.
    pub(super) is_leaving: bool,
    /// Number of requests that have left by it in this core, and that have come.
    pub(super) sent: u64,
    pub(super) come: u64,
    /// When its questions which calls are settled have used up what they may have of answers.
    answered_until: Timestamp,
    ignored: Ignored,
}

/// Frames of a connection that counted for nothing, within a second.
#[derive(Clone, Copy, Debug, Default)]
struct Ignored {
    second: u64,
    count: u32,
}

/// Amount of what a connection brings that counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// This is the first such frame within a second.
    First,
    /// There were others.
    More,
    /// More than it may have.
    TooMuch,
}

/// Answers that a peer may have at once to its questions which calls are settled: it asks for each
/// origin and each sender by itself, at times that may coincide for ever.
const ANSWERS_AT_ONCE: u32 = 16;

/// Frames of one connection that count for nothing, in a second: more of them close it.
const IGNORED_MAX: u32 = 10_000;

impl OpenLinks {
    pub(super) fn new(to_itself: Open) -> Self {
        Self {
            places: vec![(0, Some(to_itself))],
            free: VecDeque::new(),
            full_count: 0,
            leaving_count: 0,
        }
    }

    pub(super) fn insert(&mut self, open: Open) -> LinkId {
        // The one that has been free for longest, so that an id comes again late.
        let Some(index) = self.free.pop_front() else {
            self.places.push((0, Some(open)));
            let index = self.places.len() - 1;
            let index = u32::try_from(index).expect("fewer connections than addresses");
            return LinkId { index, generation: 0 };
        };
        let place = &mut self.places[index as usize];
        place.0 += 1;
        place.1 = Some(open);
        LinkId { index, generation: place.0 }
    }

    /// Takes one out. The node's own to itself stays.
    pub(super) fn remove(&mut self, link: LinkId) -> Option<Open> {
        let (generation, open) = self.places.get_mut(link.index as usize)?;
        if *generation != link.generation || link == LinkId::LOCAL {
            return None;
        }
        let open = open.take()?;
        self.full_count -= usize::from(open.is_full);
        self.leaving_count -= usize::from(open.is_leaving);
        self.free.push_back(link.index);
        Some(open)
    }

    #[inline]
    pub(super) fn get(&self, link: LinkId) -> Option<&Open> {
        let (generation, open) = self.places.get(link.index as usize)?;
        open.as_ref().filter(|_| *generation == link.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Open> {
        let (generation, open) = self.places.get_mut(link.index as usize)?;
        open.as_mut().filter(|_| *generation == link.generation)
    }

    /// A connection takes only what cannot wait, or takes all again.
    pub(super) fn note_full(&mut self, link: LinkId, is_full: bool) {
        let Some(open) = self.get_mut(link) else { return };
        let was_full = std::mem::replace(&mut open.is_full, is_full);
        self.full_count = self.full_count + usize::from(is_full) - usize::from(was_full);
    }

    /// The peer of a connection takes no requests any more. The number of those that have left, if
    /// this is new.
    pub(super) fn note_leaving(&mut self, link: LinkId) -> Option<u64> {
        let open = self.get_mut(link)?;
        let was_leaving = std::mem::replace(&mut open.is_leaving, true);
        let sent = open.sent;
        self.leaving_count += usize::from(!was_leaving);
        (!was_leaving).then_some(sent)
    }

    /// True when the peer of a connection takes no requests any more: most often none does.
    pub(super) fn is_leaving(&self, link: LinkId) -> bool {
        self.leaving_count > 0 && self.get(link).is_some_and(|open| open.is_leaving)
    }

    /// Connections that take only what cannot wait: most often none does.
    pub(super) fn full_count(&self) -> usize {
        self.full_count
    }

    /// All but the node's own to itself.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, LinkId)> + '_ {
        (0..).zip(&self.places).skip(1).filter_map(|(index, (generation, open))| {
            let id = LinkId { index, generation: *generation };
            open.as_ref().map(|open| (open.peer.node, id))
        })
    }
}

impl Open {
    pub(super) fn new(peer: NodeLife, nonce: LinkNonce, share: PeerIndex, now: Timestamp) -> Self {
        Self {
            peer,
            nonce,
            share,
            heard_at: 0,
            up_since: now,
            left_at: None,
            is_full: false,
            is_leaving: false,
            sent: 0,
            come: 0,
            answered_until: now,
            ignored: Ignored::default(),
        }
    }

    /// Arrival of a frame by this connection, which has this id.
    #[inline]
    pub(super) fn arrival(&self, link: LinkId) -> Arrival {
        let NodeLife { node, life } = self.peer;
        Arrival { via: node, life, from: node, link, peer: self.share, key: None }
    }

    /// True when the peer may be told again which calls are settled, once `every` so often.
    pub(super) fn may_answer(&mut self, now: Timestamp, every: Duration) -> bool {
        let until = self.answered_until.max(now) + every;
        let may = until.since(now) <= every * ANSWERS_AT_ONCE;
        if may {
            self.answered_until = until;
        }
        may
    }

    /// A frame of it counted for nothing.
    pub(super) fn note_ignored(&mut self, now: Timestamp) -> Noise {
        let second = now.as_nanos() / 1_000_000_000;
        if self.ignored.second != second {
            self.ignored = Ignored { second, count: 0 };
        }
        self.ignored.count += 1;
        match self.ignored.count {
            1 => Noise::First,
            2..=IGNORED_MAX => Noise::More,
            _ => Noise::TooMuch,
        }
    }
}
