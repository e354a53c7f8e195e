//! Counters of what somebody else counts, too, and is sampled.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::Counter;

/// Counter of what is read as a total, from the start of an endpoint on. The counter may be older:
/// an endpoint of the same name before it in the process has had the same, and it goes on.
#[derive(Debug)]
pub struct Rising {
    counter: Counter,
    seen: AtomicU64,
}

impl Rising {
    /// Counts on from where the counter is.
    pub fn new(counter: Counter) -> Self {
        Self { counter, seen: AtomicU64::new(0) }
    }

    /// Adds what the total has grown by since the last sample. Of two samples taken at once the
    /// older may come last, and adds nothing.
    pub fn rise_to(&self, total: u64) {
        let seen = self.seen.fetch_max(total, Ordering::Relaxed);
        self.counter.increment(total.saturating_sub(seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_counter_goes_on_where_another_of_its_name_ended() {
        let counted = Arc::new(AtomicU64::new(0));
        for before in [0, 7] {
            let counter = Rising::new(Counter::from_arc(counted.clone()));
            // Of two samples taken at once the older may come last.
            for total in [3, 3, 7, 5] {
                counter.rise_to(total);
            }
            assert_eq!(counted.load(Ordering::Relaxed), before + 7);
        }
    }
}
