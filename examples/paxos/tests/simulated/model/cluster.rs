//! Three replicas with their ledgers, and what is on its way between them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;
use node_kit::durable::{Durable, Held, Position};
use paxos::core::{
    Answer, Ask, Ballot, Effect, Lives, Members, Membership, Recipients, Record, Replica, Settings,
    Slot, Value,
};

/// The time of everything: no election comes of it, but by [`Action::Miss`].
const NOW: Duration = Duration::from_secs(1);
const NODES: usize = 3;
/// The formation, and the two slots of the model.
const LAST: Slot = Slot(3);

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Times that nodes 1 and 2 miss a leader.
    pub(super) elections: [u8; 2],
    /// Values that clients propose, all in all.
    pub(super) values: u8,
    pub(super) crashes: u8,
    pub(super) order: Order,
}

impl Bounds {
    /// Proposers that miss a leader so often, one value, words in any order, and no crash.
    pub(super) fn of(elections: [u8; 2]) -> Self {
        Self { elections, values: 1, crashes: 0, order: Order::Any }
    }
}

/// Order in which packets from one node to one other arrive. Those that never do are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Any,
    /// As they were sent. A link that breaks loses all that is on it.
    Sent,
}

/// Next event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A node misses its leader, and so do the others.
    Miss(usize),
    /// A packet arrives.
    Deliver(Arc<Packet>),
    Propose(usize),
    Crash(usize),
    Restart(usize),
}

/// A question or an answer on its way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    from: usize,
    to: usize,
    body: Body,
    digest: u64,
}

impl Packet {
    fn link(&self) -> (usize, usize) {
        (self.from, self.to)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Body {
    Ask(u64, Ask),
    Answer(Answer),
}

/// Votes that were ever cast, by slot and ballot, and what follows from them.
#[derive(Clone, Debug, Hash)]
pub(super) struct Truth {
    votes: BTreeMap<(Slot, Ballot), (Vec<u8>, BTreeSet<usize>)>,
    chosen: BTreeMap<Slot, Vec<u8>>,
    pub(super) agrees: bool,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    nodes: [Option<Arc<Replica>>; NODES],
    ledgers: [Vec<Record>; NODES],
    /// Of each node: of its replica, or of what its ledger brings back.
    digests: [u64; NODES],
    network: Vec<Arc<Packet>>,
    left: Bounds,
    pub(super) truth: Truth,
    pub(super) keeps: bool,
}

impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        digest(self) == digest(other)
    }
}

impl Hash for Cluster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nodes.each_ref().map(Option::is_some).hash(state);
        (self.digests, self.keeps).hash(state);
        self.network.iter().for_each(|packet| packet.digest.hash(state));
        (self.left.elections, self.left.values, self.left.crashes).hash(state);
        self.truth.hash(state);
    }
}

impl Cluster {
    /// The nodes know the formation, and nothing else has happened.
    pub(super) fn formed(bounds: Bounds) -> Self {
        let lives: Lives = (0..NODES).map(|node| (id(node), id(node).get())).collect();
        let formation = Value::Formation(Membership::new(4, Members::formed(&lives)).into());
        let ledger = |node| {
            let values = vec![formation.clone()];
            vec![Record::Life(id(node).get()), Record::Learned { first: Slot::FIRST, values }]
        };
        let mut cluster = Self {
            nodes: [None, None, None],
            ledgers: [ledger(0), ledger(1), ledger(2)],
            digests: [0; NODES],
            network: Vec::new(),
            left: bounds,
            truth: Truth { votes: BTreeMap::new(), chosen: BTreeMap::new(), agrees: true },
            keeps: true,
        };
        (0..NODES).for_each(|node| cluster.restart(node));
        cluster
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let is_up = |node: &usize| self.nodes[*node].is_some();
        let mut actions = Vec::new();
        for (node, replica) in self.nodes.iter().enumerate() {
            let Some(replica) = replica else {
                actions.push(Action::Restart(node));
                continue;
            };
            let is_missed = self.left.elections.get(node).is_some_and(|left| *left > 0);
            if is_missed && (0..NODES).filter(is_up).count() > 1 {
                actions.push(Action::Miss(node));
            }
            let proposed = replica.chosen().plus(replica.in_flight());
            if self.left.values > 0 && replica.room() > 0 && proposed < LAST {
                actions.push(Action::Propose(node));
            }
            if self.left.crashes > 0 {
                actions.push(Action::Crash(node));
            }
        }
        let arriving = self.arriving().filter(|packet| is_up(&packet.to));
        actions.extend(arriving.cloned().map(Action::Deliver));
        actions
    }

    fn arriving(&self) -> impl Iterator<Item = &Arc<Packet>> {
        self.network.iter().enumerate().filter_map(|(place, packet)| {
            let before = self.network[..place].last();
            let is_first = before.is_none_or(|before| before.link() != packet.link());
            (is_first || self.left.order == Order::Any).then_some(packet)
        })
    }

    pub(super) fn after(&self, action: Action) -> Self {
        let mut cluster = self.clone();
        match action {
            Action::Miss(node) => {
                cluster.left.elections[node] -= 1;
                cluster.with(node, |replica| replica.handle_timeout(replica.poll_timeout()));
            }
            Action::Deliver(packet) => cluster.deliver(&packet),
            Action::Propose(node) => {
                cluster.left.values -= 1;
                let command = Bytes::copy_from_slice(&[self.left.values]);
                cluster.with(node, |replica| {
                    replica.propose(NOW, Value::Commands(command)).expect("there is room");
                });
            }
            Action::Crash(node) => {
                cluster.left.crashes -= 1;
                cluster.crash(node);
            }
            Action::Restart(node) => cluster.restart(node),
        }
        cluster
    }

    fn deliver(&mut self, packet: &Packet) {
        let place = self.network.iter().position(|on_way| **on_way == *packet);
        self.network.remove(place.expect("it is on its way"));
        let Packet { from, to, body, .. } = packet;
        self.with(*to, |replica| match body.clone() {
            Body::Ask(epoch, ask) => {
                replica.handle_ask(NOW, id(*from), id(*from).get(), (epoch, ask));
            }
            Body::Answer(answer) => replica.handle_answer(NOW, id(*from), answer),
        });
    }

    /// It loses its memory. Its ledger has all that it had appended.
    fn crash(&mut self, node: usize) {
        let known = self.nodes[node].take().map(|replica| replica.checkpoint());
        let back = self.replayed(node);
        self.keeps &= known == Some(back.checkpoint());
        self.digests[node] = digest(&back);
    }

    fn restart(&mut self, node: usize) {
        let mut replica = self.replayed(node);
        replica.start(NOW);
        self.nodes[node] = Some(Arc::new(replica));
        self.with(node, |_| ());
    }

    fn replayed(&self, node: usize) -> Replica {
        let settings = Settings { window: 4, ..Settings::new(id(node), (0..NODES).map(id)) };
        let mut replica = Replica::new(settings, 0);
        self.ledgers[node].iter().cloned().for_each(|record| replica.replay(record));
        replica
    }

    /// An event of a node, and all that it wants done.
    fn with(&mut self, node: usize, event: impl FnOnce(&mut Replica)) {
        let Some(mut shared) = self.nodes[node].take() else { return };
        let replica = Arc::make_mut(&mut shared);
        event(replica);
        while let Some(effect) = replica.poll_effect() {
            self.carry_out(node, replica, effect);
        }
        self.digests[node] = digest(&*replica);
        self.nodes[node] = Some(shared);
        match self.left.order {
            Order::Any => self.network.sort_by_key(|packet| packet.digest),
            Order::Sent => self.network.sort_by_key(|packet| packet.link()),
        }
    }

    fn carry_out(&mut self, node: usize, replica: &mut Replica, effect: Effect) {
        match effect {
            Effect::Append(record) => {
                self.truth.take_votes(node, &record);
                self.ledgers[node].push(record);
            }
            Effect::Ask { ask: Ask::Canvass { ballot }, .. } => self.canvass(node, replica, ballot),
            // A heartbeat, which is lost: it decides nothing.
            Effect::Ask { ask: Ask::Accept { values, .. }, .. } if values.is_empty() => {}
            Effect::Ask { to: Recipients::One(to), epoch, ask } => {
                self.send(node, index(to), Body::Ask(epoch, ask));
            }
            Effect::Ask { to: Recipients::Others, epoch, ask } => {
                for to in replica.others() {
                    self.send(node, index(to), Body::Ask(epoch, ask.clone()));
                }
            }
            Effect::Answer { token, answer } => self.send_to_token(node, token, answer),
            Effect::AnswerDurable { token, answer } => {
                self.send_to_token(node, token, release(answer));
            }
            Effect::Own(answer) => replica.handle_answer(NOW, id(node), release(answer)),
            Effect::Apply { slot, value } => self.truth.take_applied(slot, &value),
            Effect::FetchSnapshot { .. } => unreachable!("nothing is trimmed"),
            Effect::Ready(_) | Effect::Unready(_) | Effect::Standing(_) | Effect::Membership(_) => {
            }
        }
    }

    /// All who are up miss a leader, too, and say so at once: who would not is a question of
    /// progress.
    fn canvass(&self, node: usize, replica: &mut Replica, ballot: Ballot) {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        for (other, peer) in others.filter_map(|(other, peer)| Some((other, peer.as_ref()?))) {
            let (promised, chosen) = (peer.promised(), Slot::FIRST);
            let supports = ballot > promised;
            let answer = Answer::Canvassed { ballot, supports, promised, chosen };
            replica.handle_answer(NOW, id(other), answer);
        }
    }

    fn send_to_token(&mut self, node: usize, token: u64, answer: Answer) {
        self.send(node, index(NodeId::new(token)), Body::Answer(answer));
    }

    fn send(&mut self, from: usize, to: usize, body: Body) {
        let digest = digest(&(from, to, &body));
        self.network.push(Arc::new(Packet { from, to, body, digest }));
    }
}

impl Truth {
    fn take_votes(&mut self, node: usize, record: &Record) {
        let Record::Accepted { ballot, first, values } = record else { return };
        for (slot, value) in (first.0..).map(Slot).zip(values) {
            let value = text(value);
            let (of_ballot, votes) =
                self.votes.entry((slot, *ballot)).or_insert_with(|| (value.clone(), [].into()));
            self.agrees &= *of_ballot == value;
            votes.insert(node);
            if votes.len() > NODES / 2 {
                self.agrees &= *self.chosen.entry(slot).or_insert(value.clone()) == value;
            }
        }
    }

    fn take_applied(&mut self, slot: Slot, value: &Value) {
        let is_known = slot == Slot::FIRST;
        self.agrees &= is_known || self.chosen.get(&slot) == Some(&text(value));
    }

    pub(super) fn chosen_count(&self) -> usize {
        self.chosen.len()
    }

    /// A slot has votes of two ballots.
    pub(super) fn has_rival_ballots(&self) -> bool {
        let slots: Vec<Slot> = self.votes.keys().map(|(slot, _)| *slot).collect();
        slots.windows(2).any(|two| two[0] == two[1])
    }
}

fn text(value: &Value) -> Vec<u8> {
    format!("{value:?}").into_bytes()
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn release(answer: Held<Answer>) -> Answer {
    let waiting = answer.after(Position::new(0));
    waiting.release(&Durable::in_memory(Position::new(0))).expect("it waits for nothing")
}

fn id(node: usize) -> NodeId {
    NodeId::new(node as u64 + 1)
}

fn index(node: NodeId) -> usize {
    usize::try_from(node.get()).expect("there are three") - 1
}
