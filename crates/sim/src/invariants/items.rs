//! The items of a streamed request are read as they were sent, each once and in order; that they
//! are all there is said only when they are; and where nothing goes wrong none is lost.

use std::collections::BTreeMap;

use convoke_proto::task::{ItemsFailure, NextItem, SendError};

use crate::oracle::{Oracle, TaskName};
use crate::scenario::Scenario;

use super::{Invariant, Observation};

/// I51.
#[derive(Debug)]
pub(super) struct Items {
    is_fair: bool,
    has_tiny_limits: bool,
    read: BTreeMap<TaskName, usize>,
}

impl Items {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            is_fair: scenario.is_fault_free() && scenario.liars.is_empty(),
            has_tiny_limits: scenario.has_tiny_limits,
            read: BTreeMap::new(),
        }
    }

    fn may_fail(&self, why: ItemsFailure) -> bool {
        match why {
            ItemsFailure::NoRoom => self.has_tiny_limits,
            ItemsFailure::Lost | ItemsFailure::Malformed => !self.is_fair,
            _ => false,
        }
    }
}

impl Invariant for Items {
    fn name(&self) -> &'static str {
        "I51: items are read as they were sent"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::ItemsRefused { call, why: SendError::Lost } if self.is_fair => {
                Err(format!("{call:?} lost its items, and no connection was lost"))
            }
            Observation::ItemRead { task, next, .. } => {
                // What a liar sends is its own matter.
                let Some(truth) = oracle.calls.get(&task.call).filter(|_| oracle.is_sound(task))
                else {
                    return Ok(());
                };
                let read = self.read.entry((*task).clone()).or_default();
                match next {
                    Ok(Some(NextItem::Item(item))) => {
                        let expected = truth.items.get(*read);
                        *read += 1;
                        match expected == Some(item) {
                            true => Ok(()),
                            false => Err(format!("{task:?}: item {} is another one", *read - 1)),
                        }
                    }
                    Ok(Some(NextItem::End)) => {
                        match truth.has_finished_items && *read == truth.items.len() {
                            true => Ok(()),
                            false => Err(format!(
                                "{task:?}: the end after {read} of {}",
                                truth.items.len()
                            )),
                        }
                    }
                    Err(why) if !self.may_fail(*why) => Err(format!("{task:?}: {why}")),
                    Ok(None) | Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
