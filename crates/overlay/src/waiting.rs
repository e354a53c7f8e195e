//! Those who wait for the same thing, each with one waker: whoever ceases to wait leaves none.

use std::collections::BTreeMap;
use std::task::{Context, Waker};

use convoke_core::transport::parts::Wakers;

/// See the module. Wakers that it gives are to be dropped without the lock, as they may run
/// anything.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By a number of each; `None` from when it was woken until it asks again.
    wakers: BTreeMap<u64, Option<Waker>>,
    numbered: u64,
}

impl Waiting {
    /// Keeps the waker of one who waits, and gives it a number if it has none. Gives the waker that
    /// it takes the place of.
    pub(crate) fn keep(&mut self, number: &mut Option<u64>, cx: &Context<'_>) -> Option<Waker> {
        let number = *number.get_or_insert_with(|| {
            self.numbered += 1;
            self.numbered
        });
        let kept = self.wakers.entry(number).or_default();
        if kept.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return None;
        }
        kept.replace(cx.waker().clone())
    }

    /// One ceases to wait. Gives its waker.
    pub(crate) fn forget(&mut self, number: u64) -> Option<Waker> {
        self.wakers.remove(&number).flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// Moves the wakers of all to `woken`.
    pub(crate) fn wake(&mut self, woken: &mut Wakers) {
        woken.extend(self.wakers.values_mut().filter_map(Option::take));
    }
}
