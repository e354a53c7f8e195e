//! A stopped task opens nothing and says nothing, and no branch has more time than its parent.

use convoke_proto::wire::Message;

use crate::oracle::{Oracle, TaskName};

use super::{Invariant, Observation};

/// I14.
#[derive(Debug)]
pub(super) struct Spawn;

impl Invariant for Spawn {
    fn name(&self) -> &'static str {
        "I14: nothing is opened after a stop, nor with more time than the parent has"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::TriedAfterStop { task, refused: false } => {
                Err(format!("{task:?} was stopped, and could go on"))
            }
            Observation::Sent { frame, .. } => {
                let Message::Request(request) = &frame.message else { return Ok(()) };
                let (call, task) = (frame.header.call, frame.header.task.clone());
                let name = oracle.name_of(call, &task, request.key);
                let deadline = match oracle.tasks.get(&name).filter(|_| oracle.is_sound(&name)) {
                    Some(truth) => match &truth.parent {
                        Some(parent) => {
                            let parent = TaskName::of(call, parent.clone());
                            oracle.tasks.get(&parent).map(|truth| truth.deadline)
                        }
                        None => oracle.calls.get(&call).map(|truth| truth.deadline_of(&task.path)),
                    },
                    None => None,
                };
                let Some(deadline) = deadline else { return Ok(()) };
                let left = deadline.since(oracle.now).as_micros();
                if u128::from(request.budget_us) <= left {
                    Ok(())
                } else {
                    let budget = request.budget_us;
                    Err(format!("{call:?} {task}: budget {budget} us, its parent has {left} us"))
                }
            }
            _ => Ok(()),
        }
    }
}
