//! Cost of a call where nothing goes wrong: its requests, its replies, and one frame for each task
//! that was silent or ended with nothing held back.

use crate::oracle::Oracle;
use crate::scenario::Scenario;

use super::{Invariant, Observation};

/// I17.
#[derive(Debug)]
pub(super) struct Frames {
    is_exact: bool,
}

impl Frames {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { is_exact: scenario.is_countable() }
    }
}

impl Invariant for Frames {
    fn name(&self) -> &'static str {
        "I17: no frame more than the table of section 3.1 says"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Quiet { .. } = seen else { return Ok(()) };
        if !self.is_exact {
            return Ok(());
        }
        let cost = oracle.cost;
        let is_right = cost.requests == cost.branches
            && cost.replies == cost.messages
            && cost.manifests == cost.silent_tasks
            // No task takes long enough for anybody to worry.
            && !oracle.frames.contains_key("PROBE");
        if is_right { Ok(()) } else { Err(format!("{cost:?}, {:?}", oracle.frames)) }
    }
}
