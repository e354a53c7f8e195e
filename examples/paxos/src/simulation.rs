//! Whole nodes and clients under seeded faults, in virtual time: a simulated network, simulated
//! disks, and a judgement of what the clients were told.
//!
//! ```
//! let report = paxos::simulation::run(7)?;
//! assert!(report.run.answered > 0);
//! # Ok::<(), paxos::simulation::Violation>(())
//! ```
//!
//! Nodes are those that the program runs, on disks that crash, tear, fail and hang, and a network
//! that cuts, parts and delays: [`node_kit::simulation`]. Clients read and write a few keys all the
//! time, and an operator lets nodes join and leave. In the end all heals: then there has to be
//! progress, the nodes have to agree on what they store, and the history of all clients has to be
//! linearizable.

mod failover;
mod operator;
mod plan;

use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::LedgerError;
use node_kit::simulation::{self, CLUSTER, Program, Start, World, in_virtual_time};
use tokio::time::{Instant, sleep};

pub use self::failover::{Failover, failover};
pub use self::plan::Plan;
use crate::client::{self, Client};
use crate::core::{Members, Membership, Standing};
use crate::node::{Node, NodeError, Options};
use crate::proto::Inspection;
pub use node_kit::simulation::Violation;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls, faults and recovery.
    pub run: simulation::Report,
    /// Slots in the end.
    pub slots: u64,
    /// Puts that votes have answered.
    pub by_votes: u64,
    /// Changes of the members that were in force.
    pub changes: u64,
}

/// Runs a seed with the plan that it draws.
///
/// # Errors
/// [`Violation`].
pub fn run(seed: u64) -> Result<Report, Violation> {
    run_plan(seed, &Plan::draw(seed), false)
}

/// Runs a seed with this plan; `is_traced` prints every fault.
///
/// # Errors
/// [`Violation`].
///
/// # Panics
/// When the system gives no runtime.
pub fn run_plan(seed: u64, plan: &Plan, is_traced: bool) -> Result<Report, Violation> {
    in_virtual_time(async {
        let mut world = Paxos::world(seed, plan.clone(), is_traced);
        world.start_all().await?;
        let mut load = world.load().await;
        if let Some(pause) = plan.change {
            operator::begin(&world, &mut load, seed, pause).await;
        }
        sleep(Duration::from_secs(2)).await; // a leader, and some writes
        world.run_faults().await?;
        world.heal().await?;
        world.wait_for_a_write().await?;
        let by_votes = load.end().await.iter().map(Client::decided_by_votes).sum();
        world.read_back().await?;
        let (slots, members) = compare(&world).await?;
        let changes = members.epoch.saturating_sub(1);
        Ok(Report { run: world.judge()?, slots, by_votes, changes })
    })
}

/// The program, under one plan.
#[derive(Debug)]
struct Paxos {
    seed: u64,
    plan: Plan,
}

impl Paxos {
    fn world(seed: u64, plan: Plan, is_traced: bool) -> World<Self> {
        let (nodes, conditions) = (plan.nodes + plan.spares, plan.conditions.clone());
        World::new(seed, Self { seed, plan }, nodes, conditions, is_traced)
    }
}

impl Program for Paxos {
    type Node = Node;
    type Client = Client;

    const SEGMENT_BYTES: u64 = 2_000;

    /// Several elections, with all backoffs at their longest.
    const HEALED_WITHIN: Duration = Duration::from_secs(30);

    async fn start(&self, start: Start) -> Result<Node, NodeError> {
        let Start { node, seed, ledger, recovered, members, builder } = start;
        let mut options = Options::new(CLUSTER, node, members, seed);
        options.core.voters = (1..=self.plan.nodes).map(NodeId::new).collect();
        options.snapshot_bytes = self.plan.snapshot_bytes;
        options.pipeline = self.plan.pipeline;
        options.kept_slots = 20;
        Node::start(options, (ledger, Some(recovered)), builder).await
    }

    fn client(&self, endpoint: &Endpoint, members: &Configuration, id: u64) -> Client {
        let mut options = client::Options::new(CLUSTER, self.seed ^ id << 32);
        options.shape = self.plan.shape;
        options.deadline = Duration::from_secs(3);
        options.attempt = Duration::from_millis(400);
        Client::new(endpoint, members, options)
    }
}

impl simulation::Node for Node {
    type Error = NodeError;

    fn is_running(&self) -> bool {
        self.is_running()
    }

    async fn failed(&mut self) -> Result<(), NodeError> {
        self.failed().await
    }

    async fn stop(self, within: Duration) -> Result<(), NodeError> {
        self.stop(within).await
    }

    fn standing(&self) -> impl std::fmt::Debug {
        let standing: Standing = *self.standing().borrow();
        standing
    }

    fn of_ledger(error: &NodeError) -> Option<&LedgerError> {
        if let NodeError::Ledger(error) = error { Some(error) } else { None }
    }
}

/// Waits until all members have applied the same log, and compares what they store. The count of
/// slots, and the members.
async fn compare(world: &World<Paxos>) -> Result<(u64, Members), Violation> {
    let end = Instant::now() + Paxos::HEALED_WITHIN;
    loop {
        let mut states = Vec::new();
        for node in world.hosts().iter().filter_map(|host| host.running()) {
            states.extend(node.inspect().await);
        }
        let members = latest(&states);
        states.retain(|state| members.part(NodeId::new(state.node)).is_some());
        let first = states.first().map_or(0, |state| state.applied);
        let is_level = states.iter().all(|state| state.applied == first);
        if is_level && states.len() == members.nodes.len() {
            let state = |of: &Inspection| (of.keys, of.bytes, of.sessions);
            if states.iter().any(|other| state(other) != state(&states[0])) {
                return Err(Violation::Differ(format!("{states:?}")));
            }
            return Ok((first, members));
        }
        if Instant::now() > end {
            let applied: Vec<_> = states.iter().map(|state| (state.node, state.applied)).collect();
            return Err(Violation::Stuck(format!("the logs stay at {applied:?}")));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The latest members that any node knows.
fn latest(states: &[Inspection]) -> Members {
    let known = states.iter().filter_map(|state| state.membership.clone());
    let now = known.filter_map(|known| Some(Membership::try_from(known).ok()?.now));
    now.max_by_key(|members| members.epoch).unwrap_or_default()
}
