//! A user that waits for a quorum has enough with the reply that makes k distinct nodes, neither
//! before nor after.

use std::collections::BTreeSet;

use convoke_proto::call::{CallEvent, End};

use crate::oracle::{CallTruth, Oracle};

use super::{Invariant, Observation};

/// I19.
#[derive(Debug)]
pub(super) struct Quorum;

impl Invariant for Quorum {
    fn name(&self) -> &'static str {
        "I19: a quorum is there with the k-th node"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Learned { call, event: CallEvent::Ended(end) } = seen else {
            return Ok(());
        };
        let truth = &oracle.calls[call];
        let Some(k) = truth.quorum else { return Ok(()) };
        let count = voices(truth);
        match end {
            End::Decided if count != k => Err(format!("{call:?}: {count} nodes decided, not {k}")),
            End::Complete | End::Partial if count >= k => {
                Err(format!("{call:?}: {count} nodes of {k}, and not decided"))
            }
            _ => Ok(()),
        }
    }
}

/// Distinct nodes that certainly replied.
fn voices(truth: &CallTruth) -> usize {
    let authenticated = truth.delivered.values().filter(|(_, is_authenticated)| *is_authenticated);
    authenticated.map(|(node, _)| *node).collect::<BTreeSet<_>>().len()
}
