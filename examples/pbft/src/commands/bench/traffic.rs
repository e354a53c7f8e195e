//! Frames of a cluster and its clients: those that were sent, and those that have come.
//!
//! Replicas speak by the clock, and the counters of several processes are not read at once. So both
//! ends of each direction are compared by themselves, in a moment in which it stands still: its
//! sender has sent as much after its receiver was read as before.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::NodeId;
use node_kit::operation::{Frames, Traffic, get};

use crate::commands::local::Local;

/// Frames of all connections so far.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) sent: u64,
    missing: Missing,
}

impl Carried {
    /// As it is once all has come that was sent before this was called. If something never comes,
    /// as it is when least is missing.
    ///
    /// # Errors
    /// A replica does not say what it has sent and received, or two nodes never stop talking.
    pub(super) async fn settled(local: &Local) -> Result<Self> {
        let mut missing = Missing::default();
        for _ in 0..LOOKS_MAX {
            let looks = [look(local).await?, look(local).await?];
            missing.see(&looks);
            if missing.is_nothing() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        missing.ensure_known()?;
        let last = look(local).await?;
        Ok(Self { sent: last.iter().map(|(_, traffic)| traffic.sum().sent).sum(), missing })
    }

    /// Frames that were sent since then and have not come. Where frames were missing then, those
    /// that came later count, too.
    pub(super) fn lost_since(&self, before: &Self) -> u64 {
        let now = &self.missing.0;
        let lost = |(way, missing): (&Way, &Option<i128>)| {
            let before = before.missing.0.get(way).copied().flatten().unwrap_or_default();
            (missing.unwrap_or_default() - before).unsigned_abs()
        };
        u64::try_from(now.iter().map(lost).sum::<u128>()).unwrap_or(u64::MAX)
    }
}

/// All ends, in the order in which they were read.
type Look = Vec<(NodeId, Traffic)>;

/// Looks at the clients' endpoint and at each replica, by its operation: to ask takes no frame.
async fn look(local: &Local) -> Result<Look> {
    let own = local.endpoint();
    let mut look = vec![(own.node(), Traffic::of(own))];
    for node in local.processes.cluster().nodes() {
        let address = node.operation.context("a replica that is measured has metrics")?;
        let (_, traffic) = get(address, "/traffic").await?;
        look.push((node.id, traffic.parse().with_context(|| format!("from node {}", node.id))?));
    }
    Ok(look)
}

/// Frames whose ends are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// From one node to another, over connections that are open.
    Open(NodeId, NodeId),
    /// Over all connections that have ended.
    Ended,
}

/// Frames sent less frames that have come, in the moment in which that was least; `None` where no
/// moment was seen in which nothing was sent.
///
/// Ways carry frames in order and lose none later, so one that was even once had lost nothing.
#[derive(Clone, Debug, Default)]
struct Missing(BTreeMap<Way, Option<i128>>);

impl Missing {
    /// Takes two looks, one right after the other.
    fn see(&mut self, looks: &[Look; 2]) {
        let [first, second] = looks;
        for (from, (sender, sent)) in first.iter().enumerate() {
            for (to, (receiver, _)) in first.iter().enumerate().filter(|(to, _)| *to != from) {
                // The receiver was read between both readings of the sender.
                let between = if from < to { &first[to].1 } else { &second[to].1 };
                let sent = frames(sent, *receiver).sent;
                let is_still = sent == frames(&second[from].1, *receiver).sent;
                let received = frames(between, *sender).received;
                let seen = is_still.then(|| i128::from(sent) - i128::from(received));
                self.note(Way::Open(*sender, *receiver), seen);
            }
        }
        let ended = |look: &Look| look.iter().map(|(_, traffic)| traffic.ended).collect::<Vec<_>>();
        let (ended, later) = (ended(first), ended(second));
        let difference = |one: &Frames| i128::from(one.sent) - i128::from(one.received);
        let seen = (ended == later).then(|| ended.iter().map(difference).sum());
        self.note(Way::Ended, seen);
    }

    fn note(&mut self, way: Way, seen: Option<i128>) {
        let least = self.0.entry(way).or_default();
        *least = [*least, seen].into_iter().flatten().min_by_key(|missing| missing.unsigned_abs());
    }

    fn is_nothing(&self) -> bool {
        self.0.values().all(|missing| *missing == Some(0))
    }

    /// Refuses to say that nothing was lost on a way that never stood still.
    fn ensure_known(&self) -> Result<()> {
        match self.0.iter().find(|(_, missing)| missing.is_none()) {
            Some((Way::Open(from, to), _)) => bail!(
                "{from} never stopped sending to {to}, so nobody can tell if frames were lost: is \
                 the machine too busy?"
            ),
            Some((Way::Ended, _)) => bail!(
                "connections ended all the time, so nobody can tell if frames were lost: the logs \
                 of the replicas say why they do"
            ),
            None => Ok(()),
        }
    }
}

/// Frames of a node's open connections to another.
fn frames(traffic: &Traffic, peer: NodeId) -> Frames {
    traffic.open.get(&peer).copied().unwrap_or_default()
}

/// Pairs of looks at nodes whose frames do not add up.
const LOOKS_MAX: usize = 300;

/// Rest before a frame that is missing is looked for again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
