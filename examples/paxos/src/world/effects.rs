//! Effects of a replica, carried out: messages, records, what waits for them.

use std::time::Duration;

use convoke::NodeId;

use super::node::{Left, Node};
use super::{Event, Violation, World};
use crate::core::{Effect, Recipients, Record, Standing};

impl World {
    /// Does what a node wants done.
    pub(super) fn drain(&mut self, id: NodeId) -> Result<(), Violation> {
        while let Some(effect) = self.nodes.get_mut(&id).and_then(Node::poll_effect) {
            self.perform(id, effect)?;
        }
        let now = self.schedule.now();
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        node.take_snapshot(now);
        if let Some(at) = node.arm() {
            self.schedule.at(at.max(now), Event::Timeout { node: id });
        }
        if let Some((life, position)) = self.nodes.get_mut(&id).and_then(Node::begin_sync) {
            let pause = self.random.micros(self.menu.sync_us.clone());
            self.schedule.after(pause, Event::Synced { node: id, life, position });
        }
        Ok(())
    }

    fn perform(&mut self, id: NodeId, effect: Effect) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let run = node.run();
        match effect {
            Effect::Append(record) => {
                if matches!(record, Record::Promised(ballot) if ballot.leader() == Some(id)) {
                    node.take_ballot(self.truth.chosen());
                }
                node.append(record);
            }
            Effect::Ask { to, epoch, ask } => {
                self.truth.asks(&ask);
                for other in self.recipients(id, to) {
                    let event = |ask| Event::Ask { from: id, life: run, to: other, epoch, ask };
                    self.send(id, other, ask.clone(), event);
                }
            }
            Effect::Answer { token, answer } => self.leave(id, Left::Answer(token, answer))?,
            Effect::AnswerDurable { token, answer } => node.hold(token, answer),
            Effect::Own(answer) => node.hold_own(answer),
            Effect::Apply { slot, value } => {
                let acknowledged = node.apply(slot, &value);
                self.truth.applied(id, slot, &value)?;
                if acknowledged {
                    self.report.acknowledged += 1;
                    self.truth.acknowledged(slot);
                }
            }
            Effect::Ready(token) => {
                self.report.reads += 1;
                self.truth.read(id, token, node.applied())?;
            }
            Effect::Unready(token) => self.truth.forget_read(token),
            Effect::Standing(standing) => {
                node.stand(standing);
                self.report.led += u64::from(matches!(standing, Standing::Leading(_)));
            }
            Effect::Membership(_) => node.members_changed(),
            Effect::FetchSnapshot { from, .. } => self.fetch(from, id)?,
        }
        Ok(())
    }

    fn recipients(&self, id: NodeId, to: Recipients) -> Vec<NodeId> {
        match to {
            Recipients::Others => self.nodes[&id].others().iter().copied().collect(),
            Recipients::One(node) => vec![node],
        }
    }

    /// An answer leaves a node.
    fn leave(&mut self, id: NodeId, left: Left) -> Result<(), Violation> {
        match left {
            Left::Answer(token, answer) => {
                let Some((to, life)) = self.asked.remove(&token) else { return Ok(()) };
                self.truth.left(id, &answer)?;
                let event = |answer| Event::Answer { from: id, to, life, answer };
                self.send(id, to, answer, event);
                if self.random.per_mille(self.menu.crash_per_mille) {
                    self.crash(id, false);
                }
            }
            Left::Own(answer) => {
                self.truth.left(id, &answer)?;
                let life = self.nodes[&id].run();
                self.schedule
                    .after(Duration::ZERO, Event::Answer { from: id, to: id, life, answer });
            }
        }
        Ok(())
    }

    fn send<T: Clone>(&mut self, from: NodeId, to: NodeId, what: T, event: impl Fn(T) -> Event) {
        if self.cuts.contains(&(from, to)) {
            return;
        }
        for _ in 0..self.menu.network.copies(&mut self.random) {
            let delay = self.menu.network.delay(&mut self.random);
            let delay = self.menu.network.late(&mut self.random, delay);
            self.schedule.after(delay, event(what.clone()));
        }
    }

    pub(super) fn synced(
        &mut self,
        id: NodeId,
        life: u64,
        position: usize,
    ) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.run() == life) else {
            return Ok(());
        };
        for left in node.synced(position) {
            self.leave(id, left)?;
        }
        self.drain(id)
    }
}
