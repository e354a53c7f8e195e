//! A user that waits for a quorum has enough with the reply that makes k distinct nodes, neither
//! before nor after.

use std::collections::BTreeSet;

use convoke_proto::call::{CallEvent, End};
use convoke_proto::time::Timestamp;

use crate::oracle::{CallTruth, Oracle};

use super::{Invariant, Observation};

/// I19; and I38 of `trust.md`: liars do not delay it.
/// Only where every user reads at once.
#[derive(Debug)]
pub(super) struct Quorum;

impl Invariant for Quorum {
    fn name(&self) -> &'static str {
        "I19: a quorum is there with the k-th node"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        if let Observation::Quiet { .. } = seen {
            let late = oracle.calls.iter().find(|(_, truth)| is_late(truth));
            return late.map_or(Ok(()), |(call, truth)| {
                Err(format!("{call:?} had a quorum without liars, and was not decided: {truth:?}"))
            });
        }
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

/// True when replies of enough correct nodes had come, and their call went on.
fn is_late(truth: &CallTruth) -> bool {
    let Some(at) = truth.quorum_at else { return false };
    let is_over = |over: Timestamp| over <= at;
    let is_given_up = truth.cancelled_at.is_some_and(is_over) || truth.is_orphan;
    !is_given_up && !truth.end.is_some_and(|(end, _)| is_over(end))
}

/// Distinct nodes that certainly replied.
fn voices(truth: &CallTruth) -> usize {
    let authenticated = truth.delivered.values().filter(|(_, is_authenticated)| *is_authenticated);
    authenticated.map(|(node, _)| *node).collect::<BTreeSet<_>>().len()
}
