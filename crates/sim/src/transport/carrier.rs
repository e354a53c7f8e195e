//! Uplinks and downlinks that the connections of a node share: frames on their way through a
//! [`Hose`].
//!
//! A frame stays in the pipe of its connection; what goes through the hose is a token that says
//! whose next frame has arrived. Since a pair keeps its order in the hose, it is the right one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_proto::time::Timestamp;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::network::Network;
use super::topology::Pair;
use super::wire::{Side, Wire};
use crate::hose::{Hose, Limits};

/// A frame of the data lane that this side of a connection has sent.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    wire: Weak<Wire>,
    side: Side,
}

#[derive(Debug)]
pub(crate) struct Carrier {
    hose: Hose<NodeId, Token>,
    /// Start of the hose's time: the first frame, since a network may be made before its
    /// clock.
    start: Option<Instant>,
}

impl Token {
    pub(crate) fn of(wire: &Weak<Wire>, side: Side) -> Self {
        Self { wire: Weak::clone(wire), side }
    }
}

impl Carrier {
    pub(crate) fn new() -> Self {
        Self { hose: Hose::new(), start: None }
    }

    pub(crate) fn uplink(&mut self, node: NodeId, kbit_per_s: Option<u64>) {
        self.hose.uplink(node, Limits { kbit_per_s, ..Limits::default() });
    }

    pub(crate) fn downlink(&mut self, node: NodeId, kbit_per_s: Option<u64>) {
        self.hose.downlink(node, Limits { kbit_per_s, ..Limits::default() });
    }

    pub(crate) fn send(
        &mut self,
        now: Instant,
        pair: Pair,
        bytes: usize,
        latency: Duration,
        token: Token,
    ) {
        let start = *self.start.get_or_insert(now);
        let now = Timestamp::ZERO + now.saturating_duration_since(start);
        self.hose.send(now, pair.0, pair.1, bytes as u64, latency, token);
    }

    /// Tokens of the frames that have arrived by `now`, with the times.
    fn arrivals(&mut self, now: Instant) -> Vec<(Instant, Token)> {
        let Some(start) = self.start else { return Vec::new() };
        let now = Timestamp::ZERO + now.saturating_duration_since(start);
        let arrivals = std::iter::from_fn(|| self.hose.poll_arrival(now));
        let arrivals =
            arrivals.map(|arrival| (start + arrival.at.since(Timestamp::ZERO), arrival.item));
        arrivals.collect()
    }

    fn next_due(&self) -> Option<Instant> {
        let at = self.hose.poll_timeout()?;
        Some(self.start? + at.since(Timestamp::ZERO))
    }
}

/// Starts what moves frames through the hose, within a runtime. It ends with the network, or when
/// its runtime does.
pub(crate) fn start(network: &Arc<Network>) -> JoinHandle<()> {
    tokio::spawn(run(Arc::downgrade(network), Arc::clone(&network.carried)))
}

async fn run(network: Weak<Network>, carried: Arc<Notify>) {
    while let Some(network) = network.upgrade() {
        let next = deliver(&network, Instant::now());
        // Held over the wait it would keep the network alive.
        drop(network);
        match next {
            None => carried.notified().await,
            Some(until) => tokio::select! {
                biased;
                () = carried.notified() => {}
                () = sleep_until(until) => {}
            },
        }
    }
}

/// Hands over what has arrived. When to do so again.
fn deliver(network: &Network, now: Instant) -> Option<Instant> {
    let (arrivals, next) = {
        let mut topology = network.topology.lock();
        let carrier = topology.carrier.as_mut()?;
        (carrier.arrivals(now), carrier.next_due())
    };
    for (at, token) in arrivals {
        if let Some(wire) = token.wire.upgrade() {
            wire.carried(token.side, at);
        }
    }
    next
}
