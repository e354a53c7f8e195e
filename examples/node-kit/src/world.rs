//! Parts of seeded worlds, which run pure cores without sockets, disks and clocks: the next event,
//! the times of messages, the timer and the ledger of a process that may crash.
//!
//! ```text
//!   Schedule::next ─▶ event ─▶ core ─▶ effects ─┬▶ messages: Network::delay, late ─▶ Schedule
//!                                               ├▶ records, and what rests on them: Log
//!                                               └▶ the next timeout: Timer ─▶ Schedule
//! ```
//! Which events there are, what is true and what must never happen is the world's own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use convoke_sim::random::Random;

use crate::durable::{Durable, Held, Position, WaitQueue};

/// Events in the order of their times, those of one time in the order they were put in.
#[derive(Debug)]
pub struct Schedule<E> {
    now: Duration,
    events: BTreeMap<(Duration, u64), E>,
    order: u64,
}

impl<E> Schedule<E> {
    /// The time of the last event, since the beginning.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Puts in an event that comes after a pause.
    pub fn after(&mut self, pause: Duration, event: E) {
        self.at(self.now + pause, event);
    }

    /// Puts in an event that comes at a time.
    pub fn at(&mut self, time: Duration, event: E) {
        self.events.insert((time, self.order), event);
        self.order += 1;
    }

    /// Takes out the next event. With `None` there is no more until `end`, which is now.
    pub fn next(&mut self, end: Duration) -> Option<E> {
        let entry = self.events.first_entry()?;
        let ((time, _), event) = if entry.key().0 > end {
            self.now = end;
            return None;
        } else {
            entry.remove_entry()
        };
        self.now = time;
        Some(event)
    }
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self { now: Duration::ZERO, events: BTreeMap::new(), order: 0 }
    }
}

/// Faults of the network, and the times that messages take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Time of a message, in microseconds.
    pub delay_us: Range<u64>,
    /// Messages that are lost.
    pub lost_per_mille: u32,
    /// Messages that come twice.
    pub copied_per_mille: u32,
    /// Messages that take twenty times as long.
    pub late_per_mille: u32,
}

/// Half the time nothing, else some, below `most`.
pub fn odd(random: &mut Random, most: u32) -> u32 {
    if random.chance(50) {
        return 0;
    }
    u32::try_from(random.within(0..u64::from(most))).unwrap_or(0)
}

impl Network {
    /// Nothing goes wrong, and every message takes a millisecond.
    pub fn calm() -> Self {
        let delay_us = 1_000..1_001;
        Self { delay_us, lost_per_mille: 0, copied_per_mille: 0, late_per_mille: 0 }
    }

    /// Copies of a message that arrive: none of one that is lost.
    pub fn copies(&self, random: &mut Random) -> u32 {
        if random.per_mille(self.lost_per_mille) {
            return 0;
        }
        1 + u32::from(random.per_mille(self.copied_per_mille))
    }

    /// The time of a message that is not late.
    pub fn delay(&self, random: &mut Random) -> Duration {
        random.micros(self.delay_us.clone())
    }

    /// The time of a message that would take so long, and may be late.
    pub fn late(&self, random: &mut Random, delay: Duration) -> Duration {
        if random.per_mille(self.late_per_mille) { delay * 20 } else { delay }
    }

    /// Ends its faults.
    pub fn heal(&mut self) {
        self.lost_per_mille = 0;
        self.late_per_mille = 0;
    }
}

/// The one timer of a process, of which the schedule may hold events that are no longer due.
#[derive(Debug, Default)]
pub struct Timer(Option<Duration>);

impl Timer {
    /// The time to schedule it for, where that is not scheduled yet.
    pub fn arm(&mut self, due: Duration) -> Option<Duration> {
        if self.0.is_some_and(|armed| armed <= due) {
            return None;
        }
        self.0 = Some(due);
        Some(due)
    }

    /// True when it was armed and is due: it is not armed any more.
    pub fn take_due(&mut self, now: Duration) -> bool {
        self.0.take_if(|armed| *armed <= now).is_some()
    }
}

/// A ledger as a core's world has it: records, of which a part is durable, and what waits for them.
#[derive(Debug)]
pub struct Log<R, T> {
    records: Vec<R>,
    durable: usize,
    is_syncing: bool,
    waiting: WaitQueue<T>,
}

impl<R, T> Log<R, T> {
    /// A ledger of these records, all durable.
    pub fn new(records: Vec<R>) -> Self {
        let durable = records.len();
        Self { records, durable, is_syncing: false, waiting: WaitQueue::default() }
    }

    /// All records, as a process that starts reads them.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// Appends a record.
    pub fn append(&mut self, record: R) {
        self.records.push(record);
    }

    /// Keeps a value until all records so far are durable.
    pub fn hold(&mut self, value: Held<T>) {
        self.waiting.push(value.after(Position::new(self.records.len() as u64)));
    }

    /// Records that something waits for, if it does.
    pub fn awaited(&self) -> Option<usize> {
        let last = self.waiting.last()?.records();
        Some(usize::try_from(last).unwrap_or(usize::MAX))
    }

    /// True when nothing waits and nothing is being synced: it may be replaced.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_syncing
    }

    /// Begins a sync, if something waits and none is under way. True when it has begun.
    pub fn begin_sync(&mut self) -> bool {
        let begins = !self.is_syncing && !self.waiting.is_empty();
        self.is_syncing |= begins;
        begins
    }

    /// Ends a sync of so many records.
    pub fn synced(&mut self, records: usize) {
        self.is_syncing = false;
        self.durable = self.durable.max(records.min(self.records.len()));
    }

    /// Gives out the values that wait for nothing any more.
    pub fn release(&mut self) -> Vec<T> {
        let durable = Durable::in_memory(Position::new(self.durable as u64));
        std::iter::from_fn(|| self.waiting.pop(&durable)).collect()
    }

    /// Loses what waits, and of the records that are not durable all but some of the first, which
    /// `kept` decides.
    pub fn crash(&mut self, kept: u64) {
        let unsynced = (self.records.len() - self.durable) as u64;
        let kept = usize::try_from(kept % (unsynced + 1)).unwrap_or(0);
        let mut records = std::mem::take(&mut self.records);
        records.truncate(self.durable + kept);
        *self = Self::new(records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_not_behind_the_end() {
        let mut schedule = Schedule::default();
        let time = Duration::from_secs;
        schedule.after(time(2), 'c');
        schedule.at(time(1), 'a');
        schedule.at(time(1), 'b');
        assert_eq!((schedule.next(time(1)), schedule.now()), (Some('a'), time(1)));
        assert_eq!((schedule.next(time(1)), schedule.next(time(1))), (Some('b'), None));
        assert_eq!((schedule.next(time(3)), schedule.next(time(3))), (Some('c'), None));
    }

    #[test]
    fn a_timer_is_scheduled_again_only_for_an_earlier_time() {
        let (mut timer, time) = (Timer::default(), Duration::from_secs);
        assert_eq!((timer.arm(time(5)), timer.arm(time(6))), (Some(time(5)), None));
        assert_eq!(timer.arm(time(2)), Some(time(2)));
        assert!(!timer.take_due(time(1)) && timer.take_due(time(2)) && !timer.take_due(time(5)));
    }

    #[test]
    fn a_crash_keeps_what_is_durable_and_frees_nothing() {
        let mut log: Log<u8, &str> = Log::new(vec![1]);
        log.append(2);
        log.hold(Held::new("two"));
        assert!(log.begin_sync() && !log.begin_sync() && !log.is_idle());
        log.append(3);
        log.hold(Held::new("three"));
        log.synced(2);
        assert_eq!((log.release(), log.awaited()), (vec!["two"], Some(3)));
        log.crash(2);
        assert_eq!((log.records(), log.is_idle()), (&[1, 2][..], true));
        assert!(log.release().is_empty());
    }
}
