//! The orderly end of a node.

use std::fmt;
use std::time::Duration;

use convoke::Endpoint;
use tokio::time::timeout;

use super::{NodeHealth, StopSignal};

/// The end of a node, in the order in which nothing is lost that need not be.
///
/// 1. It is not ready any more, so that nobody sends it new work.
/// 2. It hands its leadership over, while it can still talk to the others.
/// 3. Its endpoint refuses new requests, and lets those that run end.
/// 4. What the requests have left, its ledger above all, is closed.
///
/// Each has its time, and the next comes in any case. A second signal leaves out what is not done
/// yet: a node must survive a crash anyway.
///
/// The process ends after it on a runtime that waits for no thread, as that of `program::run` of
/// this crate. One that is dropped, as by `#[tokio::main]`, waits for whatever blocks: for a disk
/// that hangs, for ever.
#[derive(Debug)]
#[must_use = "it runs when it is told to"]
pub struct Shutdown {
    health: NodeHealth,
    hand_over_within: Duration,
    drain_within: Duration,
    close_within: Duration,
}

/// The way a node came to its end.
#[derive(Debug)]
#[must_use = "a ledger that could not be closed should be told"]
pub struct Ended<T> {
    /// Leadership was handed over, or there was none.
    pub handed_over: bool,
    /// All requests that ran have ended.
    pub drained: bool,
    /// The result of closing. `None` when it took too long, or was left out.
    pub closed: Option<T>,
    /// A second signal came.
    pub in_haste: bool,
}

impl Shutdown {
    /// That of a node with this health: 5 s to hand over, 10 s to drain, 10 s to close.
    pub fn new(health: &NodeHealth) -> Self {
        Self {
            health: health.clone(),
            hand_over_within: Duration::from_secs(5),
            drain_within: Duration::from_secs(10),
            close_within: Duration::from_secs(10),
        }
    }

    /// Longest time for handing over. Default 5 s; an election timeout or two are enough.
    pub fn hand_over_within(self, time: Duration) -> Self {
        Self { hand_over_within: time, ..self }
    }

    /// Longest time that running requests get. Default 10 s.
    pub fn drain_within(self, time: Duration) -> Self {
        Self { drain_within: time, ..self }
    }

    /// Longest time for closing. Default 10 s.
    pub fn close_within(self, time: Duration) -> Self {
        Self { close_within: time, ..self }
    }

    /// Ends the node.
    pub async fn run<T>(
        self,
        again: &mut StopSignal,
        hand_over: impl Future<Output = ()>,
        endpoint: Endpoint,
        close: impl Future<Output = T>,
    ) -> Ended<T> {
        let haste = async {
            again.received().await;
        };
        self.run_until(haste, hand_over, endpoint, close).await
    }

    /// Ends the node; `haste` takes the place of a second signal.
    pub async fn run_until<T>(
        self,
        haste: impl Future<Output = ()>,
        hand_over: impl Future<Output = ()>,
        endpoint: Endpoint,
        close: impl Future<Output = T>,
    ) -> Ended<T> {
        self.health.stopping();
        let mut ended = Ended { handed_over: false, drained: false, closed: None, in_haste: false };
        let steps = async {
            ended.handed_over = timeout(self.hand_over_within, hand_over).await.is_ok();
            ended.drained = endpoint.shutdown(self.drain_within).await;
            ended.closed = timeout(self.close_within, close).await.ok();
        };
        let in_haste = tokio::select! {
            biased;
            () = steps => false,
            () = haste => true,
        };
        ended.in_haste = in_haste;
        ended
    }
}

impl<T> Ended<T> {
    /// Nothing was cut short.
    pub fn is_orderly(&self) -> bool {
        self.handed_over && self.drained && self.closed.is_some()
    }
}

impl<T> fmt::Display for Ended<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_orderly() {
            return f.write_str("ended in good order");
        }
        f.write_str(if self.in_haste { "ended in haste" } else { "ended out of time" })?;
        let steps = [
            (self.handed_over, "leadership not handed over"),
            (self.drained, "requests cut short"),
            (self.closed.is_some(), "not closed"),
        ];
        for (_, step) in steps.into_iter().filter(|(done, _)| !done) {
            write!(f, ", {step}")?;
        }
        Ok(())
    }
}
