//! Credit of one lane and direction.
//!
//! A receiver grants a window in its hello. Everything a lane sends counts with all its bytes on
//! the wire; what the sink has taken is given back in batches of half the window. So a sender with
//! nothing in flight always has more than half the window, and a block of at most half of it can
//! never be stuck.

use super::Fault;
use crate::Lane;

/// Credit that a sender may still use.
#[derive(Debug)]
pub struct SendCredit {
    lane: Lane,
    window: u32,
    available: u32,
}

impl SendCredit {
    /// All of the window that the peer granted.
    pub fn new(lane: Lane, window: u32) -> Self {
        Self { lane, window, available: window }
    }

    /// The largest block that is never stuck.
    pub fn block_bytes_max(&self) -> usize {
        self.window as usize / 2
    }

    /// Uses `bytes`; `false` when there are not as many, and then nothing is used.
    pub fn take(&mut self, bytes: usize) -> bool {
        match u32::try_from(bytes).ok().and_then(|bytes| self.available.checked_sub(bytes)) {
            Some(rest) => {
                self.available = rest;
                true
            }
            None => false,
        }
    }

    /// The peer gave `bytes` back.
    ///
    /// # Errors
    /// [`Fault::CreditExcess`] when that is more than was used.
    pub fn give_back(&mut self, bytes: u32) -> Result<(), Fault> {
        let available = self.available.checked_add(bytes).filter(|sum| *sum <= self.window);
        self.available = available.ok_or(Fault::CreditExcess(self.lane))?;
        Ok(())
    }
}

/// Credit that a receiver granted, and what of it is used.
#[derive(Debug)]
pub struct ReceiveCredit {
    lane: Lane,
    window: u32,
    /// Arrived and not given back, whether or not the sink has it yet.
    used: u32,
    /// Of `used`, what the sink has taken.
    taken: u32,
    is_lifted: bool,
}

impl ReceiveCredit {
    /// A window of which nothing is used.
    pub fn new(lane: Lane, window: u32) -> Self {
        Self { lane, window, used: 0, taken: 0, is_lifted: false }
    }

    /// The peer needs no credit any more, and is given none.
    pub fn lift(&mut self) {
        self.is_lifted = true;
    }

    /// True when so many bytes are more than the peer was granted.
    pub fn is_beyond(&self, bytes: u32) -> bool {
        bytes > self.window
    }

    /// A chunk arrived.
    ///
    /// # Errors
    /// [`Fault::CreditOverrun`] when the peer has not so much credit.
    #[inline]
    pub fn receive(&mut self, cost: u32) -> Result<(), Fault> {
        if self.is_lifted {
            return Ok(());
        }
        let used = self.used.checked_add(cost).filter(|sum| *sum <= self.window);
        self.used = used.ok_or(Fault::CreditOverrun(self.lane))?;
        Ok(())
    }

    /// The sink took `cost` of what arrived. Answers what to give back to the peer now, if
    /// anything.
    pub fn take(&mut self, cost: u32) -> Option<u32> {
        if self.is_lifted {
            return None;
        }
        debug_assert!(self.taken + cost <= self.used, "only what arrived is taken");
        self.taken += cost;
        if self.taken < self.window / 2 {
            return None;
        }
        self.used -= self.taken;
        Some(std::mem::take(&mut self.taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sender_within_its_credit_never_overruns_and_is_never_stuck(
            window in 8_u32..10_000,
            sizes in prop::collection::vec(any::<u32>(), 1..200),
            eager in any::<bool>(),
        ) {
            let mut sender = SendCredit::new(Lane::Data, window);
            let mut receiver = ReceiveCredit::new(Lane::Data, window);
            let mut in_flight = 0;
            for size in sizes {
                let cost = 1 + size % (window / 2);
                if eager || !sender.take(cost as usize) {
                    if let Some(back) = receiver.take(std::mem::take(&mut in_flight)) {
                        sender.give_back(back).unwrap();
                    }
                    prop_assert!(sender.take(cost as usize), "stuck with nothing in flight");
                }
                receiver.receive(cost).unwrap();
                in_flight += cost;
            }
        }
    }

    #[test]
    fn more_than_the_window_is_a_fault_on_either_side() {
        let mut receiver = ReceiveCredit::new(Lane::Data, 100);
        receiver.receive(100).unwrap();
        assert_eq!(receiver.receive(1), Err(Fault::CreditOverrun(Lane::Data)));
        let mut sender = SendCredit::new(Lane::Control, 100);
        assert!(sender.take(60) && !sender.take(41));
        assert_eq!(sender.give_back(61), Err(Fault::CreditExcess(Lane::Control)));
        assert_eq!(sender.give_back(u32::MAX), Err(Fault::CreditExcess(Lane::Control)));
        sender.give_back(60).unwrap();
        assert!(sender.take(100));
    }

    #[test]
    fn credit_comes_back_at_half_the_window() {
        let mut receiver = ReceiveCredit::new(Lane::Data, 100);
        receiver.receive(90).unwrap();
        assert_eq!(receiver.take(49), None);
        assert_eq!(receiver.take(1), Some(50));
        receiver.receive(60).unwrap();
        assert_eq!(receiver.receive(1), Err(Fault::CreditOverrun(Lane::Data)));
    }
}
