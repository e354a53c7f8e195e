//! A call that says it is complete is: every task finished, every reply is here. With failures, the
//! same holds for everything that is not at or below a failed branch.

use convoke_proto::call::{CallEvent, End};
use convoke_proto::id::{CallId, TaskKey};

use crate::oracle::{Oracle, TaskEnd, TaskTruth};

use super::{Invariant, Observation};

/// I1 and I2.
#[derive(Debug)]
pub(super) struct Completion;

impl Invariant for Completion {
    fn name(&self) -> &'static str {
        "I1, I2: never completes early"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Call { id, call } if call.end() == Some(End::Complete) => {
                let mut tasks = oracle.sound_tasks_of(*id);
                tasks.try_for_each(|(task, truth)| has_finished(task, truth))
            }
            Observation::Learned {
                call,
                event: CallEvent::Ended(End::Complete | End::Partial),
            } => has_everything(*call, oracle),
            _ => Ok(()),
        }
    }
}

fn has_finished(task: &TaskKey, truth: &TaskTruth) -> Result<(), String> {
    match truth.end {
        Some((_, TaskEnd::Finished | TaskEnd::Tailed)) => Ok(()),
        end => Err(format!("the call is complete, but task {task} is {end:?}")),
    }
}

fn has_everything(call: CallId, oracle: &Oracle) -> Result<(), String> {
    let told = &oracle.calls[&call];
    for (task, truth) in oracle.sound_tasks_of(call) {
        if told.is_under_failure(&task.path) {
            continue;
        }
        has_finished(task, truth)?;
        for (index, reply) in (0..).zip(&truth.replies) {
            for item in 0..reply.messages.len() as u64 {
                let name = (task.path.clone(), index, reply.is_stream.then_some(item));
                if !told.delivered.contains_key(&name) {
                    return Err(format!("{call:?} ended without reply {name:?}"));
                }
            }
        }
    }
    Ok(())
}
