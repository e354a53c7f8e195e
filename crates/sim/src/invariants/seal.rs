//! A call that may still get root branches is not complete.

use convoke_proto::call::End;

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I21.
#[derive(Debug)]
pub(super) struct Seal;

impl Invariant for Seal {
    fn name(&self) -> &'static str {
        "I21: an unsealed call never completes"
    }

    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String> {
        let Observation::Call { id, call } = seen else { return Ok(()) };
        let Some(truth) = oracle.calls.get(id) else { return Ok(()) };
        let is_early = match call.end() {
            Some(End::Complete) => true,
            Some(End::Partial) => oracle.now < truth.deadline,
            _ => false,
        };
        if is_early && !truth.is_sealed { Err(format!("{id:?} ended unsealed")) } else { Ok(()) }
    }
}
