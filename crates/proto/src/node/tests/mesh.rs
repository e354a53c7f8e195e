//! A few nodes whose frames wait until the test delivers them.

use bytes::Bytes;

use crate::id::{CallId, MethodId, Path};
use std::collections::{BTreeMap, VecDeque};

use super::super::*;
use crate::call::{CallEvent, CallOptions, End, RootBranch, RootRequest};
use crate::cores::Routes;
use crate::encoded::Encoded;
use crate::id::LinkNonce;
use crate::key::Key;
use crate::link::Hello;
use crate::link::Lane;
use crate::outbox::Destination;
use crate::parting::{LinkName, Partings};
use crate::task::Branch;
use crate::visits::Start;
use crate::wire::{About, Cast, Cause, Digest, Message, Parting};

pub(super) const METHOD: MethodId = MethodId(7);

/// A frame on its way.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) to: NodeId,
    /// The name that both ends have for the connection.
    pub(super) link: LinkNonce,
    pub(super) lane: Lane,
    pub(super) frame: Frame,
}

/// Nodes by number, with what they were told and what is on its way.
///
/// Tests of what a node does have one core of each. Where there are several, the first has the
/// number of its node, and the others the [`name`](core_name) that is made of it.
pub(super) struct Mesh {
    pub(super) now: Timestamp,
    pub(super) nodes: BTreeMap<u64, Node>,
    /// Frames on their way, with their senders, in order of sending.
    pub(super) wire: VecDeque<(u64, Sent)>,
    pub(super) starts: Vec<(u64, Start)>,
    pub(super) stops: Vec<(u64, TaskRef, Cause)>,
    pub(super) dials: Vec<(u64, u64)>,
    pub(super) resets: Vec<(u64, LinkNonce)>,
    /// Frames that did not count: at whom, and why.
    pub(super) ignored: Vec<(u64, Ignored)>,
    /// Nodes whose writer of items, or whose reader of them, waits no longer.
    pub(super) writable: Vec<u64>,
    pub(super) readable: Vec<u64>,
    /// Each end's own id of its connections.
    ends: BTreeMap<(u64, LinkNonce), LinkId>,
    lives: BTreeMap<u64, u64>,
    /// The partings that each node that stops waits for.
    pub(super) partings: BTreeMap<u64, Partings>,
    next_link: u64,
    core_count: u8,
    /// Calls that were opened: each in the next core.
    opened: usize,
}

/// The number of a core of a node.
fn core_name(node: u64, core: usize) -> u64 {
    node + CORE_SPAN * core as u64
}

/// The node of a core.
pub(super) fn node_of(core: u64) -> u64 {
    core % CORE_SPAN
}

const CORE_SPAN: u64 = 1 << 32;

pub(super) fn id(node: u64) -> NodeId {
    NodeId::new(node)
}

pub(super) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Mesh {
    /// Nodes 1 to `count`, not connected.
    pub(super) fn new(count: u64, limits: &Limits) -> Self {
        Self::with_cores(count, limits, 1)
    }

    /// As [`Self::new`], each with so many cores.
    pub(super) fn with_cores(count: u64, limits: &Limits, core_count: u8) -> Self {
        let mut mesh = Self {
            now: Timestamp::from_nanos(1),
            nodes: BTreeMap::new(),
            wire: VecDeque::new(),
            starts: Vec::new(),
            stops: Vec::new(),
            dials: Vec::new(),
            resets: Vec::new(),
            ignored: Vec::new(),
            writable: Vec::new(),
            readable: Vec::new(),
            ends: BTreeMap::new(),
            lives: BTreeMap::new(),
            partings: BTreeMap::new(),
            next_link: 1,
            core_count,
            opened: 0,
        };
        (1..=count).for_each(|node| mesh.start(node, limits));
        mesh
    }

    /// Nodes 1 to `count`, each connected with each.
    pub(super) fn connected(count: u64) -> Self {
        Self::connected_with(count, &Limits::default())
    }

    /// As [`Self::connected`], under these limits.
    pub(super) fn connected_with(count: u64, limits: &Limits) -> Self {
        let mut mesh = Self::new(count, limits);
        mesh.connect_all();
        mesh
    }

    /// Connects each with each.
    pub(super) fn connect_all(&mut self) {
        let nodes: Vec<u64> = self.lives.keys().copied().collect();
        for (index, one) in nodes.iter().enumerate() {
            for other in &nodes[index + 1..] {
                self.connect(*one, *other);
            }
        }
    }

    /// Nodes 1 to `count`, each connected with each, and a call of 1 whose requests to `roots` have
    /// come.
    pub(super) fn calling(count: u64, roots: &[u64]) -> (Self, CallId) {
        Self::calling_with(count, roots, CallOptions::default())
    }

    /// As [`Self::calling`], with these options.
    pub(super) fn calling_with(count: u64, roots: &[u64], options: CallOptions) -> (Self, CallId) {
        let mut mesh = Self::connected(count);
        let call = mesh.call(1, roots, options);
        mesh.deliver_all();
        (mesh, call)
    }

    /// Nodes 1 and 2, not connected; 1 knows where 2 can be dialled.
    pub(super) fn dialling() -> Self {
        Self::dialling_with(&Limits::default())
    }

    pub(super) fn dialling_with(limits: &Limits) -> Self {
        let mut mesh = Self::new(2, limits);
        mesh.nodes.get_mut(&1).unwrap().configure(id(2), vec!["test://2".parse().unwrap()]);
        mesh
    }

    /// Starts a node, or starts it again in a new life.
    pub(super) fn start(&mut self, node: u64, limits: &Limits) {
        *self.lives.entry(node).or_default() += 1;
        let identity = Identity { node: id(node), incarnation: self.life(node) };
        self.ends.retain(|(at, _), _| node_of(*at) != node);
        for (core, place) in self.cores(node).places().enumerate() {
            let (queue, secret) = (Queue::default(), (self.secret(node), node));
            let made = Node::with_outbox(queue, identity, place, secret, limits, self.now);
            self.nodes.insert(core_name(node, core), made.unwrap());
        }
    }

    fn cores(&self, node: u64) -> Routes {
        Routes::new(self.life(node), self.core_count)
    }

    /// All cores of a node.
    fn of_node(&self, node: u64) -> impl Iterator<Item = u64> + use<> {
        (0..self.cores(node).len()).map(move |core| core_name(node, core))
    }

    /// The core of a call at a node.
    pub(super) fn core_of(&self, node: u64, call: CallId) -> u64 {
        core_name(node, self.cores(node).of(call.origin))
    }

    pub(super) fn life(&self, node: u64) -> Incarnation {
        Incarnation::of_random((node * 100 + self.lives[&node]) << 8)
    }

    /// Secret that the keys of a node's calls are derived from.
    pub(super) fn secret(&self, node: u64) -> Secret {
        Secret::new(node, self.lives[&node])
    }

    /// The key of a branch of a call of node 1.
    pub(super) fn key_of(&self, call: CallId, path: &str) -> Key {
        self.secret(1).branch(call, &path.parse().unwrap()).unwrap()
    }

    /// A node's own id of its connection of this name.
    pub(super) fn end_of(&self, at: u64, link: LinkNonce) -> LinkId {
        self.ends[&(at, link)]
    }

    /// The name of the first connection between two nodes that is up.
    pub(super) fn link_between(&self, at: u64, peer: u64) -> LinkNonce {
        self.find_link(at, peer).unwrap()
    }

    /// The same, if there is one.
    pub(super) fn find_link(&self, at: u64, peer: u64) -> Option<LinkNonce> {
        let links = self.nodes[&at].links();
        let (_, link) = links.up().find(|(node, _)| *node == id(peer))?;
        links.nonce(link)
    }

    /// Opens a connection, dialled by the first.
    pub(super) fn connect(&mut self, one: u64, other: u64) -> LinkNonce {
        let nonce = LinkNonce(self.next_link);
        self.next_link += 1;
        for (at, peer, is_dialler) in [(one, other, true), (other, one, false)] {
            let peer = Hello {
                node: id(peer),
                incarnation: self.life(peer),
                advertised: Vec::new(),
                frame_bytes_max: 1 << 20,
            };
            let scheme = "test";
            let link = Link { peer, nonce, is_dialler, scheme, principal: None, remote: None };
            self.link_up(at, &link);
        }
        nonce
    }

    /// A connection is up at one of its ends.
    pub(super) fn link_up(&mut self, at: u64, link: &Link) {
        let now = self.now;
        for at in self.of_node(at) {
            // What leaves by it at once needs its name.
            let node = self.nodes.get_mut(&at).unwrap();
            let end = node.handle_link_up(now, link, |_, _| ());
            self.ends.insert((at, link.nonce), end);
            self.with(at, |_| ());
        }
    }

    /// Ends a connection for one of its ends.
    pub(super) fn disconnect(&mut self, at: u64, link: LinkNonce) {
        for at in self.of_node(at) {
            let (now, link) = (self.now, self.end_of(at, link));
            self.with(at, |node| node.handle_link_down(now, link));
        }
    }

    fn name_of(&self, at: u64, link: LinkId) -> LinkNonce {
        let found = self.ends.iter().find(|((of, _), end)| (*of, **end) == (at, link));
        found.map(|((_, nonce), _)| *nonce).unwrap_or_else(|| panic!("{link:?} at {at}"))
    }

    /// One input of a node; its outputs are collected.
    pub(super) fn with<T>(&mut self, at: u64, act: impl FnOnce(&mut Node) -> T) -> T {
        let node = self.nodes.get_mut(&at).unwrap();
        let result = act(node);
        let now = self.now;
        let transmits: Vec<Transmit> = std::iter::from_fn(|| node.poll_transmit(now)).collect();
        let mut starts = Vec::new();
        node.take_starts(&mut starts);
        self.starts.extend(starts.into_iter().map(|start| (at, start)));
        let events: Vec<NodeEvent> = std::iter::from_fn(|| node.poll_event()).collect();
        for Transmit { to: Destination { to, link, lane }, frame } in transmits {
            let link = self.name_of(at, link);
            self.wire.push_back((node_of(at), Sent { to, link, lane, frame }));
        }
        for event in events {
            match event {
                NodeEvent::Task(VisitEvent::Stop { task, cause }) => {
                    self.stops.push((at, task, cause));
                }
                NodeEvent::Task(VisitEvent::Readable(_)) => self.readable.push(at),
                NodeEvent::Task(_) => {}
                NodeEvent::ItemsWritable(_) => self.writable.push(at),
                NodeEvent::Dial { node, .. } => self.dials.push((at, node.get())),
                NodeEvent::Reset { link, .. } => {
                    let link = self.name_of(at, link);
                    self.resets.push((at, link));
                }
                NodeEvent::Ignored { why, .. } => self.ignored.push((at, why)),
            }
        }
        result
    }

    /// Time passes for all nodes.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let now = self.now;
        for at in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.with(at, |node| node.handle_timeout(now));
        }
    }

    /// Delivers everything that is on its way, and what follows from it.
    pub(super) fn deliver_all(&mut self) {
        while !self.wire.is_empty() {
            self.deliver(0);
        }
    }

    /// The same, but frames of this kind stay where they are.
    pub(super) fn deliver_all_but(&mut self, name: &str) {
        let is_other = |(_, sent): &(u64, Sent)| sent.frame.message.name() != name;
        while let Some(index) = self.wire.iter().position(is_other) {
            self.deliver(index);
        }
    }

    /// Delivers one frame out of turn.
    pub(super) fn deliver(&mut self, index: usize) {
        let (from, sent) = self.wire.remove(index).unwrap();
        let Sent { to, link, frame, .. } = sent;
        let result = self.take((to.get(), link), frame);
        assert_eq!(result, Ok(()), "from {from}");
    }

    /// A frame comes over a connection. One that has ended brings nothing.
    pub(super) fn take(&mut self, (at, link): (u64, LinkNonce), frame: Frame) -> Result<(), Fault> {
        let now = self.now;
        if let Message::Parting(word) = frame.message {
            self.hear(at, link, word);
        } else {
            for (core, part) in self.cores(at).parts(frame) {
                let at = core_name(at, core);
                let Some(link) = self.ends.get(&(at, link)).copied() else { continue };
                self.with(at, |node| node.handle_bytes(now, link, part.to_bytes()))?;
            }
        }
        self.note_come(at, link);
        Ok(())
    }

    /// A word about a connection comes by it.
    fn hear(&mut self, at: u64, link: LinkNonce, word: Parting) {
        let (now, mut sent) = (self.now, 0);
        match word {
            Parting::Leaving => {
                let cores: Vec<u64> = self.of_node(at).collect();
                for core in cores.into_iter().rev() {
                    let end = self.end_of(core, link);
                    sent = self.with(core, |node| node.handle_leaving(now, end, sent));
                }
            }
            Parting::Sent(requests) => {
                let name = self.link_name(at, link);
                self.partings.entry(at).or_default().handle_sent(name, requests);
            }
        }
    }

    /// Compares what has come by a connection with what its peer has said.
    fn note_come(&mut self, at: u64, link: LinkNonce) {
        let Some(peer) = self.peer_of(at, link) else { return };
        let come = |core| self.nodes[&core].requests_by(self.end_of(core, link));
        let come = self.of_node(at).map(come).sum();
        if let Some(partings) = self.partings.get_mut(&at) {
            partings.handle_come((peer, link), come);
        }
    }

    /// A node takes no requests any more.
    pub(super) fn stop(&mut self, at: u64) {
        let now = self.now;
        let ends = self.ends.keys().filter(|(of, _)| *of == at);
        let links: Vec<LinkName> = ends.map(|(_, link)| self.link_name(at, *link)).collect();
        let partings = self.partings.entry(at).or_default();
        links.into_iter().for_each(|link| partings.begin(link));
        for core in self.of_node(at) {
            self.with(core, |node| node.begin_shutdown(now));
        }
    }

    /// True once nothing is on its way to a node that has stopped.
    pub(super) fn has_parted(&self, at: u64) -> bool {
        self.partings[&at].are_over()
    }

    fn link_name(&self, at: u64, link: LinkNonce) -> LinkName {
        (self.peer_of(at, link).unwrap(), link)
    }

    /// The node at the other end of a connection that is up.
    fn peer_of(&self, at: u64, link: LinkNonce) -> Option<NodeId> {
        let links = self.nodes[&at].links();
        links.up().find(|(_, end)| links.nonce(*end) == Some(link)).map(|(peer, _)| peer)
    }

    /// Takes the frames of a kind off the wire.
    pub(super) fn hold_back(&mut self, name: &str) -> Vec<(u64, Sent)> {
        let all = std::mem::take(&mut self.wire);
        let (held, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, transmit)| transmit.frame.message.name() == name);
        self.wire = rest.into();
        held
    }

    /// Frames on their way, as "from-to KIND".
    pub(super) fn on_wire(&self) -> Vec<String> {
        let line = |(from, transmit): &(u64, Sent)| {
            format!("{from}-{} {}", transmit.to.get(), transmit.frame.message.name())
        };
        self.wire.iter().map(line).collect()
    }

    /// Opens a call at a node with one root branch to each of `roots`.
    pub(super) fn call(&mut self, at: u64, roots: &[u64], options: CallOptions) -> CallId {
        let now = self.now;
        let branches = &mut roots.iter().map(|root| root_branch(*root)).collect::<Vec<_>>();
        let core = core_name(at, self.opened % self.cores(at).len());
        self.opened += 1;
        self.with(core, |node| {
            node.open(now, &mut Opening { budget: None, options, branches }).unwrap()
        })
    }

    /// The task at this path that last started.
    pub(super) fn task(&self, path: &str) -> (u64, TaskRef) {
        let path: Path = path.parse().unwrap();
        let started = self.starts.iter().rev().find(|(_, start)| start.task.task.path == path);
        let (at, start) = started.unwrap_or_else(|| panic!("no task started at {path}"));
        (*at, start.task.clone())
    }

    /// A task sends a reply and returns.
    pub(super) fn answer(&mut self, path: &str, payload: &'static [u8]) {
        let (at, task) = self.task(path);
        let now = self.now;
        self.with(at, |node| {
            node.reply(now, &task, Bytes::from_static(payload)).unwrap();
            node.finish(now, &task);
        });
    }

    /// A task opens branches and waits.
    pub(super) fn delegate(&mut self, path: &str, to: &[u64]) {
        let (at, task) = self.task(path);
        let now = self.now;
        self.with(at, |node| {
            for to in to {
                node.delegate(now, &task, branch(*to)).unwrap();
            }
            node.handle_yield(now, &task);
        });
    }

    pub(super) fn finish(&mut self, path: &str) {
        let (at, task) = self.task(path);
        let now = self.now;
        self.with(at, |node| node.finish(now, &task));
    }

    /// Events that the user of a call is handed at once, as an endpoint is.
    pub(super) fn read(&mut self, at: u64, call: CallId) -> Vec<CallEvent> {
        let (core, mut ahead) = (self.core_of(at, call), VecDeque::new());
        let news = self.with(core, |node| node.poll_last(call, &mut ahead));
        let Some((first, end)) = news else { return Vec::new() };
        let behind = ahead.into_iter().map(CallEvent::Reply).chain(end.map(CallEvent::Ended));
        std::iter::once(first).chain(behind).collect()
    }

    /// Events that the user of a call is told now.
    pub(super) fn events(&mut self, at: u64, call: CallId) -> Vec<CallEvent> {
        let lots = std::iter::from_fn(|| Some(self.read(at, call)).filter(|lot| !lot.is_empty()));
        lots.flatten().collect()
    }

    /// As [`Self::events`], in short: "reply /0", "failure /0 at n2: ...", "Complete".
    pub(super) fn told(&mut self, at: u64, call: CallId) -> Vec<String> {
        let line = |event| match event {
            CallEvent::Reply(d) => format!("reply {}", d.path),
            CallEvent::Failure(failure) => failure.to_string(),
            CallEvent::Ended(end) => format!("{end:?}"),
            CallEvent::Sent(path) => format!("sent {path}"),
            CallEvent::Silent { path, .. } => format!("silent {path}"),
        };
        self.events(at, call).into_iter().map(line).collect()
    }

    pub(super) fn end(&self, at: u64, call: CallId) -> Option<End> {
        self.nodes[&self.core_of(at, call)].initiator().end(call)
    }
}

/// A message in a buffer of its thread.
pub(super) fn encoded(message: &[u8]) -> Encoded {
    Encoded::new(message.len(), |out| out.extend_from_slice(message))
}

/// A root branch of a call.
pub(super) fn root_branch(to: u64) -> RootBranch {
    let (extensions, payload) = (Vec::new(), encoded(b""));
    let request = RootRequest { method: METHOD, extensions, payload, budget: None };
    RootBranch { to: id(to), request }
}

/// Opens a call with one root branch at a lone node.
pub(super) fn open_one(node: &mut Node, now: Timestamp, to: u64) -> CallId {
    let branches = &mut vec![root_branch(to)];
    let mut opening = Opening { budget: None, options: CallOptions::default(), branches };
    node.open(now, &mut opening).unwrap()
}

pub(super) fn cast(phase: u16, payload: &'static [u8]) -> Cast {
    let (payload, digest) = (Bytes::from_static(payload), Digest::ZERO);
    Cast {
        about: About::Call { initiator: id(1) },
        phase,
        sender: 0,
        epoch: 0,
        budget_us: 1_000_000,
        digest,
        is_carried: false,
        payload,
    }
}

pub(super) fn branch(to: u64) -> Branch {
    Branch {
        to: id(to),
        method: METHOD,
        payload: encoded(b""),
        extensions: Vec::new(),
        deadline: None,
    }
}
