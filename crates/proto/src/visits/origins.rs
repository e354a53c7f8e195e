//! The initiators whose tasks are known here, and the rings that their tasks lie in.
//!
//! An origin is a node and a life of it, as a connection proves them or a request claims them
//! (`trust.md` T7). The same life said by two nodes is two origins. Nothing is shared by a call but
//! its number: what came from one sender lies in a ring of its own (T6), so nobody's requests stand
//! in the way of another's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{Incarnation, LinkId, NodeId, NodeLife};
use crate::intervals::Intervals;
use crate::mutant::{self, Mutant};
use crate::share::PeerIndex;
use crate::time::Timestamp;

use super::records::{Records, RingIndex};
use super::stubs::Stubs;

/// The place of an origin in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OriginIndex(u32);

/// State of one initiator, as far as known.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) name: NodeLife,
    /// Its calls that it has said to be settled.
    pub(super) settled: Intervals,
    /// And all below this, as its requests have said since the last batch of frames ended.
    pub(super) floor: u64,
    /// Until when that must be known: what was dropped on its account could otherwise be taken for
    /// new.
    pub(super) keep_until: Timestamp,
    /// The highest number of its calls of which a task was ever kept here.
    pub(super) highest: u64,
    /// Records of its tasks, and those of them that are over.
    pub(super) held: usize,
    pub(super) over: usize,
    pub(super) asked: Asked,
    /// Peer whose share it is taken from, and how much of it.
    pub(super) payer: PeerIndex,
    pub(super) paid: usize,
    /// Dialling it took too long; once is enough.
    pub(super) gave_up_dialling: bool,
    /// It is among those that may be forgotten.
    pub(super) is_idle: bool,
}

impl Origin {
    /// The end of what it can settle here. Nothing of a later call is here that could be let go, so
    /// that it is settled need not be believed: a number that was changed on its way would have all
    /// its later requests refused.
    pub(super) fn settles_below(&self) -> u64 {
        self.highest.saturating_add(1)
    }

    /// True when a call is known to be settled.
    pub(super) fn is_settled(&self, seq: u64) -> bool {
        seq < self.floor || self.settled.contains(seq)
    }
}

/// When somebody was last asked which calls are settled, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) at: Option<Timestamp>,
    /// Questions since the last answer: each makes the next wait twice as long.
    pub(super) unanswered: u32,
    /// Question to a node other than the initiator that it has not answered.
    pub(super) open: Option<Question>,
    /// Calls over that were left after the answer.
    pub(super) left: usize,
    /// The number at which the answer ended, if there was more to say.
    pub(super) next: Option<u64>,
}

/// A question that is to be told from those before it when its answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The connection over which it was asked.
    pub(super) over: LinkId,
    /// Its own number: an answer to another question may be older than what has come since.
    pub(super) number: u64,
    /// When it was asked: its answer says nothing of what came later.
    pub(super) since: Timestamp,
}

/// When to ask again while more is remembered than is worth a question: soon after an answer that
/// settled some, ever later after those that did not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Again {
    pub(super) at: Option<Timestamp>,
    pub(super) pause: Duration,
    /// Records that were over when it was asked last.
    pub(super) over: usize,
}

/// Ring of what came from one sender for the calls of one life.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) name: RingName,
    pub(super) records: Records,
    pub(super) over: usize,
    pub(super) stubs: Stubs,
    /// Peer whose share the stubs are taken from.
    pub(super) payer: PeerIndex,
    pub(super) asked: Asked,
    /// When it is to be asked again for what is old in it, though nothing new ends.
    pub(super) again: Again,
    /// The earliest time at which the ring itself is to be looked at.
    pub(super) armed_at: Option<Timestamp>,
}

/// The life that calls are of, and the node that sent their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RingName {
    pub(super) life: Incarnation,
    pub(super) sender: NodeLife,
}

/// Both tables.
#[derive(Debug)]
pub(super) struct Origins {
    origins: Vec<Option<Origin>>,
    free_origins: Vec<u32>,
    by_name: BTreeMap<(Incarnation, NodeId), OriginIndex>,
    rings: Vec<Option<Ring>>,
    free_rings: Vec<u32>,
    by_sender: BTreeMap<RingName, RingIndex>,
    /// Those of the last request, as most of a batch are of the same.
    last: (OriginIndex, RingIndex),
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            free_origins: Vec::new(),
            by_name: BTreeMap::new(),
            rings: Vec::new(),
            free_rings: Vec::new(),
            by_sender: BTreeMap::new(),
            last: (OriginIndex(0), RingIndex(0)),
        }
    }
}

impl Origins {
    pub(super) fn find(&self, name: NodeLife) -> Option<OriginIndex> {
        if mutant::is(Mutant::OriginByLife) {
            let of_life = self.by_name.range((name.life, NodeLife::LEAST.node)..).next();
            let of_life = of_life.filter(|((life, _), _)| *life == name.life);
            return of_life.map(|(_, index)| *index);
        }
        self.by_name.get(&(name.life, name.node)).copied()
    }

    /// The only origin of a life, if there is only one.
    pub(super) fn sole_of(&self, life: Incarnation) -> Option<OriginIndex> {
        let least = (life, NodeLife::LEAST.node);
        let mut of_life = self.by_name.range(least..).take_while(|((of, _), _)| *of == life);
        let first = of_life.next().map(|(_, index)| *index);
        first.filter(|_| of_life.next().is_none())
    }

    pub(super) fn insert(&mut self, name: NodeLife, payer: PeerIndex) -> OriginIndex {
        let origin = Origin {
            name,
            settled: Intervals::default(),
            floor: 0,
            keep_until: Timestamp::ZERO,
            highest: 0,
            held: 0,
            over: 0,
            asked: Asked::default(),
            payer,
            paid: 1,
            gave_up_dialling: false,
            is_idle: false,
        };
        let index = OriginIndex(put(&mut self.origins, &mut self.free_origins, origin));
        self.by_name.insert((name.life, name.node), index);
        index
    }

    pub(super) fn remove(&mut self, index: OriginIndex) -> Option<Origin> {
        let origin = self.origins.get_mut(index.0 as usize)?.take()?;
        self.by_name.remove(&(origin.name.life, origin.name.node));
        self.free_origins.push(index.0);
        Some(origin)
    }

    #[inline]
    pub(super) fn get(&self, index: OriginIndex) -> &Origin {
        self.origins[index.0 as usize].as_ref().expect("a record keeps its origin")
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: OriginIndex) -> &mut Origin {
        self.origins[index.0 as usize].as_mut().expect("a record keeps its origin")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.origins.iter().flatten()
    }

    /// As [`Self::find`], of the origin of a request.
    #[inline]
    pub(super) fn find_again(&mut self, name: NodeLife) -> Option<OriginIndex> {
        let last = self.origins.get(self.last.0.0 as usize);
        if last.is_some_and(|last| last.as_ref().is_some_and(|last| last.name == name)) {
            return Some(self.last.0);
        }
        let found = self.find(name)?;
        self.last.0 = found;
        Some(found)
    }

    /// The ring of a request.
    #[inline]
    pub(super) fn find_ring(&mut self, name: RingName) -> Option<RingIndex> {
        if self.ring(self.last.1).is_some_and(|ring| ring.name == name) {
            return Some(self.last.1);
        }
        let found = *self.by_sender.get(&name)?;
        self.last.1 = found;
        Some(found)
    }

    /// The ring of this name.
    pub(super) fn ring_of(&self, name: RingName) -> Option<&Ring> {
        self.ring(*self.by_sender.get(&name)?)
    }

    pub(super) fn insert_ring(&mut self, name: RingName, payer: PeerIndex) -> RingIndex {
        let ring = Ring {
            name,
            records: Records::default(),
            over: 0,
            stubs: Stubs::default(),
            payer,
            asked: Asked::default(),
            again: Again::default(),
            armed_at: None,
        };
        let index = RingIndex(put(&mut self.rings, &mut self.free_rings, ring));
        self.by_sender.insert(name, index);
        index
    }

    pub(super) fn remove_ring(&mut self, index: RingIndex) -> Option<Ring> {
        let ring = self.rings.get_mut(index.0 as usize)?.take()?;
        self.by_sender.remove(&ring.name);
        self.free_rings.push(index.0);
        Some(ring)
    }

    /// A ring, which may have gone.
    pub(super) fn ring(&self, index: RingIndex) -> Option<&Ring> {
        self.rings.get(index.0 as usize)?.as_ref()
    }

    pub(super) fn ring_mut(&mut self, index: RingIndex) -> Option<&mut Ring> {
        self.rings.get_mut(index.0 as usize)?.as_mut()
    }

    /// The rings of the calls of one life: one for each node that has sent requests of them.
    pub(super) fn rings_of(&self, life: Incarnation) -> impl Iterator<Item = (RingIndex, &Ring)> {
        let least = RingName { life, sender: NodeLife::LEAST };
        let of_life = self.by_sender.range(least..).take_while(move |(name, _)| name.life == life);
        of_life.filter_map(|(_, index)| Some((*index, self.ring(*index)?)))
    }

    pub(super) fn rings_with_index(&self) -> impl Iterator<Item = (RingIndex, &Ring)> {
        self.by_sender.values().filter_map(|index| Some((*index, self.ring(*index)?)))
    }

    pub(super) fn rings(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().flatten()
    }

    pub(super) fn rings_by_index(&self) -> impl Iterator<Item = (RingIndex, &Ring)> {
        (0..).map(RingIndex).zip(&self.rings).filter_map(|(at, ring)| Some((at, ring.as_ref()?)))
    }
}

fn put<T>(table: &mut Vec<Option<T>>, free: &mut Vec<u32>, value: T) -> u32 {
    if let Some(index) = free.pop() {
        table[index as usize] = Some(value);
        return index;
    }
    table.push(Some(value));
    u32::try_from(table.len() - 1).expect("bounded by what may be remembered")
}
