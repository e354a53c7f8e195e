//! One node of the world with its applications.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use convoke_proto::address::Address;
use convoke_proto::cores::Routes;
use convoke_proto::id::{CallId, Incarnation, LinkId, LinkNonce, NodeId};
use convoke_proto::key::Secret;
use convoke_proto::ledger::Ledger;
use convoke_proto::link::Hello;
use convoke_proto::node::{Identity, Node};
use convoke_proto::outbox::Queue;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;

use crate::network::{End, Place};
use crate::oracle::TaskName;
use crate::random::Random;
use crate::scenario::Scenario;

use super::callers::Caller;
use super::event::Event;
use super::handlers::{Answer, Handler};
use super::stops::Stopping;
use super::streams::Writer;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) place: Place,
    pub(super) id: NodeId,
    /// Counts its starts.
    pub(super) life: u64,
    /// Its cores; none between a crash and the next start.
    pub(super) cores: Vec<Node>,
    core_count: u8,
    /// By which its cores know what each has taken.
    pub(super) ledger: Ledger,
    /// Nodes that it dials, for whichever of its cores.
    pub(super) dialling: BTreeSet<NodeId>,
    pub(super) is_paused: bool,
    pub(super) paused_at: Timestamp,
    /// Events that happened while it was paused, in order.
    pub(super) backlog: VecDeque<Event>,
    pub(super) wake_at: Option<Timestamp>,
    /// Its connections, as both ends and as each of its cores name them.
    pub(super) links: BTreeMap<LinkNonce, Vec<LinkId>>,
    pub(super) handlers: BTreeMap<TaskRef, Handler>,
    /// Last words of handlers that have returned, of tasks that are to end together.
    pub(super) answers: Vec<Answer>,
    pub(super) callers: BTreeMap<CallId, Caller>,
    /// Callers that send items.
    pub(super) writers: BTreeMap<CallId, Writer>,
    /// Calls the invariants look at.
    pub(super) watched: BTreeSet<CallId>,
    /// Tasks that it had no room for, and of which it remembers nothing.
    pub(super) turned_away: BTreeSet<TaskName>,
    /// It takes no requests any more.
    pub(super) stopping: Option<Stopping>,
}

impl Host {
    pub(super) fn new(place: Place, scenario: &Scenario, now: Timestamp) -> Self {
        let mut host = Self {
            place,
            id: node_id(place),
            life: 0,
            cores: Vec::new(),
            core_count: scenario.cores,
            ledger: Ledger::default(),
            dialling: BTreeSet::new(),
            is_paused: false,
            paused_at: now,
            backlog: VecDeque::new(),
            wake_at: None,
            links: BTreeMap::new(),
            handlers: BTreeMap::new(),
            answers: Vec::new(),
            callers: BTreeMap::new(),
            writers: BTreeMap::new(),
            watched: BTreeSet::new(),
            turned_away: BTreeSet::new(),
            stopping: None,
        };
        host.start(scenario, now);
        host
    }

    /// Starts the node in its next life.
    pub(super) fn start(&mut self, scenario: &Scenario, now: Timestamp) {
        self.life += 1;
        let identity = Identity { node: self.id, incarnation: self.incarnation() };
        let seed = scenario.seed ^ self.incarnation().0;
        self.links.clear();
        self.dialling.clear();
        self.ledger = Ledger::default();
        let core = |(core, place): (usize, _)| {
            let secret = self.secret(scenario);
            let (queue, limits) = (Queue::default(), &scenario.limits);
            let node = Node::with_outbox(
                queue,
                identity,
                place,
                (secret, seed ^ core as u64),
                limits,
                now,
            );
            let mut node = node.expect("the limits of every scenario agree");
            for place in (0..scenario.servers + scenario.clients).filter(|to| *to != self.place) {
                if knows(scenario, self.place, place) {
                    node.configure(node_id(place), vec![address(place)]);
                }
            }
            node
        };
        self.cores = self.routes().places().enumerate().map(core).collect();
    }

    pub(super) fn is_up(&self) -> bool {
        !self.cores.is_empty()
    }

    /// Which of its cores a frame, a call or a task is for.
    pub(super) fn routes(&self) -> Routes {
        Routes::new(self.incarnation(), self.core_count)
    }

    /// The core that knows of a call.
    pub(super) fn core_of(&self, call: CallId) -> Option<&Node> {
        self.cores.get(self.routes().of(call.origin))
    }

    /// The same, to be changed.
    pub(super) fn core_of_mut(&mut self, call: CallId) -> Option<&mut Node> {
        let core = self.routes().of(call.origin);
        self.hear(core, LinkId::LOCAL);
        self.cores.get_mut(core)
    }

    /// Has a core hear what others have taken, before it is given anything.
    pub(super) fn hear(&mut self, core: usize, link: LinkId) {
        let Some(node) = self.cores.get_mut(core) else { return };
        if node.heard_at(link) != Some(self.ledger.version()) {
            node.hear(link, &self.ledger);
        }
    }

    /// Has all cores tell what they have taken.
    pub(super) fn tell(&mut self) {
        for core in self.cores.iter_mut().filter(|core| core.has_to_tell()) {
            core.tell(&mut self.ledger);
        }
    }

    /// The name that both ends have for a connection of the present life, by a core's own.
    pub(super) fn nonce_of(&self, core: usize, link: LinkId) -> Option<LinkNonce> {
        self.links.iter().find(|(_, ids)| ids[core] == link).map(|(nonce, _)| *nonce)
    }

    pub(super) fn end(&self) -> End {
        End { place: self.place, life: self.life }
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation::of_random(((self.place as u64 + 1) << 32 | self.life) << 8)
    }

    /// Secret that it makes the keys of its calls of.
    pub(super) fn secret(&self, scenario: &Scenario) -> Secret {
        let seed = scenario.seed ^ self.incarnation().0;
        Secret::new(seed, !seed)
    }

    pub(super) fn hello(&self, scenario: &Scenario) -> Hello {
        let listens = listens(scenario, self.place);
        Hello {
            node: self.id,
            incarnation: self.incarnation(),
            advertised: if listens { vec![address(self.place)] } else { Vec::new() },
            frame_bytes_max: 16 << 20,
        }
    }
}

/// The name of the node at a place.
pub(super) fn node_id(place: Place) -> NodeId {
    NodeId::new(place as u64 + 1)
}

/// The place of a node.
pub(super) fn place_of(node: NodeId) -> Place {
    usize::try_from(node.get() - 1).expect("node ids are small here")
}

/// True when a node can be dialled.
pub(super) fn listens(scenario: &Scenario, place: Place) -> bool {
    place < scenario.servers || scenario.clients_listen
}

pub(super) fn address(place: Place) -> Address {
    format!("sim://{place}").parse().expect("it has a scheme")
}

/// True when a node was given the address of another.
fn knows(scenario: &Scenario, one: Place, other: Place) -> bool {
    let is_server = |place: Place| place < scenario.servers;
    match (is_server(one), is_server(other)) {
        (true, true) => true,
        (false, true) => other < scenario.servers_known,
        (true, false) => {
            let pair = (one * 64 + other) as u64;
            scenario.clients_listen && Random::of(scenario.seed, 100 + pair).chance(50)
        }
        (false, false) => false,
    }
}
