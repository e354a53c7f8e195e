//! A task runs once at most, only if somebody opened it, and where it was sent.

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I8, and I36 of `trust.md`.
#[derive(Debug)]
pub(super) struct AtMostOnce;

impl Invariant for AtMostOnce {
    fn name(&self) -> &'static str {
        "I8: a task runs at most once"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Started { start, node } = seen else { return Ok(()) };
        let name = oracle.name(&start.task);
        if oracle.liars.is_empty() && !oracle.tasks.contains_key(&name) {
            return Err(format!("{:?} started, but nobody opened it", start.task));
        }
        // One that a liar asks for twice runs twice.
        let Some(truth) = oracle.tasks.get(&name).filter(|_| oracle.is_sound(&name)) else {
            return Ok(());
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
