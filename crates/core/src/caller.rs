//! Caller of a task, as far as its connection proves it, and the rule that admits or denies it.

use std::sync::Arc;

use convoke_proto::id::NodeId;
use convoke_proto::task::TaskFailure;
use convoke_proto::wire::{Cause, Executed};

use crate::error::Code;
use crate::transport::Principal;

/// Node that opened a branch: the initiator, or the node of the parent task.
///
/// When calls are delegated, the caller is the node that delegated; the initiator is only what
/// that node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    node: NodeId,
    principal: Option<Principal>,
    is_local: bool,
    client: Option<EdgeClient>,
}

/// Client of a gRPC edge, in whose name the edge's node calls.
///
/// It is no node, and has no rights of one: what a rule lets nodes do, by their ids, principals, or
/// because they are authenticated, it does not let clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeClient {
    principal: Option<Principal>,
    is_vouched: bool,
}

/// True when a caller may run a method; false denies.
pub(crate) type Authorize = Arc<dyn Fn(&Caller, &str) -> bool + Send + Sync>;

impl Caller {
    /// `client` is one of the edge of `node`, with what it has proven there; then it is the caller,
    /// and nothing is proven of the node.
    pub(crate) fn new(
        node: NodeId,
        proven: Option<Principal>,
        is_local: bool,
        client: Option<Option<Principal>>,
    ) -> Self {
        let Some(principal) = client else {
            return Self { node, principal: proven, is_local, client: None };
        };
        let client = EdgeClient { principal, is_vouched: is_local || proven.is_some() };
        Self { node, principal: None, is_local: false, client: Some(client) }
    }

    /// The node; of a client, the one whose edge it called.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Identity that the node proved when it connected; `None` for this node itself, for a client of
    /// an edge, and where the transport has no certificates.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// The client of the node's edge that calls; `None` when the node itself does.
    pub fn client(&self) -> Option<&EdgeClient> {
        self.client.as_ref()
    }

    /// True when it is this node itself, not a client of its edge.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// True when it is a node that is who it says it is: it has proven it, or it is this node
    /// itself. Of a client of an edge, [`EdgeClient::is_authenticated`] tells.
    pub fn is_authenticated(&self) -> bool {
        self.is_local || self.principal.is_some()
    }

    pub(crate) fn denied(&self, method: &str) -> TaskFailure {
        let node = self.node;
        let who = match self.client.as_ref().map(EdgeClient::principal) {
            None => node.to_string(),
            Some(None) => format!("a client of {node} without a certificate"),
            Some(Some(principal)) => format!("{principal}, a client of {node},"),
        };
        let text = format!("{who} may not call {method}");
        let code = Code::PermissionDenied as u32;
        TaskFailure { code, ..TaskFailure::new(Cause::Application, Executed::No, text) }
    }
}

impl EdgeClient {
    /// Identity that the client's certificate proved to the edge, as its node says: the certificate's
    /// name `spiffe://..`, or else `key-sha256:<hash of its key>`. `None` for one without a
    /// certificate.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// True when the client has a principal, and the node whose edge says so is proven, or is this
    /// one. A proven node can still lie: let only those speak for clients whose edges you know.
    pub fn is_authenticated(&self) -> bool {
        self.is_vouched && self.principal.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(text: &str) -> Option<Principal> {
        Some(Principal::new(text))
    }

    #[test]
    fn a_client_has_no_right_of_the_node_whose_edge_it_calls() {
        let (node, billing) = (NodeId::new(7), principal("spiffe://a/billing"));
        let of_node = principal("spiffe://a/node/7");
        for (proven, is_local) in [(of_node, false), (None, true), (None, false)] {
            let is_vouched = is_local || proven.is_some();
            let caller = Caller::new(node, proven, is_local, Some(billing.clone()));
            assert!(!caller.is_authenticated() && !caller.is_local());
            assert_eq!((caller.node(), caller.principal()), (node, None));
            let client = caller.client().expect("it is one");
            assert_eq!(client.principal(), billing.as_ref());
            assert_eq!(client.is_authenticated(), is_vouched);
        }
        let anonymous = Caller::new(node, None, true, Some(None));
        assert!(!anonymous.client().expect("it is one").is_authenticated());
        let denied = anonymous.denied("a.B/C").text;
        assert_eq!(denied, "a client of n7 without a certificate may not call a.B/C");
    }
}
