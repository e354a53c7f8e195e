//! Changes of the members: what an administrator wants, and what has become of it.

use bytes::Bytes;
use convoke::NodeId;

use super::{HostId, Violation, World};
use crate::core::{Change, ClientId, Handover, Member, Members, Membership};
use crate::wire;

/// Of a hundred turns of the administrator those in which it wants something.
const WANTED_PERCENT: u32 = 15;

impl World {
    pub(super) fn is_administrator(&self, client: ClientId) -> bool {
        self.menu.spares > 0 && client == self.menu.administrator()
    }

    /// A change that the administrator may want now: as many may lie or be away behind it as there
    /// are that do.
    pub(super) fn draw_change(&mut self, client: ClientId) -> Option<Bytes> {
        let is_its = self.is_administrator(client) && !self.is_healed;
        if !is_its || !self.random.chance(WANTED_PERCENT) {
            return None;
        }
        let members: Vec<NodeId> = self.final_members();
        let all = self.signers.keys().copied();
        let others: Vec<NodeId> = all.filter(|node| !members.contains(node)).collect();
        let (is_less, is_more) = [(true, false), (false, true), (true, true)][self.random.index(3)];
        let remove = if is_less { self.random.pick(&members).copied() } else { None };
        let add = if is_more { self.random.pick(&others).copied() } else { None };
        let count = members.len() + usize::from(add.is_some()) - usize::from(remove.is_some());
        let bad = usize::try_from(self.menu.liars + self.menu.away).unwrap_or(usize::MAX);
        if count == 0 || (count - 1) / 3 < bad {
            return None;
        }
        let member =
            |node: NodeId| Member { key: self.signers[&node].checker(), addresses: Vec::new() };
        let epoch = self.view().0;
        let change = Change { epoch, remove, add: add.map(|node| (node, member(node))) };
        Some(wire::encode(&change))
    }

    /// Members as the order has decided so far, those that come in place of those that are.
    pub(super) fn final_members(&self) -> Vec<NodeId> {
        let honest = self.hosts.iter().filter(|((node, _), _)| !self.is_liar(*node));
        let replicas = honest.filter_map(|(_, host)| host.replica());
        let last = replicas.map(|replica| last_of(replica.membership()));
        let last = last.max_by_key(|members| members.epoch);
        let first = || self.keys.group().members().to_vec();
        last.map_or_else(first, |members| members.nodes.keys().copied().collect())
    }

    /// Another epoch begins at a host.
    pub(super) fn begin_epoch(&mut self, id: HostId, handover: Handover) -> Result<(), Violation> {
        let (node, now) = (id.0, self.schedule.now());
        if let Some(host) = self.hosts.get_mut(&id) {
            host.begin_epoch(&handover);
        }
        let keys = self.keys.after(&handover).expect("there are members");
        if let Some(liar) = self.liars.get_mut(&node) {
            liar.begin_epoch(keys);
            return Ok(());
        }
        if self.is_traced {
            // Who reads may have seen enough.
            let _ = console::say(format_args!("{now:?} {node} begins {handover:?}"));
        }
        if handover.epoch() > self.keys.scope().epoch {
            self.keys = keys;
        }
        self.truth.epoch_begun(node, &handover)
    }

    /// True when all members that can be there are in the last epoch, and no change is under way.
    pub(super) fn is_settled(&self) -> bool {
        let last = self.view().0;
        let members = self.final_members();
        let wanted = self.hosts.iter().filter(|((node, _), _)| {
            members.contains(node) && !self.is_liar(*node) && !self.away.contains(node)
        });
        wanted.map(|(_, host)| host.replica()).all(|replica| {
            replica.is_some_and(|of| of.epoch() == last && of.membership().next.is_none())
        })
    }
}

fn last_of(membership: &Membership) -> &Members {
    membership.next.as_ref().map_or(&membership.now, |(_, members)| members)
}
