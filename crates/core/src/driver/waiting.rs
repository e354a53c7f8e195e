//! Parts of one task that wait, each of which has one waker.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Part of a task that waits for its initiator, and that one at a time has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The items of its request.
    Items,
    /// A streamed reply, by its index.
    Stream(u32),
}

/// Parts of a task that wait until a stream of it has credit or an item again, or it is over.
#[derive(Debug, Default)]
pub(super) struct WaitingParts {
    /// In their order, one of each: whoever polls with another waker each time leaves no others.
    wakers: SmallVec<[(Part, Waker); 1]>,
    /// Tells those who wait for room at connections, any number.
    for_room: Option<Arc<Notify>>,
}

impl WaitingParts {
    /// Keeps the waker of a part. Gives the one that it takes the place of.
    pub(super) fn keep(&mut self, part: Part, waker: &Waker) -> Option<Waker> {
        match self.find(part) {
            Ok(at) if self.wakers[at].1.will_wake(waker) => None,
            Ok(at) => Some(mem::replace(&mut self.wakers[at].1, waker.clone())),
            Err(at) => {
                self.wakers.insert(at, (part, waker.clone()));
                None
            }
        }
    }

    /// Gives the waker of a part that is gone.
    pub(super) fn forget(&mut self, part: Part) -> Option<Waker> {
        self.find(part).ok().map(|at| self.wakers.remove(at).1)
    }

    fn find(&self, part: Part) -> Result<usize, usize> {
        self.wakers.binary_search_by_key(&part, |(part, _)| *part)
    }

    /// A wait that ends when all are told.
    pub(super) fn until_over(&mut self) -> OwnedNotified {
        self.for_room.get_or_insert_default().clone().notified_owned()
    }

    /// All that is to be woken, and told.
    pub(super) fn into_all(self) -> (impl Iterator<Item = Waker>, Option<Arc<Notify>>) {
        (self.wakers.into_iter().map(|(_, waker)| waker), self.for_room)
    }

    /// Counts all who wait for room as one.
    pub(super) fn count(&self) -> usize {
        self.wakers.len() + usize::from(self.for_room.is_some())
    }
}
