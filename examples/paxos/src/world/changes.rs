//! Changes of the members, as a seed draws them: any set instead of any other.

use convoke::NodeId;

use super::{Violation, World};
use crate::core::{Member, Members, Part};

impl World {
    /// A leader proposes other members: among them one voter at least.
    pub(super) fn change(&mut self, id: NodeId) -> Result<(), Violation> {
        let now = self.schedule.now();
        let Some(epoch) = self.nodes[&id].membership().map(|known| known.now.epoch) else {
            return Ok(());
        };
        let members = Members { epoch: epoch + 1, nodes: self.draw_members() };
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        if node.change(now, members.clone()).is_none() {
            return Ok(());
        }
        self.truth.proposes_members(members);
        self.drain(id)
    }

    fn draw_members(&mut self) -> std::collections::BTreeMap<NodeId, Member> {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let first = ids[self.random.index(ids.len())];
        let mut members = std::collections::BTreeMap::new();
        for id in ids {
            let voter = Part::Voter(self.nodes[&id].life());
            let draw = if id == first { 0 } else { self.random.index(8) };
            let part = match draw {
                0..4 => voter,
                4 => Part::Joining,
                5 => Part::Learner,
                _ => continue,
            };
            members.insert(id, Member { part, addresses: Vec::new() });
        }
        members
    }
}
