//! One phase: callers at full rate, and what happens beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use tokio::time::{sleep, timeout};

use crate::lab::until;
use crate::processes::STALLED;

use super::phase::{Kind, Phase};
use super::row::SettleRow;
use super::subject::{Client, Subject};
use super::watch::{Counts, Watch};

/// Callers, each with one call at a time.
const CALLERS: usize = 64;
/// How long a server that was killed is away.
const AWAY: Duration = Duration::from_secs(1);
/// How long a call that is cancelled may wait for its answer.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long a phase is: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) time: Duration,
    pub(super) calls: u64,
}

/// State that callers share.
#[derive(Debug, Default)]
struct Shared {
    counts: Arc<Counts>,
    number: AtomicU64,
    is_over: AtomicBool,
}

/// Some time without interruption, and the calls in it.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    time: Duration,
    calls: u64,
}

pub(super) async fn phase(
    subject: &mut impl Subject,
    phase: Phase,
    load: Load,
) -> Result<SettleRow> {
    let shared = Arc::new(Shared::default());
    let client = subject.client();
    let open = (phase == Phase::OneOpen).then(|| {
        let client = client.clone();
        tokio::spawn(async move { client.never().await })
    });
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(caller(client.clone(), phase, Arc::clone(&shared))))
        .collect();
    let server = subject.server().take().context("there is a server")?;
    let watch = Watch::begin(server, client.clone(), Arc::clone(&shared.counts), begun);
    let mut away = None;
    let (stretches, server, looks) = if phase == Phase::Restarted {
        let first = work(&shared, load, 3).await;
        let (server, mut looks) = watch.end();
        drop(server);
        subject.kill();
        let killed = Instant::now();
        sleep(AWAY).await;
        subject.start_again()?;
        until_answered(&shared).await?;
        away = Some(killed.elapsed());
        let server = subject.server().take().context("it was started again")?;
        let watch = Watch::begin(server, client, Arc::clone(&shared.counts), begun);
        let second = work(&shared, load, 1).await;
        let (server, more) = watch.end();
        looks.extend(more);
        ([first, second], server, looks)
    } else {
        let only = work(&shared, load, 1).await;
        let (server, looks) = watch.end();
        ([only, Stretch::default()], server, looks)
    };
    *subject.server() = Some(server);
    shared.is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        let ended = timeout(STALLED, caller).await.context("a call does not end")?;
        ended.context("a caller panicked")?;
    }
    if let Some(open) = open {
        ensure!(!open.is_finished(), "the call that was to stay open has ended");
        open.abort();
    }
    let time: Duration = stretches.iter().map(|stretch| stretch.time).sum();
    let calls: u64 = stretches.iter().map(|stretch| stretch.calls).sum();
    #[expect(clippy::cast_precision_loss, reason = "calls are far below 2^52")]
    let per_second = calls as f64 / time.as_secs_f64();
    let failed = shared.counts.failed.load(Ordering::Relaxed);
    Ok(SettleRow::new(subject.name(), phase, (per_second, failed), away, looks))
}

/// Lets callers work for a part of a phase.
async fn work(shared: &Shared, load: Load, part: u32) -> Stretch {
    let calls = || shared.counts.calls.load(Ordering::Relaxed);
    let (begun, before) = (Instant::now(), calls());
    let enough = before.saturating_add(load.calls / u64::from(part));
    while begun.elapsed() < load.time / part && calls() < enough {
        let left = (load.time / part).saturating_sub(begun.elapsed());
        sleep(left.min(Duration::from_millis(20))).await;
    }
    Stretch { time: begun.elapsed(), calls: calls() - before }
}

/// Waits for the first call that a new server has answered.
async fn until_answered(shared: &Shared) -> Result<()> {
    let calls = || shared.counts.calls.load(Ordering::Relaxed);
    let before = calls();
    until(STALLED, "the new server has answered a call", || Ok(calls() != before)).await
}

async fn caller(client: impl Client, phase: Phase, shared: Arc<Shared>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let number = shared.number.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let result = match phase.kind_of(number) {
            Kind::Echo => client.echo().await,
            Kind::NotFound => client.not_found().await,
            Kind::Rest => {
                sleep(PATIENCE).await;
                Ok(())
            }
            Kind::Cancelled => {
                // What is left of it is dropped, unless there was nothing to cancel.
                match timeout(PATIENCE, client.never()).await {
                    Ok(()) => Err(anyhow!("it has ended by itself")),
                    Err(_) => Ok(()),
                }
            }
        };
        match result {
            Ok(()) => shared.counts.ended(begun.elapsed()),
            Err(_) => {
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
