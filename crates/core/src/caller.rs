//! Caller of a task, as far as its connection proves it, and the rule that admits or denies it.

use std::sync::Arc;

use convoke_proto::id::NodeId;
use convoke_proto::task::TaskFailure;
use convoke_proto::wire::{Cause, Executed};

use crate::error::Code;
use crate::transport::{Credentials, Link, Principal, Remote};

/// Node that opened a branch: the initiator, or the node of the parent task.
///
/// When calls are delegated, the caller is the node that delegated; the initiator is only what
/// that node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    node: NodeId,
    principal: Option<Principal>,
    credentials: Option<Credentials>,
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
    /// This node itself.
    pub(crate) fn local(node: NodeId) -> Self {
        Self { node, principal: None, credentials: None, is_local: true, client: None }
    }

    /// A node whose request came by this connection, if it is still open.
    pub(crate) fn over(node: NodeId, link: Option<&Link>) -> Self {
        let principal = link.and_then(|link| link.principal.clone());
        let credentials = match link.and_then(|link| link.remote.as_ref()) {
            Some(Remote::Process(credentials)) => Some(*credentials),
            Some(Remote::Host(_)) | None => None,
        };
        Self { node, principal, credentials, is_local: false, client: None }
    }

    /// `client` is one of the node's edge, with what it has proven there; then it is the caller,
    /// and nothing is proven of the node.
    pub(crate) fn for_client(self, client: Option<Option<Principal>>) -> Self {
        let Some(principal) = client else { return self };
        let client = EdgeClient { principal, is_vouched: self.is_authenticated() };
        let (principal, credentials) = (None, None);
        Self { principal, credentials, is_local: false, client: Some(client), ..self }
    }

    /// The node; of a client, the one whose edge it called.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Identity that the node proved when it connected; `None` for this node itself, for a client
    /// of an edge, and where the transport has no certificates.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// User, group and process of who connected, where the kernel says them: over `unix://`. They
    /// prove a user of this host and no node, so they do not count for
    /// [`Self::is_authenticated`]; `None` for this node itself and for clients of an edge.
    pub fn credentials(&self) -> Option<Credentials> {
        self.credentials
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
    /// Identity that the client's certificate proved to the edge, as its node says: the
    /// certificate's name `spiffe://..`, or else `key-sha256:<hash of its key>`. `None` for one
    /// without a certificate.
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
        let credentials = Some(Credentials { uid: 1_000, gid: 100, pid: Some(7) });
        let unproven = Caller { credentials, ..Caller::over(node, None) };
        let proven = Caller { principal: of_node, ..Caller::over(node, None) };
        let edges = [(proven, true), (Caller::local(node), true), (unproven, false)];
        for (of_edge, is_vouched) in edges {
            let caller = of_edge.for_client(Some(billing.clone()));
            assert!(!caller.is_authenticated() && !caller.is_local());
            assert_eq!((caller.node(), caller.principal()), (node, None));
            assert_eq!(caller.credentials(), None, "they are of the edge's process");
            let client = caller.client().expect("it is one");
            assert_eq!(client.principal(), billing.as_ref());
            assert_eq!(client.is_authenticated(), is_vouched);
        }
        let anonymous = Caller::local(node).for_client(Some(None));
        assert!(!anonymous.client().expect("it is one").is_authenticated());
        let denied = anonymous.denied("a.B/C").text;
        assert_eq!(denied, "a client of n7 without a certificate may not call a.B/C");
    }
}
