//! Replicas whose messages are delivered by hand: what is not stays on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use convoke::NodeId;
use paxos::core::{
    Answer, Ask, Effect, Recipients, Record, Replica, Settings, Slot, Standing, Value,
};

use super::rules::release;

/// A question, with the configuration that it names, or an answer.
#[derive(Debug)]
pub(crate) enum Body {
    Ask(u64, Ask),
    Answer(Answer),
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) body: Body,
}

/// Nodes 1 and up, which know their formation.
pub(crate) struct Mesh {
    pub(crate) now: Duration,
    replicas: BTreeMap<u64, Replica>,
    /// Those whom a node's questions to all others are for.
    others: BTreeMap<u64, BTreeSet<NodeId>>,
    packets: Vec<Packet>,
    /// By slot, the nodes that have applied a value there, each with it.
    applied: BTreeMap<Slot, Vec<(u64, Value)>>,
    /// Nodes that have answered a read.
    pub(crate) read: Vec<u64>,
}

impl Mesh {
    pub(crate) fn formed(nodes: u64, formation: &Value) -> Self {
        let now = Duration::ZERO;
        let mut mesh = Self {
            now,
            replicas: BTreeMap::new(),
            others: BTreeMap::new(),
            packets: Vec::new(),
            applied: BTreeMap::new(),
            read: Vec::new(),
        };
        for node in 1..=nodes {
            let settings = Settings::new(NodeId::new(node), (1..=nodes).map(NodeId::new));
            let mut replica = Replica::new(settings, node);
            let values = vec![formation.clone()];
            replica.replay(Record::Learned { first: Slot::FIRST, values });
            replica.start(now);
            mesh.replicas.insert(node, replica);
            mesh.with(node, |_, _| ());
        }
        mesh
    }

    /// An event of a node, and all that it wants done.
    pub(crate) fn with(&mut self, node: u64, event: impl FnOnce(&mut Replica, Duration)) {
        let replica = self.replicas.get_mut(&node).expect("a node of the mesh");
        event(replica, self.now);
        while let Some(effect) = replica.poll_effect() {
            let mut send = |to: NodeId, body| {
                self.packets.push(Packet { from: node, to: to.get(), body });
            };
            match effect {
                Effect::Ask { to: Recipients::One(to), epoch, ask } => {
                    send(to, Body::Ask(epoch, ask));
                }
                Effect::Ask { to: Recipients::Others, epoch, ask } => {
                    for to in &self.others[&node] {
                        send(*to, Body::Ask(epoch, ask.clone()));
                    }
                }
                Effect::Answer { token, answer } => send(NodeId::new(token), Body::Answer(answer)),
                Effect::AnswerDurable { token, answer } => {
                    send(NodeId::new(token), Body::Answer(release(answer)));
                }
                Effect::Own(answer) => {
                    replica.handle_answer(self.now, NodeId::new(node), release(answer));
                }
                Effect::Apply { slot, value } => {
                    self.applied.entry(slot).or_default().push((node, value));
                }
                Effect::Membership(_) => {
                    self.others.insert(node, replica.others());
                }
                Effect::Ready(_) => self.read.push(node),
                _ => {}
            }
        }
    }

    /// Delivers these messages, and those of them that come of it.
    pub(crate) fn deliver(&mut self, is: impl Fn(&Packet) -> bool) {
        while let Some(place) = self.packets.iter().position(&is) {
            let Packet { from, to, body } = self.packets.remove(place);
            let from = NodeId::new(from);
            self.with(to, |replica, now| match body {
                Body::Ask(epoch, ask) => replica.handle_ask(now, from, from.get(), (epoch, ask)),
                Body::Answer(answer) => replica.handle_answer(now, from, answer),
            });
        }
    }

    /// Loses these messages.
    pub(crate) fn lose(&mut self, is: impl Fn(&Packet) -> bool) {
        self.packets.retain(|packet| !is(packet));
    }

    /// A node misses its leader, and comes to lead with the support of others.
    pub(crate) fn elect(&mut self, node: u64, by: [u64; 2]) {
        self.with(node, |replica, now| replica.handle_timeout(now));
        self.deliver(|packet| between(packet, node, by) && !is_accept(packet));
    }

    /// A node proposes a value, and one other is asked to accept it, or some are: the rest is lost.
    pub(crate) fn propose(&mut self, node: u64, value: Value, to: &[u64]) {
        self.lose(is_accept);
        self.with(node, |replica, now| {
            replica.propose(now, value).expect("it leads, and has room");
        });
        self.deliver(|packet| is_accept(packet) && to.contains(&packet.to));
        self.lose(is_accept);
        self.deliver(|packet| to.contains(&packet.from) && packet.to == node);
    }

    /// Standing of a node.
    pub(crate) fn standing(&self, node: u64) -> Standing {
        self.replicas[&node].standing()
    }

    /// True for a node that leads.
    pub(crate) fn leads(&self, node: u64) -> bool {
        matches!(self.standing(node), Standing::Leading(_))
    }

    /// Values that were applied in a slot, each with its node.
    pub(crate) fn applied(&self, slot: Slot) -> &[(u64, Value)] {
        self.applied.get(&slot).map_or(&[], Vec::as_slice)
    }
}

/// True for messages between a node and some others.
fn between(packet: &Packet, node: u64, others: [u64; 2]) -> bool {
    (packet.from == node && others.contains(&packet.to))
        || (packet.to == node && others.contains(&packet.from))
}

/// True for what a leader asks, heartbeats with it.
pub(crate) fn is_accept(packet: &Packet) -> bool {
    matches!(packet.body, Body::Ask(_, Ask::Accept { .. }))
}
