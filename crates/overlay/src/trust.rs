//! Trust of a root in relays of its stream: how one loses it and gets it back.
//!
//! ```text
//!        timer, misses                    probation_min * 2^failures
//!  Trusted ────────▶ Suspect ───────────────────────────────────────▶ Probation
//!     ▲                 ▲                                              │    │
//!     │                 └──────────── timer, a miss ──────────────────┘    │
//!     └──────────── all behind it have acknowledged the probe ─────────────┘
//! ```
//! On probation a relay carries one frame at a time. Departs from ShallowForest, section 6.3, where
//! a suspect stays one.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::site::{Site, SiteSet};

/// Trust of one root in its relays. Those it says nothing of are trusted.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    suspects: BTreeMap<Site, Suspect>,
    past: BTreeMap<Site, Past>,
    /// Of relays that are trusted still, by who says so: what receivers have missed, less what has
    /// come since. A relay's own entry is what it was slow with.
    strikes: BTreeMap<(Site, Site), u32>,
    /// Relays that each receiver has accused, and that are not trusted again.
    accused: BTreeMap<Site, SiteSet>,
    min: Duration,
    max: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    until: Timestamp,
    failures: u32,
    /// The receiver that missed something.
    missed_by: Option<Site>,
    /// The one frame that it may carry meanwhile, once it is on probation.
    probe: Option<u64>,
}

/// A relay that was a suspect and is trusted again.
#[derive(Clone, Copy, Debug)]
struct Past {
    trusted_at: Timestamp,
    failures: u32,
    /// It had only been late: the first time lately.
    pardoned_at: Option<Timestamp>,
}

/// Number of the least pauses that a probe counts for: whoever is to acknowledge it may be gone for
/// good.
const PROBE_PAUSES: u32 = 10;

/// A relay is suspected after three frames that somebody missed, less one for each twenty that all
/// have acknowledged: one that drops more than one in twenty is found, and not one that a
/// connection has lost a frame of.
const STRIKES: u32 = 60;
/// So often in a row is a relay trusted again because what was missed has come after all. One that
/// is late again and again is slow, and has to prove itself like any other.
const PARDONS: u32 = 2;
const STRIKES_MISSED: u32 = 3;
/// Pardons in this time are for one failure: when an uplink stalls, one receiver after the other
/// misses what waits there.
const INCIDENT: Duration = Duration::from_secs(1);

impl Trust {
    /// All are trusted. The least and the most time that a suspect is not used.
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        let (suspects, past, strikes, accused) = Default::default();
        Self { suspects, past, strikes, accused, min, max }
    }

    /// True when a frame may be given to it now.
    pub(crate) fn is_usable(&self, now: Timestamp, relay: Site) -> bool {
        self.suspects.get(&relay).is_none_or(|suspect| now >= suspect.until)
    }

    /// True when it is neither suspect nor on probation.
    pub(crate) fn is_trusted(&self, relay: Site) -> bool {
        !self.suspects.contains_key(&relay)
    }

    /// All that are not trusted.
    pub(crate) fn suspects(&self) -> SiteSet {
        self.suspects.keys().copied().collect()
    }

    /// A frame was given to it.
    pub(crate) fn on_given(&mut self, now: Timestamp, relay: Site, seq: u64) {
        let pause = self.min.saturating_mul(PROBE_PAUSES);
        if let Some(suspect) = self.suspects.get_mut(&relay) {
            suspect.probe = Some(seq);
            suspect.until = now + pause;
        }
    }

    /// A frame was taken from it again before it left: it proves nothing.
    pub(crate) fn on_withdrawn(&mut self, now: Timestamp, relay: Site, seq: u64) {
        if let Some(suspect) = self.suspects.get_mut(&relay).filter(|it| it.probe == Some(seq)) {
            suspect.probe = None;
            suspect.until = now;
        }
    }

    /// Some behind it did not acknowledge in time. Whether it was trusted until now; none when this
    /// says nothing new.
    pub(crate) fn on_timeout(&mut self, now: Timestamp, relay: Site, seq: u64) -> Option<bool> {
        let failures = match self.suspects.get(&relay) {
            // What was given to it before it became a suspect fails for the same reason.
            Some(suspect) if suspect.probe != Some(seq) => return None,
            Some(suspect) => suspect.failures + 1,
            None => match self.past.get(&relay) {
                Some(past) if past.is_same(now) => past.failures,
                Some(past) if now.since(past.trusted_at) < self.max => past.failures + 1,
                _ => 0,
            },
        };
        let pause = self.min.saturating_mul(1 << failures.min(30)).min(self.max);
        let suspect = Suspect { until: now + pause, failures, missed_by: None, probe: None };
        Some(self.suspects.insert(relay, suspect).is_none())
    }

    /// A receiver says that it has missed a frame of it, or that it came changed. As
    /// [`Trust::on_timeout`]; one frame that is missed is not enough. Of `relays_max` relays a
    /// receiver is believed about half: one that misses what comes by all of them is at fault
    /// itself.
    pub(crate) fn on_missed(
        &mut self,
        now: Timestamp,
        (relay, by): (Site, Site),
        seq: u64,
        is_changed: bool,
        relays_max: usize,
    ) -> Option<bool> {
        let accused = self.accused.entry(by).or_default();
        if !accused.contains(relay) && accused.len() >= (relays_max / 2).max(1) {
            return None;
        }
        let strikes = if is_changed { STRIKES } else { STRIKES / STRIKES_MISSED };
        let is_new = self.strike(now, (relay, by), seq, strikes);
        if is_new.is_some() {
            self.accused.entry(by).or_default().insert(relay);
            let suspect = self.suspects.get_mut(&relay).filter(|_| !is_changed);
            suspect.into_iter().for_each(|suspect| suspect.missed_by = Some(by));
        }
        is_new
    }

    /// A frame by it took far too long, though it came. As [`Trust::on_timeout`]; one is not
    /// enough.
    pub(crate) fn on_slow(&mut self, now: Timestamp, relay: Site, seq: u64) -> Option<bool> {
        self.strike(now, (relay, relay), seq, STRIKES / STRIKES_MISSED)
    }

    /// Counts strikes against a relay. With enough of them, or if it is a suspect already, as
    /// [`Trust::on_timeout`].
    fn strike(
        &mut self,
        now: Timestamp,
        (relay, by): (Site, Site),
        seq: u64,
        more: u32,
    ) -> Option<bool> {
        if !self.suspects.contains_key(&relay) {
            *self.strikes.entry((relay, by)).or_default() += more;
            if self.strikes_of(relay).map(|strikes| *strikes).sum::<u32>() < STRIKES {
                return None;
            }
        }
        let is_new = self.on_timeout(now, relay, seq);
        if is_new.is_some() {
            self.strikes.retain(|(of, _), _| *of != relay);
        }
        is_new
    }

    fn strikes_of(&mut self, relay: Site) -> impl Iterator<Item = &mut u32> {
        self.strikes.range_mut((relay, Site(0))..=(relay, Site(u16::MAX))).map(|(_, it)| it)
    }

    /// Takes back what a receiver has missed, as it has come by the relay after all; what others
    /// have missed is theirs to take back. True if it is trusted again by that: if nobody else has
    /// anything against it, and it was not late again and again.
    pub(crate) fn on_late(&mut self, now: Timestamp, relay: Site, by: Site) -> bool {
        let past = self.past.get(&relay).filter(|past| now.since(past.trusted_at) < self.max);
        if past.is_none_or(|past| past.is_same(now) || past.failures + 1 < PARDONS) {
            self.strikes.remove(&(relay, by));
        }
        let is_pardoned = |it: &Suspect| it.missed_by == Some(by) && it.failures < PARDONS;
        let was_slow = self.suspects.get(&relay).is_some_and(is_pardoned);
        if was_slow {
            let before = self.past.get(&relay).filter(|past| past.is_same(now));
            let first = before.and_then(|past| past.pardoned_at).unwrap_or(now);
            self.absolve(now, relay, Some(first));
        }
        was_slow
    }

    fn absolve(&mut self, now: Timestamp, relay: Site, pardoned_at: Option<Timestamp>) {
        let Some(Suspect { failures, .. }) = self.suspects.remove(&relay) else { return };
        self.past.insert(relay, Past { trusted_at: now, failures, pardoned_at });
        self.accused.values_mut().for_each(|accused| {
            accused.remove(relay);
        });
    }

    /// All behind it have acknowledged a frame in time. Whether it is trusted again by that.
    pub(crate) fn on_acked(&mut self, now: Timestamp, relay: Site, seq: u64) -> bool {
        if let Some(strikes) = self.strikes_of(relay).max() {
            *strikes = strikes.saturating_sub(1);
        }
        let is_probe = self.suspects.get(&relay).is_some_and(|it| it.probe == Some(seq));
        if is_probe {
            self.absolve(now, relay, None);
        }
        is_probe
    }
}

impl Past {
    /// True when a failure now is the one that it was pardoned for.
    fn is_same(&self, now: Timestamp) -> bool {
        self.pardoned_at.is_some_and(|at| now.since(at) < INCIDENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: Site = Site(3);

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn trust() -> Trust {
        Trust::new(Duration::from_secs(1), Duration::from_secs(60))
    }

    #[test]
    fn a_suspect_comes_back_by_one_frame_at_a_time() {
        let mut trust = trust();
        assert!(trust.is_usable(at(0), RELAY) && trust.is_trusted(RELAY));
        assert_eq!(trust.on_timeout(at(0), RELAY, 1), Some(true));
        assert_eq!(trust.on_timeout(at(1), RELAY, 2), None, "an older frame of the same failure");
        assert!(!trust.is_usable(at(999), RELAY));
        assert!(trust.is_usable(at(1_000), RELAY));
        trust.on_given(at(1_000), RELAY, 9);
        assert!(!trust.is_usable(at(1_001), RELAY), "one at a time");
        assert!(!trust.on_acked(at(1_002), RELAY, 2), "not the probe");
        assert!(trust.on_acked(at(1_003), RELAY, 9));
        assert!(trust.is_trusted(RELAY) && trust.is_usable(at(1_003), RELAY));
    }

    #[test]
    fn every_failed_probation_doubles_the_pause_up_to_the_most() {
        let mut trust = trust();
        let mut now = at(0);
        assert_eq!(trust.on_timeout(now, RELAY, 0), Some(true));
        for (probe, pause) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            now = now + Duration::from_secs(pause);
            assert!(trust.is_usable(now, RELAY));
            assert!(!trust.is_usable(Timestamp::from_nanos(now.as_nanos() - 1), RELAY));
            trust.on_given(now, RELAY, probe as u64);
            assert_eq!(trust.on_timeout(now, RELAY, probe as u64), Some(false));
        }
    }

    #[test]
    fn one_that_fails_again_soon_after_its_probation_waits_longer() {
        let mut trust = trust();
        trust.on_timeout(at(0), RELAY, 0);
        trust.on_given(at(1_000), RELAY, 1);
        trust.on_acked(at(1_100), RELAY, 1);
        assert_eq!(trust.on_timeout(at(1_200), RELAY, 2), Some(true));
        assert!(!trust.is_usable(at(3_100), RELAY));
        assert!(trust.is_usable(at(3_200), RELAY));
    }

    #[test]
    fn what_receivers_miss_counts_together_and_what_comes_counts_against_it() {
        let mut trust = trust();
        let missed = |trust: &mut Trust, by| trust.on_missed(at(0), (RELAY, Site(by)), 1, false, 3);
        assert_eq!([missed(&mut trust, 1), missed(&mut trust, 2)], [None, None]);
        (0..20).for_each(|seq| assert!(!trust.on_acked(at(1), RELAY, seq)));
        assert_eq!([missed(&mut trust, 1), missed(&mut trust, 2)], [None, Some(true)]);
        let mut trust = self::trust();
        let changed = trust.on_missed(at(0), (RELAY, Site(1)), 1, true, 3);
        assert_eq!(changed, Some(true));
    }

    /// One receiver after the other misses what came late; then it does so again and again.
    #[test]
    fn what_was_late_in_one_second_is_pardoned_together() {
        let mut trust = trust();
        let mut suspect_and_pardon = |now, by| {
            let mut miss = || trust.on_missed(at(now), (RELAY, Site(by)), now, false, 8);
            let is_new = (0..STRIKES_MISSED).find_map(|_| miss());
            (is_new, trust.on_late(at(now + 10), RELAY, Site(by)))
        };
        for (round, by) in (0..9).zip([1, 2, 4].into_iter().cycle()) {
            assert_eq!(suspect_and_pardon(100 * round, by), (Some(true), true));
        }
        assert_eq!(suspect_and_pardon(2_000, 1), (Some(true), true), "a second time");
        assert_eq!(suspect_and_pardon(4_000, 1), (Some(true), false), "it is slow");
        assert!(!trust.is_usable(at(7_999), RELAY) && trust.is_usable(at(8_000), RELAY));
    }

    #[test]
    fn a_receiver_is_believed_about_half_of_the_relays() {
        let mut trust = trust();
        let mut accuse = |relay, by| trust.on_missed(at(0), (Site(relay), Site(by)), 1, true, 4);
        assert_eq!([accuse(1, 9), accuse(2, 9)], [Some(true); 2]);
        assert_eq!([accuse(3, 9), accuse(3, 8)], [None, Some(true)]);
    }

    #[test]
    fn a_probe_that_was_withdrawn_makes_room_for_another() {
        let mut trust = trust();
        trust.on_timeout(at(0), RELAY, 0);
        trust.on_given(at(1_000), RELAY, 5);
        trust.on_withdrawn(at(1_500), RELAY, 4);
        assert!(!trust.is_usable(at(2_000), RELAY));
        trust.on_withdrawn(at(1_500), RELAY, 5);
        assert!(trust.is_usable(at(2_000), RELAY));
        assert_eq!(trust.suspects(), SiteSet::EMPTY.with(RELAY));
    }
}
