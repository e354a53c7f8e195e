//! Addresses at which nodes can be dialled: given by the owner of the endpoint, advertised by the
//! nodes themselves, or heard of from others.

use crate::address::Address;
use crate::id::{Incarnation, NodeId};

use super::{Links, Neighbour};

impl Links {
    /// Sets the addresses at which a node can be dialled, from the endpoint's owner. That it could
    /// not be elsewhere says nothing of another place.
    pub(crate) fn configure(&mut self, node: NodeId, addresses: Vec<Address>) {
        let neighbour = self.neighbour(node);
        if neighbour.configured != addresses {
            neighbour.end_pause();
            neighbour.configured = addresses;
        }
        neighbour.met.clear();
    }

    /// Another place where a node can be dialled: the endpoint's owner gave it without a name, and
    /// this node, in its present life, answered. Of the places that came so before and at which
    /// only an earlier life did, the latest is kept, to be dialled last.
    pub(crate) fn configure_also(&mut self, node: NodeId, address: Address) {
        let others = self.neighbours.iter_mut().filter(|(other, _)| **other != node);
        others.for_each(|(_, other)| other.miss(&address));
        let Neighbour { incarnation, configured, met, .. } = self.neighbour(node);
        if let Some((_, life)) = met.iter_mut().find(|(at, _)| *at == address) {
            *life = *incarnation;
        }
        let past: Vec<_> = met.extract_if(.., |(_, life)| life != incarnation).collect();
        configured.retain(|at| past.iter().all(|(past, _)| at != past));
        if !configured.contains(&address) {
            configured.push(address.clone());
            met.push((address, *incarnation));
        }
        if let Some(latest) = past.into_iter().next_back() {
            configured.push(latest.0.clone());
            met.insert(0, latest);
        }
    }

    /// A node was not found at an address.
    pub(crate) fn note_missed(&mut self, node: NodeId, address: &Address) {
        self.neighbours.get_mut(&node).into_iter().for_each(|neighbour| neighbour.miss(address));
    }

    /// This life of a node answered at an address.
    pub(crate) fn note_met(&mut self, node: NodeId, life: Incarnation, address: &Address) {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        if let Some((_, met)) = neighbour.met.iter_mut().find(|(at, _)| at == address) {
            *met = Some(life);
        }
    }

    /// Takes the addresses at which another node says that this one can be dialled: worth a try
    /// when nobody said better.
    pub(crate) fn hear_of(&mut self, node: NodeId, addresses: &[Address]) {
        let neighbour = self.neighbour(node);
        if neighbour.configured.is_empty() && neighbour.advertised.is_empty() {
            neighbour.advertised = told(addresses).collect();
            neighbour.is_hearsay = true;
        }
        self.forget_idle(node);
    }

    /// Forgets where a node can be dialled, and that it could not be.
    pub(crate) fn forget(&mut self, node: NodeId) {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        neighbour.configured.clear();
        neighbour.met.clear();
        neighbour.advertised.clear();
        neighbour.last_error.clear();
        neighbour.end_pause();
        self.forget_idle(node);
    }

    /// Addresses to try, configured ones first.
    pub fn addresses(&self, node: NodeId) -> Vec<Address> {
        let Some(neighbour) = self.neighbours.get(&node) else { return Vec::new() };
        let mut all = neighbour.configured.clone();
        all.extend(
            neighbour.advertised.iter().filter(|a| !neighbour.configured.contains(a)).cloned(),
        );
        all
    }

    /// Those of them that only another node has named.
    pub fn heard(&self, node: NodeId) -> Vec<Address> {
        let neighbour = self.neighbours.get(&node).filter(|neighbour| neighbour.is_hearsay);
        let heard = neighbour
            .into_iter()
            .flat_map(|of| of.advertised.iter().filter(|address| !of.configured.contains(address)));
        heard.cloned().collect()
    }

    /// Those of them that other nodes are told.
    pub(crate) fn addresses_for_others(&self, node: NodeId) -> Vec<Address> {
        told(&self.addresses(node)).collect()
    }

    /// Addresses at which this node can be dialled, as the owner of this endpoint said.
    pub fn configured(&self, node: NodeId) -> &[Address] {
        self.neighbours.get(&node).map_or(&[], |neighbour| &neighbour.configured)
    }

    /// True when the owner of this endpoint named this node.
    pub fn is_configured(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| !neighbour.configured.is_empty())
    }

    /// The node that the endpoint's owner gave this address, if a connection to it is up. What
    /// nodes advertise does not count: any could name the address of another. Nor does an address
    /// at which only an earlier life answered: the node may listen elsewhere now, and another
    /// there.
    pub fn connected_at(&self, address: &Address) -> Option<NodeId> {
        let is_there = |neighbour: &Neighbour| {
            let met = neighbour.met.iter().find(|(at, _)| at == address);
            !neighbour.up.is_empty()
                && neighbour.configured.contains(address)
                && met.is_none_or(|(_, life)| *life == neighbour.incarnation)
        };
        self.neighbours.iter().find(|(_, neighbour)| is_there(neighbour)).map(|(node, _)| *node)
    }
}

impl Neighbour {
    /// It is not at an address: that is forgotten where only an earlier life answered there.
    fn miss(&mut self, address: &Address) {
        let Self { incarnation, configured, met, .. } = self;
        let is_past = |(at, life): &mut (Address, _)| at == address && life != incarnation;
        if met.extract_if(.., is_past).count() > 0 {
            configured.retain(|at| at != address);
        }
    }
}

/// Those that a node may tell another one.
pub(super) fn told(addresses: &[Address]) -> impl Iterator<Item = Address> {
    addresses.iter().filter(|address| !address.is_private()).cloned()
}
