//! Account of the work requests in the send queue of a queue pair.
//!
//! The report of one is that of all before it, so a driver has few of them report back. The account
//! is kept here because not every device refuses a request too many.

/// The send queue of one queue pair.
#[derive(Debug)]
pub(crate) struct WorkAccount {
    depth: u32,
    outstanding: u32,
}

impl WorkAccount {
    /// An empty queue of `depth` work requests, at least 1.
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: depth.max(1), outstanding: 0 }
    }

    /// Number of further requests that fit.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.depth - self.outstanding
    }

    /// Number of requests that have not reported back.
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
    }

    /// So many requests are done.
    ///
    /// # Panics
    /// When there were not as many.
    #[inline]
    pub(crate) fn on_completed(&mut self, count: u32) {
        let left = self.outstanding.checked_sub(count);
        self.outstanding = left.expect("only what was posted completes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_room_until_they_are_done() {
        let mut account = WorkAccount::new(3);
        account.post();
        account.post();
        assert_eq!((account.free(), account.outstanding()), (1, 2));
        account.on_completed(2);
        assert_eq!((account.free(), account.outstanding()), (3, 0));
    }

    #[test]
    #[should_panic(expected = "too many")]
    fn a_full_queue_takes_nothing() {
        let mut account = WorkAccount::new(0);
        account.post();
        account.post();
    }

    #[test]
    #[should_panic(expected = "only what was posted")]
    fn no_more_completes_than_was_posted() {
        WorkAccount::new(1).on_completed(1);
    }
}
