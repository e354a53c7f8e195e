//! Nodes that do not keep the protocol (`trust.md` section 11).
//!
//! A liar knows the keys that any liar was handed, all that follows from them, and the names of all
//! calls and tasks. It sends any frame at any time, mostly where it matters; alters, drops and
//! repeats what the correct node in it would say; and says in its hellos that it lives the life of
//! somebody else. Two roles come of where it is: a server is asked for tasks (a *member*), a client
//! that only dials never is (a *stranger*).
//!
//! Frames that a liar sends are compared with the state that they must not change, one by one: the
//! calls that it has no part in, the branches beside its own, and the tasks that correct nodes were
//! asked for by correct nodes (I34, I35). All else is for the invariants, which leave out its own
//! branches and what is below them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::address::Address;
use convoke_proto::call::End;
use convoke_proto::id::{CallId, Incarnation, LinkNonce, NodeId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::link::{Hello, Lane};
use convoke_proto::wire::{
    Ask, Asked, Cancel, CancelReason, Cause, Credit, Credited, Entry, Executed, Fail, Frame,
    Header, Item, ItemKind, LinkDown, Manifest, Message, Outcome, Part, Probe, Relayed, Reply,
    ReplyKind, ReplyPath, ReplyRoute, Request, Rung, Sealed, Settled, Statement, Status,
    TaskStatus,
};

use crate::network::Place;
use crate::oracle::TaskName;
use crate::plan::{FLAT, TREE};
use crate::random::Random;

use super::World;
use super::event::Event;
use super::host::{address, listens, node_id, place_of};

/// Knowledge that all liars of a run share.
#[derive(Debug)]
pub(super) struct Liars {
    random: Random,
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
        Self { random: Random::of(seed, 6), keys: Vec::new(), seen: VecDeque::new() }
    }

    fn see(&mut self, frame: Frame) {
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(frame);
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
        let frame = self.invent(to, about.map(|about| about.name));
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

    /// A task worth lying about to this node.
    fn subject(&mut self, to: Place) -> TaskName {
        let node = node_id(to);
        let roll = self.liars.random.within(0..100);
        if roll < 15
            && let Some(life) = self.some_life()
        {
            // A call that is still to come.
            let life = life.of_stream([0, 1, 2, 3][self.liars.random.index(4)]);
            let opened = self.oracle.calls.keys().filter(|call| call.origin == life).count() as u64;
            let seq = match self.liars.random.within(0..10) {
                0 => 0,
                1 => u64::MAX - self.liars.random.within(0..2),
                _ => 1 + opened + self.liars.random.within(0..3),
            };
            let call = CallId { origin: life, seq };
            let task = self.some_task();
            return TaskName::of(call, task);
        }
        if roll < 40
            && let Some((call, path, _)) = self.liars.random.pick(&self.liars.keys).cloned()
        {
            let below = self.liars.random.index(3);
            let path = (0..below).fold(path, |path, _| {
                path.child(u32::try_from(self.liars.random.index(3)).unwrap_or(0)).unwrap_or(path)
            });
            let hop = u32::try_from(self.liars.random.index(2)).unwrap_or(0);
            return TaskName::of(call, TaskKey { path, hop });
        }
        let matters = |name: &&TaskName| {
            let truth = &self.oracle.tasks[*name];
            let is_there = truth.sent_to == node;
            is_there || self.oracle.calls.get(&name.call).is_some_and(|call| call.node == node)
        };
        let names: Vec<&TaskName> = self
            .oracle
            .tasks
            .keys()
            .filter(|name| name.made_up.is_none())
            .filter(matters)
            .collect();
        let name = self.liars.random.pick(&names).map(|name| (*name).clone());
        let call = CallId { origin: Incarnation(0), seq: 1 };
        name.unwrap_or_else(|| TaskName::of(call, TaskKey { path: Path::root(), hop: 0 }))
    }

    fn some_life(&mut self) -> Option<Incarnation> {
        let lives: Vec<Incarnation> = self.oracle.secrets.keys().copied().collect();
        self.liars.random.pick(&lives).copied()
    }

    fn some_task(&mut self) -> TaskKey {
        let random = &mut self.liars.random;
        let indices: Vec<u32> =
            (0..1 + random.index(3)).map(|_| u32::try_from(random.index(3)).unwrap_or(0)).collect();
        let path = Path::from_indices(&indices).unwrap_or_default();
        TaskKey { path, hop: u32::from(random.chance(20)) }
    }

    fn some_key(&mut self, name: &TaskName) -> Option<Key> {
        let roll = self.liars.random.within(0..100);
        let derived = self.liars.derive(name.call, &name.task.path);
        match roll {
            0..=44 if derived.is_some() => derived,
            0..=64 => self.liars.random.pick(&self.liars.keys).map(|(_, _, key)| *key),
            65..=74 => {
                let known = self.liars.random.pick(&self.liars.keys).map(|(_, _, key)| *key);
                let index = u32::try_from(self.liars.random.index(3)).unwrap_or(0);
                known.map(|key| key.child(index))
            }
            75..=84 => Some(Key(self.liars.random.draw())),
            _ => None,
        }
    }

    fn some_node(&mut self) -> NodeId {
        node_id(self.liars.random.index(self.hosts.len()))
    }

    /// Any node, by any branch on the path of a task or none.
    fn some_relay(&mut self, task: &TaskKey) -> Relayed {
        let node = self.some_node();
        let levels = self.liars.random.index(task.path.level_count() + 2);
        let hop = u32::from(self.liars.random.chance(30));
        Relayed { node, at: Rung { levels: u8::try_from(levels).unwrap_or(u8::MAX), hop } }
    }

    fn some_entry(&mut self, task: TaskKey) -> Entry {
        let random = &mut self.liars.random;
        let children = match random.within(0..10) {
            0 => 300,
            1 => u32::MAX,
            _ => u32::try_from(random.index(3)).unwrap_or(0),
        };
        let replies = u32::try_from(random.index(3)).unwrap_or(0);
        let is_finished = random.chance(60);
        let outcome =
            if is_finished { Outcome::Finished } else { Outcome::Failed(Cause::Application) };
        let names = children < 4 && random.chance(60);
        let holders = if names {
            (0..children).map(|_| Some(self.some_node())).collect()
        } else {
            Vec::new()
        };
        Entry { task, children, replies, outcome, holders }
    }

    /// Entries of tasks above one, as if that had been given them to pass on.
    fn some_carried(&mut self, name: &TaskName) -> Vec<Sealed> {
        if self.liars.random.chance(60) {
            return Vec::new();
        }
        let above: Vec<Path> = name.task.path.prefixes().collect();
        let Some(path) = self.liars.random.pick(&above).cloned() else { return Vec::new() };
        let above = TaskName::of(name.call, TaskKey { path, hop: 0 });
        let entry = self.some_entry(above.task.clone());
        let key = self.some_key(&above).unwrap_or(Key(0));
        vec![Sealed::new(entry, key)]
    }

    /// Any frame at all, but one that a reader takes for a frame.
    fn invent(&mut self, to: Place, about: Option<TaskName>) -> Frame {
        if self.liars.random.chance(12)
            && let Some(frame) = self.liars.random.pick(self.liars.seen.make_contiguous()).cloned()
        {
            return frame;
        }
        let name = match about {
            Some(name) => name,
            None => self.subject(to),
        };
        let is_initiator =
            self.oracle.calls.get(&name.call).is_some_and(|call| call.node == node_id(to));
        let goes_up = self.liars.random.chance(if is_initiator { 90 } else { 10 });
        let message = if goes_up { self.upward(&name) } else { self.downward(&name) };
        let key = self.some_key(&name);
        let relayed = self.liars.random.chance(12).then(|| self.some_relay(&name.task));
        let header = match &message {
            Message::Ask(_) | Message::Settled(_) => Header::without_call(),
            _ => Header { call: name.call, task: name.task },
        };
        let shows = matches!(
            message,
            Message::Reply(_)
                | Message::Manifest(_)
                | Message::Fail(_)
                | Message::LinkDown(_)
                | Message::Cancel(_)
                | Message::Credit(_)
        );
        Frame { header, relayed, key: key.filter(|_| shows), message }
    }

    fn upward(&mut self, name: &TaskName) -> Message {
        let inherited = self.some_carried(name);
        let entry = self.some_entry(name.task.clone());
        match self.liars.random.within(0..100) {
            0..=34 => Message::Reply(self.some_reply(entry, inherited)),
            35..=49 => Message::Manifest(Manifest { own: Some(entry), inherited }),
            50..=69 => Message::Fail(self.some_failure(entry, inherited)),
            70..=84 => {
                let status = self.some_status(entry);
                let key = self.some_key(name).unwrap_or(Key(0));
                let asked = Asked { task: name.task.clone(), key };
                Message::Status(Status { tasks: vec![(asked, status)], inherited })
            }
            _ => {
                let children = (0..2).filter_map(|index| name.task.path.child(index).ok());
                let mut children: Vec<_> = children.map(|path| TaskKey { path, hop: 0 }).collect();
                if self.liars.random.chance(40) {
                    children = vec![TaskKey { hop: name.task.hop + 1, ..name.task.clone() }];
                }
                let node = self.some_node();
                let own = self.liars.random.chance(30).then_some(entry);
                Message::LinkDown(LinkDown { node, children, own, inherited })
            }
        }
    }

    fn some_reply(&mut self, entry: Entry, inherited: Vec<Sealed>) -> Reply {
        let random = &mut self.liars.random;
        let is_final = random.chance(60);
        let kind = match random.within(0..10) {
            0 => ReplyKind::Item { seq: random.within(0..3), is_last: random.chance(50) },
            1 => ReplyKind::End { count: random.within(0..3) },
            _ => ReplyKind::Message,
        };
        let is_part = kind == ReplyKind::Message && random.chance(10);
        let part = is_part.then(|| Part { offset: 0, total: 1 + random.within(0..9_000_000) });
        let has_payload = !matches!(kind, ReplyKind::End { .. });
        let payload: &'static [u8] = if has_payload { b"a lie" } else { b"" };
        Reply {
            index: u32::try_from(random.index(3)).unwrap_or(0),
            kind,
            part: part.filter(|part| part.total >= payload.len() as u64),
            is_final: is_final && part.is_none(),
            own_entry: (!is_final && random.chance(70)).then(|| Box::new(entry)),
            inherited,
            extensions: Vec::new(),
            payload: Bytes::from_static(payload),
        }
    }

    fn some_failure(&mut self, entry: Entry, inherited: Vec<Sealed>) -> Fail {
        let node = self.liars.random.chance(40).then(|| self.some_node());
        let random = &mut self.liars.random;
        let causes = [Cause::Overloaded, Cause::Application, Cause::Unreachable, Cause::Cancelled];
        let executed = [Executed::No, Executed::No, Executed::Maybe, Executed::Yes];
        Fail {
            cause: causes[random.index(causes.len())],
            executed: executed[random.index(executed.len())],
            code: 0,
            node,
            text: "a lie".to_owned(),
            entry: random.chance(50).then(|| Box::new(entry)),
            aborts_children: random.chance(40),
            inherited,
            extensions: Vec::new(),
            details: Bytes::new(),
        }
    }

    fn some_status(&mut self, entry: Entry) -> TaskStatus {
        let node = self.some_node();
        let entry = Box::new(entry);
        let paths = [ReplyPath::Nowhere, ReplyPath::Relay(node), ReplyPath::Link(LinkNonce(1))];
        let replies_by = paths[self.liars.random.index(paths.len())];
        match self.liars.random.within(0..6) {
            0 => TaskStatus::Unknown,
            1 => TaskStatus::Running,
            2 => TaskStatus::Tailed { node },
            3 => TaskStatus::Fenced,
            4 => TaskStatus::Forgotten,
            _ => TaskStatus::Closed { entry, replies_by },
        }
    }

    fn downward(&mut self, name: &TaskName) -> Message {
        let inherited = self.some_carried(name);
        let key = self.some_key(name).unwrap_or(Key(1));
        let longest = u64::try_from(self.scenario.limits.deadline_max.as_micros()).unwrap_or(1);
        let budget_us = self.liars.random.within(0..longest);
        match self.liars.random.within(0..100) {
            0..=39 => {
                let is_sender = self.liars.random.chance(40);
                let node = match self.oracle.calls.get(&name.call) {
                    Some(call) if self.liars.random.chance(80) => call.node,
                    _ => self.some_node(),
                };
                let random = &mut self.liars.random;
                Message::Request(Request {
                    key,
                    budget_us,
                    outlasted_us: 0,
                    floor: if random.chance(50) { 0 } else { name.call.seq },
                    method: if random.chance(50) { TREE } else { FLAT },
                    reply_route: match is_sender {
                        true => ReplyRoute::Sender,
                        false => ReplyRoute::Node { node, addresses: Vec::new() },
                    },
                    inherited,
                    extensions: Vec::new(),
                    payload: Bytes::from_static(b"a lie"),
                })
            }
            40..=54 => Message::Cancel(Cancel { reason: CancelReason::Caller, budget_us }),
            55..=74 => {
                let asked = Asked { task: name.task.clone(), key };
                let fence = self.liars.random.chance(80);
                Message::Probe(Probe { fence, budget_us, tasks: vec![asked] })
            }
            75..=84 => {
                let limit_bytes = self.liars.random.within(0..1 << 30);
                let of = match limit_bytes % 3 {
                    0 => Credited::Items,
                    _ => Credited::Reply(0),
                };
                Message::Credit(Credit { of, limit_bytes })
            }
            85..=94 => {
                let origin = self.some_life().unwrap_or(name.call.origin);
                let to = if self.liars.random.chance(50) {
                    u64::MAX
                } else {
                    name.call.seq.saturating_add(3)
                };
                let all =
                    Statement { origin, from: 0, to, exceptions: Vec::new(), open: Vec::new() };
                Message::Settled(Settled { statements: vec![all] })
            }
            95..=97 => {
                let kind =
                    ItemKind::Item { seq: budget_us % 4, is_last: budget_us.is_multiple_of(8) };
                let payload = Bytes::from_static(b"a lie");
                Message::Item(Item { kind, part: None, payload })
            }
            _ => Message::Ask(Ask { origins: vec![(name.call.origin, 0)] }),
        }
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

    /// Checks what a correct node sends to a liar: no key of a branch that is not its own (I40),
    /// and no reply of a task that it did not ask for (I37).
    pub(super) fn check_for_liars(&mut self, from: Place, to: NodeId, frame: &Frame) {
        if !self.oracle.liars.contains(&to) {
            return;
        }
        let call = frame.header.call;
        let Some(secret) = self.oracle.secret(call) else { return };
        let told = keys_in(frame).into_iter().find(|(path, key)| {
            secret.branch(call, path) == Some(*key) && !self.oracle.is_tainted(call, path)
        });
        let from = self.hosts[from].id;
        if let Some((path, _)) = told {
            let message = format!("{from} shows {to} the key of {call:?} {path}: {frame:?}");
            return self
                .violate("I40: keys are for those who hold the branch or one above", message);
        }
        let name = TaskName::of(call, frame.header.task.clone());
        let Some(truth) = self.oracle.tasks.get(&name).filter(|_| self.oracle.is_sound(&name))
        else {
            return;
        };
        if let Message::Reply(reply) = &frame.message
            && reply.payload.len() >= 8
            && truth.replies.iter().any(|sent| sent.messages.contains(&reply.payload))
        {
            let message = format!("{from} sends {to} a reply of {name:?}");
            self.violate("I37: replies go to the initiator of their own request", message);
        }
    }

    /// A liar's frame has come. What it has no right to say must change nothing.
    pub(super) fn take_lie(&mut self, to: Place, link: LinkNonce, lane: Lane, bytes: &Bytes) {
        let Ok(frame) = Frame::decode(bytes.clone()) else {
            return self.hang_up(to, link);
        };
        if self.scenario.liars.contains(&to) {
            return;
        }
        if !self.hosts[to].links.contains_key(&link) {
            return;
        }
        let before = self.untouchable(to, &frame);
        let result = self.take_bytes(to, link, bytes);
        let after = self.untouchable(to, &frame);
        // With its last branch settled a call may be forgotten whole; and carried entries are true.
        let call = frame.header.call;
        let may_change = self.brings_word(&frame)
            || self.is_part_of(call, &frame) && self.is_exhausted(to, &frame.header)
            || self.is_part_of(call, &frame)
                && !self.hosts[to].core_of(call).is_some_and(|node| node.initiator().is_kept(call));
        let changed = before.iter().try_for_each(|((of, what), state)| {
            match after.get(&(*of, what.clone())) {
                Some(now) if now == state => ControlFlow::Continue(()),
                _ if may_change && *of == call => ControlFlow::Continue(()),
                // What is over here of this node's own calls goes with the call before it that held
                // the floor, which a liar may end where it holds a branch.
                Some(now) if now == "[]" && self.is_own_and_settled(to, *of) => {
                    ControlFlow::Continue(())
                }
                now => ControlFlow::Break(format!("{of:?} {what} was {state}, is {now:?}")),
            }
        });
        if let ControlFlow::Break(message) = changed {
            let message = format!("by {frame:?} over {lane:?}: {message}");
            self.violate("I34, I35: what a liar has no right to say changes nothing", message);
        }
        self.settle(to);
        self.look_at_settled(to);
        if result.is_err() {
            self.hang_up(to, link);
        }
    }

    /// True when a call is of the node's present life, and settled as that itself says.
    fn is_own_and_settled(&self, place: Place, call: CallId) -> bool {
        let host = &self.hosts[place];
        host.core_of(call).is_some_and(|node| node.initiator().is_settled(call))
    }

    fn hang_up(&mut self, place: Place, link: LinkNonce) {
        if self.hosts[place].links.contains_key(&link) {
            self.reset(place, link);
            self.tell_link_down(place, link);
            self.settle(place);
        }
    }

    /// State that a frame of a liar must leave as it is, as text.
    fn untouchable(&self, at: Place, frame: &Frame) -> BTreeMap<(CallId, String), String> {
        let host = &self.hosts[at];
        let mut all = BTreeMap::new();
        for id in &host.watched {
            let Some(node) = host.core_of(*id) else { return all };
            if self.is_part_of(*id, frame) {
                for (path, branch) in node.call(*id).into_iter().flat_map(|c| c.tree().iter()) {
                    if self.is_beside(*id, path) {
                        all.insert((*id, format!("branch {path}")), format!("{branch:?}"));
                    }
                }
            } else {
                all.insert((*id, String::new()), node.initiator().snapshot(*id));
            }
        }
        // What a task passes on for one below it takes the way that its own replies will.
        let passes_on = |name: &TaskName| {
            let Header { call, task } = &frame.header;
            frame.relayed.is_some() && name.call == *call && name.task.path.is_prefix_of(&task.path)
        };
        for (name, truth) in &self.oracle.tasks {
            if truth.runs.iter().any(|(node, _)| *node == host.id)
                && truth.is_honest
                && self.oracle.is_sound(name)
                && !passes_on(name)
            {
                let secret = self.oracle.secret(name.call);
                let key = secret.and_then(|secret| secret.branch(name.call, &name.task.path));
                let Some(key) = key else { continue };
                let Some(node) = host.core_of(name.call) else { return all };
                let record = node.visits().snapshot(name.call, &name.task, key);
                all.insert((name.call, format!("task {}", name.task)), record);
            }
        }
        all
    }

    /// True when a frame speaks of a branch of this call that is a liar's.
    fn is_part_of(&self, call: CallId, frame: &Frame) -> bool {
        let is_theirs = |path: &Path| self.oracle.is_tainted(call, path);
        let lists = match &frame.message {
            Message::Status(status) => {
                status.tasks.iter().any(|(asked, _)| is_theirs(&asked.task.path))
            }
            _ => false,
        };
        frame.header.call == call && (lists || is_theirs(&frame.header.task.path))
    }

    /// True when a frame carries an entry that a correct node has sealed, which is true whoever
    /// brings it; or has a task of the initiator's own node say so.
    fn brings_word(&self, frame: &Frame) -> bool {
        let call = frame.header.call;
        let orders = matches!(
            frame.message,
            Message::Request(_) | Message::Cancel(_) | Message::Credit(_) | Message::Probe(_)
        );
        if orders && self.is_part_of(call, frame) {
            return true;
        }
        let Some(secret) = self.oracle.secret(call) else { return false };
        let mut message = frame.message.clone();
        let entries = carried(&mut message).map(std::mem::take).unwrap_or_default();
        entries.iter().any(|sealed| {
            let path = &sealed.entry.task.path;
            secret.branch(call, path).is_some_and(|key| sealed.is_of(key))
                && !self.oracle.is_tainted(call, path)
        })
    }

    /// True when a root branch has used up what it may have of a call: then a branch of it for
    /// which there is no room gives up what is beside it (`trust.md` section 8).
    fn is_exhausted(&self, at: Place, header: &Header) -> bool {
        let call = self.hosts[at].core_of(header.call).and_then(|node| node.call(header.call));
        let root = header.task.path.indices().next();
        call.zip(root).is_some_and(|(call, root)| {
            call.end() == Some(End::Exhausted) || !call.tree().has_room(root)
        })
    }

    /// True when a branch is neither a liar's nor above one of a liar's.
    fn is_beside(&self, call: CallId, path: &Path) -> bool {
        let mut theirs = self.oracle.tainted.iter().filter(|(of, _)| *of == call);
        !theirs.any(|(_, top)| top.is_prefix_of(path) || path.is_prefix_of(top))
    }

    /// A node takes a frame of a correct one: which of its calls have a quorum without any liar.
    pub(super) fn note_heard(&mut self, at: Place, via: NodeId, frame: &Frame) {
        if self.scenario.liars.is_empty() {
            return;
        }
        let Message::Reply(reply) = &frame.message else { return };
        let call = frame.header.call;
        let name = TaskName::of(call, frame.header.task.clone());
        let (node, now) = (self.hosts[at].id, self.now);
        let is_whole = reply.is_final && reply.part.is_none() && frame.relayed.is_none();
        let is_sound = self.oracle.is_sound(&name);
        let is_sent = self.oracle.tasks.get(&name).is_some_and(|truth| truth.sent_to == via);
        let secret = self.oracle.secret(call);
        let own = secret.and_then(|secret| secret.branch(call, &name.task.path));
        let Some(truth) = self.oracle.calls.get_mut(&call) else { return };
        let shows = frame.key.is_none() || frame.key == own;
        if truth.is_flat && truth.node == node && is_whole && is_sound && is_sent && shows {
            truth.heard.insert(via);
            if truth.quorum.is_some_and(|k| truth.heard.len() >= k) {
                truth.quorum_at.get_or_insert(now);
            }
        }
    }
}
