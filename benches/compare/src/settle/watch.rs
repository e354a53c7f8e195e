//! A thread that looks at a server ten times a second while callers are busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::subject::{Client, Watched};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(100);

/// Counts that callers keep while they work.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Calls that ended as they should.
    pub(super) calls: AtomicU64,
    /// Calls that failed though they should not.
    pub(super) failed: AtomicU64,
    /// The longest round trip since it was last looked at, in nanoseconds.
    round_trip_ns: AtomicU64,
}

impl Counts {
    pub(super) fn ended(&self, round_trip: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let round_trip = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip_ns.fetch_max(round_trip, Ordering::Relaxed);
    }
}

/// A server at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Since the begin of the phase.
    pub at_s: f64,
    /// Calls a second since the look before.
    pub per_second: f64,
    /// Resident memory of the server; null where the system does not tell, or there is no server.
    pub resident_bytes: Option<u64>,
    /// Calls that the server remembers; null where the system does not say.
    pub remembered: Option<usize>,
    /// The most that it may remember by the calls that are not settled, their rate and their round
    /// trip.
    pub allowed: Option<usize>,
}

/// The thread. It has the server meanwhile.
#[derive(Debug)]
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Watched, Vec<Look>)>,
}

impl Watch {
    /// Looks at a server from now on, for a phase that began then.
    pub(super) fn begin(
        mut server: Watched,
        client: impl Client,
        counts: Arc<Counts>,
        begun: Instant,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (mut looks, mut last) = (Vec::new(), Window::begin(&counts));
            while !over.load(Ordering::Relaxed) {
                thread::park_timeout(EVERY);
                let window = Window::begin(&counts);
                let unsettled = client.unsettled();
                // A server that has ended is for the callers to notice.
                let Ok(holds) = server.holds() else { break };
                let per_second = window.rate_since(&last);
                let allowed = unsettled.map(|unsettled| {
                    let time = Duration::from_millis(5) + window.round_trip.max(last.round_trip);
                    #[expect(clippy::cast_possible_truncation, reason = "a rate is a small number")]
                    #[expect(clippy::cast_sign_loss, reason = "a rate is not negative")]
                    let new = (per_second * time.as_secs_f64()).ceil() as usize;
                    (2 * unsettled).max(64) + new
                });
                looks.push(Look {
                    at_s: begun.elapsed().as_secs_f64(),
                    per_second,
                    resident_bytes: holds.resident_bytes,
                    remembered: holds.remembered,
                    allowed,
                });
                last = window;
            }
            (server, looks)
        });
        Self { is_over, thread }
    }

    /// Gives the server back, and what was seen of it.
    pub(super) fn end(self) -> (Watched, Vec<Look>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("the thread that looks does not panic")
    }
}

struct Window {
    at: Instant,
    calls: u64,
    round_trip: Duration,
}

impl Window {
    /// The counts now; the longest round trip begins anew.
    fn begin(counts: &Counts) -> Self {
        Self {
            at: Instant::now(),
            calls: counts.calls.load(Ordering::Relaxed),
            round_trip: Duration::from_nanos(counts.round_trip_ns.swap(0, Ordering::Relaxed)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "calls are far below 2^52")]
    fn rate_since(&self, earlier: &Self) -> f64 {
        (self.calls - earlier.calls) as f64 / (self.at - earlier.at).as_secs_f64()
    }
}
