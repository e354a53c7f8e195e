//! A task of which the initiator was told that it did not run never ran, and never does.

use std::collections::BTreeSet;

use convoke_proto::call::CallEvent;
use convoke_proto::wire::Executed;

use crate::oracle::{Oracle, TaskName};

use super::{Invariant, Observation};

/// I11.
#[derive(Debug, Default)]
pub(super) struct Fenced {
    never: BTreeSet<TaskName>,
}

impl Invariant for Fenced {
    fn name(&self) -> &'static str {
        "I11: what did not execute never does"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Learned { call, event: CallEvent::Failure(failure) }
                if failure.executed == Executed::No =>
            {
                let task = TaskName { call: *call, task: failure.task.clone() };
                let has_run = oracle.tasks.get(&task).is_some_and(|truth| !truth.runs.is_empty());
                self.never.insert(task);
                if has_run { Err(format!("{call:?}: {failure}, but it ran")) } else { Ok(()) }
            }
            Observation::Started { start, node }
                if self.never.contains(&TaskName::from(&start.task)) =>
            {
                Err(format!("{:?} starts at {node} after it was declared as never run", start.task))
            }
            _ => Ok(()),
        }
    }
}
