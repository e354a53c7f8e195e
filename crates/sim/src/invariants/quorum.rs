//! A quorum call is decided by the reply that makes k distinct nodes, neither before nor after, and it is
//! impossible as soon as no reply that can still come would do.

use convoke_proto::call::{Call, End};
use convoke_proto::id::CallId;

use crate::oracle::{Oracle, QuorumTruth};

use super::{Invariant, Observation};

/// I19.
#[derive(Debug)]
pub(super) struct Quorum;

impl Invariant for Quorum {
    fn name(&self) -> &'static str {
        "I19: a quorum decides on the k-th node, and fails as soon as it must"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Call { id, call } = seen else { return Ok(()) };
        let Some(truth) = oracle.calls.get(id) else { return Ok(()) };
        match &truth.quorum {
            Some(quorum) => check(*id, call, quorum, truth.is_sealed),
            None => Ok(()),
        }
    }
}

fn check(id: CallId, call: &Call, quorum: &QuorumTruth, is_sealed: bool) -> Result<(), String> {
    let question = quorum.log.last();
    let count = question.distinct_count();
    let (open, missing) = (call.tree().open(), call.tree().missing());
    let can_come = (quorum.is_flat && is_sealed).then_some(open + missing);
    let needed = quorum.k.saturating_sub(count) as u64;
    match call.end() {
        Some(End::Decided) if count != quorum.k => {
            Err(format!("{id:?}: decided with {count} nodes of {}", quorum.k))
        }
        Some(End::Complete) => Err(format!("{id:?}: completed in spite of its predicate")),
        Some(End::Impossible) if count >= quorum.k => {
            Err(format!("{id:?}: impossible, though {count} nodes replied"))
        }
        None if count >= quorum.k => Err(format!("{id:?}: {count} nodes, and not decided")),
        None if can_come.is_some_and(|most| most < needed) => {
            Err(format!("{id:?}: {count} nodes, {can_come:?} can come, and not impossible"))
        }
        _ => Ok(()),
    }
}
