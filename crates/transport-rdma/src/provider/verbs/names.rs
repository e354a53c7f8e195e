//! Who is meant by an event or a completion of the device.

use super::connection::Connection;
use crate::ffi::verbs as ffi;
use crate::provider::{Completion, Direction, Tag, WorkId, WorkStatus};
use std::sync::Arc;

/// Listeners and queue pairs by their keys. Unlike a tag a key is not used again, so what the device still says of a
/// queue pair that is gone meets nobody.
#[derive(Debug, Default)]
pub(super) struct Names {
    last: u32,
    /// In the order of their keys. New ones are the largest, so they mostly come last.
    entries: Vec<(Tag, Tag, Named)>,
}

/// What has a key.
#[derive(Debug)]
pub(super) enum Named {
    Listener(#[expect(dead_code, reason = "it listens as long as it exists")] ffi::Id),
    QueuePair(Arc<Connection>),
}

impl Names {
    /// A key nobody has.
    pub(super) fn reserve(&mut self) -> Tag {
        // After a billion of them they begin again; who is still there then keeps its own.
        loop {
            self.last = if self.last == Tag::MAX { 1 } else { self.last + 1 };
            let key = Tag::new(self.last).expect("not above the maximum");
            if self.place(key).is_err() {
                return key;
            }
        }
    }

    pub(super) fn insert(&mut self, key: Tag, tag: Tag, named: Named) {
        if let Err(place) = self.place(key) {
            self.entries.insert(place, (key, tag, named));
        }
    }

    /// The entry is the caller's to drop, without the lock.
    pub(super) fn remove(&mut self, key: Tag) -> Option<(Tag, Named)> {
        let place = self.place(key).ok()?;
        let (_, tag, named) = self.entries.remove(place);
        Some((tag, named))
    }

    pub(super) fn listener(&self, key: u64) -> Option<Tag> {
        match self.get(key)? {
            (_, tag, Named::Listener(_)) => Some(*tag),
            (_, _, Named::QueuePair(_)) => None,
        }
    }

    #[inline]
    pub(super) fn queue_pair(&self, key: u64) -> Option<(Tag, &Arc<Connection>)> {
        match self.get(key)? {
            (_, tag, Named::QueuePair(connection)) => Some((*tag, connection)),
            (_, _, Named::Listener(_)) => None,
        }
    }

    #[inline]
    fn get(&self, key: u64) -> Option<&(Tag, Tag, Named)> {
        let key = Tag::new(u32::try_from(key).ok()?)?;
        self.entries.get(self.place(key).ok()?)
    }

    /// Where an entry is, or else would be.
    #[inline]
    fn place(&self, key: Tag) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(key, ..)| *key)
    }

    /// What a completion of the device means to the engine; `None` when its queue pair is gone.
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
