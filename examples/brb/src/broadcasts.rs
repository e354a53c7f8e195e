//! All broadcasts of all sources at one member. No I/O, no clock.
//!
//! A source stays within its own share: so many of its broadcasts may be under way, and those below
//! the lowest that is not delivered are over. A liar that leaves a gap, or never completes what it
//! begins, holds up its own broadcasts alone, and what is remembered is bounded for ever.
//!
//! Votes get lost where connections break. They are said again to who is back
//! ([`Broadcasts::repeat_to`]), and to who asks: a member that sees no progress in the broadcasts
//! of a source asks the others from where it stands on, and says again what it has said itself
//! ([`Broadcasts::handle_tick`]). Of broadcasts that are over here it is told who was ready.
//!
//! Deliveries wait for the application within the share of their source. Beyond it those of the
//! source wait with their broadcasts, which stay under way; votes wait for nobody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use convoke::NodeId;
use convoke::cast::{CastBody, Digest};
use convoke::quorum::Configuration;
use convoke::quorum::echo::{
    EchoCore, EchoError, EchoPlan, EchoVote, Evidence, PlanError, digest_of,
};

use crate::mutant::{self, Mutant};
use crate::protocol::{ASK, Broadcast, ECHO, READY, SEND, Step, plan};

/// Broadcasts of one source that may be under way, from the lowest that is not delivered on.
pub const WINDOW: u64 = 64;

/// Broadcasts of this member's own that may be under way: fewer, so that one which hears of them
/// later than others finds them within its window.
pub const OWN_MAX: u64 = 16;

/// Broadcasts of a source that are over and of which it is remembered what was said: how far behind
/// others a member may be and still be told all that it lacks. A digest each, so many windows.
pub const REMEMBERED_MAX: usize = 1_024;

/// Deliveries of one source that the application has not taken; further ones wait within the
/// window.
pub const UNTAKEN_MAX: usize = 1_024;

/// Bytes of their values: of the largest there are 128, two windows.
pub const UNTAKEN_BYTES_MAX: usize = 8 << 20;

/// A bound of the broadcasts of a source that a member can have voted about: all are below it.
///
/// It `began` with the source's broadcast of that number, 0 or what it has skipped to, and its
/// application has `taken` so many deliveries of the source since, the one that it is about to take
/// included. Kept on disk before the member votes, and raised before each delivery is taken, it
/// says where a member that has lost its memory may vote again: [`Broadcasts::skip_to`].
pub fn votes_below(began: u64, taken: u64) -> u64 {
    began.saturating_add(taken).saturating_add(UNTAKEN_MAX as u64 + WINDOW)
}

/// Ticks after which a member asks anew at the latest, while nothing comes of it.
const ASK_TICKS_MAX: u32 = 64;

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
    /// Send this vote again, to one member or a few.
    Again(Vec<NodeId>, (NodeId, u64), EchoVote, Bytes),
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
    /// Members that were answered since the last tick, with the source that they asked about.
    answered: BTreeSet<(NodeId, NodeId)>,
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
    /// Digests that this member was ready for, of the last that are over.
    said: BTreeMap<u64, Digest>,
    /// Deliveries that wait for the application to take others; their broadcasts are open.
    held: BTreeMap<u64, Delivery>,
    /// Deliveries that were handed out and that the application has not taken, and their bytes.
    untaken: (usize, usize),
    /// One above the highest that any member has voted about.
    heard: u64,
    asking: Asking,
}

/// Times at which a member asks about the broadcasts of a source.
#[derive(Debug, Default)]
struct Asking {
    /// The floor at the last tick.
    floor: u64,
    /// Ticks until it asks again.
    ticks: u32,
    /// And how many it waited for that.
    waited: u32,
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
        let (answered, out) = (BTreeSet::new(), VecDeque::new());
        Ok(Self { me, members: members.clone(), plan, sources, answered, out })
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
        if body.phase == ASK {
            return self.answer(from, key);
        }
        if body.phase != SEND || from != key.0 {
            body.payload = Bytes::new(); // Only the source has anything to send along.
        }
        if body.payload.len() > VALUE_BYTES_MAX {
            return;
        }
        if let Some(of) = self.sources.get_mut(&key.0) {
            of.heard = of.heard.max(key.1.saturating_add(1));
        }
        let Some((votes, _)) = self.open(key) else { return };
        if votes.handle_cast(from, body).is_ok() {
            self.go_on(key);
        }
    }

    /// The application has taken a delivery: those that wait may follow.
    pub fn handle_taken(&mut self, delivery: &Delivery) {
        let Some(of) = self.sources.get_mut(&delivery.source) else { return };
        let (count, bytes) = of.untaken;
        of.untaken = (count.saturating_sub(1), bytes.saturating_sub(delivery.value.len()));
        while of.has_room() {
            let Some((_, delivery)) = of.held.pop_first() else { return };
            self.out.push_back(of.hand_out(delivery));
        }
    }

    /// Some time has passed, the same each time. Asks about sources of which broadcasts are known
    /// to be missing and none was delivered since, and says the votes about them again: later and
    /// later, as long as that helps nothing.
    pub fn handle_tick(&mut self) {
        self.answered.clear();
        let sources: Vec<NodeId> = self.members.nodes().collect();
        for source in sources {
            let Some(of) = self.sources.get_mut(&source) else { continue };
            if of.is_to_ask() && !mutant::is(Mutant::AsksNobody) {
                let (floor, others) = (of.floor, self.others());
                let ask = EchoVote { phase: ASK, digest: Digest::ZERO };
                self.out.push_back(Output::Again(others, (source, floor), ask, Bytes::new()));
                self.others().into_iter().for_each(|node| self.repeat_open(node, source, true));
            }
        }
    }

    /// This member is back, or was told less than all: says again what it may have missed, of each
    /// source the votes about what is under way, and about so many of the last that are over as it
    /// may have under way.
    pub fn repeat_to(&mut self, node: NodeId) {
        let is_other = node != self.me && self.members.contains(node);
        if !is_other || mutant::is(Mutant::RepeatsNothing) {
            return;
        }
        let sources: Vec<NodeId> = self.members.nodes().collect();
        for source in sources {
            let of = &self.sources[&source];
            let last = of.said.last_key_value().map_or(0, |(sequence, _)| *sequence);
            self.repeat_said(node, source, (last + 1).saturating_sub(WINDOW));
            self.repeat_open(node, source, true);
        }
    }

    /// Takes part in the broadcasts of a source from this one on: those below are over, and not
    /// delivered. For a member that was away for too long. It must not have voted in an earlier
    /// life about one from there on, which nobody can tell it but its own disk: [`votes_below`].
    pub fn skip_to(&mut self, source: NodeId, sequence: u64) {
        let Some(of) = self.sources.get_mut(&source).filter(|of| of.floor < sequence) else {
            return;
        };
        of.floor = sequence;
        of.open = of.open.split_off(&sequence);
        of.held = of.held.split_off(&sequence);
        of.delivered = of.delivered.split_off(&sequence);
        of.raise_floor();
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

    /// True while a delivery waits for the application to take others.
    pub fn is_holding(&self) -> bool {
        self.sources.values().any(|source| !source.held.is_empty())
    }

    fn others(&self) -> Vec<NodeId> {
        self.members.nodes().filter(|node| *node != self.me).collect()
    }

    /// Tells a member what it asks for: what this one has said about the broadcasts of a source
    /// from one on, as many as may be under way there. Once a tick, so that it costs no more than
    /// it is worth; without values, which are there to be pulled.
    fn answer(&mut self, from: NodeId, (source, sequence): (NodeId, u64)) {
        let is_of_members = from != self.me && self.members.contains(from);
        if !is_of_members || !self.sources.contains_key(&source) {
            return;
        }
        if self.answered.insert((from, source)) {
            self.repeat_said(from, source, sequence);
            self.repeat_open(from, source, false);
        }
    }

    /// Says again which broadcasts this member was ready for, from one on: a window of them.
    fn repeat_said(&mut self, to: NodeId, source: NodeId, from: u64) {
        let said = self.sources[&source].said.range(from..from.saturating_add(WINDOW));
        self.out.extend(said.map(|(sequence, digest)| {
            let vote = EchoVote { phase: READY, digest: *digest };
            Output::Again(vec![to], (source, *sequence), vote, Bytes::new())
        }));
    }

    /// Says the votes about what is under way again, with the value to who may lack it.
    fn repeat_open(&mut self, to: NodeId, source: NodeId, with_values: bool) {
        for (sequence, (votes, broadcast)) in &self.sources[&source].open {
            let has_voted = |phase| votes.votes(phase).any(|(node, _)| node == to);
            let lacks_value = with_values && !has_voted(ECHO) && !has_voted(READY);
            for phase in [SEND, ECHO, READY].into_iter().filter(|at| *at != SEND || lacks_value) {
                let Some(digest) = votes.cast_in(phase) else { continue };
                let value = broadcast.value().filter(|_| phase == SEND).cloned();
                let (key, vote) = ((source, *sequence), EchoVote { phase, digest });
                self.out.push_back(Output::Again(vec![to], key, vote, value.unwrap_or_default()));
            }
        }
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
                    let delivery = Delivery { source, sequence, value, evidence };
                    match of.has_room() {
                        true => self.out.push_back(of.hand_out(delivery)),
                        false => drop(of.held.insert(sequence, delivery)),
                    }
                    return;
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

    /// True while the application has taken enough of what was delivered.
    fn has_room(&self) -> bool {
        self.untaken.0 < UNTAKEN_MAX && self.untaken.1 < UNTAKEN_BYTES_MAX
    }

    fn hand_out(&mut self, delivery: Delivery) -> Output {
        self.untaken.0 += 1;
        self.untaken.1 += delivery.value.len();
        self.note_delivered(delivery.sequence);
        Output::Deliver(delivery)
    }

    fn note_delivered(&mut self, sequence: u64) {
        let said = self.open.remove(&sequence).and_then(|(votes, _)| votes.cast_in(READY));
        self.said.extend(said.map(|digest| (sequence, digest)));
        while self.said.len() > REMEMBERED_MAX
            || (mutant::is(Mutant::RemembersNothing) && !self.said.is_empty())
        {
            self.said.pop_first();
        }
        self.delivered.insert(sequence);
        self.raise_floor();
    }

    fn raise_floor(&mut self) {
        while !mutant::is(Mutant::FloorStays) && self.delivered.remove(&self.floor) {
            self.floor += 1;
        }
    }

    /// Looked at once a tick.
    fn is_to_ask(&mut self) -> bool {
        let has_moved = self.floor != std::mem::replace(&mut self.asking.floor, self.floor);
        let lacks_some = !self.open.is_empty() || self.heard > self.floor;
        // What waits for the application alone is here.
        if has_moved || !lacks_some || self.held.contains_key(&self.floor) {
            // Who is behind by more than is told at once asks again soon.
            let is_behind = self.heard.saturating_sub(self.floor) >= WINDOW;
            let ticks = if is_behind { 0 } else { 1 };
            self.asking = Asking { floor: self.floor, ticks, waited: 0 };
            return false;
        }
        if self.asking.ticks > 0 {
            self.asking.ticks -= 1;
            return false;
        }
        self.asking.waited = (self.asking.waited * 2).clamp(1, ASK_TICKS_MAX);
        self.asking.ticks = self.asking.waited;
        true
    }
}
