//! PROBE: the initiator asks a node how tasks are.

use crate::id::TaskKey;
use crate::key::Key;

use super::codec::{Out, Reader, TASKS_MAX, WireError};

const FLAG_FENCE: u8 = 0x01;

/// Asks for the state of tasks of one call. Typically 35 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// A task that is not known there must never run: remember its key as fenced. The initiator
    /// asks for this only where the request cannot be on its way any more.
    pub fence: bool,
    /// Time that remains until the call's deadline, in microseconds: how long a fence must be kept.
    pub budget_us: u64,
    /// Tasks asked for: one to [`super::TASKS_MAX`].
    pub tasks: Vec<Asked>,
}

/// A task that a PROBE asks for, or a STATUS answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The task.
    pub task: TaskKey,
    /// The key of its branch.
    pub key: Key,
}

impl Asked {
    pub(super) fn write(&self, out: &mut impl Out) {
        out.key(&self.task);
        out.u64(self.key.0);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { task: input.key()?, key: Key(input.u64()?) })
    }

    /// Fewest bytes on the wire.
    pub(super) const BYTES_MIN: usize = 10;
}

impl Probe {
    pub(super) fn flags(&self) -> u8 {
        if self.fence { FLAG_FENCE } else { 0 }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.varint(self.budget_us);
        out.count(self.tasks.len());
        self.tasks.iter().for_each(|asked| asked.write(out));
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags & !FLAG_FENCE != 0 {
            return Err(WireError::Reserved);
        }
        let budget_us = input.varint()?;
        let tasks = input.some(TASKS_MAX, Asked::BYTES_MIN, Asked::read)?;
        Ok(Self { fence: flags & FLAG_FENCE != 0, budget_us, tasks })
    }
}
