//! As long as nothing goes wrong, every call comes to its proper end before its deadline; and once
//! everything that went wrong has ended, so does every new call.

use convoke_proto::call::{CallEvent, End};
use convoke_proto::wire::Cause;

use crate::oracle::Oracle;
use crate::scenario::{Kind, Scenario};

use super::{Invariant, Observation};

/// I3, and that the system heals.
#[derive(Debug)]
pub(super) struct Progress {
    is_fair: bool,
    heals: bool,
    /// Some branches have less time than they may need.
    has_short_deadlines: bool,
}

impl Progress {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let arithmetic_only = scenario.kind == Kind::AnyOrder
            && scenario.limits.worry_min > scenario.limits.deadline_default;
        let has_time = !scenario.has_tiny_limits
            && !matches!(scenario.kind, Kind::StoppedReader | Kind::Cancels | Kind::Lossy);
        Self {
            is_fair: has_time && (scenario.is_fault_free() || arithmetic_only),
            // Copies and disorder do not end, and are worse than what a transport owes.
            has_short_deadlines: scenario.shape.short_deadline_percent > 0,
            heals: scenario.conditions.is_fifo && scenario.conditions.copies_per_mille == 0,
        }
    }
}

impl Invariant for Progress {
    fn name(&self) -> &'static str {
        "I3: on a fair network every call completes"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Learned { call, event } = seen else { return Ok(()) };
        let truth = &oracle.calls[call];
        if let CallEvent::Failure(failure) = event
            && oracle.is_tainted(*call, &failure.task.path)
        {
            return Ok(());
        }
        let must_complete = self.is_fair || (self.heals && truth.is_after_faults);
        if !must_complete {
            return Ok(());
        }
        match event {
            CallEvent::Failure(failure) => match failure.cause {
                Cause::Application | Cause::Panicked | Cause::Cancelled => Ok(()),
                Cause::Deadline | Cause::ReplyLost if self.has_short_deadlines => Ok(()),
                _ if truth.cancelled_at.is_some() => Ok(()),
                // A liar may use up what its root branch may take (`trust.md` section 8).
                Cause::ResourceExhausted if oracle.is_beside_liar(*call, &failure.task.path) => {
                    Ok(())
                }
                // The parent's own failure may come later than what its cancel did.
                Cause::ReplyLost if oracle.is_given_up(*call, &failure.task.path) => Ok(()),
                _ => Err(format!("{call:?}: {failure}")),
            },
            // A liar below the only root branch may fill the call.
            CallEvent::Ended(End::Exhausted) if oracle.is_at_mercy(*call) => Ok(()),
            CallEvent::Ended(End::Exhausted) => Err(format!("{call:?} was exhausted")),
            _ => Ok(()),
        }
    }
}
