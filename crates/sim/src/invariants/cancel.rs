//! A cancel reaches every live task of its subtree soon, and none outside it.

use std::time::Duration;

use convoke_proto::call::End;
use convoke_proto::wire::Cause;

use crate::oracle::{CallTruth, Oracle, TaskName, TaskTruth};
use crate::scenario::Scenario;

use super::{Invariant, Observation};

/// I13.
#[derive(Debug)]
pub(super) struct Cancel {
    /// Longest time of a cancel for each level, where all connections hold.
    per_level: Option<Duration>,
}

impl Cancel {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { per_level: scenario.level_latency_max() }
    }

    fn is_reached(
        &self,
        task: &TaskName,
        truth: &TaskTruth,
        call: &CallTruth,
    ) -> Result<(), String> {
        let (Some(cancelled_at), Some(per_level)) = (call.cancelled_at, self.per_level) else {
            return Ok(());
        };
        let levels = task.task.path.level_count() + task.task.hop as usize + 1;
        let reached_by = cancelled_at + per_level * u32::try_from(levels).unwrap_or(u32::MAX);
        let last_alive = match (truth.end, truth.runs.first()) {
            (_, None) => return Ok(()),
            (Some((at, _)), Some(_)) => at,
            (None, Some(_)) => return Err(format!("{task:?} still runs")),
        };
        if last_alive <= reached_by {
            Ok(())
        } else {
            Err(format!("{task:?} lived until {last_alive:?}, cancelled at {cancelled_at:?}"))
        }
    }
}

impl Invariant for Cancel {
    fn name(&self) -> &'static str {
        "I13: a cancel reaches its subtree and nothing else"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Stopped { task, cause: Cause::Cancelled, .. } => {
                if !oracle.is_sound(task) || is_wanted(task, oracle) {
                    Ok(())
                } else {
                    Err(format!("{task:?} was cancelled, but nobody asked for it"))
                }
            }
            Observation::Quiet { .. } => oracle.tasks.iter().try_for_each(|(task, truth)| {
                if !oracle.is_sound(task) {
                    return Ok(());
                }
                let call = &oracle.calls[&task.call];
                self.is_reached(task, truth, call)
            }),
            _ => Ok(()),
        }
    }
}

/// True when the call was given up, outgrew a bound, cancels what is late, or an ancestor failed
/// and took its branches with it.
fn is_wanted(task: &TaskName, oracle: &Oracle) -> bool {
    let Some(call) = oracle.calls.get(&task.call) else { return false };
    let by_call = call.cancelled_at.is_some()
        || match call.end {
            Some((_, End::Exhausted)) => true,
            Some((_, End::Decided)) => call.cancels_late,
            _ => false,
        };
    let is_exhausted = call.exhausted.iter().any(|path| path.is_prefix_of(&task.task.path));
    by_call || is_exhausted || oracle.is_given_up(task.call, &task.task.path)
}
