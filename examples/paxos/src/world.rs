//! A world of replicas without I/O: a seed decides what is late, lost, doubled, cut, crashed and
//! wiped, and after every step the safety of the log is checked.
//!
//! ```
//! let report = paxos::world::run(7)?;
//! assert!(report.acknowledged > 0);
//! # Ok::<(), paxos::world::Violation>(())
//! ```
//!
//! Disks are simulated by their contract alone: what was appended is durable after a while, and a
//! crash leaves what is durable and a seeded part of the rest. A run has two phases: faults as the
//! seed draws them, then a time in which all heals, or all but a minority that stays away for good,
//! and in which the cluster has to make progress.

mod changes;
mod effects;
mod faults;
mod node;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;
use convoke_sim::random::Random;
use node_kit::world::Schedule;

pub use self::faults::{Menu, Stays};
use self::node::Node;
use self::truth::Truth;
pub use self::truth::Violation;
use crate::core::{Answer, Ask, Membership, Replica, Settings, Slot, Token, Value};

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Values that were proposed.
    pub proposed: u64,
    /// Of these, those that their proposer has applied in its own ballot.
    pub acknowledged: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Times that a node began to lead.
    pub led: u64,
    /// Crashes.
    pub crashes: u64,
    /// Snapshots that went from one node to another.
    pub installed: u64,
    /// Changes of the members that were in force.
    pub changes: u64,
    /// Folds all that happened: the same seed gives the same number.
    pub trace: u64,
}

/// Runs a seed with the menu that it draws.
///
/// # Errors
/// [`Violation`].
pub fn run(seed: u64) -> Result<Report, Violation> {
    run_menu(seed, Menu::draw(seed), false)
}

/// Runs a seed with this menu; `is_traced` prints every event.
///
/// # Errors
/// [`Violation`].
pub fn run_menu(seed: u64, menu: Menu, is_traced: bool) -> Result<Report, Violation> {
    let mut world = World::new(seed, menu, is_traced);
    world.run_faults()?;
    world.run_healed()?;
    world.report.changes = world.truth.changes();
    Ok(world.report)
}

/// Something that is to happen.
#[derive(Debug)]
enum Event {
    Ask { from: NodeId, life: u64, to: NodeId, epoch: u64, ask: Ask },
    Answer { from: NodeId, to: NodeId, life: u64, answer: Answer },
    Timeout { node: NodeId },
    Synced { node: NodeId, life: u64, position: usize },
    Snapshot { from: NodeId, to: NodeId, life: u64, fetched: Option<(Slot, Membership)> },
    Restart { node: NodeId },
    Heard { leader: NodeId, crashes_after: Duration },
    Crash { node: NodeId },
    Clients,
    Fault,
}

/// Nodes, what is under way between them, and what is true.
#[derive(Debug)]
struct World {
    schedule: Schedule<Event>,
    random: Random,
    menu: Menu,
    nodes: BTreeMap<NodeId, Node>,
    next_token: Token,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Nodes that have lost a ledger.
    wiped: BTreeSet<NodeId>,
    /// Nodes that do not come back.
    away: BTreeSet<NodeId>,
    /// The node that hears nobody any more.
    deaf: Option<NodeId>,
    /// Questions that nodes have to answer: who asked, in which run of its process.
    asked: BTreeMap<Token, (NodeId, u64)>,
    truth: Truth,
    report: Report,
    is_healed: bool,
    is_traced: bool,
}

impl World {
    /// As many nodes as the menu says, all up, and nothing chosen.
    fn new(seed: u64, menu: Menu, is_traced: bool) -> Self {
        let mut world = Self {
            schedule: Schedule::default(),
            random: Random::of(seed, 2),
            nodes: BTreeMap::new(),
            next_token: 0,
            cuts: BTreeSet::new(),
            wiped: BTreeSet::new(),
            away: BTreeSet::new(),
            deaf: None,
            asked: BTreeMap::new(),
            truth: Truth::default(),
            report: Report::default(),
            is_healed: false,
            is_traced,
            menu,
        };
        let all = world.menu.nodes + world.menu.spares;
        for id in 1..=all {
            let node = NodeId::new(id);
            let mut settings = Settings::new(node, (1..=world.menu.nodes).map(NodeId::new));
            settings.peers = (1..=all).map(NodeId::new).collect();
            settings.seed = world.random.draw();
            settings.window = world.menu.window;
            settings.message_bytes_max = 400;
            settings.election_timeout = Duration::from_millis(world.menu.election_ms);
            settings.heartbeat = settings.election_timeout / 10;
            let life = world.random.draw();
            world.nodes.insert(node, Node::new(settings, life));
            world.schedule.after(Duration::ZERO, Event::Restart { node });
        }
        world.schedule.after(Duration::ZERO, Event::Clients);
        world
    }

    fn run_faults(&mut self) -> Result<(), Violation> {
        self.schedule.after(Duration::ZERO, Event::Fault);
        let end = self.schedule.now() + self.menu.faulty_for;
        while self.step(end)? {}
        Ok(())
    }

    /// Does what is due next. True when there may be more before `end`.
    fn step(&mut self, end: Duration) -> Result<bool, Violation> {
        let Some(event) = self.schedule.next(end) else { return Ok(false) };
        self.handle(event)?;
        Ok(true)
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        self.trace(&event);
        match event {
            Event::Ask { from, life, to, epoch, ask } => {
                let token = self.token();
                self.asked.insert(token, (from, life));
                let now = self.schedule.now();
                self.input(to, |replica| replica.handle_ask(now, from, token, (epoch, ask)))?;
            }
            Event::Answer { from, to, life, answer } => {
                let now = self.schedule.now();
                if self.nodes[&to].run() == life {
                    self.input(to, |replica| replica.handle_answer(now, from, answer))?;
                }
            }
            Event::Timeout { node } => {
                let now = self.schedule.now();
                if self.nodes.get_mut(&node).is_some_and(|node| node.take_due(now)) {
                    self.input(node, |replica| replica.handle_timeout(now))?;
                }
            }
            Event::Synced { node, life, position } => self.synced(node, life, position)?,
            Event::Snapshot { from, to, life, fetched } => self.install(from, to, life, fetched)?,
            Event::Restart { node } => self.restart(node)?,
            Event::Heard { .. } | Event::Crash { .. } if self.is_healed => {}
            Event::Heard { leader, crashes_after } => {
                self.cuts.retain(|(from, _)| *from != leader);
                self.schedule.after(crashes_after, Event::Crash { node: leader });
            }
            Event::Crash { node } => self.crash(node, false),
            Event::Clients => self.clients()?,
            Event::Fault => self.fault(),
        }
        Ok(())
    }

    /// Does something with the replica of a node that is up, and then what it wants done.
    fn input(&mut self, node: NodeId, input: impl FnOnce(&mut Replica)) -> Result<(), Violation> {
        self.with(node, |node| node.replica_mut().map(input))
    }

    /// Does something with a node that is up, and then what it wants done.
    fn with(
        &mut self,
        node: NodeId,
        input: impl FnOnce(&mut Node) -> Option<()>,
    ) -> Result<(), Violation> {
        let found = self.nodes.get_mut(&node).and_then(input);
        if found.is_some() { self.drain(node) } else { Ok(()) }
    }

    /// A node begins to take the snapshot that another has now.
    fn fetch(&mut self, from: NodeId, to: NodeId) -> Result<(), Violation> {
        let (now, life) = (self.schedule.now(), self.nodes[&to].run());
        let pause = self.menu.network.delay(&mut self.random) * 3;
        let fetched = self.nodes[&from].snapshot().filter(|_| !self.is_cut(from, to));
        let upto = fetched.as_ref().map(|(upto, _)| *upto);
        self.schedule.after(pause, Event::Snapshot { from, to, life, fetched });
        let Some(upto) = upto else { return Ok(()) };
        self.input(from, |replica| replica.handle_fetching(now, to, upto, HELD_BYTES))
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to)) || self.cuts.contains(&(to, from))
    }

    fn install(
        &mut self,
        from: NodeId,
        to: NodeId,
        life: u64,
        fetched: Option<(Slot, Membership)>,
    ) -> Result<(), Violation> {
        let now = self.schedule.now();
        let is_there = self.nodes[&from].is_up() && !self.is_cut(from, to);
        let snapshot = fetched.filter(|_| is_there);
        self.report.installed += u64::from(snapshot.is_some());
        if self.nodes[&to].run() != life {
            return Ok(());
        }
        match snapshot {
            Some((upto, membership)) => self.with(to, |node| node.install(now, upto, membership)),
            None => self.input(to, |replica| replica.handle_not_installed(now)),
        }
    }

    fn restart(&mut self, node: NodeId) -> Result<(), Violation> {
        let now = self.schedule.now();
        if self.away.contains(&node) {
            return Ok(());
        }
        self.with(node, |node| node.restart(now))
    }

    /// Clients propose and read, wherever somebody says that it leads.
    fn clients(&mut self) -> Result<(), Violation> {
        let pause = self.random.micros(self.menu.pause_us.clone());
        self.schedule.after(pause, Event::Clients);
        let leading: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.leads()).map(|(id, _)| *id).collect();
        for id in leading {
            if self.random.chance(30) {
                self.read(id)?;
            }
            if self.random.chance(60) {
                self.propose(id)?;
            }
            if self.random.chance(5) && !self.is_healed {
                self.input(id, Replica::hand_over)?;
            }
            if self.menu.changes > 0 && self.random.chance(self.menu.changes) && !self.is_healed {
                self.change(id)?;
            }
        }
        Ok(())
    }

    fn propose(&mut self, id: NodeId) -> Result<(), Violation> {
        let now = self.schedule.now();
        let number = self.report.proposed;
        let value = Value::Commands(Bytes::from(number.to_le_bytes().to_vec()));
        self.truth.proposed(&value);
        self.report.proposed += 1;
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let Some(slot) = node.propose(now, value) else { return Ok(()) };
        self.truth.proposes(id, slot, node.applied(), node.inherited())?;
        self.drain(id)
    }

    fn read(&mut self, id: NodeId) -> Result<(), Violation> {
        let token = self.token();
        self.truth.begin_read(token);
        self.with(id, |node| node.replica_mut()?.read(token).ok())
    }

    /// Ends the faults, and wants progress.
    fn run_healed(&mut self) -> Result<(), Violation> {
        self.heal();
        let end = self.schedule.now() + HEALED_FOR;
        let mut goal = None;
        while self.step(end)? {
            if goal.is_none() && self.schedule.now() + HEALED_FOR / 2 > end {
                goal = Some((self.truth.chosen(), self.report.led));
            }
        }
        let (goal, led) = goal.unwrap_or_default();
        if self.report.led > led + LEADERS_MAX {
            return Err(Violation::Unstable { leaders: self.report.led - led });
        }
        if self.is_reached(goal) {
            return Ok(());
        }
        Err(self.truth.stuck(self.nodes.values().map(|node| (node.applied(), node.standing()))))
    }

    /// True when every member that is up knows more than what was chosen then.
    fn is_reached(&self, goal: Slot) -> bool {
        let hears = |(id, node): &(&NodeId, &Node)| {
            node.is_up() && self.deaf != Some(**id) && self.truth.is_member(**id)
        };
        let mut up = self.nodes.iter().filter(hears);
        goal >= Slot::FIRST && up.all(|(_, node)| node.applied() > goal)
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    fn trace(&mut self, event: &Event) {
        let text = format!("{:?} {event:?}", self.schedule.now());
        self.report.trace = convoke_sim::random::digest(self.report.trace, text.as_bytes());
        if self.is_traced {
            let _ = console::say(text); // who reads may have seen enough
        }
    }
}

/// Bytes that are kept for who fetches a snapshot: some hundred values.
const HELD_BYTES: usize = 2_000;

/// So long the healed cluster has: half to find its leader, half to show progress.
const HEALED_FOR: Duration = Duration::from_secs(12);

/// So many nodes may begin to lead late, when nothing breaks any more.
const LEADERS_MAX: u64 = 1;
