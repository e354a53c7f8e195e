//! The lock of a wire.

use std::ops::{Deref, DerefMut};

use parking_lot::MutexGuard;

use super::State;
use crate::link::spent::Spent;
use crate::provider::Provider;

/// State of a wire, locked. Bodies that its link is done with by then are dropped once the lock is
/// free.
pub(super) struct Locked<'a, P: Provider> {
    state: MutexGuard<'a, State<P>>,
    /// Dropped after the lock, as fields are in their order.
    spent: Spent,
}

impl<'a, P: Provider> Locked<'a, P> {
    pub(super) fn new(state: MutexGuard<'a, State<P>>) -> Self {
        Self { state, spent: Spent::default() }
    }

    /// Bodies to be dropped without the lock. For who has tasks to wake first: an owner may wait
    /// for them.
    #[inline]
    pub(super) fn take_spent(&mut self) -> Spent {
        match &mut self.state.link {
            Some(link) if link.has_spent() => link.take_spent(),
            _ => Spent::default(),
        }
    }

    /// Does something without the lock.
    #[inline]
    pub(super) fn unlocked<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let spent = self.take_spent();
        MutexGuard::unlocked(&mut self.state, || {
            drop(spent);
            act()
        })
    }
}

impl<P: Provider> Deref for Locked<'_, P> {
    type Target = State<P>;

    #[inline]
    fn deref(&self) -> &State<P> {
        &self.state
    }
}

impl<P: Provider> DerefMut for Locked<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State<P> {
        &mut self.state
    }
}

impl<P: Provider> Drop for Locked<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.spent = self.take_spent();
    }
}
