//! The epoch of a node: its members, with whom it talks, and their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use convoke::quorum::Configuration;
use convoke::{Endpoint, KeepConnected, NodeId};
use node_kit::places::Places;
use parking_lot::RwLock;

use super::Options;
use crate::core::{Handover, Keys, Members};

/// An epoch: handlers take a copy, and the actor puts the next one in its place.
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    pub(super) keys: Arc<Keys>,
    /// All members, this node perhaps among them.
    pub(super) members: Configuration,
    /// Words that may wait of each member, and of those that were one: they are told.
    pub(super) shares: BTreeMap<NodeId, Share>,
}

/// Words that may wait of a member.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// Its words.
    pub(super) words: Places,
    /// Questions for replies, by the nodes for which it asks: they take nothing of its words.
    pub(super) awaited: Places,
}

/// The epoch as handlers see it.
pub(super) type Shared = Arc<RwLock<Arc<Epoch>>>;

impl Epoch {
    /// The first that a node knows of.
    pub(super) fn of(options: &Options, keys: Keys) -> Self {
        let epoch = Self {
            keys: Arc::new(keys),
            members: options.members.clone(),
            shares: BTreeMap::new(),
        };
        epoch.with_shares(options)
    }

    /// The next one.
    pub(super) fn after(&self, handover: &Handover, options: &Options) -> Self {
        let Ok(keys) = self.keys.after(handover) else { return self.clone() };
        let members = keys.group().members().iter().copied();
        let members = Configuration::new(members.collect::<Vec<_>>());
        let members = members.unwrap_or_else(|_| self.members.clone());
        Self { keys: Arc::new(keys), members, shares: self.shares.clone() }.with_shares(options)
    }

    fn with_shares(mut self, options: &Options) -> Self {
        for node in self.members.nodes() {
            let most = options.member_inputs_max;
            let share = || Share {
                words: Places::of_one(most, options.member_bytes_max),
                awaited: Places::new(most, 0),
            };
            self.shares.entry(node).or_insert_with(share);
        }
        self
    }

    /// The members without one of them.
    pub(super) fn others(&self, node: NodeId) -> Configuration {
        self.members.without([node])
    }
}

/// Connections to members that no cluster file has, kept while they are members.
#[derive(Debug, Default)]
pub(super) struct Joined(BTreeMap<NodeId, KeepConnected>);

impl Joined {
    /// Dials those that have joined, each at its latest addresses, and lets go of those that have
    /// left.
    pub(super) fn follow(&mut self, members: &Members, options: &Options, endpoint: &Endpoint) {
        for (node, member) in &members.nodes {
            let is_other = *node != options.core.node && !member.addresses.is_empty();
            if !is_other {
                continue;
            }
            match endpoint.peer(*node, &member.addresses) {
                Ok(peer) => {
                    self.0.entry(*node).or_insert_with(|| endpoint.keep_connected(peer));
                }
                Err(error) => tracing::error!("the addresses of member {node}: {error}"),
            }
        }
        let all: BTreeSet<NodeId> = members.nodes.keys().copied().collect();
        self.0.retain(|node, _| all.contains(node));
    }
}

#[cfg(test)]
mod tests {
    use convoke::transport::TcpTransport;

    use super::*;
    use crate::core::{Checker, Group, Member, Scope, Signer};

    /// The next epoch has it under its own name on another host.
    #[tokio::test]
    async fn a_member_that_moves_is_dialled_at_its_new_address()
    -> Result<(), Box<dyn std::error::Error>> {
        let (own, moved) = (NodeId::new(1), NodeId::new(2));
        let builder = || Endpoint::builder().transport(TcpTransport::new());
        let endpoint = builder().node(own).start().await?;
        let other = builder().node(moved).listen("tcp://127.0.0.1:0").start().await?;
        let gone = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (group, scope) = (Group::new([own])?, Scope { cluster: 7, epoch: 1 });
        let keys = Keys::new(scope, group, BTreeMap::new(), BTreeMap::new());
        let options = Options::new(own, Configuration::new(vec![own])?, keys, Signer::Unsigned);
        let mut joined = Joined::default();
        for (epoch, address) in
            [(2, format!("tcp://{gone}")), (3, other.addresses()[0].to_string())]
        {
            let member = Member { key: Checker::Unsigned, addresses: vec![address] };
            let members = Members { epoch, nodes: BTreeMap::from([(moved, member)]) };
            joined.follow(&members, &options, &endpoint);
        }
        endpoint.warm_up(moved).await?;
        Ok(())
    }
}
