//! Where nodes stop in good order, and nothing else goes wrong, no request is in doubt: what never
//! began is said not to have run.

use convoke_proto::call::CallEvent;
use convoke_proto::wire::{Cause, Executed};

use crate::oracle::{Oracle, TaskName};
use crate::scenario::{Kind, Scenario};

use super::{Invariant, Observation};

/// I52. That nothing is on its way to a node as it closes is checked as it does.
#[derive(Debug)]
pub(super) struct Stopped {
    is_meant: bool,
}

impl Stopped {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { is_meant: scenario.kind == Kind::Stops }
    }
}

impl Invariant for Stopped {
    fn name(&self) -> &'static str {
        "I52: what a node that stops has not begun did not run"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Learned { call, event: CallEvent::Failure(failure) } = seen else {
            return Ok(());
        };
        let is_in_doubt = match failure.cause {
            // Time and callers may end what nobody has begun.
            Cause::Deadline | Cause::Cancelled => false,
            // A word, of somebody who is not known yet to have sent or to hold what is below a root
            // branch: that it did not run is taken from those alone (`trust.md` T9).
            Cause::ShuttingDown | Cause::Unreachable => failure.task.opens_root(),
            _ => true,
        };
        let is_lost = is_in_doubt && failure.executed == Executed::Maybe;
        let truth = oracle.tasks.get(&TaskName::of(*call, failure.task.clone()));
        if self.is_meant && is_lost && truth.is_none_or(|truth| truth.runs.is_empty()) {
            return Err(format!("{call:?}: {failure}, and it never began: {truth:?}"));
        }
        Ok(())
    }
}
