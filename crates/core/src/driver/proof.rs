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
use convoke_transport::parts::FRAME_BYTES_MIN;

use crate::transport::{Address, CloseReason, Connection, Link, Transport};

use super::Driver;
use super::connections::Attached;
use super::cores::Core;
use super::drain::Aftermath;
use super::flush::FlushScope;
use super::unsaid::Unsaid;

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
    #[error("{node} takes frames of {bytes} bytes alone: the least is {FRAME_BYTES_MIN}")]
    TinyFrames { node: NodeId, bytes: u32 },
}

impl Unwanted {
    /// For a label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OwnName(_) => "own_name",
            Self::ShuttingDown => "shutting_down",
            Self::Unproven(_) => "unproven",
            Self::TinyFrames { .. } => "tiny_frames",
        }
    }
}

/// Admission of connections, one at a time.
#[derive(Debug)]
pub(super) struct Admission {
    /// Of transports that demand proof.
    schemes: Vec<&'static str>,
    /// Nodes that have proven themselves, connected or not.
    proven: BTreeSet<NodeId>,
    /// None that another node dials is admitted any more.
    pub(super) is_closing: bool,
    /// Nor one that this node dials for what it still runs.
    pub(super) is_closed: bool,
}

/// Most nodes remembered. Only those with a trusted certificate are; one beyond them must prove
/// itself while such a connection of it is open.
const PROVEN_MAX: usize = 1 << 16;

impl Admission {
    pub(super) fn new(transports: &[Arc<dyn Transport>]) -> Self {
        let proving = transports.iter().filter(|transport| transport.proves_peers());
        let schemes = proving.flat_map(|transport| transport.schemes()).copied().collect();
        Self { schemes, proven: BTreeSet::new(), is_closing: false, is_closed: false }
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

    fn must_prove(&self, node: NodeId, core: &Core) -> bool {
        let is_proven = |link: &Link| link.principal.is_some();
        self.proven.contains(&node)
            || connections_of(core, node).any(|(_, connection)| is_proven(connection.link()))
            || self.are_proving(core.node.links().configured(node))
    }
}

impl Driver {
    /// Takes a connection, or says why not. `is_trusted`: a transport trusts a certificate of the
    /// peer.
    pub(super) fn attach(
        self: &Arc<Self>,
        connection: &Arc<dyn Connection>,
        is_trusted: bool,
    ) -> Result<(), Unwanted> {
        let link = connection.link();
        let node = link.peer.node;
        if node == self.identity.node {
            return Err(Unwanted::OwnName(node));
        }
        let bytes = link.peer.frame_bytes_max;
        if bytes < FRAME_BYTES_MIN {
            return Err(Unwanted::TinyFrames { node, bytes });
        }
        let (_flush_unlocked, mut aftermath) = (FlushScope::enter(), Aftermath::default());
        // Until every core knows of it: of two connections at once the second sees the first.
        let mut admission = self.admission.lock();
        if admission.is_closed || admission.is_closing && !link.is_dialler {
            return Err(Unwanted::ShuttingDown);
        }
        if link.principal.is_some() {
            admission.note(node);
            self.visit_each(&mut aftermath, |core, now, aftermath| {
                close_unproven(core, now, node, aftermath);
            });
        } else if is_trusted || admission.must_prove(node, &self.cores.lock_any()) {
            return Err(Unwanted::Unproven(node));
        }
        self.visit_each(&mut aftermath, |core, now, _| {
            if core.is_closing && core.index == 0 {
                // Before LEAVING is said by it: the answer may come at once.
                self.partings.lock().begin((node, link.nonce));
            }
            core.node.handle_link_up(now, link, |outlet, id| {
                outlet.connections.insert(id, Attached::new(connection.clone()));
            });
        });
        drop(admission);
        self.finish(&mut aftermath);
        Ok(())
    }

    pub(super) fn must_prove(&self, node: NodeId) -> bool {
        self.admission.lock().must_prove(node, &self.cores.lock_any())
    }
}

/// Closes what claimed to be `node` without proof. Nothing that it still brings is taken, and
/// nothing more leaves by it.
fn close_unproven(core: &mut Core, now: Timestamp, node: NodeId, aftermath: &mut Aftermath) {
    let of_node = connections_of(core, node).map(|(id, connection)| (id, connection.clone()));
    let unproven: Vec<_> = of_node.filter(|(_, c)| c.link().principal.is_none()).collect();
    for (id, connection) in unproven {
        core.node.handle_link_down(now, id);
        if core.index == 0 {
            let (rare, scheme) = (aftermath.rare(), connection.link().scheme);
            rare.unsaid.push(Unsaid::Unproven(node, scheme));
            rare.closes.push((connection, CloseReason::Unproven));
        }
    }
}

fn connections_of(
    core: &Core,
    node: NodeId,
) -> impl Iterator<Item = (LinkId, &Arc<dyn Connection>)> {
    core.connections().of_node(node).map(|(id, attached)| (id, &attached.connection))
}
