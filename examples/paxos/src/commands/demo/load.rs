//! Clients of the demonstration: each writes keys of its own, and now and then one that all share.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use node_kit::history::{Call, Outcome, Pending, Recorder};
use parking_lot::Mutex;
use paxos::client::{Client, ClientError};
use paxos::proto::Scan;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::super::Cluster;
use super::super::client::connect;

/// Keys that all clients write.
const SHARED_KEYS: u64 = 4;

/// Every so many requests of a client are about a shared key.
const SHARED_EVERY: u64 = 8;

/// Keys of single clients begin so.
const OWN: &str = "own/";

/// Time in which writes have to go on, on a machine with much else to do.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);

/// Clients at work.
pub(super) struct Load {
    clients: JoinSet<Vec<(String, String)>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    recorder: Recorder,
    is_over: AtomicBool,
    progress: Mutex<Progress>,
}

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

/// Answers that the clients were given.
pub(super) struct Loaded {
    /// Writes of keys that nobody else writes.
    pub(super) acknowledged: Vec<(String, String)>,
    pub(super) recorder: Recorder,
}

impl Load {
    pub(super) async fn start(cluster: &Cluster, clients: u64) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut load = Self { clients: JoinSet::new(), shared: Arc::clone(&shared) };
        for id in 1..=clients {
            let client = connect(cluster, Duration::from_secs(10)).await?;
            let caller = Caller { client, shared: Arc::clone(&shared), id, count: 0 };
            load.clients.spawn(caller.run());
        }
        if std::io::stdout().is_terminal() {
            tokio::spawn(live(shared));
        }
        Ok(load)
    }

    /// Prints what happens, with the time.
    pub(super) fn tell(&self, what: &str) {
        let progress = self.shared.progress.lock();
        let (seconds, count) = (progress.begun.elapsed().as_secs_f64(), progress.acknowledged);
        println!("\r{seconds:6.1} s  {count:>8} writes acknowledged  {what}");
    }

    /// Measures pauses from now on.
    pub(super) fn begin_gap(&self) {
        let mut progress = self.shared.progress.lock();
        (progress.last, progress.longest) = (Instant::now(), Duration::ZERO);
    }

    /// The longest time without an acknowledged write since then.
    pub(super) fn end_gap(&self) -> Duration {
        let progress = self.shared.progress.lock();
        progress.longest.max(progress.last.elapsed())
    }

    /// Waits until another write is acknowledged.
    pub(super) async fn progress(&self) -> Result<()> {
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

    pub(super) async fn end(mut self) -> Result<Loaded> {
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

struct Caller {
    client: Client,
    shared: Arc<Shared>,
    id: u64,
    count: u64,
}

impl Caller {
    async fn run(mut self) -> Vec<(String, String)> {
        let mut acknowledged = Vec::new();
        while !self.shared.is_over.load(Ordering::Relaxed) {
            self.count += 1;
            if self.count.is_multiple_of(SHARED_EVERY) {
                self.swap().await;
                continue;
            }
            let key = format!("{OWN}{}/{:08}", self.id, self.count);
            let value = format!("{}-{}", self.id, self.count);
            if self.put(key.clone(), value.clone()).await {
                acknowledged.push((key, value));
            }
        }
        acknowledged
    }

    fn record(&self, key: &str, call: Call) -> Pending {
        self.shared.recorder.call(self.id, key, call)
    }

    async fn put(&mut self, key: String, value: String) -> bool {
        let call = self.record(&key, Call::Put { value: value.clone() });
        let put = self.client.put(key, value).await;
        let is_done = put.is_ok();
        self.end(call, put.map(|()| Outcome::Done));
        is_done
    }

    /// Reads a shared key, and writes another value if it is still what was read.
    async fn swap(&mut self) {
        let key = format!("shared/{}", self.count / SHARED_EVERY % SHARED_KEYS);
        let call = self.record(&key, Call::Get);
        let expected = match self.client.get(key.clone()).await {
            Ok(found) => {
                call.returned(Outcome::Found(found.clone().map(text)));
                found
            }
            Err(_) => return call.did_not_run(), // a read has no effect
        };
        let value = format!("{}-{}", self.id, self.count);
        let asked = Call::Cas { expected: expected.clone().map(text), value: value.clone() };
        let call = self.record(&key, asked);
        let swapped = self.client.cas(key, expected, value).await;
        self.end(
            call,
            swapped.map(|swapped| match swapped {
                Ok(()) => Outcome::Applied(true),
                Err(found) => Outcome::Found(found.map(text)),
            }),
        );
    }

    fn end(&self, call: Pending, result: Result<Outcome, ClientError>) {
        match result {
            Ok(outcome) => {
                call.returned(outcome);
                let mut progress = self.shared.progress.lock();
                let now = Instant::now();
                progress.longest = progress.longest.max(now - progress.last);
                (progress.last, progress.acknowledged) = (now, progress.acknowledged + 1);
            }
            Err(ClientError::OutcomeUnknown(_)) => call.unknown(),
            Err(_) => call.did_not_run(),
        }
    }
}

fn text(bytes: Bytes) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All keys of single clients, and a recorded read of each shared one.
pub(super) async fn read_back(
    client: &mut Client,
    recorder: &Recorder,
) -> Result<BTreeMap<String, String>> {
    for number in 0..SHARED_KEYS {
        let key = format!("shared/{number}");
        let call = recorder.call(0, &key, Call::Get);
        call.returned(Outcome::Found(client.get(key).await?.map(text)));
    }
    let mut stored = BTreeMap::new();
    let mut scan = Scan { prefix: OWN.into(), ..Scan::default() };
    loop {
        let scanned = client.scan(scan.clone()).await?;
        stored.extend(scanned.pairs.into_iter().map(|pair| (text(pair.key), text(pair.value))));
        let Some(next) = scanned.next else { return Ok(stored) };
        scan.from = next;
    }
}
