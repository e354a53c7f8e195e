//! End of a handler, and the last output of its task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::encoded::Encoded;
use convoke_proto::task::{Branch, TaskFailure};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_transport::parts::Guest;

use crate::error::Status;

use super::stopper::Stopper;
use super::{Driver, Node};

/// End of a handler.
#[derive(Clone, Debug)]
pub(crate) enum HandlerResult {
    /// The task ends with it.
    Ended(LastWord),
    /// The task goes on without it.
    Deferred(Arc<Deferral>),
}

/// Word of a handler that its task goes on without it. Where it is never given back, as the handler
/// has failed or was stopped before it returned, whoever has the task is told that it is over.
#[derive(Debug)]
pub(crate) struct Deferral {
    stopper: Arc<Stopper>,
    is_given: AtomicBool,
}

impl Deferral {
    pub(crate) fn new(stopper: Arc<Stopper>) -> Arc<Self> {
        Arc::new(Self { stopper, is_given: AtomicBool::new(false) })
    }

    /// The handler has returned. Gives what is to be told when the task is stopped.
    pub(super) fn give(&self) -> Arc<Stopper> {
        self.is_given.store(true, Ordering::Relaxed);
        self.stopper.clone()
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        if !*self.is_given.get_mut() {
            self.stopper.stop();
        }
    }
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

/// Subscriber of the log: it keeps no task from its start or its end.
pub static SUBSCRIBER: Guest = Guest::new("subscriber of the log");

impl Driver {
    /// Says of a failure that its details are left out, if they are.
    pub(super) fn note_details(&self, failure: &TaskFailure) {
        let (bytes, limit) = (failure.details.len(), self.limits.details_bytes_max());
        if bytes > limit
            && let Some(left_out) = self.logged.details.pass()
        {
            let text = failure.text.as_str();
            SUBSCRIBER.call(|| {
                tracing::warn!(bytes, limit, text, left_out, "a failure has too long details");
            });
        }
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
