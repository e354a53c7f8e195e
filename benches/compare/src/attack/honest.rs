//! The honest client: a few callers, each with one call at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use convoke::{Endpoint, Peer};
use tokio::time::sleep;

use crate::lab::{BODY_BYTES, ECHO, Held, Room};
use crate::tally::Tally;

const CALLERS: usize = 8;

/// An endpoint that is connected to the victim, and listens, as an initiator may.
#[derive(Debug)]
pub(super) struct Honest {
    caller: Caller,
}

#[derive(Clone, Debug)]
struct Caller {
    endpoint: Endpoint,
    victim: Peer,
    deadline: Duration,
}

impl Honest {
    pub(super) async fn start(room: Room, victim: &str, deadline: Duration) -> Result<Self> {
        let endpoint = room.endpoint().transport(room.transport()?);
        let endpoint = endpoint.listen("tcp://127.0.0.1:0").start().await?;
        let victim = endpoint.connect(victim).await?;
        Ok(Self { caller: Caller { endpoint, victim, deadline } })
    }

    /// Address at which the honest client listens.
    pub(super) fn address(&self) -> String {
        self.caller.endpoint.addresses()[0].to_string()
    }

    /// True when nothing is left of its calls, and nobody but the victim is connected.
    pub(super) fn is_idle(&self) -> bool {
        let held = Held::from(self.caller.endpoint.load());
        held.is_idle() && held.connections == 1
    }

    /// Calls for some time.
    pub(super) async fn work(&self, time: Duration) -> Result<Tally> {
        let until = async {
            sleep(time).await;
            Ok(())
        };
        let (tally, ()) = self.work_until(until).await?;
        Ok(tally)
    }

    /// Calls until something has ended, and gives what that was.
    pub(super) async fn work_until<T>(
        &self,
        until: impl Future<Output = Result<T>>,
    ) -> Result<(Tally, T)> {
        let is_over = Arc::new(AtomicBool::new(false));
        let callers = (0..CALLERS).map(|_| tokio::spawn(self.caller.clone().call(is_over.clone())));
        let callers: Vec<_> = callers.collect();
        let ended = until.await;
        is_over.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for caller in callers {
            all.absorb(caller.await.context("a caller panicked")?);
        }
        Ok((all, ended?))
    }
}

impl Caller {
    async fn call(self, is_over: Arc<AtomicBool>) -> Tally {
        let mut tally = Tally::default();
        while !is_over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match self.echo().await {
                Ok(()) => tally.succeeded(begun.elapsed()),
                Err(error) => tally.failed(&error),
            }
        }
        tally
    }

    async fn echo(&self) -> Result<()> {
        let request = ECHO.request(vec![7; BODY_BYTES]);
        let call = self.endpoint.invoke(request).deadline(self.deadline);
        let reply = call.to(self.victim).await?;
        ensure!(reply.len() == BODY_BYTES, "a reply of {} bytes", reply.len());
        Ok(())
    }
}
