//! The clock that all processes of the machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Waits until then; timers of the runtime are late by up to a millisecond.
pub(crate) async fn sleep_until_ns(at_ns: u64) {
    let wait = at_ns.saturating_sub(now_ns());
    if wait > 0 {
        tokio::time::sleep(Duration::from_nanos(wait)).await;
    } else {
        tokio::task::yield_now().await;
    }
}
