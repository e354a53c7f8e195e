//! How many work requests are in the send queue of a queue pair, and which of them report back.
//!
//! Only signalled requests report their completion, and the report of one is that of all before it.
//! Every one would cost a completion each; none, and the queue would never be empty. So every quarter
//! of the queue one is due, and the last of each batch. A driver may leave out the latter where nobody waits
//! for it. The account is kept here because not every device refuses a request too many.

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct SendAccount {
    depth: u32,
    outstanding: u32,
    unsignaled: u32,
}

impl SendAccount {
    /// An empty queue of `depth` work requests, at least 1.
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: depth.max(1), outstanding: 0, unsignaled: 0 }
    }

    /// How many more requests fit.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.depth - self.outstanding
    }

    /// How many requests have not reported back.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Counts a request.
    ///
    /// # Panics
    /// When the queue is full.
    #[inline]
    pub(crate) fn post(&mut self) {
        assert!(self.free() > 0, "a work request too many for the send queue");
        self.outstanding += 1;
        self.unsignaled += 1;
    }

    /// Whether the request that was just counted has to be signalled; `is_last` of its batch.
    #[inline]
    pub(crate) fn must_signal(&mut self, is_last: bool) -> bool {
        let is_due = is_last || self.unsignaled >= (self.depth / 4).max(1);
        if is_due {
            self.unsignaled = 0;
        }
        is_due
    }

    /// So many requests are done.
    ///
    /// # Panics
    /// When there were not as many.
    #[inline]
    pub(crate) fn on_completed(&mut self, count: u32) {
        let left = self.outstanding.checked_sub(count);
        self.outstanding = left.expect("only what was posted completes");
        debug_assert!(self.unsignaled <= self.outstanding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(account: &mut SendAccount, is_last: bool) -> bool {
        account.post();
        account.must_signal(is_last)
    }

    #[test]
    fn every_quarter_and_the_last_of_a_batch_are_signalled() {
        let mut account = SendAccount::new(16);
        let signals: Vec<bool> = (1..=6).map(|at| post(&mut account, at == 6)).collect();
        assert_eq!(signals, [false, false, false, true, false, true]);
        assert_eq!((account.free(), account.outstanding()), (10, 6));
        account.on_completed(4);
        account.on_completed(2);
        assert_eq!(account.free(), 16);
    }

    #[test]
    fn a_short_queue_signals_everything() {
        let mut account = SendAccount::new(1);
        assert!(post(&mut account, false));
        assert_eq!(account.free(), 0);
    }

    #[test]
    #[should_panic(expected = "too many")]
    fn a_full_queue_takes_nothing() {
        let mut account = SendAccount::new(1);
        account.post();
        account.post();
    }
}
