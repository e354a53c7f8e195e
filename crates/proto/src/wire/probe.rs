//! PROBE: the initiator asks a node how tasks are.

use crate::id::TaskKey;

use super::codec::{Out, Reader, WireError};

const FLAG_FENCE: u8 = 0x01;

/// Asks for the state of tasks of one call. Typically 27 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// A task that is not known there must never run: remember its key as fenced. The initiator asks
    /// for this only where the request cannot be on its way any more.
    pub fence: bool,
    /// What remains until the call's deadline, in microseconds: how long a fence must be kept.
    pub budget_us: u64,
    /// Which tasks; [`super::TASKS_MAX`] at most.
    pub tasks: Vec<TaskKey>,
}

impl Probe {
    pub(super) fn flags(&self) -> u8 {
        if self.fence { FLAG_FENCE } else { 0 }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.varint(self.budget_us);
        out.count(self.tasks.len());
        self.tasks.iter().for_each(|task| out.key(task));
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags & !FLAG_FENCE != 0 {
            return Err(WireError::Reserved);
        }
        let budget_us = input.varint()?;
        let tasks = input.tasks(2, Reader::key)?;
        Ok(Self { fence: flags & FLAG_FENCE != 0, budget_us, tasks })
    }
}
