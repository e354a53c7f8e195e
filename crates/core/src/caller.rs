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
}

/// True when a caller may run a method; false denies.
pub(crate) type Authorize = Arc<dyn Fn(&Caller, &str) -> bool + Send + Sync>;

impl Caller {
    pub(crate) fn new(node: NodeId, principal: Option<Principal>, is_local: bool) -> Self {
        Self { node, principal, is_local }
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Identity that the node proved when it connected; `None` for this node itself, and where the
    /// transport has no certificates.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// True when it is this node itself.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// True when the node is who it says it is: it has proven it, or it is this node itself.
    pub fn is_authenticated(&self) -> bool {
        self.is_local || self.principal.is_some()
    }

    pub(crate) fn denied(&self, method: &str) -> TaskFailure {
        let text = format!("{} may not call {method}", self.node);
        let code = Code::PermissionDenied as u32;
        TaskFailure { code, ..TaskFailure::new(Cause::Application, Executed::No, text) }
    }
}
