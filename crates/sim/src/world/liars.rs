//! Nodes that do not keep the protocol (`trust.md` section 11).
//!
//! A liar knows the keys that any liar was handed, all that follows from them, and the names of all
//! calls and tasks. It sends any frame at any time, mostly where it matters; alters, drops and
//! repeats what the correct node in it would say; and says in its hellos that it lives the life of
//! somebody else. Two roles come of where it is: a server is asked for tasks (a *member*), a client
//! that only dials never is (a *stranger*).

mod check;
mod invent;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::address::Address;
use convoke_proto::id::{CallId, Incarnation, LinkNonce, NodeId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::link::{Hello, Lane};
use convoke_proto::wire::{Executed, Frame, Header, Message, Parting, Sealed};

use crate::network::Place;
use crate::oracle::TaskName;
use crate::random::Random;

use super::World;
use super::event::Event;
use super::host::{address, listens, node_id, place_of};

/// Knowledge that all liars of a run share.
#[derive(Debug)]
pub(super) struct Liars {
    random: Random,
    /// Dice of their own, so that they change no other.
    words: Random,
    /// Keys of branches that they were handed.
    keys: Vec<(CallId, Path, Key)>,
    /// The last frames that came to them, or that they might have sent.
    seen: VecDeque<Frame>,
}

/// A task that a liar lies about, and the node that it is sent to.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    name: TaskName,
    at: Place,
}

/// Most frames that are kept for repeating them.
const SEEN_MAX: usize = 48;

impl Liars {
    pub(super) fn new(seed: u64) -> Self {
        let (random, words) = (Random::of(seed, 6), Random::of(seed, 17));
        Self { random, words, keys: Vec::new(), seen: VecDeque::new() }
    }

    fn see(&mut self, frame: Frame) {
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(frame);
    }

    /// Now and then a word about a connection.
    fn some_word(&mut self) -> Option<Frame> {
        if !self.words.chance(5) {
            return None;
        }
        let word = match self.words.within(0..4) {
            0 => Parting::Leaving,
            1 => Parting::Sent(0),
            2 => Parting::Sent(u64::MAX),
            _ => Parting::Sent(self.words.within(0..20)),
        };
        Some(Frame::new(Header::without_call(), Message::Parting(word)))
    }

    /// Derives the key of a branch at or below one of theirs from the keys they have.
    fn derive(&self, call: CallId, path: &Path) -> Option<Key> {
        let of_call = self.keys.iter().filter(|(of, _, _)| *of == call);
        of_call.filter_map(|(_, top, key)| key.descend(top, path)).next()
    }
}

/// The keys that a frame shows, each with its branch.
fn keys_in(frame: &Frame) -> Vec<(Path, Key)> {
    let path = &frame.header.task.path;
    let mut keys: Vec<(Path, Key)> = frame.key.map(|key| (path.clone(), key)).into_iter().collect();
    match &frame.message {
        Message::Request(request) => keys.push((path.clone(), request.key)),
        Message::Probe(probe) => {
            keys.extend(probe.tasks.iter().map(|asked| (asked.task.path.clone(), asked.key)));
        }
        Message::Status(status) => {
            let asked = status.tasks.iter().map(|(asked, _)| asked);
            keys.extend(asked.map(|asked| (asked.task.path.clone(), asked.key)));
        }
        _ => {}
    }
    keys
}

/// The entries that a frame carries for other tasks.
fn carried(message: &mut Message) -> Option<&mut Vec<Sealed>> {
    match message {
        Message::Request(message) => Some(&mut message.inherited),
        Message::Reply(message) => Some(&mut message.inherited),
        Message::Manifest(message) => Some(&mut message.inherited),
        Message::Fail(message) => Some(&mut message.inherited),
        Message::Status(message) => Some(&mut message.inherited),
        Message::LinkDown(message) => Some(&mut message.inherited),
        _ => None,
    }
}

impl World {
    pub(super) fn plan_lies(&mut self) {
        let until = u64::try_from(self.scenario.heal_at.as_micros()).unwrap_or(u64::MAX);
        for place in self.scenario.liars.clone() {
            let end = self.hosts[place].end();
            for node in (0..self.hosts.len()).filter(|to| *to != place) {
                for _ in 0..1 + self.liars.random.index(3) {
                    let at = self.liars.random.micros(0..until);
                    let at = if self.liars.random.chance(50) { at / 1_000 } else { at };
                    self.schedule_in(at, Event::Meet { end, node });
                }
            }
            for _ in 0..20 + self.liars.random.index(60) {
                let at = self.liars.random.micros(0..until);
                self.schedule_in(at, Event::Lie { end, about: None });
            }
        }
    }

    /// A liar dials a node.
    pub(super) fn meet(&mut self, place: Place, node: Place) {
        if listens(&self.scenario, node) {
            let addresses: [Address; 1] = [address(node)];
            self.dial(place, node_id(node), &addresses);
        }
    }

    /// Hello of a node on a connection: a liar also says that it lives another's life.
    pub(super) fn hello_of(&self, place: Place, link: LinkNonce) -> Hello {
        let mut hello = self.hosts[place].hello(&self.scenario);
        let mut random = Random::of(self.scenario.seed, 7_000 + link.0);
        if self.scenario.liars.contains(&place) && random.chance(40) {
            let mut lives: Vec<Incarnation> = self.oracle.secrets.keys().copied().collect();
            if !self.oracle.calls.is_empty() && random.chance(70) {
                lives = self.oracle.calls.keys().map(|call| call.origin).collect();
            }
            hello.incarnation = random.pick(&lives).copied().unwrap_or(hello.incarnation);
        }
        hello
    }

    /// A correct node has opened a branch: liars are quick to speak of it.
    pub(super) fn tempt_liars(&mut self, name: TaskName, to: NodeId) {
        for place in self.scenario.liars.clone() {
            for _ in 0..3 {
                if self.liars.random.chance(70) {
                    continue;
                }
                let after = self.liars.random.micros(0..3_000);
                let after = if self.liars.random.chance(30) { Duration::ZERO } else { after };
                let at = match self.oracle.calls.get(&name.call) {
                    Some(call) if self.liars.random.chance(50) => place_of(call.node),
                    _ => place_of(to),
                };
                let about = Some(Subject { name: name.clone(), at });
                let end = self.hosts[place].end();
                self.schedule_in(after, Event::Lie { end, about });
            }
        }
    }

    /// A liar says something to a node that it is connected to.
    pub(super) fn lie(&mut self, place: Place, about: Option<Subject>) {
        if self.is_healed {
            return;
        }
        let links: Vec<LinkNonce> = self.hosts[place].links.keys().copied().collect();
        let peer_of = |link: &LinkNonce| {
            let wire = self.network.wire(*link)?;
            Some(wire.ends[1 - wire.side(place)].place)
        };
        let at = about.as_ref().map(|about| about.at);
        let there: Vec<LinkNonce> =
            links.iter().filter(|link| at.is_some() && peer_of(link) == at).copied().collect();
        let from = if there.is_empty() { &links } else { &there };
        let Some(link) = self.liars.random.pick(from).copied() else { return };
        let Some(to) = peer_of(&link).filter(|to| !self.scenario.liars.contains(to)) else {
            return;
        };
        let invented = self.invent(to, about.map(|about| about.name));
        let frame = self.liars.some_word().unwrap_or(invented);
        let lane = if self.liars.random.chance(50) { Lane::Data } else { Lane::Control };
        let count = if self.liars.random.chance(3) { 50 } else { 1 };
        let bytes = frame.to_bytes();
        let bytes = if self.liars.random.chance(3) { self.garble(&bytes) } else { bytes };
        self.trace.note(self.now, || {
            format!("{} lies to {}: {frame:?}", self.hosts[place].id, self.hosts[to].id)
        });
        for _ in 0..count {
            self.send_bytes(place, link, (lane, &bytes), Duration::ZERO);
        }
    }

    fn garble(&mut self, bytes: &Bytes) -> Bytes {
        let mut bytes = bytes.to_vec();
        let at = self.liars.random.index(bytes.len());
        bytes[at] ^= 1 << self.liars.random.index(8);
        bytes.into()
    }

    /// Sends what the correct node in a liar wants to send: as it is, altered, or not at all.
    pub(super) fn transmit_altered(
        &mut self,
        from: Place,
        link: LinkNonce,
        lane: Lane,
        mut frame: Frame,
    ) {
        self.liars.see(frame.clone());
        match self.liars.random.within(0..100) {
            0..=9 => return,
            10..=24 => self.alter(&mut frame),
            _ => {}
        }
        self.send_bytes(from, link, (lane, &frame.to_bytes()), Duration::ZERO);
    }

    fn alter(&mut self, frame: &mut Frame) {
        let call = frame.header.call;
        let has_others = !matches!(&frame.message, Message::Manifest(m) if m.own.is_none());
        if let Some(entries) = carried(&mut frame.message)
            && let Some(sealed) = entries.first_mut()
        {
            match self.liars.random.within(0..4) {
                0 => sealed.entry.replies += 1,
                1 => {
                    sealed.entry.children = 0;
                    sealed.entry.holders.clear();
                }
                2 => {
                    sealed.entry.replies = 0;
                    let key = self.liars.keys.iter().find(|(of, _, _)| *of == call);
                    let key = key.map_or(Key(0), |(_, _, key)| *key);
                    *sealed = Sealed::new(sealed.entry.clone(), key);
                }
                _ if has_others => entries.clear(),
                _ => sealed.seal ^= 1,
            }
            return;
        }
        match &mut frame.message {
            Message::Reply(reply) if !reply.payload.is_empty() && reply.part.is_none() => {
                reply.payload = Bytes::from_static(b"altered");
            }
            Message::Request(request) => {
                request.floor = 0;
                request.key = Key(request.key.0 ^ u64::from(self.liars.random.chance(30)));
            }
            Message::Fail(fail) => fail.executed = Executed::No,
            Message::Manifest(manifest) => {
                if let Some(own) = &mut manifest.own {
                    own.replies += 1;
                }
            }
            Message::Probe(probe) => probe.fence = true,
            Message::Status(_) => frame.relayed = Some(self.some_relay(&frame.header.task)),
            _ => {}
        }
    }

    /// A node has taken a frame: if it lies, it keeps what it can use.
    pub(super) fn learn(&mut self, at: Place, frame: &Frame) {
        if !self.scenario.liars.contains(&at) {
            return;
        }
        let call = frame.header.call;
        for (path, key) in keys_in(frame) {
            let known = (call, path, key);
            if !self.liars.keys.contains(&known) {
                self.liars.keys.push(known);
            }
        }
        self.liars.see(frame.clone());
        self.deny(at, frame);
    }

    /// A liar that was handed a branch on has the key of what was done before it, and may say that
    /// nothing was.
    fn deny(&mut self, at: Place, frame: &Frame) {
        let Message::Request(_) = &frame.message else { return };
        let Header { call, task } = frame.header.clone();
        let (Some(hop), Some(truth)) = (task.hop.checked_sub(1), self.oracle.calls.get(&call))
        else {
            return;
        };
        let to = place_of(truth.node);
        let name = TaskName::of(call, TaskKey { path: task.path, hop });
        let end = self.hosts[at].end();
        for _ in 0..4 {
            let about = Some(Subject { name: name.clone(), at: to });
            self.schedule_in(Duration::ZERO, Event::Lie { end, about });
        }
    }
}
