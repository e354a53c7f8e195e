//! Keep-alive of a connection that is looked at now and then: whether its peer lives, and whether
//! the peer must be told that this end does.

use std::time::Duration;

use tokio::time::Instant;

/// State of a connection at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The peer's process is to be told that this one is alive.
    pub is_due: bool,
    /// Nothing has come since the last look.
    pub is_quiet: bool,
    /// The peer said nothing for the timeout, though it could.
    pub is_dead: bool,
}

/// Keep-alive of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    interval: Duration,
    timeout: Duration,
    /// Number of messages that have come and left, and when that was last so.
    came: (u64, Instant),
    left: (u64, Instant),
}

impl Heartbeat {
    /// One that begins now: tells the peer after `interval` without a message to it, and gives it
    /// up after `timeout` without one from it.
    pub fn new(interval: Duration, timeout: Duration, now: Instant) -> Self {
        Self { interval, timeout, came: (0, now), left: (0, now) }
    }

    /// Period in which it is to be looked at, so that the interval is kept.
    pub fn period(&self) -> Duration {
        (self.interval / 2).max(Duration::from_millis(1))
    }

    /// A look: so many messages have come from the peer's process and have left to it in all. One
    /// that `may_speak` has the credit to say something; from one that has not nothing is expected.
    pub fn look(&mut self, came: u64, left: u64, may_speak: bool, now: Instant) -> Beat {
        let is_quiet = self.came.0 == came;
        if !is_quiet || !may_speak {
            self.came = (came, now);
        }
        if self.left.0 != left {
            self.left = (left, now);
        }
        // The next look may come a period later.
        let is_due = now.duration_since(self.left.1) + self.period() > self.interval;
        let is_dead = now.duration_since(self.came.1) >= self.timeout;
        Beat { is_due, is_quiet, is_dead }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(3);
    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn who_is_silent_for_the_timeout_is_dead_unless_it_cannot_speak() {
        let start = Instant::now();
        let mut silent = Heartbeat::new(INTERVAL, TIMEOUT, start);
        let mut mute = silent;
        for seconds in 1..10 {
            let now = start + Duration::from_secs(seconds);
            assert!(!silent.look(0, 0, true, now).is_dead && !mute.look(0, 0, false, now).is_dead);
        }
        assert!(silent.look(0, 0, true, start + TIMEOUT).is_dead);
        assert!(!mute.look(0, 0, false, start + TIMEOUT).is_dead);
        let later = start + TIMEOUT + Duration::from_secs(9);
        assert!(!mute.look(0, 0, true, later).is_dead, "it could speak only now");
        assert!(mute.look(0, 0, true, start + 2 * TIMEOUT).is_dead);
    }

    proptest! {
        /// Two ends that look at each other, however often within their periods, and deliver in
        /// time, never take each other for dead, and neither is silent for longer than its
        /// interval.
        #[test]
        fn two_ends_that_live_keep_each_other_alive(
            steps in prop::collection::vec((any::<bool>(), 1_u64..1_500), 1..200),
        ) {
            let start = Instant::now();
            let mut ends = [Heartbeat::new(INTERVAL, TIMEOUT, start); 2];
            let (mut sent, mut looked, mut spoke) = ([0_u64; 2], [start; 2], [start; 2]);
            let mut now = start;
            for (is_second, millis) in steps {
                now += Duration::from_millis(millis);
                for end in 0..2 {
                    let is_late = now >= looked[end] + ends[end].period();
                    if !is_late && usize::from(is_second) != end {
                        continue;
                    }
                    // Looks come a step late at the most.
                    looked[end] = now;
                    let beat = ends[end].look(sent[1 - end], sent[end], true, now);
                    prop_assert!(!beat.is_dead);
                    if beat.is_due {
                        sent[end] += 1;
                        spoke[end] = now;
                    }
                    let allowed = INTERVAL + ends[end].period() + Duration::from_millis(1_500);
                    prop_assert!(now.duration_since(spoke[end]) <= allowed);
                }
            }
        }
    }
}
