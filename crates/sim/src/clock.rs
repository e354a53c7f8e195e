//! Times to come.

use std::ops::Add;
use std::time::Duration;

/// Time after which nothing is waited for any more: longer ones are taken for it. 30 years, as in
/// tokio, since clocks and timers overflow with [`Duration::MAX`].
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The instant that comes `time` after `start`.
pub(crate) fn after<Instant: Add<Duration, Output = Instant>>(
    start: Instant,
    time: Duration,
) -> Instant {
    start + time.min(LONGEST)
}
