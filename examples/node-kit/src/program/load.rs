//! Clients that know what they were told: each writes keys of its own, and now and then one that
//! all share.

mod caller;
mod verdict;

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::caller::Caller;
use super::store::Store;
use crate::history::Recorder;

pub use self::verdict::Verdict;

/// Time in which writes have to go on, on a machine with much else to do.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);

/// Clients at work. Dropping it ends them.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<Vec<(String, String)>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    recorder: Recorder,
    is_over: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    begun: Instant,
    acknowledged: u64,
    last: Instant,
    longest: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        let now = Instant::now();
        Self { begun: now, acknowledged: 0, last: now, longest: Duration::ZERO }
    }
}

impl Shared {
    /// Takes note that a request has an answer.
    fn progressed(&self) {
        let mut progress = self.progress.lock();
        let now = Instant::now();
        progress.longest = progress.longest.max(now - progress.last);
        (progress.last, progress.acknowledged) = (now, progress.acknowledged + 1);
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
    /// Lets these go to work. On a terminal a line says how it goes.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(clients: impl IntoIterator<Item = impl Store>) -> Self {
        let shared = Arc::new(Shared::default());
        let mut load = Self { clients: JoinSet::new(), shared: Arc::clone(&shared) };
        for (id, client) in (1..).zip(clients) {
            load.clients.spawn(Caller::new(client, Arc::clone(&shared), id).run());
        }
        if std::io::stdout().is_terminal() {
            tokio::spawn(live(shared));
        }
        load
    }

    /// Prints what happens, with the time.
    pub fn tell(&self, what: &str) {
        let progress = self.shared.progress.lock();
        let (seconds, count) = (progress.begun.elapsed().as_secs_f64(), progress.acknowledged);
        println!("\r{seconds:6.1} s  {count:>8} writes acknowledged  {what}");
    }

    /// Measures pauses from now on.
    pub fn begin_gap(&self) {
        let mut progress = self.shared.progress.lock();
        (progress.last, progress.longest) = (Instant::now(), Duration::ZERO);
    }

    /// The longest time without an acknowledged write since then.
    pub fn end_gap(&self) -> Duration {
        let progress = self.shared.progress.lock();
        progress.longest.max(progress.last.elapsed())
    }

    /// Waits until another write is acknowledged.
    ///
    /// # Errors
    /// When none is for a minute.
    pub async fn progress(&self) -> Result<()> {
        let count = || self.shared.progress.lock().acknowledged;
        let (before, end) = (count(), Instant::now() + PROGRESS_WITHIN);
        while count() == before {
            if Instant::now() > end {
                bail!("no write was acknowledged for {} s", PROGRESS_WITHIN.as_secs());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Lets all end, each with its last request.
    ///
    /// # Errors
    /// When one has panicked.
    pub async fn end(mut self) -> Result<Loaded> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        while let Some(ended) = self.clients.join_next().await {
            acknowledged.extend(ended?);
        }
        Ok(Loaded { acknowledged, recorder: self.shared.recorder.clone() })
    }
}

/// A line that changes.
async fn live(shared: Arc<Shared>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        {
            let progress = shared.progress.lock();
            let (seconds, count) = (progress.begun.elapsed().as_secs_f64(), progress.acknowledged);
            let pause = progress.last.elapsed().as_millis();
            print!(
                "\r{seconds:6.1} s  {count:>8} writes acknowledged, the last {pause:>5} ms ago "
            );
        }
        let _ = std::io::stdout().flush(); // a terminal that is gone
        sleep(Duration::from_millis(100)).await;
    }
}
