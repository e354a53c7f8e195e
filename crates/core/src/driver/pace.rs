//! Pace at which a node that is kept connected is dialled: pure, with times handed in.

use std::time::Duration;

use convoke_proto::limits::Limits;
use convoke_proto::time::Timestamp;

/// Pause after the last dial of a node, which doubles with each dial until a connection lasts.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Dials since a connection has lasted, or the node has had its addresses.
    dials: u32,
    /// When the last dial ended or, while it goes on, began.
    dialled: Timestamp,
    pause: Duration,
}

/// Longest pause for who comes anew. Some come and go a thousand times a second.
const ASKED_PAUSE: Duration = Duration::from_secs(1);

impl Pace {
    /// When the node may be dialled again.
    pub(super) fn due(&self) -> Timestamp {
        self.dialled + self.pause
    }

    /// A dial begins. The pause after it holds however it ends: a peer that takes connections and
    /// ends them is not dialled as fast as that goes.
    pub(super) fn begin(&mut self, now: Timestamp, limits: &Limits, seed: u64) {
        let ceiling = limits.backoff_min * 2_u32.saturating_pow(self.dials.min(16));
        self.pause = jitter(ceiling.min(limits.backoff_max), seed, self.dials);
        self.dials = self.dials.saturating_add(1);
        self.dialled = now;
    }

    /// The dial has ended, whatever it has led to.
    pub(super) fn end(&mut self, now: Timestamp) {
        self.dialled = now;
    }

    /// Somebody wants the connection anew: true where the node is dialled sooner for it.
    pub(super) fn ask(&mut self) -> bool {
        let before = self.pause;
        self.pause = before.min(ASKED_PAUSE);
        self.pause < before
    }

    /// The peer has connected by itself: once that ends the node is dialled.
    pub(super) fn end_pause(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// The node has other addresses, or a connection to it has lasted: nothing that failed before
    /// says anything of the next dial.
    pub(super) fn renew(&mut self) {
        (self.dials, self.pause) = (0, Duration::ZERO);
    }

    /// True when nobody who wants the connection again need know of the dials before.
    pub(super) fn is_past(&self, now: Timestamp, limits: &Limits) -> bool {
        now >= self.dialled + limits.backoff_max.max(ASKED_PAUSE)
    }
}

/// Between a half of `ceiling` and all of it, so that the peers of a node that comes back do not
/// all come at once. From a seed, so that simulations replay.
fn jitter(ceiling: Duration, seed: u64, attempt: u32) -> Duration {
    let mixed = (seed ^ u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let part = u32::try_from(mixed % 1_024).expect("it is below 1,024");
    ceiling / 2 + ceiling / 2_048 * part
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// The pause after a dial that ends at once.
    fn pause_ms(pace: &mut Pace, now: Timestamp) -> u128 {
        pace.begin(now, &Limits::default(), 7);
        pace.end(now);
        pace.due().since(now).as_millis()
    }

    #[test]
    fn a_pause_doubles_up_to_its_bound_and_is_short_again_once_a_connection_has_lasted() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(), at(0));
        let ceilings = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000];
        for ceiling in ceilings {
            let pause = pause_ms(&mut pace, at(0));
            assert!((ceiling / 2..=ceiling).contains(&pause), "{pause} of {ceiling} ms");
        }
        pace.renew();
        assert_eq!(pace.due(), at(0));
        assert!((25..=50).contains(&pause_ms(&mut pace, at(0))));
    }

    #[test]
    fn who_comes_anew_leaves_a_second_after_the_last_dial_and_what_led_to_the_pause() {
        let mut pace = Pace::default();
        while pause_ms(&mut pace, at(0)) < 2_500 {}
        assert!(pace.ask() && !pace.ask());
        assert_eq!(pace.due(), at(1_000));
        assert!(pause_ms(&mut pace, at(1_000)) >= 2_500);
        // Also while it is dialled.
        pace.begin(at(5_000), &Limits::default(), 7);
        assert!(pace.ask());
        pace.end(at(15_000));
        assert_eq!(pace.due(), at(16_000));
        // A shorter pause stays.
        let mut pace = Pace::default();
        pause_ms(&mut pace, at(0));
        assert!(!pace.ask() && pace.due() <= at(50));
    }

    #[test]
    fn a_dial_that_never_ends_is_paused_after_and_what_is_long_ago_is_past() {
        let (mut pace, limits) = (Pace::default(), Limits::default());
        pace.begin(at(1_000), &limits, 7);
        assert!(at(1_025) <= pace.due() && pace.due() <= at(1_050));
        pace.end(at(2_000));
        assert!(!pace.is_past(at(6_999), &limits) && pace.is_past(at(7_000), &limits));
    }

    #[test]
    fn a_pause_is_between_a_half_and_the_whole_and_differs_by_node_and_attempt() {
        let ceiling = Duration::from_millis(100);
        let pauses: Vec<Duration> = (0..50)
            .flat_map(|seed| (0..3).map(move |attempt| jitter(ceiling, seed, attempt)))
            .collect();
        assert!(pauses.iter().all(|pause| *pause >= ceiling / 2 && *pause <= ceiling));
        let mut distinct = pauses.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 25, "{} distinct", distinct.len());
    }
}
