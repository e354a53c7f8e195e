//! Own operations that somebody wants to know of: which sites have them.

use std::collections::BTreeMap;
use std::task::Poll;

use convoke_core::transport::parts::Wakers;

use crate::site::{Site, SiteSet};
use crate::waiting::Waiting;
use crate::wire::OpId;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    ops: BTreeMap<OpId, Watch>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Watch {
    acked: SiteSet,
    /// Nothing more comes.
    is_over: bool,
    missed: SiteSet,
    waiting: Waiting,
}

/// Sites that have an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sites that have all of it, the own one not counted.
    pub by: SiteSet,
    /// True when nothing more comes of it.
    pub is_over: bool,
    /// Sites that it is not owed to any more: gone, or silent, for too long.
    pub missed: SiteSet,
}

impl Watched {
    pub(crate) fn begin(&mut self, op: OpId) {
        self.ops.insert(op, Watch::default());
    }

    pub(crate) fn forget(&mut self, op: OpId) {
        self.ops.remove(&op);
    }

    pub(crate) fn acked(&mut self, op: OpId, by: Site, wakers: &mut Wakers) {
        if let Some(watch) = self.ops.get_mut(&op) {
            watch.acked.insert(by);
            watch.waiting.wake(wakers);
        }
    }

    pub(crate) fn over(&mut self, op: OpId, missed: SiteSet, wakers: &mut Wakers) {
        if let Some(watch) = self.ops.get_mut(&op) {
            (watch.is_over, watch.missed) = (true, missed);
            watch.waiting.wake(wakers);
        }
    }

    /// Ready once `count` sites have it, or nothing more comes.
    pub(crate) fn poll(&self, op: OpId, count: usize) -> Poll<Held> {
        let Some(watch) = self.ops.get(&op) else { return Poll::Ready(Held::default()) };
        let is_over = watch.is_over || self.is_closed;
        if watch.acked.len() < count && !is_over {
            return Poll::Pending;
        }
        Poll::Ready(Held { by: watch.acked, is_over, missed: watch.missed })
    }

    /// Those who wait for news of an operation.
    pub(crate) fn waiting(&mut self, op: OpId) -> Option<&mut Waiting> {
        self.ops.get_mut(&op).map(|watch| &mut watch.waiting)
    }

    pub(crate) fn close(&mut self, wakers: &mut Wakers) {
        self.is_closed = true;
        self.ops.values_mut().for_each(|watch| watch.waiting.wake(wakers));
    }
}
