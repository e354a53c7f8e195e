//! An end is final, and nothing follows it.

use std::collections::BTreeMap;

use convoke_proto::call::End;
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
                let is_over = oracle.calls[call].told_end.is_some();
                if is_over { Err(format!("{call:?} ended, then {event:?}")) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}
