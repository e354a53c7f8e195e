//! Many calls over one connection that nobody answers, and small ones beside them.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use convoke::{Call, Endpoint, Peer};
use serde::{Deserialize, Serialize};

use crate::lab::{BODY_BYTES, ECHO, Held, HeldByBoth, Host, NEVER, PerOne, Remote, until};

use super::Part;

/// Cost of open calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// How many.
    pub count: usize,
    /// Resident memory for each while they are open.
    pub resident_bytes_each: PerOne,
    /// Resident memory for each right after they were cancelled.
    pub resident_bytes_each_cancelled: PerOne,
    /// Small calls, one at a time, before there are any others.
    pub small_per_second_alone: f64,
    /// The same beside the open ones.
    pub small_per_second_beside: f64,
    /// How long it took to open them.
    pub open_seconds: f64,
    /// The tables while they are open.
    pub open: HeldByBoth,
    /// The tables once all have been cancelled.
    pub cancelled: HeldByBoth,
    /// The tables once nothing of them can still come.
    pub settled: HeldByBoth,
}

/// The first of many calls ends before the last is open.
const LATE: &str = "some calls have ended, most likely late: raise --deadline-s";

/// Small calls whose rate is measured.
const SMALL_CALLS: usize = 2_000;

/// Calls opened or cancelled before the connection is given time to carry them, so that no buffer
/// grows for it.
const BURST: usize = 500;

pub(super) async fn measure(program: &Path, part: &Part) -> Result<CallRow> {
    let mut server = Remote::start(program, &Host::new(1, part.room()))?;
    let endpoint = part.room().endpoint().transport(part.room().transport()?).start().await?;
    let peer = endpoint.connect(server.address()).await?;
    let client = Client { endpoint, peer };
    client.small_calls().await?; // to warm up
    let small_per_second_alone = client.small_calls().await?;
    let before = server.states(&client.endpoint)?;

    let begun = Instant::now();
    let is_late = || begun.elapsed() >= part.deadline();
    let calls = client.open(part.count, is_late).await?;
    server.until("all handlers run", |held| held.tasks >= part.count || is_late()).await?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let small_per_second_beside = client.small_calls().await?;
    let open = server.states(&client.endpoint)?;
    let is_all = (open.client.held.calls, open.server.held.tasks) == (part.count, part.count);
    ensure!(is_all, LATE);

    client.cancel(calls).await?;
    server.until("all handlers have ended", |held| held.tasks == 0).await?;
    let longest = part.room().longest();
    until(longest, "no call is unsettled", || Ok(client.endpoint.load().unsettled == 0)).await?;
    ensure!(!is_late(), "cancelled calls were settled by their deadline, not by their tasks");
    let cancelled = server.states(&client.endpoint)?;
    until(longest, "the client holds nothing", || Ok(endpoint_is_idle(&client.endpoint))).await?;
    server.until("the server holds nothing", Held::is_idle).await?;
    let settled = server.states(&client.endpoint)?;
    ensure!(settled.client.held.connections == 1, "the connection was lost on the way");
    Ok(CallRow {
        count: part.count,
        resident_bytes_each: open.each(&before, part.count),
        resident_bytes_each_cancelled: cancelled.each(&before, part.count),
        small_per_second_alone,
        small_per_second_beside,
        open_seconds,
        open: open.held(),
        cancelled: cancelled.held(),
        settled: settled.held(),
    })
}

fn endpoint_is_idle(endpoint: &Endpoint) -> bool {
    Held::from(endpoint.load()).is_idle()
}

struct Client {
    endpoint: Endpoint,
    peer: Peer,
}

impl Client {
    async fn open(&self, count: usize, is_late: impl Fn() -> bool) -> Result<Vec<Call<Vec<u8>>>> {
        let mut calls = Vec::with_capacity(count);
        for number in 1..=count {
            let request = NEVER.request(vec![0; BODY_BYTES]);
            let call = self.endpoint.invoke(request).to(self.peer).open();
            calls.push(call.with_context(|| format!("call {number} of {count}"))?);
            if number % BURST == 0 {
                // Waits its turn behind them.
                let replied = self.small_call().await;
                ensure!(!is_late(), LATE);
                replied?;
            }
        }
        Ok(calls)
    }

    async fn cancel(&self, mut calls: Vec<Call<Vec<u8>>>) -> Result<()> {
        while !calls.is_empty() {
            calls.truncate(calls.len().saturating_sub(BURST));
            self.small_call().await?;
        }
        Ok(())
    }

    /// Their rate.
    async fn small_calls(&self) -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..SMALL_CALLS {
            self.small_call().await?;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is a small constant")]
        let count = SMALL_CALLS as f64;
        Ok(count / begun.elapsed().as_secs_f64())
    }

    async fn small_call(&self) -> Result<()> {
        let request = ECHO.request(vec![0; BODY_BYTES]);
        let reply = self.endpoint.invoke(request).to(self.peer).await?;
        ensure!(reply.len() == BODY_BYTES, "a reply of {} bytes", reply.len());
        Ok(())
    }
}
