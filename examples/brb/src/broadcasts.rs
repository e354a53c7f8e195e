//! All broadcasts of all sources at one member. No I/O, no clock.
//!
//! A source stays within its own share: so many of its broadcasts may be under way, and those below
//! the lowest that is not delivered are over. A liar that leaves a gap, or never completes what it
//! begins, holds up its own broadcasts alone, and what is remembered is bounded for ever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use convoke::NodeId;
use convoke::cast::{CastBody, Digest};
use convoke::quorum::Configuration;
use convoke::quorum::echo::{
    EchoCore, EchoError, EchoPlan, EchoVote, Evidence, PlanError, digest_of,
};

use crate::mutant::{self, Mutant};
use crate::protocol::{Broadcast, ECHO, SEND, Step, plan};

/// Broadcasts of one source that may be under way, from the lowest that is not delivered on.
pub const WINDOW: u64 = 64;

/// Broadcasts of this member's own that may be under way: fewer, so that one which hears of them
/// later than others finds them within its window.
pub const OWN_MAX: u64 = 16;

/// The largest value.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// A value that all correct members deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The member that broadcast it.
    pub source: NodeId,
    /// As its how-manieth.
    pub sequence: u64,
    /// The value.
    pub value: Bytes,
    /// Members that this one has caught voting twice about it.
    pub evidence: Vec<Evidence>,
}

/// Actions that the member is to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Keep this value for those who lack it. Before the vote that says that it is here.
    Keep(NodeId, Bytes),
    /// Send this vote about the broadcast of a source to all others, with the value.
    Cast((NodeId, u64), EchoVote, Bytes),
    /// Get the value of this digest from one of these, and say so with
    /// [`Broadcasts::handle_value`].
    Pull((NodeId, u64), Digest, Vec<NodeId>),
    /// Hand it out.
    Deliver(Delivery),
}

/// Reason why a value is not broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is above [`VALUE_BYTES_MAX`].
    #[error("a value of {0} bytes is too large")]
    TooLarge(usize),
    /// This one was broadcast before.
    #[error("broadcast {0} was made before")]
    Twice(u64),
    /// Too many are under way: those before are to be delivered first.
    #[error("broadcast {0} is too far ahead of those that are delivered")]
    TooMany(u64),
}

/// The broadcasts at one member.
#[derive(Debug)]
pub struct Broadcasts {
    me: NodeId,
    members: Configuration,
    plan: EchoPlan,
    sources: BTreeMap<NodeId, Source>,
    out: VecDeque<Output>,
}

/// The broadcasts of one source.
#[derive(Debug, Default)]
struct Source {
    /// The lowest that is not delivered.
    floor: u64,
    /// Those above that are.
    delivered: BTreeSet<u64>,
    open: BTreeMap<u64, (EchoCore, Broadcast)>,
}

impl Broadcasts {
    /// None yet, at one of `3f + 1` members.
    ///
    /// # Errors
    /// [`EchoError`] unless the member is one of so many.
    pub fn new(me: NodeId, members: &Configuration, faulty: usize) -> Result<Self, EchoError> {
        let plan =
            plan(members.len(), faulty).map_err(|error: PlanError| EchoError::from(error))?;
        EchoCore::new(me, members, plan.clone())?;
        let sources = members.nodes().map(|node| (node, Source::default())).collect();
        Ok(Self { me, members: members.clone(), plan, sources, out: VecDeque::new() })
    }

    /// Broadcasts a value as the how-manieth of this member: from 0 without gaps, each once.
    ///
    /// # Errors
    /// [`Refused`]; then nothing was said.
    pub fn broadcast(&mut self, sequence: u64, value: Bytes) -> Result<(), Refused> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refused::TooLarge(value.len()));
        }
        let (key, digest) = ((self.me, sequence), digest_of(&value));
        let own = &self.sources[&self.me];
        let has_cast =
            own.open.get(&sequence).is_some_and(|(votes, _)| votes.cast_in(SEND).is_some());
        if own.is_over(sequence) || has_cast {
            return Err(Refused::Twice(sequence));
        }
        if sequence - own.floor >= OWN_MAX {
            return Err(Refused::TooMany(sequence));
        }
        let Some((votes, broadcast)) = self.open(key) else {
            return Err(Refused::TooMany(sequence));
        };
        broadcast.handle_value(value);
        let cast = votes.cast(SEND, digest);
        debug_assert_eq!(cast, Ok(true), "it was not cast before");
        self.go_on(key);
        Ok(())
    }

    /// A vote of another member about a broadcast.
    pub fn handle_cast(&mut self, key: (NodeId, u64), from: NodeId, mut body: CastBody) {
        if body.phase != SEND || from != key.0 {
            body.payload = Bytes::new(); // Only the source has anything to send along.
        }
        if body.payload.len() > VALUE_BYTES_MAX {
            return;
        }
        let Some((votes, _)) = self.open(key) else { return };
        if votes.handle_cast(from, body).is_ok() {
            self.go_on(key);
        }
    }

    /// The value that was to be pulled came, or none did in time: then it is pulled again.
    pub fn handle_value(&mut self, key: (NodeId, u64), value: Option<Bytes>) {
        let open = self.sources.get_mut(&key.0).and_then(|source| source.open.get_mut(&key.1));
        let Some((_, broadcast)) = open else { return };
        match value {
            Some(value) => broadcast.handle_value(value),
            None => broadcast.pull_again(),
        }
        self.go_on(key);
    }

    /// The next action to take.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Broadcasts that are under way, and those remembered beside the floors.
    pub fn held(&self) -> (usize, usize) {
        let of = |count: fn(&Source) -> usize| self.sources.values().map(count).sum();
        (of(|source| source.open.len()), of(|source| source.delivered.len()))
    }

    /// A broadcast that is under way, or may be.
    fn open(&mut self, (source, sequence): (NodeId, u64)) -> Option<&mut (EchoCore, Broadcast)> {
        let of = self.sources.get_mut(&source)?;
        if of.is_over(sequence) {
            return None;
        }
        if sequence - of.floor >= WINDOW && !mutant::is(Mutant::WindowIgnored) {
            return None;
        }
        let (me, members, plan) = (self.me, &self.members, &self.plan);
        Some(of.open.entry(sequence).or_insert_with(|| {
            let votes = EchoCore::new(me, members, plan.clone());
            (votes.expect("it was possible before"), Broadcast::of(source))
        }))
    }

    fn go_on(&mut self, key: (NodeId, u64)) {
        let (source, sequence) = key;
        let Some(of) = self.sources.get_mut(&source) else { return };
        let Some((votes, broadcast)) = of.open.get_mut(&sequence) else { return };
        loop {
            let step = broadcast.next(votes);
            if let Some(Step::Echo(digest)) = &step {
                self.out.extend(broadcast.value().map(|value| Output::Keep(source, value.clone())));
                let cast = votes.cast(ECHO, *digest);
                debug_assert!(cast.is_ok(), "it has echoed nothing else: {cast:?}");
            }
            while let Some(vote) = votes.poll_transmit() {
                let value = broadcast.value().filter(|_| vote.phase == SEND);
                self.out.push_back(Output::Cast(key, vote, value.cloned().unwrap_or_default()));
            }
            match step {
                Some(Step::Echo(_)) => {}
                Some(Step::Pull(digest, from)) => {
                    self.out.push_back(Output::Pull(key, digest, from))
                }
                Some(Step::Deliver(value)) => {
                    let evidence = votes.evidence().to_vec();
                    self.out.push_back(Output::Keep(source, value.clone()));
                    self.out.push_back(Output::Deliver(Delivery {
                        source,
                        sequence,
                        value,
                        evidence,
                    }));
                    return of.note_delivered(sequence);
                }
                None => return,
            }
        }
    }
}

impl Source {
    fn is_over(&self, sequence: u64) -> bool {
        let is_delivered = self.delivered.contains(&sequence) && !mutant::is(Mutant::DeliversTwice);
        sequence < self.floor || is_delivered
    }

    fn note_delivered(&mut self, sequence: u64) {
        self.open.remove(&sequence);
        self.delivered.insert(sequence);
        while !mutant::is(Mutant::FloorStays) && self.delivered.remove(&self.floor) {
            self.floor += 1;
        }
    }
}
