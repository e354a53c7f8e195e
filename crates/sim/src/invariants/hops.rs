//! The hop of a branch only grows.

use std::collections::BTreeMap;

use convoke_proto::id::{CallId, Path, TaskKey};

use crate::oracle::{Oracle, TaskName};

use super::{Invariant, Observation};

/// I24.
#[derive(Debug, Default)]
pub(super) struct Hops {
    hops: BTreeMap<CallId, BTreeMap<Path, u32>>,
}

impl Invariant for Hops {
    fn name(&self) -> &'static str {
        "I24: a stale hop moves no branch back, and does not close it"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Call { id, call } = seen else { return Ok(()) };
        let hops = self.hops.entry(*id).or_default();
        for (path, branch) in call.tree().iter() {
            let last = hops.entry(path.clone()).or_insert(branch.hop);
            if branch.hop < *last {
                return Err(format!("{id:?} {path}: hop {} after {last}", branch.hop));
            }
            *last = branch.hop;
            let sent_to = oracle
                .tasks
                .get(&TaskName::of(*id, TaskKey { path: path.clone(), hop: branch.hop }))
                .filter(|_| !oracle.is_tainted(*id, path))
                .map(|truth| truth.sent_to);
            if let (Some(holder), Some(sent_to)) = (branch.holder, sent_to)
                && holder.node != sent_to
            {
                let (hop, node) = (branch.hop, holder.node);
                return Err(format!("{id:?} {path}+{hop} is said to be at {node}, not {sent_to}"));
            }
        }
        Ok(())
    }
}
