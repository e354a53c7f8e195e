//! Members that join and leave at random while nodes are hurt.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use convoke::NodeId;
use convoke_sim::random::Random;
use paxos::client::{Client, ClientError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::Local;
use super::super::client::connect;

/// Pauses between two changes, in microseconds.
const PAUSE_US: Range<u64> = 20_000..1_200_000;

/// Time for a change to be in the log, after which nobody knows if it will be.
const WITHIN: Duration = Duration::from_secs(2);

/// Of ten changes, so many let a node join that is to vote,
const JOIN: u64 = 6;
/// and so many one that only learns. The rest are nodes that leave.
const LEARN: u64 = 1;

/// Somebody who changes the members all the time.
pub(super) struct Changing {
    working: JoinHandle<Changes>,
    over: watch::Sender<bool>,
}

/// Changes that were asked for, by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    /// In the log, or so already.
    taken: u64,
    refused: u64,
    unknown: u64,
    epoch: u64,
}

impl Changing {
    /// Begins. The seed draws what is asked for, and when.
    pub(super) async fn start(local: &Local, seed: u64) -> Result<Self> {
        let operator = Operator {
            client: connect(local.cluster(), None, WITHIN).await?.anyway(true),
            random: Random::of(seed, 13),
            nodes: local.ids().count() as u64,
        };
        let (over, is_over) = watch::channel(false);
        Ok(Self { working: tokio::spawn(operator.run(is_over)), over })
    }

    /// Lets the last change end.
    pub(super) async fn end(self) -> Result<Changes> {
        self.over.send_replace(true);
        Ok(self.working.await?)
    }
}

struct Operator {
    client: Client,
    random: Random,
    nodes: u64,
}

impl Operator {
    async fn run(mut self, mut over: watch::Receiver<bool>) -> Changes {
        let mut changes = Changes::default();
        loop {
            let pause = self.random.micros(PAUSE_US);
            tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => break,
                () = sleep(pause) => {}
            }
            let node = NodeId::new(self.random.within(1..self.nodes + 1));
            let (what, changed) = match self.random.within(0..10) {
                draw if draw < JOIN => ("joins", self.client.join(node, Vec::new(), false).await),
                draw if draw < JOIN + LEARN => {
                    ("is to learn", self.client.join(node, Vec::new(), true).await)
                }
                _ => ("leaves", self.client.leave(node).await),
            };
            changes.count(&changed);
            let told = changed.err().map_or("taken".to_owned(), |error| error.to_string());
            let words = format!("          node {} {what}: {told}", node.get());
            let _ = console::say(words); // the end of the run will say that nobody reads
        }
        changes.epoch = self.epoch().await;
        changes
    }

    /// The latest epoch that any node knows.
    async fn epoch(&self) -> u64 {
        let mut latest = 0;
        for node in (1..=self.nodes).map(NodeId::new) {
            let Ok(state) = self.client.inspect(node).await else { continue };
            let now = state.membership.and_then(|known| known.now);
            latest = latest.max(now.map_or(0, |members| members.epoch));
        }
        latest
    }
}

impl Changes {
    fn count(&mut self, changed: &Result<(), ClientError>) {
        match changed {
            Ok(()) => self.taken += 1,
            Err(ClientError::OutcomeUnknown(_)) => self.unknown += 1,
            Err(_) => self.refused += 1,
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, refused, unknown, epoch } = self;
        let in_force = epoch.saturating_sub(1);
        write!(f, "{in_force} changes of the members in force, of {taken} that were taken, ")?;
        write!(f, "{refused} that were not, and {unknown} of which nobody knew")
    }
}
