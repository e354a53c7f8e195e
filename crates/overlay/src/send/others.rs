//! Parts of the own stream that are for others: each site is told which sequence numbers it is not to wait
//! for, until it has acknowledged them.

use std::collections::VecDeque;
use std::time::Duration;

use convoke_core::time::Timestamp;

/// Ranges of sequence numbers that one site does not get: the first of each and the one after its
/// last, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    ranges: VecDeque<(u64, u64)>,
    /// Number of those that it was told since its link is up.
    told: usize,
    /// The last time it was told all of them again.
    again_at: Option<Timestamp>,
}

/// Ranges remembered of one site. What it was not told when it was away for longer it asks others
/// for, who may give it: a body that no request of it waits for.
const RANGES_MAX: usize = 1 << 12;

impl Others {
    pub(super) fn push(&mut self, from: u64, to: u64) {
        let is_last_told = self.told == self.ranges.len();
        match self.ranges.back_mut().filter(|last| last.1 == from && !is_last_told) {
            Some(last) => last.1 = to,
            None => self.ranges.push_back((from, to)),
        }
        if self.ranges.len() > RANGES_MAX {
            self.forget_first();
        }
    }

    /// Takes the first of those that it was not told.
    pub(super) fn tell(&mut self, max: usize) -> Vec<(u64, u64)> {
        let ranges: Vec<_> = self.ranges.iter().skip(self.told).take(max).copied().collect();
        self.told += ranges.len();
        ranges
    }

    /// The first sequence number that it was not told.
    pub(super) fn untold(&self) -> Option<u64> {
        self.ranges.get(self.told).map(|(from, _)| *from)
    }

    /// It may have lost all that it was told.
    pub(super) fn tell_again(&mut self) {
        self.told = 0;
    }

    /// It still waits for one of them: it is told again, once in so long.
    pub(super) fn on_waits(&mut self, now: Timestamp, seq: u64, every: Duration) {
        let is_one = self.ranges.iter().any(|(from, to)| (*from..*to).contains(&seq));
        if is_one && self.again_at.is_none_or(|at| at + every <= now) {
            self.again_at = Some(now);
            self.tell_again();
        }
    }

    /// It has acknowledged all below `next`.
    pub(super) fn on_acked(&mut self, next: u64) {
        while self.ranges.front().is_some_and(|(_, to)| *to <= next) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        self.ranges.pop_front();
        self.told = self.told.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn each_range_is_told_once_and_again_when_it_was_lost_until_it_is_acknowledged() {
        let mut others = Others::default();
        others.push(0, 2);
        others.push(2, 3);
        assert_eq!(others.tell(9), [(0, 3)]);
        others.push(3, 4);
        others.push(6, 7);
        assert_eq!(others.untold(), Some(3));
        assert_eq!(others.tell(1), [(3, 4)]);
        assert_eq!(others.tell(9), [(6, 7)]);
        assert_eq!((others.tell(9), others.untold()), (vec![], None));
        others.on_acked(3);
        others.on_waits(at(0), 5, Duration::from_secs(1));
        assert_eq!(others.tell(9), []);
        others.on_waits(at(0), 3, Duration::from_secs(1));
        assert_eq!(others.tell(9), [(3, 4), (6, 7)]);
        others.on_waits(at(999), 3, Duration::from_secs(1));
        assert_eq!(others.tell(9), []);
        others.on_waits(at(1_000), 3, Duration::from_secs(1));
        others.on_acked(7);
        assert_eq!((others.tell(9), others.told), (vec![], 0));
    }

    #[test]
    fn who_was_away_for_too_long_is_not_told_all() {
        let mut others = Others::default();
        (0..5_000).for_each(|at| others.push(2 * at, 2 * at + 1));
        assert_eq!(others.tell(10_000).len(), RANGES_MAX);
    }
}
