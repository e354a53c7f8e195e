//! A task of which the initiator was told that it did not run never ran, and never does.

use std::collections::BTreeSet;

use convoke_proto::call::CallEvent;
use convoke_proto::wire::Executed;

use crate::oracle::{Oracle, TaskName, TaskTruth};

use super::{Invariant, Observation};

/// I11, and I39 of `trust.md`.
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
                let task = TaskName::of(*call, failure.task.clone());
                // A liar may say so of what it holds or has sent, and of nothing else.
                let answers =
                    |truth: &&TaskTruth| truth.is_honest && !oracle.liars.contains(&truth.sent_to);
                let truth = oracle.tasks.get(&task).filter(answers);
                let has_run = truth.is_some_and(TaskTruth::has_run);
                if oracle.is_sound(&task) {
                    self.never.insert(task);
                }
                if has_run { Err(format!("{call:?}: {failure}, but it ran")) } else { Ok(()) }
            }
            Observation::Started { start, node }
                if self.never.contains(&oracle.name(&start.task)) =>
            {
                Err(format!("{:?} starts at {node} after it was declared as never run", start.task))
            }
            _ => Ok(()),
        }
    }
}
