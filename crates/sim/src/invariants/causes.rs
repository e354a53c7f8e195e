//! A failure names a branch that exists, the node it was at, and a cause that was really there.

use convoke_proto::call::CallEvent;
use convoke_proto::failure::Failure;
use convoke_proto::id::CallId;
use convoke_proto::wire::Cause;

use crate::oracle::{Oracle, TaskEnd, TaskName};
use crate::scenario::Scenario;

use super::{Invariant, Observation};

/// I12.
#[derive(Debug)]
pub(super) struct Causes {
    has_tiny_limits: bool,
    /// Frames are lost, doubled or disordered on connections that stay up.
    is_unfaithful: bool,
}

impl Causes {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let c = &scenario.conditions;
        Self {
            has_tiny_limits: scenario.has_tiny_limits,
            is_unfaithful: !c.is_fifo || c.loss_per_mille > 0 || c.copies_per_mille > 0,
        }
    }

    fn check(&self, call: CallId, failure: &Failure, oracle: &Oracle) -> Result<(), String> {
        let told = &oracle.calls[&call];
        if oracle.is_tainted(call, &failure.task.path) {
            return Ok(());
        }
        let task = TaskName::of(call, failure.task.clone());
        let truth = oracle.tasks.get(&task);
        let end = truth.and_then(|truth| truth.end).map(|(_, end)| end);
        let has_trouble = self.is_unfaithful || !oracle.troubled.is_empty();
        let is_true = match failure.cause {
            Cause::Application | Cause::Panicked => {
                matches!(end, Some(TaskEnd::Failed { cause, .. }) if cause == failure.cause)
            }
            Cause::Deadline => {
                oracle.now >= told.deadline_of(&failure.task.path)
                    || truth.is_some_and(|truth| truth.deadline <= oracle.now)
                    // Refused: its time was up when it came.
                    || truth.is_some_and(|truth| truth.runs.is_empty())
            }
            Cause::Cancelled => {
                told.cancelled_at.is_some()
                    || told.end.is_some()
                    || matches!(end, Some(TaskEnd::Stopped(Cause::Cancelled)))
                    || oracle.is_given_up(call, &failure.task.path)
            }
            // A reply that waits for credit ends with its task's time.
            Cause::ReplyLost if truth.is_some_and(|truth| truth.deadline <= oracle.now) => true,
            // Or with its parent, whose own failure may come later.
            Cause::ReplyLost if oracle.is_given_up(call, &failure.task.path) => true,
            Cause::NodeDown | Cause::Lost | Cause::ReplyLost | Cause::Orphaned => has_trouble,
            // What waits for a dial is bounded, too.
            Cause::Unreachable if self.has_tiny_limits => true,
            Cause::Unreachable => oracle.troubled.contains(&truth.map_or(told.node, |t| t.sent_to)),
            Cause::ResourceExhausted if oracle.is_beside_liar(call, &failure.task.path) => true,
            Cause::ShuttingDown => truth.is_some_and(|t| oracle.stopped.contains(&t.sent_to)),
            Cause::Overloaded | Cause::TooManyBranches | Cause::ResourceExhausted => {
                self.has_tiny_limits
            }
            _ => false,
        };
        if !is_true {
            return Err(format!("{call:?}: {failure}; in truth {truth:?}"));
        }
        let is_there = match (failure.node, truth) {
            (Some(node), Some(truth)) => truth.sent_to == node,
            _ => true,
        };
        if is_there { Ok(()) } else { Err(format!("{call:?}: wrong node: {failure}, {truth:?}")) }
    }
}

impl Invariant for Causes {
    fn name(&self) -> &'static str {
        "I12: failures tell the truth"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Learned { call, event: CallEvent::Failure(failure) } => {
                self.check(*call, failure, oracle)
            }
            _ => Ok(()),
        }
    }
}
