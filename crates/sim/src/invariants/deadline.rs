//! A call has ended by its deadline, in any run: at once, or as soon as a stopped node goes on.

use convoke_proto::time::Timestamp;

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I4.
#[derive(Debug)]
pub(super) struct Deadline;

impl Invariant for Deadline {
    fn name(&self) -> &'static str {
        "I4: every call ends by its deadline"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Call { id, call } => {
                let truth = &oracle.calls[id];
                // What has come meanwhile may come before the timers of a node that goes on.
                let resumed_at = oracle.resumed_at.get(&truth.node).copied();
                let ends_by = truth.deadline.max(resumed_at.unwrap_or(Timestamp::ZERO));
                if call.end().is_none() && oracle.now > ends_by {
                    let now = oracle.now;
                    return Err(format!("{id:?} is open at {now:?}, {ends_by:?} is past"));
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
