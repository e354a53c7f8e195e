//! Tasks that wait for the same thing.

use std::task::{Context, Waker};

/// One entry per task.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    pub(crate) fn register(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    /// Takes everybody over from `other`.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// To be called without a lock: a waker may run anything.
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}
