//! The connections of a node, as its calls look at them.

use crate::call::LinkView;
use crate::id::{Incarnation, LinkId, LinkNonce, NodeId};
use crate::time::Timestamp;

use super::{Links, Way};

impl LinkView for Links {
    fn current(&self, node: NodeId) -> Option<LinkId> {
        self.current(node)
    }

    fn is_up(&self, link: LinkId) -> bool {
        self.is_up(link)
    }

    fn nonce(&self, link: LinkId) -> Option<LinkNonce> {
        self.nonce(link)
    }

    fn sole_since(&self, link: LinkId) -> Option<Timestamp> {
        let open = self.open.get(link)?;
        let neighbour = self.neighbours.get(&open.peer.node)?;
        let lost_at = if neighbour.dead.is_empty() { open.up_since } else { neighbour.lost_at };
        (neighbour.up.len() == 1).then_some(open.up_since.max(lost_at))
    }

    fn is_dead(&self, node: NodeId, link: LinkNonce) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| neighbour.dead.contains(&link))
    }

    fn is_dialling(&self, node: NodeId) -> bool {
        self.is_dialling(node)
    }

    fn lost_at(&self, node: NodeId) -> Option<Timestamp> {
        let neighbour = self.neighbours.get(&node)?;
        let is_lost = neighbour.up.is_empty() && !neighbour.dead.is_empty();
        is_lost.then_some(neighbour.lost_at)
    }

    fn is_reachable(&self, now: Timestamp, node: NodeId) -> bool {
        self.way(now, node) != Way::Dead
    }

    fn life(&self, node: NodeId) -> Option<(Incarnation, Timestamp)> {
        self.life(node)
    }
}
