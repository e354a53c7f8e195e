//! Counts of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Moment, Outcome};

/// Shortest and longest latency that are told apart, in nanoseconds: 1 µs to 2 minutes.
const LATENCY_NS: (u64, u64) = (1_000, 120_000_000_000);

/// Parts of the counts, so that clients on several threads seldom wait for each other. Each has two
/// histograms of 150 KB.
const SHARDS: usize = 8;

/// Counts of all clients.
pub(super) struct Tallies {
    begin: Instant,
    end: Instant,
    shards: [Mutex<Shard>; SHARDS],
    not_begun: AtomicU64,
    /// Nanoseconds after the beginning at which something was completed last, and the longest time
    /// without.
    completed_at: AtomicU64,
    gap_max: AtomicU64,
}

struct Shard {
    /// Of this second, then of all.
    now: Tally,
    all: Tally,
}

/// Counts of some of them.
#[derive(Clone)]
pub(super) struct Tally {
    /// In nanoseconds, of those that were done.
    pub(super) latencies: Histogram<u64>,
    /// Ended as done within the time that counts.
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) unknown: u64,
    /// The first failure, in words.
    pub(super) complaint: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        let (low, high) = LATENCY_NS;
        let latencies = Histogram::new_with_bounds(low, high, 3).expect("the bounds are in order");
        Self { latencies, completed: 0, failed: 0, unknown: 0, complaint: None }
    }
}

impl Tally {
    fn absorb(&mut self, other: &Self) {
        self.latencies.add(&other.latencies).expect("all have the same bounds");
        self.completed += other.completed;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.complaint = self.complaint.take().or_else(|| other.complaint.clone());
    }

    fn clear(&mut self) {
        self.latencies.reset();
        (self.completed, self.failed, self.unknown, self.complaint) = (0, 0, 0, None);
    }
}

impl Tallies {
    pub(super) fn new(begin: Instant, time: Duration) -> Self {
        let shard = || Mutex::new(Shard { now: Tally::default(), all: Tally::default() });
        Self {
            begin,
            end: begin + time,
            shards: std::array::from_fn(|_| shard()),
            not_begun: AtomicU64::new(0),
            completed_at: AtomicU64::new(0),
            gap_max: AtomicU64::new(0),
        }
    }

    /// A request of a client that should have begun at `due` has ended.
    pub(super) fn record(&self, client: usize, due: Instant, ended: Instant, outcome: Outcome) {
        let counts = self.counts(due);
        let mut shard = self.shards[client % SHARDS].lock();
        let tally = &mut shard.now;
        match outcome {
            Outcome::Done => {
                if self.counts(ended) {
                    tally.completed += 1;
                    self.completed(ended);
                }
                if counts {
                    tally.latencies.saturating_record(nanos(ended - due));
                }
            }
            Outcome::Failed(why) if counts => {
                tally.failed += 1;
                tally.complaint.get_or_insert(why);
            }
            Outcome::Unknown(why) if counts => {
                tally.unknown += 1;
                tally.complaint.get_or_insert(why);
            }
            Outcome::Failed(_) | Outcome::Unknown(_) => {}
        }
    }

    /// A client did not survive its own request.
    pub(super) fn panicked(&self, why: &str) {
        let mut shard = self.shards[0].lock();
        shard.now.unknown += 1;
        shard.now.complaint.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn not_begun(&self, due: Instant, count: u64) {
        if self.counts(due) {
            self.not_begun.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts since it was asked last.
    pub(super) fn moment(&self, elapsed: Duration) -> Moment {
        let mut tally = Tally::default();
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            tally.absorb(&shard.now);
            shard.all.absorb(&shard.now);
            shard.now.clear();
        }
        Moment::new(elapsed, &tally)
    }

    /// All of the run, once it has ended.
    pub(super) fn total(&self) -> Tally {
        self.moment(Duration::ZERO);
        let mut total = Tally::default();
        self.shards.iter().for_each(|shard| total.absorb(&shard.lock().all));
        total
    }

    pub(super) fn not_begun_count(&self) -> u64 {
        self.not_begun.load(Ordering::Relaxed)
    }

    /// The time after the beginning at which something was completed last.
    pub(super) fn completed_at(&self) -> Duration {
        Duration::from_nanos(self.completed_at.load(Ordering::Relaxed))
    }

    /// The longest time within a run of this time in which nothing was completed.
    pub(super) fn gap_max(&self, time: Duration) -> Duration {
        let last = nanos(time) - self.completed_at.load(Ordering::Relaxed);
        Duration::from_nanos(self.gap_max.load(Ordering::Relaxed).max(last))
    }

    fn completed(&self, at: Instant) {
        let at = nanos(at - self.begin);
        let before = self.completed_at.fetch_max(at, Ordering::Relaxed);
        self.gap_max.fetch_max(at.saturating_sub(before), Ordering::Relaxed);
    }

    fn counts(&self, at: Instant) -> bool {
        self.begin <= at && at < self.end
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
