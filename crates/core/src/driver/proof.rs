//! Choice of the connections that an endpoint takes, and of the nodes that must prove who they are.
//!
//! A transport with certificates says who a peer is; one without believes what the peer says of
//! itself. Where both are served, nobody may take over by the second what is known by the first. So
//! a node must prove itself once this endpoint knows it by proof:
//! - a connection has proven it, since this endpoint started;
//! - a transport trusts a certificate of it by itself ([`Transport::trusts_node`]);
//! - its owner gave addresses of it, and all of them are of transports that demand proof.
//!
//! Connections that had claimed the name without proof until then are closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke_proto::id::{LinkId, NodeId};
use convoke_proto::time::Timestamp;

use crate::transport::{Address, CloseReason, Connection, Link, Transport};

use super::drain::Aftermath;
use super::{Attached, State};

/// Reason why an endpoint does not take a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unwanted {
    #[error("{0} is this node's own name")]
    OwnName(NodeId),
    #[error("the endpoint is shutting down")]
    ShuttingDown,
    #[error(
        "{0} must prove itself: it is known here by its certificate, and this transport has none"
    )]
    Unproven(NodeId),
}

impl Unwanted {
    /// For a label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OwnName(_) => "own_name",
            Self::ShuttingDown => "shutting_down",
            Self::Unproven(_) => "unproven",
        }
    }
}

/// Proofs that an endpoint has met.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// Of transports that demand proof.
    schemes: Vec<&'static str>,
    /// Nodes that have proven themselves, connected or not.
    proven: BTreeSet<NodeId>,
}

/// Most nodes remembered. Only those with a trusted certificate are; one beyond them must prove
/// itself while such a connection of it is open.
const PROVEN_MAX: usize = 1 << 16;

impl Proofs {
    pub(super) fn new(transports: &[Arc<dyn Transport>]) -> Self {
        let proving = transports.iter().filter(|transport| transport.proves_peers());
        let schemes = proving.flat_map(|transport| transport.schemes()).copied().collect();
        Self { schemes, proven: BTreeSet::new() }
    }

    fn note(&mut self, node: NodeId) {
        if self.proven.len() < PROVEN_MAX {
            self.proven.insert(node);
        }
    }

    /// True when who is configured at these addresses is to be met by proof alone.
    fn are_proving(&self, configured: &[Address]) -> bool {
        let is_proving = |address: &Address| self.schemes.contains(&address.scheme());
        !configured.is_empty() && configured.iter().all(is_proving)
    }
}

impl State {
    /// Takes a connection, or says why not. `is_trusted`: a transport trusts a certificate of the
    /// peer.
    pub(super) fn open(
        &mut self,
        now: Timestamp,
        connection: &Arc<dyn Connection>,
        is_trusted: bool,
        aftermath: &mut Aftermath,
    ) -> Result<(), Unwanted> {
        let link = connection.link();
        let node = link.peer.node;
        if node == self.node.identity().node {
            return Err(Unwanted::OwnName(node));
        }
        if self.is_closing {
            return Err(Unwanted::ShuttingDown);
        }
        if link.principal.is_some() {
            self.proofs.note(node);
            self.close_unproven(now, node, aftermath);
        } else if is_trusted || self.must_prove(node) {
            return Err(Unwanted::Unproven(node));
        }
        self.node.handle_link_up(now, link, |outlet, id| {
            outlet.connections.insert(id, Attached::new(connection.clone()));
        });
        Ok(())
    }

    pub(super) fn must_prove(&self, node: NodeId) -> bool {
        let is_proven = |link: &Link| link.principal.is_some();
        self.proofs.proven.contains(&node)
            || self.connections_of(node).any(|(_, connection)| is_proven(connection.link()))
            || self.proofs.are_proving(self.node.links().configured(node))
    }

    /// Closes what claimed to be `node` without proof. Nothing that it still brings is taken, and
    /// nothing more leaves by it.
    fn close_unproven(&mut self, now: Timestamp, node: NodeId, aftermath: &mut Aftermath) {
        let of_node = self.connections_of(node).map(|(id, connection)| (id, connection.clone()));
        let unproven: Vec<_> = of_node.filter(|(_, c)| c.link().principal.is_none()).collect();
        for (id, connection) in unproven {
            tracing::warn!(
                peer = %node,
                scheme = connection.link().scheme,
                reason = "unproven",
                "connection closed: another has proven to be the peer"
            );
            self.node.handle_link_down(now, id);
            aftermath.closes.push((connection, CloseReason::Unproven));
        }
    }

    fn connections_of(&self, node: NodeId) -> impl Iterator<Item = (LinkId, &Arc<dyn Connection>)> {
        self.connections().of_node(node).map(|(id, attached)| (id, &attached.connection))
    }
}
