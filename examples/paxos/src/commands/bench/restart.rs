//! Followers that are killed and started again: the time until they have read their ledger.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use convoke::NodeId;
use node_kit::load::{Pace, Plan, live};
use paxos::client::Shape;
use serde::Serialize;

use super::super::Local;
use super::super::client::{READ_WITHIN, endpoint_for, leader, of_endpoint};
use super::load::Caller;
use crate::args::BenchArgs;

/// The start of a node that had been killed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Restart {
    node: u64,
    keys: u64,
    /// Records behind its snapshot.
    replayed: u64,
    /// Time for the snapshot.
    restored_us: u64,
    /// Time for the records.
    replayed_us: u64,
    /// From its start as a process until it listens.
    listens_after_us: u128,
}

/// Kills a follower and starts it again, so many times, with load before each.
pub(super) async fn several(
    args: &BenchArgs,
    (shape, clients): (Shape, u64),
    local: &mut Local,
) -> Result<Vec<Restart>> {
    let mut restarts = Vec::new();
    if args.restarts == 0 {
        return Ok(restarts);
    }
    let endpoint = endpoint_for(shape, local.client()?, local.cluster()).await?;
    let client = of_endpoint(&endpoint, local.cluster(), READ_WITHIN)?;
    for _ in 0..args.restarts {
        let callers = Caller::all(args, (shape, clients), local.cluster(), &endpoint)?;
        let time = Duration::from_secs(args.seconds);
        let plan = Plan::new(Pace::Closed).warm_up(Duration::ZERO).time(time);
        node_kit::load::run(&plan, callers, live()).await;
        let leader = leader(local).await?;
        let node = local.ids().find(|node| *node != leader).unwrap_or(leader);
        local.kill(node).await?;
        let begun = Instant::now();
        local.start(node).await?;
        let listens_after_us = begun.elapsed().as_micros();
        let state = client.inspect(NodeId::try_from(node)?).await?;
        restarts.push(Restart {
            node,
            keys: state.keys,
            replayed: state.replayed,
            restored_us: state.restored_us,
            replayed_us: state.replayed_us,
            listens_after_us,
        });
    }
    Ok(restarts)
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, keys, replayed, restored_us, replayed_us, listens_after_us } = self;
        write!(f, "node {node} listens {} ms after its start: ", listens_after_us / 1_000)?;
        write!(f, "snapshot {} ms, {replayed} records ", restored_us / 1_000)?;
        write!(f, "{} ms; {keys} keys", replayed_us / 1_000)
    }
}
