//! A call that is settled by the words of its tasks has none that runs or will; and where nothing
//! goes wrong, every call is settled by words.

use std::time::Duration;

use convoke_proto::id::CallId;

use crate::oracle::{CallTruth, Oracle};
use crate::scenario::Scenario;

use super::{Invariant, Observation};

/// I26 and I29 of `settlement.md`.
#[derive(Debug)]
pub(super) struct Settled {
    /// Longest time of a word for each level, where all connections hold.
    per_level: Option<Duration>,
    levels: u32,
    keep_alive: Duration,
    /// Calls are settled for lack of room.
    is_early: bool,
}

impl Settled {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            per_level: scenario.level_latency_max().filter(|_| scenario.liars.is_empty()),
            levels: u32::try_from(scenario.shape.depth_max).unwrap_or(u32::MAX) + 3,
            keep_alive: scenario.limits.keep_alive_timeout,
            is_early: scenario.settles_early(),
        }
    }

    /// True when the words of its tasks have settled a call, not time or lack of room.
    fn is_by_word(&self, truth: &CallTruth) -> bool {
        let is_in_time = |at| at < truth.deadline + self.keep_alive;
        !self.is_early && truth.settled_at.is_some_and(is_in_time)
    }

    fn has_nothing_running(&self, call: CallId, oracle: &Oracle) -> Result<(), String> {
        let mut tasks = oracle.sound_tasks_of(call);
        let running = tasks.find(|(_, task)| !task.runs.is_empty() && task.end.is_none());
        running.map_or(Ok(()), |(task, _)| Err(format!("{call:?} is settled, and {task} runs")))
    }
}

impl Invariant for Settled {
    fn name(&self) -> &'static str {
        "I26, I29: what is settled is over, and where links hold all is settled by words"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Settled { call } if self.is_by_word(&oracle.calls[call]) => {
                self.has_nothing_running(*call, oracle)
            }
            Observation::Started { start, .. } => {
                let (call, name) = (start.task.call, oracle.name(&start.task));
                let truth = oracle.calls.get(&call).filter(|_| oracle.is_sound(&name));
                match truth.is_some_and(|truth| self.is_by_word(truth)) {
                    true => Err(format!("{call:?} is settled, and {} starts", start.task.task)),
                    false => Ok(()),
                }
            }
            Observation::Call { id, call } => {
                let (truth, Some(per_level)) = (&oracle.calls[id], self.per_level) else {
                    return Ok(());
                };
                let from = truth.cancelled_at.unwrap_or(truth.deadline).min(truth.deadline);
                let unsaid = call.tree().unsaid();
                if call.end().is_some() && unsaid > 0 && oracle.now > from + per_level * self.levels
                {
                    return Err(format!(
                        "{id:?} ended at {from:?}, {unsaid} say nothing: {call:?}"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
