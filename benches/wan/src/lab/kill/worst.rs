//! Latencies before and after a kill, and whether they are bounded as they should be.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;

use crate::protocol::{Came, PART_NS};

/// Time before the kill that counts, as half seconds: connections have opened their windows by then.
const BEFORE: u64 = 6;

/// Time that others may take to find out about a relay that says nothing, in round trips between the
/// farthest sites and a second. After as much again nothing is late any more.
const ROUND_TRIPS: u32 = 3;
const SILENCE: Duration = Duration::from_secs(1);

/// The longest latencies of what was offered between sites that live.
#[derive(Debug, Default)]
pub(super) struct Worst {
    /// Before anything could be held up by the kill, once windows were open.
    before: Duration,
    /// By half seconds since the kill; the first is the one that it was in, with the two before it.
    after: BTreeMap<u64, Duration>,
}

impl Worst {
    pub(super) fn take(&mut self, came: &Came, killed_ns: u64) {
        let killed = killed_ns / PART_NS;
        for (part, us) in &came.worst_us {
            let took = Duration::from_micros(*us);
            if (killed.saturating_sub(BEFORE)..killed.saturating_sub(2)).contains(part) {
                self.before = self.before.max(took);
            } else if *part + 2 >= killed {
                let after = self.after.entry(part.saturating_sub(killed)).or_default();
                *after = took.max(*after);
            }
        }
    }

    /// # Errors
    /// When something took too long, or still did after it should not any more.
    pub(super) fn judge(&self, round_trip: Duration) -> anyhow::Result<()> {
        let by_part: Vec<_> = self.after.values().map(Duration::as_millis).collect();
        println!(
            "the worst delivery took {} ms before, and by half seconds from then on {by_part:?} ms",
            self.before.as_millis()
        );
        let bound = SILENCE + ROUND_TRIPS * round_trip;
        let hit = self.after.values().max().copied().unwrap_or_default();
        ensure!(
            hit <= bound + self.before,
            "{hit:?} is more than {bound:?} beyond {:?}",
            self.before
        );
        let over = bound + SILENCE;
        let parts = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX).div_ceil(PART_NS);
        let late = self.after.range(parts..).map(|(_, took)| *took).max().unwrap_or_default();
        ensure!(
            late <= self.before * 2,
            "{over:?} after the kill it still took {late:?}, {:?} before",
            self.before,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: u64 = 100;

    fn worst(parts: &[(u64, u64)]) -> Worst {
        let worst_us = parts.iter().map(|(part, ms)| (*part, ms * 1_000)).collect();
        let mut worst = Worst::default();
        worst.take(&Came { operations: 1, worst_us }, KILLED * PART_NS + 7);
        worst
    }

    #[test]
    fn a_kill_may_cost_a_second_and_three_round_trips_once() {
        let round_trip = Duration::from_millis(200);
        let judge = |parts: &[(u64, u64)]| worst(parts).judge(round_trip).is_ok();
        assert!(judge(&[(96, 100), (99, 1_600), (100, 1_700), (101, 150), (110, 190)]));
        assert!(!judge(&[(96, 100), (100, 1_701)]), "too long");
        assert!(!judge(&[(96, 100), (100, 700), (106, 250)]), "not over in time");
        assert!(judge(&[(10, 9_000), (96, 100), (100, 700)]), "windows were not open yet");
    }
}
