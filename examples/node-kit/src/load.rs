//! Load on a service, and what becomes of it: throughput, latencies, failures.
//!
//! ```text
//!   closed loop   each client asks again once it was answered: finds the most the service can do
//!   open loop     requests come at a rate, whoever waits: finds how long they take at that rate
//! ```
//! A closed loop asks less where the service stalls, so its latencies leave out those who would
//! have waited. An open loop does not: the latency of a request begins when it *should* have begun,
//! and those that found no free client until the end are told as [`Report::not_begun`].
//!
//! ```
//! use std::time::Duration;
//!
//! use node_kit::load::{self, Client, Outcome, Pace, Plan};
//!
//! struct Nothing;
//!
//! impl Client for Nothing {
//!     async fn operate(&mut self) -> Outcome {
//!         tokio::time::sleep(Duration::from_millis(2)).await;
//!         Outcome::Done
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let plan = Plan::new(Pace::Open { per_second: 1000.0 }).time(Duration::from_secs(2));
//! let report = load::run(&plan, [Nothing, Nothing, Nothing], |_| ()).await;
//! assert_eq!((report.completed, report.latency_us.p50 / 100), (2000, 20));
//! # }
//! ```
//! [`live()`] prints a line a second on a terminal and a line a minute elsewhere. A [`Report`] is
//! for JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use self::tally::Tallies;

mod live;
mod report;
mod tally;
#[cfg(test)]
mod tests;

pub use self::live::{Moment, live};
pub use self::report::{Latencies, Report};

/// One who asks the service, one request at a time.
pub trait Client: Send + 'static {
    /// Makes a request and waits for its end. It should end by itself: the run waits for it.
    fn operate(&mut self) -> impl Future<Output = Outcome> + Send;
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Done,
    /// It did not take effect, for a reason.
    Failed(String),
    /// Nobody knows whether it did, for a reason.
    Unknown(String),
}

/// The rule by which requests come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum Pace {
    /// Each client asks again once it was answered.
    Closed,
    /// So many a second, whoever waits. Those of a millisecond come together, since timers are no
    /// finer; a latency is less than a millisecond too short by that.
    Open {
        /// The rate.
        #[serde(rename = "asked_per_second")]
        per_second: f64,
    },
}

/// A run: how requests come, for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    pace: Pace,
    warm_up: Duration,
    time: Duration,
    requests: Option<u64>,
}

impl Plan {
    /// Ten seconds, after a warm-up of one.
    pub fn new(pace: Pace) -> Self {
        let (warm_up, time) = (Duration::from_secs(1), Duration::from_secs(10));
        Self { pace, warm_up, time, requests: None }
    }

    /// Time before anything is counted. Default 1 s.
    #[must_use]
    pub fn warm_up(self, warm_up: Duration) -> Self {
        Self { warm_up, ..self }
    }

    /// Time that is counted. Default 10 s.
    #[must_use]
    pub fn time(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// A closed loop that ends with the last of so many requests, however long they take. What is
    /// told as the time of the run is that until then.
    #[must_use]
    pub fn requests(count: u64) -> Self {
        Self { requests: Some(count), ..Self::new(Pace::Closed) }.time(COUNTED_WITHIN)
    }
}

/// Time beyond which no run of so many requests goes on.
const COUNTED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs a plan with these clients, and tells how it goes once a second of what is counted.
///
/// A request counts as completed by its end, and has its latency, failure and place by its
/// beginning: both within the time that is counted.
pub async fn run<C: Client>(
    plan: &Plan,
    clients: impl IntoIterator<Item = C>,
    mut tell: impl FnMut(&Moment),
) -> Report {
    let begin = Instant::now() + plan.warm_up;
    let run = Arc::new(Run {
        pace: plan.pace,
        begin,
        end: begin + plan.time,
        left: plan.requests.map(AtomicU64::new),
        tallies: Tallies::new(begin, plan.time),
        due: Mutex::default(),
        waiting: Semaphore::new(0),
    });
    let mut running = JoinSet::new();
    let count = clients.into_iter().enumerate().map(|(index, client)| {
        running.spawn(drive(run.clone(), index, client));
    });
    let count = count.count();
    let all_end = async {
        while let Some(ended) = running.join_next().await {
            if let Err(error) = ended {
                run.tallies.panicked(&error.to_string());
            }
        }
    };
    let watching = watch(&run.tallies, begin, plan.time, &mut tell);
    if plan.requests.is_some() {
        tokio::select! {
            () = all_end => {}
            () = watching => {}
        }
    } else {
        tokio::join!(pace(&run, plan.warm_up), watching);
        all_end.await;
    }
    Report::new(plan, count, &run.tallies)
}

/// Requests of an open loop that may wait for a client. Beyond, all that is learnt is that there
/// are too few of them, or that the service does not keep up.
const WAITING_MAX: usize = 1 << 20;

/// Time between two rounds of an open loop.
const TICK: Duration = Duration::from_millis(1);

struct Run {
    pace: Pace,
    begin: Instant,
    end: Instant,
    /// Requests that are still to be made once counting has begun, where they have a number.
    left: Option<AtomicU64>,
    tallies: Tallies,
    /// Requests of an open loop that should have begun, by when.
    due: Mutex<VecDeque<Instant>>,
    /// As many permits as are due.
    waiting: Semaphore,
}

impl Run {
    /// The time at which the next request of a client should begin. `None` when there is no more.
    async fn next(&self) -> Option<Instant> {
        match self.pace {
            Pace::Closed => {
                let now = Instant::now();
                (now < self.end && (now < self.begin || self.takes_one())).then_some(now)
            }
            Pace::Open { .. } => {
                let permit = self.waiting.acquire().await.ok()?;
                permit.forget();
                self.due.lock().pop_front()
            }
        }
    }

    /// Takes one of the requests that are left; true where they have no number.
    fn takes_one(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        let taken = |left: &AtomicU64| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        };
        self.left.as_ref().is_none_or(taken)
    }
}

async fn drive(run: Arc<Run>, index: usize, mut client: impl Client) {
    while let Some(due) = run.next().await {
        let outcome = client.operate().await;
        run.tallies.record(index, due, Instant::now(), outcome);
        // A client that is always answered at once still lets the others run.
        tokio::task::consume_budget().await;
    }
}

/// Makes the requests of an open loop due, from the warm-up to the end.
async fn pace(run: &Run, warm_up: Duration) {
    let Pace::Open { per_second } = run.pace else { return };
    let begun = Instant::now();
    let mut ticks = interval_at(begun, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    // Those of the warm-up and those that count are whole numbers of their own.
    let (mut made, total) = (0_u64, run.end - begun);
    let wanted = |elapsed: Duration| {
        let of = |time: Duration| (per_second * time.as_secs_f64()).round();
        of(elapsed.min(warm_up)) + of(elapsed.saturating_sub(warm_up))
    };
    loop {
        let tick = ticks.tick().await;
        if tick >= run.end {
            break;
        }
        let now = Instant::now();
        let due = if now - tick > TICK { tick } else { now.min(run.end - Duration::from_nanos(1)) };
        let wanted = wanted((tick + TICK - begun).min(total));
        let mut more = 0_u64;
        while ((made + more) as f64) < wanted {
            more += 1;
        }
        made += more;
        let mut waiting = run.due.lock();
        let room = (WAITING_MAX - waiting.len()) as u64;
        let taken = usize::try_from(more.min(room)).expect("it is below the bound");
        waiting.extend(std::iter::repeat_n(due, taken));
        drop(waiting);
        run.waiting.add_permits(taken);
        run.tallies.not_begun(due, more - taken as u64);
    }
    sleep_until(run.end).await;
    let left = std::mem::take(&mut *run.due.lock());
    run.waiting.close();
    for due in left {
        run.tallies.not_begun(due, 1);
    }
}

/// Tells each second what has happened in it.
async fn watch(tallies: &Tallies, begin: Instant, time: Duration, tell: &mut impl FnMut(&Moment)) {
    for second in 1..=time.as_secs() {
        sleep_until(begin + Duration::from_secs(second)).await;
        tell(&tallies.moment(Duration::from_secs(second)));
    }
    sleep_until(begin + time).await;
}
