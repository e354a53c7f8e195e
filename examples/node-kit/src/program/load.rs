//! Clients that know what they were told: each writes keys of its own, and now and then one that
//! all share.

mod caller;
mod verdict;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use console::{Progress, say};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::caller::Caller;
use super::store::Store;
use crate::history::Recorder;

pub use self::verdict::Verdict;

/// Time in which writes have to go on, on a machine with much else to do.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);

/// Time between two looks at how it goes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Clients at work. Dropping it ends them.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<Vec<(String, String)>>,
    /// The task that says how it goes.
    watching: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    recorder: Recorder,
    is_over: AtomicBool,
    pace: Mutex<Pace>,
}

/// Answers so far, and pauses between them.
#[derive(Debug)]
struct Pace {
    begun: Instant,
    acknowledged: u64,
    last: Instant,
    longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        Self { begun: now, acknowledged: 0, last: now, longest: Duration::ZERO }
    }
}

impl Pace {
    /// The time so far, and what came of it.
    fn words(&self) -> String {
        let (seconds, count) = (self.begun.elapsed().as_secs_f64(), self.acknowledged);
        format!("{seconds:6.1} s  {count:>8} writes acknowledged")
    }
}

impl Shared {
    /// Takes note that a request has an answer.
    fn progressed(&self) {
        let mut pace = self.pace.lock();
        let now = Instant::now();
        pace.longest = pace.longest.max(now - pace.last);
        (pace.last, pace.acknowledged) = (now, pace.acknowledged + 1);
    }
}

/// Answers that the clients were given.
#[derive(Debug)]
pub struct Loaded {
    /// Writes of keys that nobody else writes.
    pub acknowledged: Vec<(String, String)>,
    /// All calls, and their answers.
    pub recorder: Recorder,
}

impl Loaded {
    /// Calls of which nobody knows what became of them.
    pub fn unknown(&self) -> usize {
        let history = self.recorder.history();
        history.entries.iter().filter(|entry| entry.outcome.is_none()).count()
    }
}

impl Load {
    /// Lets these go to work, and says how it goes by a [`Progress`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(clients: impl IntoIterator<Item = impl Store>) -> Self {
        let shared = Arc::new(Shared::default());
        let (mut at_work, mut watching) = (JoinSet::new(), JoinSet::new());
        for (id, client) in (1..).zip(clients) {
            at_work.spawn(Caller::new(client, Arc::clone(&shared), id).run());
        }
        watching.spawn(watch(Arc::clone(&shared)));
        Self { clients: at_work, watching, shared }
    }

    /// Prints what happens, with the time.
    ///
    /// # Errors
    /// Those of [`say`].
    pub fn tell(&self, what: impl Display) -> Result<()> {
        let words = self.shared.pace.lock().words();
        say(format_args!("{words}  {what}"))
    }

    /// Measures pauses from now on.
    pub fn begin_gap(&self) {
        let mut pace = self.shared.pace.lock();
        (pace.last, pace.longest) = (Instant::now(), Duration::ZERO);
    }

    /// The longest time without an acknowledged write since then.
    pub fn end_gap(&self) -> Duration {
        let pace = self.shared.pace.lock();
        pace.longest.max(pace.last.elapsed())
    }

    /// Waits until another write is acknowledged.
    ///
    /// # Errors
    /// When none is for a minute.
    pub async fn progress(&self) -> Result<()> {
        let count = || self.shared.pace.lock().acknowledged;
        let (before, end) = (count(), Instant::now() + PROGRESS_WITHIN);
        while count() == before {
            if Instant::now() > end {
                bail!("no write was acknowledged for {} s", PROGRESS_WITHIN.as_secs());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// All calls so far, and those to come.
    pub fn recorder(&self) -> Recorder {
        self.shared.recorder.clone()
    }

    /// Lets all end, each with its last request.
    ///
    /// # Errors
    /// When one has panicked.
    pub async fn end(mut self) -> Result<Loaded> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.watching.shutdown().await;
        let mut acknowledged = Vec::new();
        while let Some(ended) = self.clients.join_next().await {
            acknowledged.extend(ended?);
        }
        Ok(Loaded { acknowledged, recorder: self.shared.recorder.clone() })
    }
}

/// Says how it goes, until it is ended.
async fn watch(shared: Arc<Shared>) {
    let mut line = Progress::new();
    loop {
        let words = {
            let pace = shared.pace.lock();
            format!("{}, the last {:>5} ms ago", pace.words(), pace.last.elapsed().as_millis())
        };
        line.tell(words);
        sleep(LOOK_EVERY).await;
    }
}
