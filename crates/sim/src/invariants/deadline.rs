//! A call has ended by its deadline, in any run: at once, or as soon as a stopped node goes on.

use crate::oracle::Oracle;
use crate::scenario::{Fault, Scenario};

use super::{Invariant, Observation};

/// I4.
#[derive(Debug)]
pub(super) struct Deadline {
    may_pause: bool,
}

impl Deadline {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let is_pause = |fault: &Fault| matches!(fault, Fault::Pause(..));
        Self { may_pause: scenario.faults.iter().any(|injection| is_pause(&injection.fault)) }
    }
}

impl Invariant for Deadline {
    fn name(&self) -> &'static str {
        "I4: every call ends by its deadline"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Call { id, call } if !self.may_pause => {
                let deadline = oracle.calls[id].deadline;
                if call.end().is_none() && oracle.now > deadline {
                    return Err(format!(
                        "{id:?} is open at {:?}, {deadline:?} is past",
                        oracle.now
                    ));
                }
                Ok(())
            }
            Observation::Quiet { .. } => {
                let open = oracle
                    .calls
                    .iter()
                    .find(|(_, c)| c.end.is_none() && !c.is_orphan && !c.is_dropped);
                open.map_or(Ok(()), |(id, _)| Err(format!("{id:?} never ended")))
            }
            _ => Ok(()),
        }
    }
}
