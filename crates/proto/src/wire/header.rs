//! Header that every frame begins with: the call and the task it speaks of.

use crate::id::{CallId, Incarnation, Path, TaskKey};

use super::codec::{Out, Reader, WireError};

/// The call and the task a frame speaks of: its sender (REPLY, MANIFEST, FAIL), its receiver
/// (REQUEST, CREDIT, ITEM), a prefix (CANCEL), or the root path where the frame lists tasks itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The call.
    pub call: CallId,
    /// The task.
    pub task: TaskKey,
}

impl Header {
    /// The header of a frame that is about no one call: call number 0 of the origin 0, and the root
    /// task.
    pub fn without_call() -> Self {
        Self::of_question(0)
    }

    /// The header of a question that is about no one call, and of its answer: the number of the
    /// question in place of a call's, of the origin 0.
    pub fn of_question(number: u64) -> Self {
        let call = CallId { origin: Incarnation(0), seq: number };
        Self { call, task: TaskKey { path: Path::root(), hop: 0 } }
    }

    #[inline]
    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let origin = Incarnation(input.u64()?);
        Ok(Self { call: CallId { origin, seq: input.varint()? }, task: input.key()? })
    }
}

#[inline]
pub(super) fn write(call: CallId, task: &TaskKey, out: &mut impl Out) {
    out.u64(call.origin.0);
    out.varint(call.seq);
    out.key(task);
}
