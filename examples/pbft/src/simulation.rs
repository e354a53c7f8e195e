//! Whole nodes and clients under seeded faults and lies, in virtual time: a simulated network,
//! simulated disks, and a judgement of what the clients were told.
//!
//! ```
//! let report = pbft::simulation::run(7)?;
//! assert!(report.run.answered > 0);
//! # Ok::<(), pbft::simulation::Violation>(())
//! ```
//!
//! Nodes are those that the program runs, with the signatures of a keyed hash, on disks that crash,
//! tear, fail and hang, and a network that cuts, parts and delays: [`node_kit::simulation`]. Up to f
//! of them lie from beginning to end. Clients read and write a few keys all the time. No place ever
//! has two batches among nodes that do not lie. In the end all heals but the liars: then every
//! client has to be served, the others have to come to one state, views have to stay, and the
//! history of all clients has to be linearizable.
//!
//! Names are claims on this network, so words are signed here. Connections that prove names are
//! simulated in the [world](crate::world) of cores.

mod plan;
mod truth;

use std::sync::Arc;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::LedgerError;
use node_kit::simulation::{
    self, ASKER, CLUSTER, Host, Program, READER, Start, World, client_names, in_virtual_time,
};
use tokio::time::{Instant, sleep};

pub use self::plan::Plan;
use self::truth::Truth;
use crate::client::{self, Client};
use crate::core::{ClientId, Group, Keys, Scope, Signer};
use crate::node::{Node, NodeError, Options};
use crate::proto::Inspection;
pub use node_kit::simulation::Violation;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls, faults and recovery.
    pub run: simulation::Report,
    /// Batches in the end.
    pub batches: u64,
    /// The last view.
    pub views: u64,
    /// Nodes that lied.
    pub liars: u64,
    /// Contradictions of liars that the others have seen since they started the last time.
    pub lies: u64,
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
        let program = Pbft::new(plan.clone());
        let conditions = plan.conditions.clone();
        let mut world = World::new(seed, program, plan.nodes, conditions, is_traced);
        world.start_all().await?;
        let load = world.load().await;
        sleep(Duration::from_secs(2)).await; // some writes
        world.run_faults().await?;
        world.heal().await?;
        world.wait_for_a_write().await?;
        let view = latest(&states(&world).await);
        sleep(CALM_FOR).await;
        load.end().await;
        world.read_back().await?;
        let found = compare(&mut world).await?;
        let risen = latest(&states(&world).await) - view;
        if risen > plan.nodes {
            let broken = format!("views rise by {risen} while only liars are at fault");
            return Err(Violation::Broken(broken));
        }
        Ok(Report {
            run: world.judge()?,
            batches: found.iter().map(|state| state.executed).max().unwrap_or(0),
            views: latest(&found),
            liars: plan.liars,
            lies: found.iter().map(|state| state.lies).sum(),
        })
    })
}

/// Time in which views have to stay.
const CALM_FOR: Duration = Duration::from_secs(5);

/// Pause between two looks at all: digests of states are worked out once a second.
const LOOK_EVERY: Duration = Duration::from_millis(1_100);

/// The program, under one plan.
#[derive(Debug)]
struct Pbft {
    plan: Plan,
    keys: Keys,
    truth: Truth,
}

/// The key of a node or a client.
fn signer(id: u64) -> Signer {
    let mut seed = [3; 32];
    seed[..8].copy_from_slice(&id.to_le_bytes());
    Signer::stand_in(seed)
}

impl Pbft {
    fn new(plan: Plan) -> Self {
        let nodes = (1..=plan.nodes).map(NodeId::new);
        let group = Group::new(nodes.clone()).expect("there are members");
        let checkers = nodes.map(|node| (node, signer(node.get()).checker()));
        let clients = client_names(plan.conditions.clients).chain([ASKER, READER]);
        let clients = clients.map(|id| (ClientId(id), signer(id).checker()));
        let scope = Scope { cluster: CLUSTER, epoch: 1 };
        let keys = Keys::new(scope, group, checkers.collect(), clients.collect());
        Self { plan, keys, truth: Truth::default() }
    }

    fn is_liar(&self, node: NodeId) -> bool {
        node.get() <= self.plan.liars
    }
}

impl Program for Pbft {
    type Node = Node;
    type Client = Client;

    const SEGMENT_BYTES: u64 = 4_000;

    /// The timeout has doubled with each view that failed.
    const HEALED_WITHIN: Duration = Duration::from_secs(120);

    async fn start(&self, start: Start) -> Result<Node, NodeError> {
        let Start { node, ledger, recovered, members, builder, .. } = start;
        let Plan { timeout, checkpoint_every, in_flight, snapshot_bytes, lie, .. } = self.plan;
        let mut options = Options::new(node, members, self.keys.clone(), signer(node.get()));
        options.core.timeout = timeout;
        options.core.checkpoint_every = checkpoint_every;
        options.core.window = 2 * checkpoint_every;
        options.core.in_flight = in_flight;
        options.core.part_bytes = 1_000;
        options.snapshot_bytes = snapshot_bytes;
        match self.is_liar(node) {
            true => options.lie = Some(lie),
            false => options.observer = Some(self.truth.observer(node)),
        }
        Node::start(options, (ledger, Some(recovered)), builder).await
    }

    fn client(&self, endpoint: &Endpoint, members: &Configuration, id: u64) -> Client {
        let options = client::Options {
            deadline: Duration::from_secs(4),
            attempt: Duration::from_millis(400),
            is_to_all: self.plan.is_to_all,
        };
        let name = (ClientId(id), signer(id));
        Client::new(endpoint, members, Arc::new(self.keys.clone()), name, options)
    }

    fn check(&self) -> Result<(), Violation> {
        self.truth.check()
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
        *self.standing().borrow()
    }

    fn of_ledger(error: &NodeError) -> Option<&LedgerError> {
        if let NodeError::Ledger(error) = error { Some(error) } else { None }
    }
}

/// Hosts whose nodes do not lie.
fn honest(world: &World<Pbft>) -> impl Iterator<Item = &Host<Node>> {
    world.hosts().iter().filter(|host| !world.program().is_liar(host.node()))
}

/// States of those that do not lie.
async fn states(world: &World<Pbft>) -> Vec<Inspection> {
    let mut states = Vec::new();
    for node in honest(world).filter_map(Host::running) {
        states.extend(node.inspect().await);
    }
    states
}

/// The latest view.
fn latest(states: &[Inspection]) -> u64 {
    states.iter().map(|state| state.view).max().unwrap_or(0)
}

/// Waits until all that do not lie are in one state.
///
/// A node that alone wants another view follows the others by their checkpoints, so requests are
/// made until there is the next one.
async fn compare(world: &mut World<Pbft>) -> Result<Vec<Inspection>, Violation> {
    let mut client = world.client(ASKER).await;
    let end = Instant::now() + Pbft::HEALED_WITHIN;
    let honest = honest(world).count();
    loop {
        let states = states(world).await;
        let Some(first) = states.first().filter(|_| states.len() == honest) else {
            world.look_for_failures().await?;
            return Err(Violation::Stuck("a node does not answer".to_owned()));
        };
        if states.iter().all(|state| state.executed == first.executed) {
            let is_one = states.iter().all(|state| state.state == first.state);
            let known = states.iter().map(|state| (state.node, state.executed, &state.state));
            return match is_one {
                true => Ok(states),
                false => Err(Violation::Differ(format!("{:?}", known.collect::<Vec<_>>()))),
            };
        }
        if Instant::now() > end {
            let known: Vec<_> = states.iter().map(|state| (state.node, state.executed)).collect();
            return Err(Violation::Stuck(format!("places stay at {known:?}")));
        }
        // An error is one of these times: what is asked for is the next checkpoint.
        let _ = client.put("next", "checkpoint").await;
        sleep(LOOK_EVERY).await;
    }
}
