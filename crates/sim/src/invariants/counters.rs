//! The counters of a tree are what a count from scratch gives.

use crate::oracle::Oracle;

use super::{Invariant, Observation};

/// I16.
#[derive(Debug)]
pub(super) struct Counters;

impl Invariant for Counters {
    fn name(&self) -> &'static str {
        "I16: open, missing and unsaid are counted right"
    }

    fn observe(&mut self, seen: &Observation<'_>, _: &Oracle) -> Result<(), String> {
        let Observation::Call { id, call } = seen else { return Ok(()) };
        let tree = call.tree();
        let counted = (tree.open(), tree.missing(), tree.unsaid());
        let real = tree.recount();
        if counted == real {
            Ok(())
        } else {
            Err(format!("{id:?}: open, missing, unsaid are {counted:?}, a recount gives {real:?}"))
        }
    }
}
