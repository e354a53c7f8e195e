//! A node: the core, its ledger and an endpoint, driven by one task.
//!
//! ```text
//!   replicas, clients ─▶ service: decode, check ──mpsc──▶ actor: Replica ──▶ words, signed
//!                        (many at a time)                  │  ▲          ──▶ replies, signed by
//!                                                   append ▼  │ durable       a task of their own
//!                                                         Ledger (its own task)
//! ```
//! The actor owns all state, and waits for nothing but its next input. What comes is decoded and
//! its signatures are checked before, where many of them come at a time; what rests on a record
//! leaves when that is durable.
//!
//! # What is bounded
//! Each member has a share of the inputs that may wait, so a flood of one is dropped, and counted,
//! while the others are heard. Requests of clients take places before their signatures are checked,
//! by who asks: who floods leaves some for others, and words of members never stand behind them. A
//! client has as many requests as its session tells apart, and each who asks for it as many places
//! to be answered at. Of what anybody may ask, how the node is and who the members are, few
//! questions wait at a time.

mod actor;
mod counts;
mod epoch;
mod gate;
mod hearing;
mod meters;
mod recovery;
mod service;
mod waiters;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::transport::Address;
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
use self::counts::Counts;
use self::epoch::Epoch;
use self::gate::Gate;
use self::hearing::Hearing;
use self::service::Front;
use crate::core::{ClientId, Digest, Forgotten, Keys, Sequence, Settings, Signer, Trust, View};
use crate::proto::{Inspection, PbftServer};
use crate::settings;
use crate::wire::Malformed;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings of the core: which node this is, and who the others and the clients are.
    pub core: Settings,
    /// All replicas, with their addresses.
    pub members: Configuration,
    /// Everybody's keys.
    pub keys: Keys,
    /// The key of this node.
    pub signer: Signer,
    /// Words of one member that may wait here. What is beyond is dropped, and said again by the
    /// protocol. As many replies may wait to be asked for by it, for those who asked it. Default
    /// 2,048.
    pub member_inputs_max: usize,
    /// Bytes of words of one member that may wait so. Default 64 MiB.
    pub member_bytes_max: usize,
    /// Requests that may wait here for a check of their signatures, and then to be taken up: of one
    /// asker three quarters at most, whose signatures take a fifth of a second where all are wrong.
    /// What is beyond is refused unseen. Default 4,096.
    pub requests_max: usize,
    /// Bytes of requests that may wait so, of one asker as much. Default 64 MiB.
    pub request_bytes_max: usize,
    /// Bytes of the ledger behind its last snapshot, about, before the next is written. Default
    /// 256 MiB.
    pub snapshot_bytes: u64,
    /// Time for which a node that was removed still tells the others how its epoch has ended, until
    /// it stops: from its start, or the last epoch that it has heard of. Default 5 s.
    pub leave_after: Duration,
    /// A deliberate lie, for demonstrations and tests.
    pub lie: Option<Lie>,
    /// Eyes on what is executed, for tests.
    pub observer: Option<Observer>,
}

/// A function that hears of each batch that a node executes, for checks.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Sequence, Digest) + Send + Sync>);

impl Observer {
    /// One that calls this with the place and the digest of each batch.
    pub fn new(observe: impl Fn(Sequence, Digest) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer(..)")
    }
}

/// A lie that a node tells all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// As the primary it proposes another batch to each replica.
    Equivocate,
    /// It votes for another batch before some than before others, and gives clients a result that
    /// is none.
    Contradict,
}

impl Options {
    /// Defaults for one of these members.
    pub fn new(node: NodeId, members: Configuration, keys: Keys, signer: Signer) -> Self {
        Self {
            core: Settings {
                trust: keys.trust(),
                members: keys.members(),
                ..Settings::new(node, keys.group().clone(), keys.clients())
            },
            members,
            keys,
            signer,
            member_inputs_max: 2_048,
            member_bytes_max: 64 << 20,
            requests_max: 4_096,
            request_bytes_max: 64 << 20,
            snapshot_bytes: 256 << 20,
            leave_after: Duration::from_secs(5),
            lie: None,
            observer: None,
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
    /// A record of the ledger is whole, and none of this program's, or has a state that is none of
    /// its. Nothing was said: the program that wrote it starts.
    #[error("record {number} of the ledger was written by another program: {source}")]
    Record {
        /// Counted from 1; 0 for one of the snapshot.
        number: u64,
        /// The defect.
        source: Malformed,
    },
    /// The endpoint could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The ledger's state knows the clients that the cluster has begun with, and no others.
    #[error(
        "client {} is not among those that this cluster has begun with, which its state keeps: \
         take it out of the cluster file, or begin anew with all clients in it", .0.0
    )]
    NewClient(ClientId),
    /// This replica has taken part before, and its ledger does not know all of it. Each start ends
    /// so.
    #[error(
        "its own signature is under {0}, of which its ledger knows nothing: the ledger was lost, \
         and without it the replica may contradict what it has said. Start it no more, and let \
         another take its place, with a key of its own: `pbft member add .. --in-place-of`"
    )]
    LostLedger(Forgotten),
    /// Others are members now: nothing is left to do here.
    #[error("it is no member from epoch {0} on: its part is over")]
    Removed(u64),
    /// Connections are to prove names, and these prove none.
    #[error(
        "{0} proves nobody, and unsigned words are believed by the connection alone: take tls:// \
         or quic:// with certificates, or sign"
    )]
    Unproven(Address),
}

/// The part of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is no member: not yet, or not any more.
    Outside,
    /// Fewer than a quorum, itself with it, were heard since its start, so that it may be behind.
    Hearing,
    /// It fetches the state behind a checkpoint, which the others have.
    Fetching,
    /// Nothing is lacking.
    Whole,
}

/// The view of a node, and its part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its number.
    pub view: View,
    /// False while it has not begun.
    pub has_begun: bool,
    /// Its primary.
    pub primary: NodeId,
    /// Its part: with [`Part::Whole`], in a view that has begun, others may do without another
    /// node.
    pub part: Part,
}

impl Standing {
    /// True where this view has begun, or is left.
    fn is_past(self, view: View) -> bool {
        view < self.view || (view == self.view && self.has_begun)
    }
}

/// A running node. Dropped, it stops at once, as in a crash.
#[derive(Debug)]
pub struct Node {
    endpoint: Endpoint,
    inputs: mpsc::Sender<Input>,
    standing: watch::Receiver<Standing>,
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
        if options.keys.trust() == Trust::Channels {
            are_proven(&options.members)?;
        }
        let (replica, is_blank) = recovery::recover(&options, recovered).await?;
        let hearing = Hearing::new(&replica, is_blank);
        let keys = options.keys.clone().remembering(KNOWN_SIGNATURES);
        let mut epoch = Epoch::of(&options, keys);
        for handover in replica.handovers() {
            epoch = epoch.after(handover, &options);
        }
        let (inputs, received) = mpsc::channel(INPUTS_MAX);
        let (asked, requests) = mpsc::channel(ASKED_MAX);
        let (view, has_begun) = replica.view();
        let primary = epoch.keys.primary(view);
        let shared = Arc::new(RwLock::new(Arc::new(epoch)));
        let part = if replica.takes_part() { Part::Hearing } else { Part::Outside };
        let (stand, standing) = watch::channel(Standing { view, has_begun, primary, part });
        let counts = Arc::new(Counts::default());
        let front = Front {
            epoch: Arc::clone(&shared),
            words: Gate::of_words(),
            requests: Gate::of_requests(),
            questions: Places::with_each_max(QUESTIONS_EACH_MAX, QUESTIONS_MAX, 0),
            places: Places::new(options.requests_max, options.request_bytes_max),
            inputs: inputs.clone(),
            asked,
            counts: Arc::clone(&counts),
            standing: standing.clone(),
        };
        let endpoint = builder
            .node(options.core.node)
            .peers(&options.members.without([options.core.node]))
            .keep_connected()
            .serve(PbftServer::new(front))
            .start()
            .await?;
        let links = (&endpoint, shared);
        let come = (inputs.clone(), Turns::new(received, requests));
        let state = (replica, hearing);
        let actor = Actor::new(options, state, ledger.clone(), links, come, stand, counts);
        let actor = tokio::spawn(actor.run());
        Ok(Self { endpoint, inputs, standing, ledger, actor })
    }

    /// Its endpoint: the addresses at which it listens, counters, its load.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its view, now and whenever it changes.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Its state, in numbers. `None` once it has stopped.
    pub async fn inspect(&self) -> Option<Inspection> {
        let (tell, told) = oneshot::channel();
        let asked = Input::Inspect { with_state: true, tell, _place: None };
        self.inputs.send(asked).await.ok()?;
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

    /// Takes no more part, makes all durable and closes the ledger: for at most this long, three
    /// seconds for what leaves last, and a second for the ledger. The others go on without it.
    ///
    /// # Errors
    /// A failure before, or of the ledger: [`LedgerError::NotInTime`] where its disk hangs.
    pub async fn stop(mut self, within: Duration) -> Result<(), NodeError> {
        let deadline = Instant::now() + within;
        let _ = self.inputs.send(Input::Stop { deadline }).await; // it may have failed: see below
        let ended = flatten((&mut self.actor).await);
        ending::finish(ended, &self.endpoint, &self.ledger, deadline).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.actor.abort();
    }
}

/// Looks whether connections to all of them prove names.
fn are_proven(members: &Configuration) -> Result<(), NodeError> {
    let mut all = members.nodes().flat_map(|node| members.addresses_of(node));
    let bare = all.find(|address| !settings::proves_names(address));
    bare.map_or(Ok(()), |address| Err(NodeError::Unproven(address.clone())))
}

/// Signatures that are not checked again: of some thousand batches, 5 MiB.
const KNOWN_SIGNATURES: usize = 64 << 10;

/// Inputs of members that may wait for the actor. A sender that finds the queue full is refused.
const INPUTS_MAX: usize = 16_384;

/// Inputs of those who need not be members that may wait for the actor: more than have places,
/// where a third of 64 members uses up all of theirs.
const ASKED_MAX: usize = 65_536;

/// Questions that may wait: 64 MiB of answers.
const QUESTIONS_MAX: usize = 1_024;

/// Questions of one node that may wait. Clients of one endpoint may each ask at once when the
/// members change; those beyond ask again.
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
    use super::*;

    #[test]
    fn a_view_that_is_wanted_may_begin_once() {
        let primary = NodeId::new(1);
        for (has_begun, past) in [(false, [true, false, false]), (true, [true, true, false])] {
            let standing = Standing { view: View(5), has_begun, primary, part: Part::Whole };
            assert_eq!([4, 5, 6].map(|view| standing.is_past(View(view))), past);
        }
    }
}
