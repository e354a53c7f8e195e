//! Bounds on what may be on its way: rate times distance, within a budget.
//!
//! A root needs credit of a relay for what it sends until the next grant comes, and room for what
//! its receivers have not acknowledged yet. With constants for both, fast links over long distances
//! carry a part of their plan. So each is what the plan and the round trips come to, twice, but not
//! less than the constant; what all of it exceeds the constants by is kept within one budget of
//! memory, and who gets less than it needs is counted.

use std::time::Duration;

/// A stream's wants, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// It has so much in any case.
    pub(crate) base: u64,
    /// It can use so much.
    pub(crate) needs: u64,
}

/// A round trip that was not measured yet: far, but on this planet.
pub(crate) const RTT_UNKNOWN: Duration = Duration::from_millis(200);

/// Round trips that are longer count as this long: over no link is anything on its way for so long,
/// and a site that answers after an hour would take the room of all others.
pub(crate) const RTT_MAX: Duration = Duration::from_secs(2);

/// Time in queues, and until the next acknowledgement or grant, on the way there and back.
const QUEUE: Duration = Duration::from_millis(100);

/// Multiple of rate times distance: once for what is on its way, once for what is sent until the
/// answer to it comes.
const TIMES: u128 = 2;

/// Bytes that a rate of `kbit_per_s` needs over a round trip.
pub(crate) fn in_flight(kbit_per_s: u64, rtt: Duration) -> u64 {
    let bits = u128::from(kbit_per_s) * (rtt + QUEUE).as_micros() / 1_000;
    u64::try_from(TIMES * bits / 8).unwrap_or(u64::MAX)
}

/// Shares out a budget: each gets all that it needs, if what is beyond their bases fits in it; else
/// the same part of that. And how many get less than they need.
pub(crate) fn share(wants: &[Want], budget: u64) -> (Vec<u64>, usize) {
    let beyond = |want: &Want| u128::from(want.needs.saturating_sub(want.base));
    let all: u128 = wants.iter().map(beyond).sum();
    let budget = u128::from(budget);
    let get = |want: &Want| {
        let more = if all <= budget { beyond(want) } else { beyond(want) * budget / all };
        want.base.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    };
    let short = if all <= budget { 0 } else { wants.iter().filter(|it| beyond(it) > 0).count() };
    (wants.iter().map(get).collect(), short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_twice_what_it_sends_in_a_round_trip_and_a_queue() {
        // 8 Gbit/s over 200 ms and 100 ms more: 300 MB, twice.
        assert_eq!(in_flight(8_000_000, Duration::from_millis(200)), 600_000_000);
        assert_eq!(in_flight(0, Duration::from_secs(1)), 0);
        assert_eq!(in_flight(u64::MAX, Duration::from_secs(60)), u64::MAX);
    }

    #[test]
    fn who_needs_more_gets_it_within_the_budget_and_nobody_gets_less_than_before() {
        let want = |base, needs| Want { base, needs };
        let wants = [want(10, 5), want(10, 30), want(10, 70)];
        assert_eq!(share(&wants, 80), (vec![10, 30, 70], 0));
        assert_eq!(share(&wants, 40), (vec![10, 20, 40], 2));
        assert_eq!(share(&wants, 0), (vec![10, 10, 10], 2));
        assert_eq!(share(&[], 0), (vec![], 0));
    }
}
