//! CANCEL: the initiator, or a parent passing it on, gives up a subtree.

use super::codec::{Out, Reader, WireError};

/// Cancels every task whose path begins with the header's. Typically 25 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// Reason.
    pub reason: CancelReason,
    /// Time that remains until the call's deadline, in microseconds: how long the mark must be kept
    /// when it arrives before the request it cancels.
    pub budget_us: u64,
}

/// Reason why a subtree is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The caller dropped the call or asked for it.
    Caller,
    /// The call outgrew a bound.
    ResourceExhausted,
    /// The call is decided and its late tasks are not wanted.
    Late,
    /// A parent failed and takes its children with it.
    ParentFailed,
}

impl Cancel {
    pub(super) fn write(&self, out: &mut impl Out) {
        out.u8(self.reason as u8);
        out.varint(self.budget_us);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let reason = match input.u8()? {
            0 => CancelReason::Caller,
            1 => CancelReason::ResourceExhausted,
            2 => CancelReason::Late,
            3 => CancelReason::ParentFailed,
            _ => return Err(WireError::Invalid),
        };
        Ok(Self { reason, budget_us: input.varint()? })
    }
}
