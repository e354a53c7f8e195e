//! A task runs once at most, only if somebody opened it, and where it was sent.

use crate::oracle::{Oracle, TaskName};

use super::{Invariant, Observation};

/// I8.
#[derive(Debug)]
pub(super) struct AtMostOnce;

impl Invariant for AtMostOnce {
    fn name(&self) -> &'static str {
        "I8: a task runs at most once"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Started { start, node } = seen else { return Ok(()) };
        let Some(truth) = oracle.tasks.get(&TaskName::from(&start.task)) else {
            return Err(format!("{:?} started, but nobody opened it", start.task));
        };
        if truth.sent_to != *node {
            return Err(format!("{:?} for {} started at {node}", start.task, truth.sent_to));
        }
        match truth.runs.first() {
            Some((first, at)) => {
                Err(format!("{:?} started at {node}, and at {first} at {at:?}", start.task))
            }
            None => Ok(()),
        }
    }
}
