//! Workloads A to D of *RAM-ified Part-Time Parliament* (Domene, Guimaraes and Arroyo, 2016, section
//! 3): proposers, each at a node of its own, and the time until what they propose is chosen.
//!
//! The paper's proposer is a part of its machine, and all proposers of a decree compete by ballots.
//! Here a proposer is a client beside its node; that of the leader proposes, and others hand what
//! they are asked to it. A time is from asking to the answer, which the leader gives once it has
//! applied what was chosen.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use console::say;
use convoke::NodeId;
use paxos::client::{Client, Options, Shape};
use paxos::settings;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Local;
use super::client::{endpoint_for, leader};

/// Time for a proposal, long beyond what one takes.
const WITHIN: Duration = Duration::from_secs(30);

/// A run: how proposals are made, for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Proposers. The first is at the leader, the others are at nodes of the highest number.
    pub(super) proposers: usize,
    /// Pause of each between the beginnings of two proposals, if the first is over by then.
    pub(super) every: Duration,
    pub(super) time: Duration,
    /// Bytes of a proposal.
    pub(super) payload: usize,
    pub(super) shape: Shape,
}

/// Fate of the proposals of one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposed {
    pub(super) node: u64,
    /// Of those that were chosen, in microseconds.
    pub(super) times_us: Vec<u64>,
    /// The ends of the same.
    pub(super) ended: Vec<Instant>,
    /// Keys that were written.
    pub(super) keys: Vec<String>,
    /// Proposals that have failed, or of which nobody knows.
    pub(super) failed: u64,
    pub(super) complaint: Option<String>,
}

/// Times of several proposals, in microseconds; all 0 of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Times {
    pub(super) count: usize,
    pub(super) min_us: u64,
    pub(super) p50_us: u64,
    pub(super) p90_us: u64,
    pub(super) max_us: u64,
}

impl Times {
    pub(super) fn of(mut times_us: Vec<u64>) -> Self {
        times_us.sort_unstable();
        let Some(last) = times_us.len().checked_sub(1) else { return Self::default() };
        let [min_us, p50_us, p90_us, max_us] = [0, 50, 90, 100].map(|of| times_us[last * of / 100]);
        Self { count: times_us.len(), min_us, p50_us, p90_us, max_us }
    }
}

/// Proposers at work.
#[derive(Debug)]
pub(super) struct Proposers {
    /// Nodes of the proposers; the first leads.
    pub(super) nodes: Vec<u64>,
    running: JoinSet<Proposed>,
    /// True of those whose machine is gone.
    gone: Vec<watch::Sender<bool>>,
}

impl Proposers {
    /// Connects to the nodes, proposes something at each, and begins. Keys begin with `name`.
    pub(super) async fn start(local: &Local, course: Course, name: &str) -> Result<Self> {
        let nodes = nodes(local, course.proposers).await?;
        let mut ready = Vec::new();
        for node in &nodes {
            ready.push(Proposer::connect(local, *node, course, name).await?);
        }
        let begun = Instant::now();
        let (mut running, mut gone) = (JoinSet::new(), Vec::new());
        for (place, proposer) in (0_u32..).zip(ready) {
            let (end, is_gone) = watch::channel(false);
            gone.push(end);
            // Each starts a little later than the one before.
            let late = course.every * place / u32::try_from(nodes.len())?;
            running.spawn(proposer.run(begun + late, begun + course.time, is_gone));
        }
        Ok(Self { nodes, running, gone })
    }

    /// The machine of a proposer dies, and the proposer with it.
    pub(super) fn die(&self, place: usize) {
        self.gone[place].send_replace(true);
    }

    /// Waits until all are done. In the order of [`nodes`](Self::nodes).
    pub(super) async fn end(mut self) -> Result<Vec<Proposed>> {
        let mut all = Vec::new();
        while let Some(ended) = self.running.join_next().await {
            all.push(ended?);
        }
        all.sort_by_key(|proposed| self.nodes.iter().position(|node| *node == proposed.node));
        Ok(all)
    }
}

/// The leader, and others.
async fn nodes(local: &Local, count: usize) -> Result<Vec<u64>> {
    let leader = leader(local).await?;
    let others = local.ids().rev().filter(|node| *node != leader);
    let nodes: Vec<u64> = [leader].into_iter().chain(others).take(count).collect();
    if nodes.len() < count {
        bail!("{count} proposers want a node each, and there are {}", nodes.len());
    }
    Ok(nodes)
}

/// One who proposes at a node.
struct Proposer {
    node: u64,
    client: Client,
    course: Course,
    name: Arc<str>,
}

impl Proposer {
    async fn connect(local: &Local, node: u64, course: Course, name: &str) -> Result<Self> {
        let endpoint = endpoint_for(course.shape, local.client()?, local.cluster()).await?;
        let mut options = Options::new(local.cluster().id(), node ^ seed());
        (options.deadline, options.attempt) = (WITHIN, WITHIN / 6);
        (options.at, options.shape) = (Some(NodeId::try_from(node)?), course.shape);
        let client = Client::new(&endpoint, &settings::members(local.cluster())?, options);
        let mut proposer = Self { node, client, course, name: name.into() };
        // Of its connection and its session nothing is measured.
        let first = proposer.client.put(format!("{name}/{node}/first"), value(0, course.payload));
        first.await.with_context(|| format!("at node {node}"))?;
        Ok(proposer)
    }

    async fn run(
        mut self,
        begin: Instant,
        end: Instant,
        mut gone: watch::Receiver<bool>,
    ) -> Proposed {
        let mut proposed = Proposed { node: self.node, ..Proposed::default() };
        let mut ticks = interval_at(begin, self.course.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 1.. {
            let is_over = tokio::select! {
                biased;
                _ = gone.wait_for(|gone| *gone) => true,
                () = self.propose(&mut ticks, end, number, &mut proposed) => Instant::now() >= end,
            };
            if is_over {
                break;
            }
        }
        proposed
    }

    /// Makes the next proposal, if it comes before the end.
    async fn propose(
        &mut self,
        ticks: &mut tokio::time::Interval,
        end: Instant,
        number: u64,
        proposed: &mut Proposed,
    ) {
        if ticks.tick().await >= end {
            return;
        }
        let key = key(&self.name, self.node, number);
        let value = value(number, self.course.payload);
        let begun = Instant::now();
        match self.client.put(key.clone(), value).await {
            Ok(()) => {
                let ended = Instant::now();
                let time = u64::try_from((ended - begun).as_micros()).unwrap_or(u64::MAX);
                proposed.times_us.push(time);
                proposed.ended.push(ended);
                proposed.keys.push(key);
            }
            Err(error) => {
                proposed.failed += 1;
                proposed.complaint.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// Counts the proposals that are not there as they were made.
pub(super) async fn lost(
    client: &mut Client,
    proposed: &[Proposed],
    payload: usize,
) -> Result<usize> {
    let mut lost = 0;
    for key in proposed.iter().flat_map(|proposed| &proposed.keys) {
        let number = key.rsplit('/').next().and_then(|number| number.parse().ok());
        let wanted = number.map(|number| value(number, payload));
        if client.get(key.clone()).await? != wanted {
            say(format_args!("LOST: {key}"))?;
            lost += 1;
        }
    }
    Ok(lost)
}

fn key(name: &str, node: u64, number: u64) -> String {
    format!("{name}/{node}/{number}")
}

/// The number of a proposal, several times: as the paper makes large ones.
fn value(number: u64, bytes: usize) -> Bytes {
    number.to_string().bytes().cycle().take(bytes).collect()
}

fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};

    RandomState::new().hash_one("proposer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ranked() {
        assert_eq!(Times::of(Vec::new()), Times::default());
        let times = Times::of((1..=101).rev().collect());
        let wanted = Times { count: 101, min_us: 1, p50_us: 51, p90_us: 91, max_us: 101 };
        assert_eq!(times, wanted);
    }

    #[test]
    fn a_value_repeats_its_number() {
        assert_eq!(value(12, 5), "12121");
        assert_eq!(value(7, 0), "");
    }
}
