//! Calls at a rate, and what became of them.

use std::time::Duration;

use anyhow::Context as _;
use convoke_core::{Endpoint, Peer};
use node_kit::load::{self, Client, Outcome, Pace, Plan, Report};
use tokio::time::Instant;

use super::ECHO;
use super::bulk::Bulk;
use crate::protocol::{Called, Calls};

/// Dials before an end gives up: on a path with losses, one may take too long.
const DIALS_MAX: u32 = 10;

impl Calls {
    /// Connects, and makes them.
    pub(super) async fn make(&self, endpoint: &Endpoint) -> anyhow::Result<Called> {
        let peer = self.connect(endpoint).await?;
        let (warm_up, time) =
            (Duration::from_secs(self.warm_up), Duration::from_secs(self.seconds));
        let plan = Plan::new(Pace::Open { per_second: self.per_second });
        let plan = plan.warm_up(warm_up).time(time);
        let begin = Instant::now() + warm_up;
        let bulk = Bulk::new(endpoint, peer, self.bulk_bytes, begin..begin + time);
        let caller = || Caller { endpoint: endpoint.clone(), peer, request: vec![7; self.bytes] };
        let callers = std::iter::repeat_with(caller).take(self.callers);
        let report = tokio::select! {
            report = load::run(&plan, callers, |_| ()) => report,
            error = bulk.ask() => return Err(error.context("asking for large replies")),
        };
        Ok(Called {
            bulk_mbit: bulk.came_bytes() as f64 * 8.0 / time.as_secs_f64() / 1e6,
            ..report.into()
        })
    }

    async fn connect(&self, endpoint: &Endpoint) -> anyhow::Result<Peer> {
        for _ in 1..DIALS_MAX {
            match endpoint.connect(&self.address).await {
                Ok(peer) => return Ok(peer),
                Err(error) => eprintln!("dialling again: {error}"),
            }
        }
        endpoint.connect(&self.address).await.with_context(|| format!("dialling {}", self.address))
    }
}

/// Asks for its own request, once at a time.
struct Caller {
    endpoint: Endpoint,
    peer: Peer,
    request: Vec<u8>,
}

impl Client for Caller {
    async fn operate(&mut self) -> Outcome {
        match self.endpoint.call(ECHO, self.request.clone()).to(self.peer).await {
            Ok(_) => Outcome::Done,
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

impl From<Report> for Called {
    fn from(report: Report) -> Self {
        let ms = |us: u64| us as f64 / 1e3;
        Self {
            per_second: report.per_second,
            p50_ms: ms(report.latency_us.p50),
            p99_ms: ms(report.latency_us.p99),
            p999_ms: ms(report.latency_us.p999),
            max_ms: ms(report.latency_us.max),
            failed: report.failed + report.unknown,
            not_begun: report.not_begun,
            complaint: report.complaint,
            bulk_mbit: 0.0,
        }
    }
}
