//! Whole nodes and clients under seeded faults, in virtual time: a simulated network, simulated
//! disks, and a judgement of what the clients were told.
//!
//! ```text
//!   Conditions ─▶ World ─┬▶ hosts: each a SimDisk, and a node of the program while it is up
//!                        ├▶ SimNetwork between them
//!                        ├▶ Load: clients that record what they were told
//!                        └▶ faults: crashes, partitions, stops, disks that hang, fail or fill
//!                             └▶ all heals ─▶ progress ─▶ every key read ─▶ linearizable?
//! ```
//! A [`Program`] gives its node and its client, and calls the steps of a [`World`] in the order in
//! which its own truths can be looked at. The same seed and program give the same run.

mod conditions;
mod faults;
mod host;
mod load;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::{self, SimNetwork, Timing};
use convoke::{Endpoint, EndpointBuilder, NodeId};
use convoke_sim::random::{self, Random};
use tokio::time::Instant;

use crate::history::Recorder;
use crate::ledger::{Ledger, LedgerError, Recovered};
use crate::linearizable;
use crate::program::store::{Recorded, Store};

pub use self::conditions::Conditions;
pub use self::host::Host;
pub use self::load::{Load, Over, client_names};

/// Number of the simulated cluster.
pub const CLUSTER: u64 = 7;

/// Name of the client that asks for no record, when all has healed.
pub const ASKER: u64 = 900;

/// Name of the client that reads every key in the end.
pub const READER: u64 = 901;

/// A program whose whole nodes are simulated.
pub trait Program {
    /// Its node.
    type Node: Node;
    /// Its client.
    type Client: Store;

    /// Bytes of a segment of a ledger: few, so that many segments are begun.
    const SEGMENT_BYTES: u64;

    /// Time from the end of the faults until a write has to be answered.
    const HEALED_WITHIN: Duration;

    /// Starts a node.
    fn start(
        &self,
        start: Start,
    ) -> impl Future<Output = Result<Self::Node, <Self::Node as Node>::Error>>;

    /// The client of this name.
    fn client(&self, endpoint: &Endpoint, members: &Configuration, id: u64) -> Self::Client;

    /// Looks at truths of its own, after each fault.
    ///
    /// # Errors
    /// [`Violation::Broken`].
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// A running node of a program.
pub trait Node: Sized {
    /// The reason it does not start, or has stopped.
    type Error: fmt::Debug + fmt::Display + From<LedgerError>;

    /// False once it has stopped by itself.
    fn is_running(&self) -> bool;

    /// Resolves when it has stopped by itself.
    fn failed(&mut self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Stops it in good order, for at most this long.
    fn stop(self, within: Duration) -> impl Future<Output = Result<(), Self::Error>>;

    /// Its standing, for people.
    fn standing(&self) -> impl fmt::Debug;

    /// The ledger's part of an error.
    fn of_ledger(error: &Self::Error) -> Option<&LedgerError>;
}

/// A node that is to be started.
#[derive(Debug)]
pub struct Start {
    /// Its name.
    pub node: NodeId,
    /// Another for each start of each node.
    pub seed: u64,
    /// Its ledger.
    pub ledger: Ledger,
    /// Contents of the ledger.
    pub recovered: Recovered,
    /// All nodes.
    pub members: Configuration,
    /// Its endpoint, but for what it serves.
    pub builder: EndpointBuilder,
}

/// Result of a run, as far as it is one of every program.
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
    /// Time from the end of the faults until a write was answered.
    pub recovered_after: Duration,
    /// Folds all that clients were told: the same seed gives the same number.
    pub trace: u64,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.answered += other.answered;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.snapshots += other.snapshots;
    }
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
    /// Nodes that have executed the same requests store different things.
    #[error("nodes differ after the same requests: {0}")]
    Differ(String),
    /// A rule of the program's own.
    #[error("{0}")]
    Broken(String),
    /// A node did not come up, or stopped, with no disk to blame.
    #[error("node {node} failed: {error}")]
    Failed {
        /// The node.
        node: u64,
        /// Its words.
        error: String,
    },
}

/// Runs something on one thread, under a clock that leaps to the next timer.
///
/// # Panics
/// When the system gives no runtime.
pub fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime =
        runtime.enable_time().start_paused(true).build().expect("a runtime of one thread");
    runtime.block_on(run)
}

/// Hosts, the network between them, and clients.
#[derive(Debug)]
pub struct World<P: Program> {
    program: P,
    conditions: Conditions,
    seed: u64,
    random: Random,
    network: SimNetwork,
    members: Configuration,
    hosts: Vec<Host<P::Node>>,
    recorder: Recorder,
    report: Report,
    begun: Instant,
    is_traced: bool,
}

impl<P: Program> World<P> {
    /// Hosts of so many nodes, which are down. `is_traced` prints every fault. Within a tokio
    /// runtime.
    ///
    /// # Panics
    /// With no nodes.
    pub fn new(seed: u64, program: P, nodes: u64, conditions: Conditions, is_traced: bool) -> Self {
        let network = SimNetwork::new(seed);
        network.default_conditions(transport::Conditions {
            latency: conditions.latency,
            jitter: conditions.jitter,
            ..transport::Conditions::default()
        });
        network.timing(Timing { keep_alive_timeout: Duration::from_secs(4), ..Timing::default() });
        let nodes = (1..=nodes).map(|id| (NodeId::new(id), host::address(id)));
        let members = Configuration::new(nodes).expect("names differ, and there are some");
        let hosts = members.nodes().map(|node| Host::new(node, seed, &conditions)).collect();
        Self {
            program,
            conditions,
            seed,
            random: Random::of(seed, 5),
            network,
            members,
            hosts,
            recorder: Recorder::new(),
            report: Report::default(),
            begun: Instant::now(),
            is_traced,
        }
    }

    /// The program.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// The hosts, in the order of their names.
    pub fn hosts(&self) -> &[Host<P::Node>] {
        &self.hosts
    }

    /// Starts all nodes.
    ///
    /// # Errors
    /// [`Violation::Failed`].
    pub async fn start_all(&mut self) -> Result<(), Violation> {
        for index in 0..self.hosts.len() {
            self.start(index).await?;
        }
        Ok(())
    }

    /// Starts a node that is down. Its disk may refuse: then it stays so until the next time.
    async fn start(&mut self, index: usize) -> Result<(), Violation> {
        let host = &mut self.hosts[index];
        let started = host.start(&self.program, &self.network, &self.members).await?;
        self.report.snapshots += u64::from(host.has_snapshot());
        let node = host.node();
        self.trace(|| format!("{node} starts: {started:?}"));
        Ok(())
    }

    /// A client of this name.
    ///
    /// # Panics
    /// When its endpoint does not start: it has nothing to listen on.
    pub async fn client(&self, id: u64) -> P::Client {
        let endpoint = Endpoint::builder()
            .transport(self.network.transport())
            .node(NodeId::new(id))
            .seed(self.seed ^ id)
            .peers(&self.members)
            .keep_connected();
        let endpoint = endpoint.start().await.expect("nothing to listen on");
        self.program.client(&endpoint, &self.members, id)
    }

    /// Ends a process as `kill -9` does: its host, and what it wrote, stay.
    pub fn kill(&mut self, index: usize) {
        self.hosts[index].crash(&self.network, false);
    }

    /// Waits until a write is answered.
    ///
    /// # Errors
    /// [`Violation::Stuck`] when none is in time; [`Violation::Failed`].
    pub async fn wait_for_a_write(&mut self) -> Result<(), Violation> {
        let begun = Instant::now();
        let mut client = self.client(ASKER).await;
        let mut last = String::new();
        while begun.elapsed() < P::HEALED_WITHIN {
            match client.put("healed".into(), "yes".into()).await {
                Ok(()) => {
                    self.report.recovered_after = begun.elapsed();
                    return Ok(());
                }
                Err(error) => last = error.to_string(),
            }
            self.look_for_failures().await?;
        }
        Err(Violation::Stuck(format!("{last}; {}", self.standing())))
    }

    /// Looks whether all nodes are up.
    ///
    /// # Errors
    /// [`Violation::Failed`], with the words of one that is not.
    pub async fn look_for_failures(&mut self) -> Result<(), Violation> {
        match self.hosts.iter_mut().find(|host| !host.is_up()) {
            Some(host) => Err(host.failed().await),
            None => Ok(()),
        }
    }

    fn standing(&self) -> String {
        let standing = self.hosts.iter().map(|host| host.running().map(Node::standing));
        format!("{:?}", standing.collect::<Vec<_>>())
    }

    /// Reads every key once more, as a client that all others know to be later: every write that
    /// was acknowledged has to be there.
    ///
    /// # Errors
    /// [`Violation::Stuck`] when one cannot be read.
    pub async fn read_back(&mut self) -> Result<(), Violation> {
        let client = self.client(READER).await;
        let mut client = Recorded::new(client, self.recorder.clone(), READER);
        for key in 0..self.conditions.keys {
            if let Err(error) = client.get(&load::key(key)).await {
                let standing = self.standing();
                let error = format!("key {key} cannot be read: {error}; {standing}");
                return Err(Violation::Stuck(error));
            }
        }
        Ok(())
    }

    /// Judges what the clients were told.
    ///
    /// # Errors
    /// [`Violation::NotLinearizable`]; those of [`Program::check`].
    ///
    /// # Panics
    /// Never: what was recorded can be written and judged.
    pub fn judge(&self) -> Result<Report, Violation> {
        self.program.check()?;
        let history = self.recorder.history();
        let mut lines = Vec::new();
        history.write_json(&mut lines).expect("memory takes it");
        let judged = linearizable::check(&history).expect("it was recorded so");
        if !judged.is_linearizable() {
            return Err(Violation::NotLinearizable(judged.to_string()));
        }
        Ok(Report {
            calls: history.entries.len(),
            answered: history.entries.iter().filter(|entry| entry.outcome.is_some()).count(),
            trace: random::digest(random::DIGEST_START, &lines),
            ..self.report.clone()
        })
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            let seconds = self.begun.elapsed().as_secs_f64();
            // Who reads may have seen enough.
            let _ = console::say(format_args!("{seconds:>9.3} s  {}", what()));
        }
    }
}

impl<P: Program> Drop for World<P> {
    /// A node and its endpoint hold each other: only the end of its connections lets go.
    fn drop(&mut self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}
