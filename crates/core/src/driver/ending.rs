//! End of a handler, and the last output of its task.

use std::sync::Arc;

use convoke_proto::encoded::Encoded;
use convoke_proto::task::{Branch, TaskFailure};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;

use crate::error::Status;

use super::Node;
use super::stopper::Stopper;

/// End of a handler.
#[derive(Clone, Debug)]
pub(crate) enum HandlerResult {
    /// The task ends with it.
    Ended(LastWord),
    /// The task goes on without it.
    Deferred(Arc<Stopper>),
}

/// Last output of a task.
#[derive(Clone, Debug)]
pub(crate) enum LastWord {
    /// The handler has replied and delegated as it liked.
    Nothing,
    Reply(Encoded),
    Branch(Branch),
    Failure(TaskFailure),
}

impl From<TaskFailure> for LastWord {
    fn from(failure: TaskFailure) -> Self {
        Self::Failure(failure)
    }
}

impl LastWord {
    /// The end of a handler that says it.
    pub(crate) const fn ended(self) -> HandlerResult {
        HandlerResult::Ended(self)
    }

    /// The bytes of its message.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Reply(payload) | Self::Branch(Branch { payload, .. }) => payload.len(),
            Self::Nothing | Self::Failure(_) => 0,
        }
    }

    /// Ends a task with it.
    pub(super) fn say(self, node: &mut Node, now: Timestamp, task: &TaskRef) {
        let said = match self {
            Self::Nothing => return node.finish(now, task),
            Self::Failure(failure) => return node.fail(now, task, failure),
            Self::Reply(payload) => node.answer(now, task, payload),
            Self::Branch(branch) => node.tail(now, task, branch),
        };
        if let Err(refusal) = said {
            node.fail(now, task, TaskFailure::from(Status::from(refusal)));
        }
    }
}
