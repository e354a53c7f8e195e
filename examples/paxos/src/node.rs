//! A node: the core, its ledger, its machine and an endpoint, driven by one task.
//!
//! ```text
//!   peers, clients ─▶ service ──mpsc──▶ actor: Replica + Machine ──▶ asks of others (quorum calls)
//!                                        │  ▲                    ──▶ answers, replies
//!                                 append ▼  │ durable
//!                                       Ledger (its own task)
//! ```
//! The actor owns all state, and waits for nothing but its next input: the ledger syncs beside it,
//! a batch at a time, and what rests on a record leaves when that is durable. Snapshots are frozen
//! in the actor, and written by a task of their own.

mod actor;
mod lacking;
mod meters;
mod polls;
mod recovery;
mod requests;
mod service;
mod snapshots;

use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::{Endpoint, EndpointBuilder, NodeId, StartError};
use node_kit::ending;
use node_kit::ledger::{Ledger, LedgerError, Recovered};
use node_kit::places::Places;
use node_kit::turns::Turns;
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::actor::{Actor, Input};
pub use self::lacking::Lacking;
use self::service::{Front, Known};
use self::snapshots::Served;
use crate::core::{Settings, Standing};
use crate::kv;
use crate::proto::{Inspection, PaxosServer};
use crate::wire;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the cluster. Questions and requests of another are refused.
    pub cluster: u64,
    /// Settings of the core: who this node is, and who forms the cluster.
    pub core: Settings,
    /// Nodes of the cluster file, with their addresses. Members that are none of these have theirs
    /// in the log.
    pub members: Configuration,
    /// Decides all that is random: election pauses, and the number of a ledger that is begun now.
    /// Another for each start of a node, since a ledger that was lost must not come back as itself.
    pub seed: u64,
    /// Requests that may wait here, until they are answered: of one who asks three quarters at
    /// most, so that others are heard. What is beyond is refused unseen. Default 8,192.
    pub requests_max: usize,
    /// Bytes of requests that may wait here, of one who asks as much. Default 64 MiB.
    pub request_bytes_max: usize,
    /// Batches proposed and not chosen yet, at most; requests that come meanwhile are the next
    /// batch. Default 4.
    pub pipeline: usize,
    /// Requests of one batch, at most. Default 1,024.
    pub batch_requests_max: usize,
    /// Bytes of one batch, if it has more than one request. Default 1 MiB.
    pub batch_bytes_max: usize,
    /// Bytes of the log behind the last snapshot, about, before the next is written. Default
    /// 64 MiB.
    pub snapshot_bytes: u64,
    /// Slots before the end of a snapshot that are kept in memory, for others that are a little
    /// behind, as long as no more than [`snapshot_bytes`](Self::snapshot_bytes) are. Default 4,096.
    /// For a member that fetches a snapshot all that follow it are, up to the bytes of the snapshot
    /// and twice as many as these.
    pub kept_slots: u64,
}

impl Options {
    /// Defaults for one of these members, which form the cluster.
    pub fn new(cluster: u64, node: NodeId, members: Configuration, seed: u64) -> Self {
        let mut core = Settings::new(node, members.nodes());
        core.seed = seed;
        Self {
            cluster,
            core,
            members,
            seed,
            requests_max: 8_192,
            request_bytes_max: 64 << 20,
            pipeline: 4,
            batch_requests_max: 1_024,
            batch_bytes_max: 1 << 20,
            snapshot_bytes: 64 << 20,
            kept_slots: 4_096,
        }
    }
}

/// The reason a node cannot start, or has stopped.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The ledger's disk, or what is on it. The text says what to do; after a failed write that is
    /// to restart the process.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A record of the ledger is whole, and none of this program's.
    #[error("record {number} of the ledger was written by another program: {source}")]
    Record {
        /// Counted from 1.
        number: u64,
        /// The part that is missing or wrong.
        source: wire::Malformed,
    },
    /// The snapshot is whole, and none of this program's.
    #[error("the snapshot of the ledger cannot be read: {0}")]
    Snapshot(#[from] kv::Malformed),
    /// The endpoint could not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A running node. Dropped, it stops at once, as in a crash.
#[derive(Debug)]
pub struct Node {
    endpoint: Endpoint,
    inputs: mpsc::Sender<Input>,
    asked: mpsc::Sender<Input>,
    standing: watch::Receiver<Standing>,
    lacking: watch::Receiver<Option<Lacking>>,
    ledger: Ledger,
    actor: JoinHandle<Result<(), NodeError>>,
}

impl Node {
    /// Reads the ledger, starts to listen as the builder says, and takes part. A ledger in memory
    /// has nothing to be read.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn start(
        options: Options,
        (ledger, recovered): (Ledger, Option<Recovered>),
        builder: EndpointBuilder,
    ) -> Result<Self, NodeError> {
        let state = recovery::recover(&options, &ledger, recovered).await?;
        let (inputs, received) = mpsc::channel(INPUTS_MAX);
        let (asked, requests) = mpsc::channel(options.requests_max + QUESTIONS_MAX + 1);
        let (stand, standing) = watch::channel(state.replica.standing());
        let (lacks, lacking) = watch::channel(lacking::lacking(&state.replica));
        let known = Known::new(RwLock::new(state.replica.others()));
        let served = Served::default();
        let front = Front {
            node: options.core.node,
            cluster: options.cluster,
            known: known.clone(),
            inputs: inputs.clone(),
            asked: asked.clone(),
            standing: standing.clone(),
            places: Places::new(options.requests_max, options.request_bytes_max),
            asks: Places::new(ASKS_MAX, ASK_BYTES_MAX),
            asks_of_others: Places::with_each_max(
                QUESTIONS_EACH_MAX,
                QUESTIONS_MAX,
                ASK_BYTES_OF_OTHERS_MAX,
            ),
            polls: Places::new(POLLS_MAX, 0),
            questions: Places::with_each_max(QUESTIONS_EACH_MAX, QUESTIONS_MAX, 0),
            ledger: ledger.clone(),
            served: served.clone(),
        };
        let endpoint = builder
            .node(options.core.node)
            .peers(&options.members.without([options.core.node]))
            .keep_connected()
            .serve(PaxosServer::new(front))
            .start()
            .await?;
        let shared = ledger.clone();
        let come = (inputs.clone(), Turns::new(received, requests));
        let shown = (known, served);
        let actor = Actor::new(options, state, shared, &endpoint, come, (stand, lacks), shown);
        let actor = tokio::spawn(actor.run());
        Ok(Self { endpoint, inputs, asked, standing, lacking, ledger, actor })
    }

    /// Its endpoint: the addresses at which it listens, counters, its load.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its standing, now and whenever it changes.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// The reason it is not ready, now and whenever it changes. While there is `None` it leads or
    /// follows, votes or only learns, and has what the others have: so of those that are ready one
    /// may stop while all others go on.
    pub fn lacking(&self) -> watch::Receiver<Option<Lacking>> {
        self.lacking.clone()
    }

    /// Its state, in numbers. `None` once it has stopped.
    pub async fn inspect(&self) -> Option<Inspection> {
        let (tell, told) = oneshot::channel();
        self.inputs.send(Input::Inspect { tell, _place: None }).await.ok()?;
        told.await.ok()
    }

    /// False once it has stopped by itself: see [`failed`](Self::failed).
    pub fn is_running(&self) -> bool {
        !self.actor.is_finished()
    }

    /// Resolves when it has stopped by itself, which only a failure makes it do.
    ///
    /// # Errors
    /// The failure.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it can be awaited again.
    pub async fn failed(&mut self) -> Result<(), NodeError> {
        flatten((&mut self.actor).await)
    }

    /// Takes no more requests, answers those that wait, hands its lead over, makes all durable and
    /// closes the ledger: for at most this long, three seconds for what leaves last, and a second
    /// for the ledger.
    ///
    /// # Errors
    /// A failure before, or of the ledger: [`LedgerError::NotInTime`] where its disk hangs.
    pub async fn stop(mut self, within: Duration) -> Result<(), NodeError> {
        let deadline = Instant::now() + within;
        // Behind requests that wait. It may have failed: see below.
        let _ = self.asked.send(Input::Stop { deadline }).await;
        let ended = flatten((&mut self.actor).await);
        ending::finish(ended, &self.endpoint, &self.ledger, deadline).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.actor.abort();
    }
}

/// Inputs of members that may wait for the actor. A sender that finds the queue full is refused.
const INPUTS_MAX: usize = 16_384;

/// Questions of members that may wait for the actor: of one three quarters at most.
const ASKS_MAX: usize = 4_096;

/// Bytes of them, of one member as much: many times what a leader has under way.
const ASK_BYTES_MAX: usize = 64 << 20;

/// Bytes of questions of those who are no members, as far as this node knows: a leader that has
/// joined since is one of them.
const ASK_BYTES_OF_OTHERS_MAX: usize = 8 << 20;

/// Votes that members ask for and the actor has not taken up yet: of one three quarters at most,
/// which is more than a leader has under way.
const POLLS_MAX: usize = 8_192;

/// Questions about this node that may wait, and those of others than members.
const QUESTIONS_MAX: usize = 1_024;

/// Those of one who asks.
const QUESTIONS_EACH_MAX: usize = 64;

fn flatten(ended: Result<Result<(), NodeError>, tokio::task::JoinError>) -> Result<(), NodeError> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use convoke::sim::transport::SimNetwork;
    use node_kit::simulation::in_virtual_time;
    use tokio::time::advance;

    use super::*;
    use crate::proto::{Entry, PaxosClient, Request, entry, request};

    const NODE: NodeId = NodeId::new(1);

    /// Lets other tasks run, and comes behind those that can now.
    async fn give_way() {
        let mut has_waited = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A request has come, and the actor has not taken it yet.
    async fn until_one_waits(node: &Node) {
        for turn in 0..100_000 {
            if node.asked.capacity() < node.asked.max_capacity() {
                return;
            }
            match turn % 50 {
                49 => advance(Duration::from_millis(1)).await,
                _ => give_way().await,
            }
        }
        panic!("the request never waits");
    }

    #[test]
    fn a_request_that_waits_when_it_is_told_to_stop_is_answered() {
        // A task of its own, which runs behind those that it has given way to.
        in_virtual_time(async { tokio::spawn(stop_beside_a_request()).await.expect("it ends") });
    }

    async fn stop_beside_a_request() {
        let network = SimNetwork::new(7);
        let members = Configuration::new([(NODE, "sim://node")]).expect("there is one");
        let builder = || Endpoint::builder().transport(network.transport());
        let options = Options::new(7, NODE, members.clone(), 1);
        let ledger = (Ledger::in_memory(), None);
        let node = Node::start(options, ledger, builder().listen("sim://node")).await;
        let node = node.expect("it starts");
        let leads = |standing: &Standing| matches!(standing, Standing::Leading(_));
        node.standing().wait_for(leads).await.expect("it runs");
        let client = builder().node(NodeId::new(9)).peers(&members).start().await;
        let client = client.expect("it starts");
        client.warm_up(NODE).await.expect("it listens");

        let action = Some(request::Action::Write(Entry { what: Some(entry::What::Open(5)) }));
        let request = Request { action, ..Request::default() };
        let asked = PaxosClient::new(&client).execute(request).to(NODE).open();
        let asked = asked.expect("it can be asked");
        until_one_waits(&node).await;
        node.stop(Duration::from_secs(5)).await.expect("its ledger is closed");
        let told = asked.first().await;
        assert!(told.is_ok(), "the word to stop has overtaken it: {told:?}");
        client.shutdown(Duration::ZERO).await;
    }
}
