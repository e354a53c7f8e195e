//! Listeners and queue pairs that events and completions of the device mean.

use std::sync::Arc;

use super::connection::Connection;
use super::keyed::Keyed;
use crate::ffi::verbs as ffi;
use crate::provider::{Completion, Direction, Tag, WorkId, WorkStatus};

/// Listeners and queue pairs, with their tags, by their keys. Unlike a tag a key is not used again,
/// so what the device still says of a queue pair that is gone meets nobody. What is removed is the
/// caller's to drop, without the lock.
pub(super) type Names = Keyed<(Tag, Named)>;

/// Owner of a key.
#[derive(Debug)]
pub(super) enum Named {
    Listener(#[expect(dead_code, reason = "it listens as long as it exists")] ffi::Id),
    QueuePair(Arc<Connection>),
}

impl Names {
    pub(super) fn listener(&self, key: u64) -> Option<Tag> {
        match self.named(key)? {
            (tag, Named::Listener(_)) => Some(*tag),
            (_, Named::QueuePair(_)) => None,
        }
    }

    #[inline]
    pub(super) fn queue_pair(&self, key: u64) -> Option<(Tag, &Arc<Connection>)> {
        match self.named(key)? {
            (tag, Named::QueuePair(connection)) => Some((*tag, connection)),
            (_, Named::Listener(_)) => None,
        }
    }

    #[inline]
    fn named(&self, key: u64) -> Option<&(Tag, Named)> {
        self.get(Tag::new(u32::try_from(key).ok()?)?)
    }

    /// Completion for the engine that one of the device stands for; `None` when its queue pair is
    /// gone.
    #[inline]
    pub(super) fn completion(&self, raw: ffi::RawCompletion) -> Option<Completion> {
        let id = WorkId::from_u64(raw.id)?;
        let (tag, connection) = self.queue_pair(id.tag().get().into())?;
        let is_receive = id.direction() == Direction::Receive;
        let mut status = status_of(raw.status);
        if is_receive && !connection.slab().end_receive(id.index()) {
            status = WorkStatus::SlotInUse;
        }
        Some(Completion { id: connection.posted.complete(tag, id), status, bytes: raw.bytes })
    }
}

#[inline]
fn status_of(status: u32) -> WorkStatus {
    use rdma_sys::ibv_wc_status::IBV_WC_SUCCESS;
    if status == IBV_WC_SUCCESS { WorkStatus::Success } else { failure_of(status) }
}

/// Devices disagree about codes, so only those are told apart that make a difference to the user.
#[cold]
fn failure_of(status: u32) -> WorkStatus {
    use rdma_sys::ibv_wc_status::*;
    match status {
        IBV_WC_WR_FLUSH_ERR => WorkStatus::Flushed,
        IBV_WC_RETRY_EXC_ERR => WorkStatus::NoAnswer,
        IBV_WC_RNR_RETRY_EXC_ERR => WorkStatus::ReceiverNotReady,
        status => WorkStatus::Failed(ffi::status_text(status)),
    }
}
