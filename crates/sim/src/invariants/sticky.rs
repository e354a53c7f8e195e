//! An end is final, and nothing but what was asked for follows it.

use std::collections::BTreeMap;

use convoke_proto::call::{CallEvent, End};
use convoke_proto::id::CallId;

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I10.
#[derive(Debug, Default)]
pub(super) struct Sticky {
    ends: BTreeMap<CallId, End>,
}

impl Invariant for Sticky {
    fn name(&self) -> &'static str {
        "I10: an end is final"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Call { id, call } => match (self.ends.get(id), call.end()) {
                (Some(before), now) if now != Some(*before) => {
                    Err(format!("{id:?} had ended {before:?}, now {now:?}"))
                }
                (None, Some(end)) => {
                    self.ends.insert(*id, end);
                    Ok(())
                }
                _ => Ok(()),
            },
            Observation::Learned { call, event } => {
                let truth = &oracle.calls[call];
                let fits = match (truth.told_end, event) {
                    (None, CallEvent::Late(_)) => false,
                    (None, _) => true,
                    (Some(_), CallEvent::Late(_)) => truth.keeps_late,
                    (Some(_), _) => false,
                };
                if fits { Ok(()) } else { Err(format!("{call:?} ended, then {event:?}")) }
            }
            _ => Ok(()),
        }
    }
}
