//! Whole nodes and clients under seeded faults, in virtual time: a simulated network, simulated
//! disks, and a judgement of what the clients were told.
//!
//! ```
//! let report = paxos::simulation::run(7)?;
//! assert!(report.answered > 0);
//! # Ok::<(), paxos::simulation::Violation>(())
//! ```
//!
//! Nodes are those that the program runs, on disks that crash, tear, fail and hang, and a network
//! that cuts, parts and delays. Clients read and write a few keys all the time. In the end all
//! heals: then there has to be progress, the nodes have to agree on what they store, and the
//! history of all clients has to be linearizable.

mod failover;
mod faults;
mod host;
mod load;
mod plan;

use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::{Conditions, SimNetwork, Timing};
use convoke::{Endpoint, NodeId};
use convoke_sim::random::Random;
use node_kit::history::Recorder;
use node_kit::linearizable;
use tokio::time::{Instant, sleep};

pub use self::failover::{Failover, failover};
use self::host::Host;
use self::load::Load;
pub use self::plan::Plan;
use crate::client::{self, Client};
use crate::core::{Members, Membership};
use crate::proto::Inspection;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls of clients.
    pub calls: usize,
    /// Of these, those that were answered.
    pub answered: usize,
    /// Crashes of nodes, those after a failure of their disk with them.
    pub crashes: u64,
    /// Times that a node was told to stop, and did.
    pub stops: u64,
    /// Snapshots that nodes began with.
    pub snapshots: u64,
    /// Slots in the end.
    pub slots: u64,
    /// Puts that votes have answered.
    pub by_votes: u64,
    /// Changes of the members that were in force.
    pub changes: u64,
    /// Time from the end of the faults until a write was answered.
    pub recovered_after: Duration,
    /// Folds all that clients were told: the same seed gives the same number.
    pub trace: u64,
}

/// A broken promise of the nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// No order of all calls agrees with what clients were told.
    #[error("{0}")]
    NotLinearizable(String),
    /// All had healed, and nobody took a write.
    #[error("nobody took a write after all had healed: {0}")]
    Stuck(String),
    /// Nodes that have applied the same log store different things.
    #[error("nodes differ after the same log: {0}")]
    Differ(String),
    /// A node did not come up, or stopped, with no disk to blame.
    #[error("node {node} failed: {error}")]
    Failed {
        /// The node.
        node: u64,
        /// Its words.
        error: String,
    },
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
        let mut world = World::new(seed, plan.clone(), is_traced);
        world.run().await
    })
}

fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime =
        runtime.enable_time().start_paused(true).build().expect("a runtime of one thread");
    runtime.block_on(run)
}

/// Hosts, the network between them, and clients.
struct World {
    plan: Plan,
    seed: u64,
    random: Random,
    network: SimNetwork,
    members: Configuration,
    hosts: Vec<Host>,
    recorder: Recorder,
    report: Report,
    begun: Instant,
    is_traced: bool,
}

/// The cluster's number.
const CLUSTER: u64 = 7;

/// Time from the end of the faults until a write has to be answered: several elections, with all
/// backoffs at their longest.
const HEALED_WITHIN: Duration = Duration::from_secs(30);

fn address(id: u64) -> String {
    format!("sim://node{id}")
}

impl World {
    fn new(seed: u64, plan: Plan, is_traced: bool) -> Self {
        let network = SimNetwork::new(seed);
        network.default_conditions(Conditions {
            latency: plan.latency,
            jitter: plan.jitter,
            ..Conditions::default()
        });
        network.timing(Timing { keep_alive_timeout: Duration::from_secs(4), ..Timing::default() });
        let ids = 1..=plan.nodes + plan.spares;
        let nodes = ids.clone().map(|id| (NodeId::new(id), address(id)));
        let members = Configuration::new(nodes).expect("they differ");
        let hosts = ids.map(|id| Host::new(id, seed, &plan)).collect();
        Self {
            random: Random::of(seed, 5),
            seed,
            network,
            members,
            hosts,
            recorder: Recorder::new(),
            report: Report::default(),
            begun: Instant::now(),
            is_traced,
            plan,
        }
    }

    async fn run(&mut self) -> Result<Report, Violation> {
        for index in 0..self.hosts.len() {
            self.start(index).await?;
        }
        let load = Load::start(self).await;
        sleep(Duration::from_secs(2)).await; // a leader, and some writes
        self.run_faults().await?;
        self.heal().await?;
        let healed = Instant::now();
        self.wait_for_a_write().await?;
        self.report.recovered_after = healed.elapsed();
        self.report.by_votes = load.end().await;
        self.read_back().await?;
        let slots = self.compare().await?;
        self.judge(slots)
    }

    /// Starts a node that is down. Its disk may refuse: then it stays so until the next time.
    async fn start(&mut self, index: usize) -> Result<(), Violation> {
        let (plan, network, members) = (&self.plan, &self.network, &self.members);
        let host = &mut self.hosts[index];
        let started = host.start(plan, network, members).await?;
        self.report.snapshots += u64::from(host.has_snapshot());
        let id = host.id();
        self.trace(|| format!("node {id} starts: {started:?}"));
        Ok(())
    }

    async fn client(&self, id: u64) -> Client {
        let mut options = client::Options::new(CLUSTER, self.seed ^ id << 32);
        options.shape = self.plan.shape;
        options.deadline = Duration::from_secs(3);
        options.attempt = Duration::from_millis(400);
        let endpoint = Endpoint::builder()
            .transport(self.network.transport())
            .node(NodeId::new(id))
            .seed(self.seed ^ id)
            .peers(&self.members)
            .keep_connected();
        let endpoint = endpoint.start().await.expect("nothing to listen on");
        Client::new(&endpoint, &self.members, options)
    }

    async fn wait_for_a_write(&mut self) -> Result<(), Violation> {
        let mut client = self.client(900).await;
        let end = Instant::now() + HEALED_WITHIN;
        let mut last = String::new();
        while Instant::now() < end {
            match client.put("healed", "yes").await {
                Ok(()) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            if let Some(failed) = self.hosts.iter_mut().find(|host| !host.is_up()) {
                return Err(failed.failed().await);
            }
        }
        let standing: Vec<_> = self.hosts.iter().map(Host::standing).collect();
        Err(Violation::Stuck(format!("{last}; {standing:?}")))
    }

    /// Reads every key once more, as a client that all others know to be later.
    async fn read_back(&mut self) -> Result<(), Violation> {
        let mut client = self.client(901).await;
        for key in 0..self.plan.keys {
            if !load::get(&mut client, &self.recorder, 901, &load::key(key)).await {
                return Err(Violation::Stuck(format!("key {key} cannot be read")));
            }
        }
        Ok(())
    }

    /// Waits until all members have applied the same log, and compares what they store.
    async fn compare(&mut self) -> Result<u64, Violation> {
        let end = Instant::now() + HEALED_WITHIN;
        loop {
            let mut states = Vec::new();
            for host in &self.hosts {
                states.extend(host.inspect().await);
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
                self.report.changes = members.epoch.saturating_sub(1);
                return Ok(first);
            }
            if Instant::now() > end {
                let applied: Vec<_> =
                    states.iter().map(|state| (state.node, state.applied)).collect();
                return Err(Violation::Stuck(format!("the logs stay at {applied:?}")));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn judge(&mut self, slots: u64) -> Result<Report, Violation> {
        let history = self.recorder.history();
        let mut lines = Vec::new();
        history.write_json(&mut lines).expect("memory takes it");
        let judged = linearizable::check(&history).expect("it was recorded so");
        if !judged.is_linearizable() {
            return Err(Violation::NotLinearizable(judged.to_string()));
        }
        let start = convoke_sim::random::DIGEST_START;
        Ok(Report {
            calls: history.entries.len(),
            answered: history.entries.iter().filter(|entry| entry.outcome.is_some()).count(),
            slots,
            trace: convoke_sim::random::digest(start, &lines),
            ..self.report.clone()
        })
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>9.3} s  {}", self.begun.elapsed().as_secs_f64(), what());
        }
    }
}

/// The latest members that any node knows.
fn latest(states: &[Inspection]) -> Members {
    let known = states.iter().filter_map(|state| state.membership.clone());
    let now = known.filter_map(|known| Some(Membership::try_from(known).ok()?.now));
    now.max_by_key(|members| members.epoch).unwrap_or_default()
}

impl Drop for World {
    /// A node and its endpoint hold each other: only the end of its connections lets go.
    fn drop(&mut self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}
