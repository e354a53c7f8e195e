//! One measurement: a client beside running servers, warmed up, then counted.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::drive::{Client, Pipe, Quota, Work, closed_loop, windowed};
use crate::meter::{Meter, Usage};
use crate::processes::{STALLED, Servers};
use crate::tally::Tally;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Before anything counts: connections, caches, buffers.
    pub warm_up: Quota,
    /// The part that counts.
    pub measured: Quota,
}

impl Effort {
    /// Longer than any measurement takes, however late its last operations end.
    pub fn longest(&self) -> Duration {
        STALLED.saturating_add(self.warm_up.time).saturating_add(self.measured.time)
    }
}

/// Result of one measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations and their latencies.
    pub tally: Tally,
    /// How long it took.
    pub elapsed: Duration,
    /// Resources that client and servers spent on it.
    pub usage: Usage,
}

impl Sample {
    /// A measurement that could not be made: nothing but the reason.
    pub fn none(reason: &anyhow::Error) -> Self {
        let mut tally = Tally::default();
        tally.complaint = Some(format!("{reason:#}"));
        Self { tally, elapsed: Duration::ZERO, usage: Usage::default() }
    }
}

/// Keeps a client busy while the servers are counted, too.
#[derive(Debug)]
pub struct Bencher<'a> {
    /// Work to keep the client busy with.
    pub work: Work,
    /// For how long.
    pub effort: Effort,
    /// The servers that answer.
    pub servers: &'a mut Servers,
}

impl Bencher<'_> {
    /// Callers that each wait for their answer.
    ///
    /// # Errors
    /// When a caller panicked or a server ended.
    pub async fn closed_loop(self, client: impl Client) -> Result<Sample> {
        let work = self.work.clone();
        self.sections(async |quota| closed_loop(&client, &work, quota).await).await
    }

    /// Callers on another thread, which answers each quota with what they did.
    ///
    /// # Errors
    /// When the thread or a server ended.
    pub async fn closed_loop_elsewhere(
        self,
        quotas: UnboundedSender<Quota>,
        mut tallies: UnboundedReceiver<Vec<Tally>>,
    ) -> Result<Sample> {
        self.sections(async |quota| {
            quotas.send(quota).ok().context("the thread of the callers has ended")?;
            tallies.recv().await.context("the thread of the callers has ended")
        })
        .await
    }

    /// One task with all requests on their way.
    ///
    /// # Errors
    /// When the pipe broke or a server ended.
    ///
    /// # Panics
    /// Never: each section has the pipe that the one before it gave back.
    pub async fn windowed<P: Pipe>(self, pipe: P) -> Result<Sample> {
        let in_flight = self.work.bench.in_flight();
        let mut idle = Some(pipe);
        self.sections(async |quota| {
            let pipe = idle.take().expect("every section gives it back");
            let (pipe, tally) = windowed(pipe, in_flight, quota).await?;
            idle = Some(pipe);
            Ok(vec![tally])
        })
        .await
    }

    /// Runs the warm-up, then what counts. Nothing is on its way at either end of a section, so the
    /// counters belong to its operations alone.
    async fn sections(
        self,
        mut section: impl AsyncFnMut(Quota) -> Result<Vec<Tally>>,
    ) -> Result<Sample> {
        section(self.effort.warm_up).await?;
        self.servers.begin()?;
        let (meter, begin) = (Meter::start(), Instant::now());
        let tallies = section(self.effort.measured).await?;
        let (elapsed, own) = (begin.elapsed(), meter.stop());
        let usage = own + self.servers.end()?;
        Ok(Sample { tally: Tally::sum(tallies), elapsed, usage })
    }
}
