//! One failure for a branch at most, and none for a branch that has ended as it should.

use std::collections::{BTreeMap, BTreeSet};

use convoke_proto::call::{Call, CallEvent};
use convoke_proto::id::{CallId, Path};
use convoke_proto::tree::BranchState;

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I9.
#[derive(Debug, Default)]
pub(super) struct Failures {
    settled: BTreeMap<CallId, BTreeSet<Path>>,
    failed: BTreeSet<(CallId, Path)>,
}

impl Invariant for Failures {
    fn name(&self) -> &'static str {
        "I9: one failure a branch, none for a settled one"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        match seen {
            Observation::Call { id, call } => self.note(*id, call, oracle),
            Observation::Learned { call, event: CallEvent::Failure(failure) } => {
                let path = failure.task.path.clone();
                if self.failed.insert((*call, path)) {
                    Ok(())
                } else {
                    Err(format!("{call:?}: a second failure: {failure}"))
                }
            }
            _ => Ok(()),
        }
    }
}

impl Failures {
    /// A branch that was closed with all its replies must never be seen as failed.
    fn note(&mut self, id: CallId, call: &Call, oracle: &Oracle) -> Result<(), String> {
        let settled = self.settled.entry(id).or_default();
        for (path, branch) in call.tree().iter() {
            if oracle.is_tainted(id, path) {
                continue;
            }
            match branch.state {
                BranchState::Closed { .. } if branch.missing() == 0 => {
                    settled.insert(path.clone());
                }
                BranchState::Failed if settled.contains(path) => {
                    return Err(format!("{id:?}: {path} was settled, and failed"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
