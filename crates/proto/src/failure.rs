//! Failure of a branch, as the initiator is told of it.

use std::fmt;

use bytes::Bytes;

use crate::code::Code;
use crate::id::{NodeId, TaskKey};
use crate::metadata::{Extensions, Metadata};
use crate::wire::{Cause, Executed};

/// One failed branch: which, where, why, and whether it may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The branch, and the hop on it that failed as far as known.
    pub task: TaskKey,
    /// The node that held it, if known.
    pub node: Option<NodeId>,
    /// Reason.
    pub cause: Cause,
    /// Possible effects of the task. Repeating is safe only after [`Executed::No`].
    pub executed: Executed,
    /// The service's code for [`Cause::Application`], else 0.
    pub code: u32,
    /// For people.
    pub text: String,
    /// The service's details for [`Cause::Application`].
    pub details: Bytes,
    /// Fields beside it, metadata among them.
    pub(crate) extensions: Extensions,
}

impl Failure {
    /// A failure that the initiator found itself, without text and metadata.
    pub fn found(task: TaskKey, node: Option<NodeId>, cause: Cause, executed: Executed) -> Self {
        let (text, details, extensions) = (String::new(), Bytes::new(), Extensions::default());
        Self { task, node, cause, executed, code: 0, text, details, extensions }
    }

    /// Metadata that the task gave to its failure.
    pub fn metadata(&self) -> Metadata<'_> {
        self.extensions.metadata()
    }

    /// The epoch of the node that refused the request as of an older one ([`Cause::StaleEpoch`]).
    pub fn current_epoch(&self) -> Option<u64> {
        let is_stale = self.cause == Cause::StaleEpoch;
        let bytes = is_stale.then(|| <[u8; 8]>::try_from(&self.details[..]).ok()).flatten();
        bytes.map(u64::from_le_bytes)
    }

    /// True when the same request may be sent again without running twice.
    pub fn is_safe_to_repeat(&self) -> bool {
        self.executed == Executed::No
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "branch {}", self.task)?;
        if let Some(node) = self.node {
            write!(f, " at {node}")?;
        }
        match (self.cause, Code::known(self.code)) {
            (Cause::Application, Some(code)) => write!(f, ": {code}")?,
            (Cause::Application, None) => write!(f, ": code {}", self.code)?,
            (cause, _) => write!(f, ": {cause}")?,
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        f.write_str(match self.executed {
            Executed::No => " (it did not run)",
            Executed::Yes => "",
            Executed::Maybe => " (it may have run)",
        })
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Application => "the service answered with an error",
            Self::Panicked => "the handler panicked",
            Self::Dropped => "the handler was dropped before it finished",
            Self::Overloaded => "the server has no room for another task",
            Self::UnknownMethod => "the server has no such method",
            Self::BadRequest => "the server cannot decode the request",
            Self::PathTooDeep => "the request tree is too deep",
            Self::TooManyBranches => "the task or call has too many branches",
            Self::Deadline => "the deadline passed",
            Self::Cancelled => "it was cancelled",
            Self::NodeDown => "the connection to the node was lost",
            Self::Lost => "the request was lost on its way",
            Self::ReplyLost => "the task ran but its reply was lost",
            Self::Orphaned => "its parent failed before saying where it was sent",
            Self::Unreachable => "no connection to the node could be made",
            Self::Protocol => "a node broke the call protocol",
            Self::ShuttingDown => "the node is shutting down",
            Self::ResourceExhausted => "the call outgrew a bound of its initiator",
            Self::StaleEpoch => "the request is of an older configuration than the node's",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(cause: Cause, code: u32, text: &str) -> Failure {
        let task = TaskKey { path: "/0/1".parse().expect("a path"), hop: 0 };
        let found = Failure::found(task, Some(NodeId::new(2)), cause, Executed::Yes);
        Failure { code, text: text.to_owned(), ..found }
    }

    #[test]
    fn a_services_error_prints_its_code_by_name() {
        let print = |code, text| failure(Cause::Application, code, text).to_string();
        assert_eq!(print(14, "no leader"), "branch /0/1 at n2: Unavailable: no leader");
        assert_eq!(print(5, ""), "branch /0/1 at n2: NotFound");
        assert_eq!(print(99, "odd"), "branch /0/1 at n2: code 99: odd");
        let panicked = failure(Cause::Panicked, 0, "at once").to_string();
        assert_eq!(panicked, "branch /0/1 at n2: the handler panicked: at once");
    }
}
