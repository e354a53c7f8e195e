//! Faults of a run, by its seed.

use std::ops::Range;
use std::time::Duration;

use convoke::NodeId;
use convoke_sim::random::Random;
use node_kit::world::{Network, odd};

use super::{Event, World};
use crate::core::Slot;

/// A fault that is there for good, when all others have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// None.
    Nothing,
    /// A minority of nodes is away.
    Away,
    /// One node can send, and hears nobody.
    Deaf,
    /// Two nodes do not hear each other.
    Chain,
}

/// Faults of a run, and their frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Voters of the beginning: 1, 3 or 5.
    pub nodes: u64,
    /// Nodes that are members only later, if at all.
    pub spares: u64,
    /// Of a hundred steps of clients, how many change the members.
    pub changes: u32,
    /// Slots in flight.
    pub window: usize,
    /// Times and faults of messages.
    pub network: Network,
    /// Time of a sync, in microseconds.
    pub sync_us: Range<u64>,
    /// Pause between two steps of clients.
    pub pause_us: Range<u64>,
    /// Answers after which the node crashes at once.
    pub crash_per_mille: u32,
    /// Pause between two faults.
    pub fault_us: Range<u64>,
    /// Of a hundred faults, how many are crashes,
    pub crash: u32,
    /// crashes of a leader that nobody heard for a moment before: its words of then are a gap in
    /// what others have accepted,
    pub gap: u32,
    /// one-way cuts of a link,
    pub cut: u32,
    /// ends of all cuts,
    pub mend: u32,
    /// and snapshots. Half of the cuts are of all links of a node. The rest are crashes that
    /// lose the ledger, of a minority in all.
    pub snapshot: u32,
    /// Election timeout, in milliseconds; ten heartbeats.
    pub election_ms: u64,
    /// A fault that stays, unless members change.
    pub stays: Stays,
    /// Time with faults.
    pub faulty_for: Duration,
}

impl Menu {
    /// The menu of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 1);
        let slowest = [2_000, 20_000, 150_000][random.index(3)];
        // Members change in every other seed.
        let (spares, changes) = match seed % 4 {
            0 => (2, 5),
            2 => (3, 30),
            _ => (0, 0),
        };
        Self {
            spares,
            changes,
            nodes: [3, 3, 3, 5, 5, 1][random.index(6)],
            window: [1, 4, 32][random.index(3)],
            network: Network {
                delay_us: 100..slowest,
                lost_per_mille: odd(&mut random, 200),
                copied_per_mille: odd(&mut random, 100),
                late_per_mille: odd(&mut random, 50),
            },
            sync_us: 50..[200, 30_000, 300_000][random.index(3)],
            pause_us: 100..[20_000, 200_000][random.index(2)],
            crash_per_mille: odd(&mut random, 20),
            fault_us: 10_000..[300_000, 2_000_000][random.index(2)],
            crash: 32,
            gap: 8,
            cut: 25,
            mend: 15,
            snapshot: 15,
            election_ms: [60, 500, 500][random.index(3)],
            stays: [Stays::Nothing, Stays::Away, Stays::Deaf, Stays::Chain][random.index(4)],
            faulty_for: Duration::from_secs(8),
        }
    }

    /// Nothing goes wrong.
    pub fn calm(nodes: u64) -> Self {
        Self {
            nodes,
            spares: 0,
            changes: 0,
            window: 32,
            network: Network::calm(),
            sync_us: 100..101,
            pause_us: 1_000..1_001,
            crash_per_mille: 0,
            fault_us: 1_000_000..1_000_001,
            crash: 0,
            gap: 0,
            cut: 0,
            mend: 100,
            snapshot: 0,
            election_ms: 500,
            stays: Stays::Nothing,
            faulty_for: Duration::from_secs(2),
        }
    }
}

impl World {
    pub(super) fn fault(&mut self) {
        if self.is_healed {
            return;
        }
        let pause = self.random.micros(self.menu.fault_us.clone());
        self.schedule.after(pause, Event::Fault);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let node = ids[self.random.index(ids.len())];
        let other = ids[self.random.index(ids.len())];
        let draw = u32::try_from(self.random.within(0..100)).unwrap_or(0);
        let Menu { crash, gap, cut, mend, snapshot, .. } = self.menu;
        let draw = match draw.checked_sub(gap) {
            Some(draw) => draw,
            None => return self.gap(),
        };
        match draw {
            draw if draw < crash => self.crash(node, false),
            draw if draw < crash + cut / 2 => self.isolate(node),
            draw if draw < crash + cut => {
                self.cuts.insert((node, other));
            }
            draw if draw < crash + cut + mend => self.cuts.clear(),
            draw if draw < crash + cut + mend + snapshot => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.want_snapshot();
                }
            }
            _ => self.crash(node, true),
        }
    }

    /// Ends a node's process; it comes back after a while. A minority may lose its ledgers, too.
    pub(super) fn crash(&mut self, id: NodeId, is_wiped: bool) {
        let is_wiped = is_wiped && self.may_wipe(id);
        let life = self.random.draw();
        let longest = [3_000, 2_000_000][self.random.index(2)];
        let pause = self.random.micros(1_000..longest);
        let kept = self.random.draw();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_up()) else { return };
        node.crash(kept);
        if is_wiped {
            node.wipe(life);
            self.wiped.insert(id);
        }
        self.truth.crashed(id);
        self.report.crashes += 1;
        self.schedule.after(pause, Event::Restart { node: id });
    }

    /// A formed cluster lives with the loss of less than half of its ledgers. Where members change,
    /// a node may lose its own while it neither votes nor is about to, and nobody needs it any more
    /// who does; but of those that formed the cluster one has to know that it is formed.
    fn may_wipe(&self, id: NodeId) -> bool {
        if self.menu.changes > 0 {
            let mut founders = (1..=self.menu.nodes).map(NodeId::new);
            let is_known = founders.any(|other| other != id && !self.wiped.contains(&other));
            let epoch = self.truth.changes() + 1;
            let is_settled = self.nodes.values().any(|node| node.is_settled(epoch));
            return is_known && is_settled && !self.truth.may_vote(id);
        }
        let others = self.wiped.iter().filter(|wiped| **wiped != id).count() as u64;
        2 * (others + 1) < self.menu.nodes
    }

    /// Loses all that a leader says for a moment; then it is heard, and soon it crashes.
    fn gap(&mut self) {
        let Some(leader) = self.nodes.iter().find(|(_, node)| node.leads()).map(|(id, _)| *id)
        else {
            return;
        };
        for other in self.nodes.keys().filter(|other| **other != leader) {
            self.cuts.insert((leader, *other));
        }
        let (step, way) = (self.menu.pause_us.end, self.menu.network.delay_us.end);
        let crashes_after = self.random.micros(step / 2..2 * (step + way));
        let unheard = self.random.micros(step / 2..2 * step);
        self.schedule.after(unheard, Event::Heard { leader, crashes_after });
    }

    fn isolate(&mut self, id: NodeId) {
        for other in self.nodes.keys() {
            self.cuts.insert((id, *other));
            self.cuts.insert((*other, id));
        }
    }

    /// Ends all faults but one, which leaves a majority of those that are counted to itself.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.cuts.clear();
        self.menu.network.heal();
        self.menu.crash_per_mille = 0;
        // With a timeout below a round trip nobody leads for long.
        let longest = 60 * self.menu.election_ms;
        let delay_us = &mut self.menu.network.delay_us;
        delay_us.end = delay_us.end.min(longest);
        self.menu.sync_us.end = self.menu.sync_us.end.min(longest);
        let minority = ((self.menu.nodes - 1) / 2).saturating_sub(self.wiped.len() as u64);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let counted: Vec<NodeId> =
            ids.iter().copied().filter(|id| !self.wiped.contains(id)).collect();
        // A formation takes all. Where members change, nobody knows who is needed.
        if self.menu.changes == 0 && minority > 0 && self.truth.chosen() >= Slot::FIRST {
            self.leave_fault(&counted, minority);
        }
        for id in ids {
            self.schedule.after(Duration::ZERO, Event::Restart { node: id });
        }
    }

    fn leave_fault(&mut self, counted: &[NodeId], minority: u64) {
        match self.menu.stays {
            Stays::Nothing => {}
            Stays::Away => {
                for id in counted.iter().take(usize::try_from(minority).unwrap_or(0)) {
                    self.crash(*id, false);
                    self.away.insert(*id);
                }
            }
            Stays::Deaf => {
                let leading = counted.iter().find(|id| self.nodes[id].leads());
                let deaf = *leading.unwrap_or(&counted[0]);
                self.deaf = Some(deaf);
                for other in self.nodes.keys().filter(|other| **other != deaf) {
                    self.cuts.insert((*other, deaf));
                }
            }
            Stays::Chain => {
                self.cuts.insert((counted[0], counted[1]));
                self.cuts.insert((counted[1], counted[0]));
            }
        }
    }
}
