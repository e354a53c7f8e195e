//! Whole nodes and clients under seeded faults and lies, in virtual time: a simulated network,
//! simulated disks, and a judgement of what the clients were told.
//!
//! ```
//! let report = pbft::simulation::run(7)?;
//! assert!(report.answered > 0);
//! # Ok::<(), pbft::simulation::Violation>(())
//! ```
//!
//! Nodes are those that the program runs, with the signatures of a keyed hash, on disks that crash,
//! tear, fail and hang, and a network that cuts, parts and delays. Up to f of them lie from
//! beginning to end. Clients read and write a few keys all the time. No place ever has two batches
//! among nodes that do not lie. In the end all heals but the liars: then every client has to be
//! served, the others have to come to one state, views have to stay, and the history of all clients
//! has to be linearizable.
//!
//! Names are claims on this network, so words are signed here. Connections that prove names are
//! simulated in the [world](crate::world) of cores.

mod faults;
mod host;
mod load;
mod plan;
mod truth;

use std::sync::Arc;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::{Conditions, SimNetwork, Timing};
use convoke::{Endpoint, NodeId};
use convoke_sim::random::Random;
use node_kit::history::Recorder;
use node_kit::linearizable;
use tokio::time::{Instant, sleep};

use self::host::Host;
use self::load::Load;
pub use self::plan::Plan;
use self::truth::Truth;
use crate::client::{self, Client};
use crate::core::{ClientId, Digest, Group, Keys, Scope, Sequence, Signer};
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
    /// Batches in the end.
    pub batches: u64,
    /// The last view.
    pub views: u64,
    /// Nodes that lied.
    pub liars: u64,
    /// Contradictions of liars that the others have seen since they started the last time.
    pub lies: u64,
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
    /// All had healed, and clients were not served.
    #[error("no progress after all had healed: {0}")]
    Stuck(String),
    /// Two batches in one place.
    #[error("{node} executes {second:?} in place {sequence}, where {first:?} was executed before")]
    TwoBatches {
        /// The second node.
        node: NodeId,
        /// The place.
        sequence: Sequence,
        /// The first batch.
        first: Digest,
        /// The second batch.
        second: Digest,
    },
    /// Nodes that have executed the same batches store different things.
    #[error("nodes differ after the same batches: {0}")]
    Differ(String),
    /// Views that go on changing, though nothing is broken any more.
    #[error("views rise by {0} while only liars are at fault")]
    Unstable(u64),
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
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime =
        runtime.enable_time().start_paused(true).build().expect("a runtime of one thread");
    runtime.block_on(async {
        let mut world = World::new(seed, plan.clone(), is_traced);
        world.run().await
    })
}

/// Hosts, the network between them, and clients.
struct World {
    plan: Plan,
    seed: u64,
    random: Random,
    network: SimNetwork,
    members: Configuration,
    keys: Keys,
    hosts: Vec<Host>,
    recorder: Recorder,
    truth: Truth,
    report: Report,
    begun: Instant,
    is_traced: bool,
}

/// The cluster's number.
const CLUSTER: u64 = 7;

/// Time from the end of the faults until clients have to be served: the timeout has doubled with
/// each view that failed.
const HEALED_WITHIN: Duration = Duration::from_secs(120);

/// Time in which views have to stay.
const CALM_FOR: Duration = Duration::from_secs(5);

/// Names of clients beside the callers.
const READER: u64 = 900;

/// The number of them.
const READERS: u64 = 2;

fn address(id: u64) -> String {
    format!("sim://node{id}")
}

/// The key of a node or a client.
fn signer(id: u64) -> Signer {
    let mut seed = [3; 32];
    seed[..8].copy_from_slice(&id.to_le_bytes());
    Signer::stand_in(seed)
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
        let ids = 1..=plan.nodes;
        let nodes = ids.clone().map(|id| (NodeId::new(id), address(id)));
        let members = Configuration::new(nodes).expect("they differ");
        let group = Group::new(members.nodes()).expect("there are members");
        let checkers = members.nodes().map(|node| (node, signer(node.get()).checker()));
        let clients = (1..=plan.clients).map(load::name_of).chain(READER..READER + READERS);
        let clients = clients.map(|id| (ClientId(id), signer(id).checker()));
        let scope = Scope { cluster: CLUSTER, epoch: 1 };
        let keys = Keys::new(scope, group, checkers.collect(), clients.collect());
        let truth = Truth::default();
        let hosts = ids.map(|id| Host::new(id, seed, &plan, truth.clone())).collect();
        Self {
            random: Random::of(seed, 5),
            seed,
            network,
            members,
            keys,
            hosts,
            recorder: Recorder::new(),
            truth,
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
        sleep(Duration::from_secs(2)).await; // some writes
        self.run_faults().await?;
        self.heal().await?;
        let healed = Instant::now();
        self.wait_for_a_write().await?;
        self.report.recovered_after = healed.elapsed();
        let view = self.latest().await;
        sleep(CALM_FOR).await;
        load.end().await;
        self.read_back().await?;
        let states = self.compare().await?;
        let risen = self.latest().await - view;
        if risen > self.plan.nodes {
            return Err(Violation::Unstable(risen));
        }
        self.truth.check()?;
        self.judge(&states)
    }

    /// Starts a node that is down. Its disk may refuse: then it stays so until the next time.
    async fn start(&mut self, index: usize) -> Result<(), Violation> {
        let (plan, network, keys) = (&self.plan, &self.network, &self.keys);
        let host = &mut self.hosts[index];
        let started = host.start(plan, network, (&self.members, keys)).await?;
        self.report.snapshots += u64::from(host.has_snapshot());
        let id = host.id();
        self.trace(|| format!("node {id} starts: {started:?}"));
        Ok(())
    }

    async fn client(&self, id: u64) -> Client {
        let options = client::Options {
            deadline: Duration::from_secs(4),
            attempt: Duration::from_millis(400),
            is_to_all: self.plan.is_to_all,
        };
        let endpoint = Endpoint::builder()
            .transport(self.network.transport())
            .node(NodeId::new(id))
            .seed(self.seed ^ id)
            .peers(&self.members)
            .keep_connected();
        let endpoint = endpoint.start().await.expect("nothing to listen on");
        let name = (ClientId(id), signer(id));
        Client::new(&endpoint, &self.members, Arc::new(self.keys.clone()), name, options)
    }

    async fn wait_for_a_write(&mut self) -> Result<(), Violation> {
        let mut client = self.client(READER).await;
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
        Err(Violation::Stuck(format!("{last}; {:?}", self.standing())))
    }

    fn standing(&self) -> Vec<Option<crate::node::Standing>> {
        self.hosts.iter().map(Host::standing).collect()
    }

    /// The latest view of a node that does not lie.
    async fn latest(&self) -> u64 {
        let states = self.states().await;
        states.iter().map(|state| state.view).max().unwrap_or(0)
    }

    /// States of those that do not lie.
    async fn states(&self) -> Vec<Inspection> {
        let mut states = Vec::new();
        for host in self.hosts.iter().filter(|host| !host.is_liar()) {
            states.extend(host.inspect().await);
        }
        states
    }

    /// Reads every key once more, as a client that all others know to be later. All callers have
    /// ended, and every acknowledged write has to be there: an order of all calls has to agree.
    async fn read_back(&mut self) -> Result<(), Violation> {
        let id = READER + 1;
        let mut client = self.client(id).await;
        for key in 0..self.plan.keys {
            if !load::get(&mut client, &self.recorder, id, &load::key(key)).await {
                let standing = self.standing();
                return Err(Violation::Stuck(format!("key {key} cannot be read; {standing:?}")));
            }
        }
        Ok(())
    }

    /// Waits until all that do not lie are in one state.
    ///
    /// A node that alone wants another view follows the others by their checkpoints, so requests
    /// are made until there is the next one.
    async fn compare(&mut self) -> Result<Vec<Inspection>, Violation> {
        let mut client = self.client(READER).await;
        let end = Instant::now() + HEALED_WITHIN;
        let honest = self.hosts.iter().filter(|host| !host.is_liar()).count();
        loop {
            let states = self.states().await;
            let Some(first) = states.first().filter(|_| states.len() == honest) else {
                let down = self.hosts.iter_mut().find(|host| !host.is_up());
                return match down {
                    Some(host) => Err(host.failed().await),
                    None => Err(Violation::Stuck("a node does not answer".to_owned())),
                };
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
                let known: Vec<_> =
                    states.iter().map(|state| (state.node, state.executed)).collect();
                return Err(Violation::Stuck(format!("places stay at {known:?}")));
            }
            // An error is one of these times: what is asked for is the next checkpoint.
            let _ = client.put("next", "checkpoint").await;
            sleep(LOOK_EVERY).await;
        }
    }

    fn judge(&mut self, states: &[Inspection]) -> Result<Report, Violation> {
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
            batches: states.iter().map(|state| state.executed).max().unwrap_or(0),
            views: states.iter().map(|state| state.view).max().unwrap_or(0),
            liars: self.plan.liars,
            lies: states.iter().map(|state| state.lies).sum(),
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

/// Pause between two looks at all: digests of states are worked out once a second.
const LOOK_EVERY: Duration = Duration::from_millis(1_100);

impl Drop for World {
    /// A node and its endpoint hold each other: only the end of its connections lets go.
    fn drop(&mut self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}
