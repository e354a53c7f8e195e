//! A member over an endpoint: broadcasts, takes part in the broadcasts of all, and hands out what
//! is delivered.
//!
//! The module [`broadcasts`](crate::broadcasts) decides its part in them. Votes that are lost as
//! connections break are said again once these are back, and a member that sees no progress asks
//! for them: it catches up with all that it lacks, as long as it is not further behind than
//! [`REMEMBERED_MAX`](crate::broadcasts::REMEMBERED_MAX) broadcasts of a source, nor than the
//! values go back that the others' [`Payloads`] keep.
//!
//! A member that is further behind must be helped by the application: it gets the values that it
//! lacks from the applications of others, of `f + 1` that say the same, and goes on at the
//! broadcast after them by [`Member::skip_to`].
//!
//! A member keeps nothing on disk, and one that has lost its memory must not vote again about what
//! it has voted on: it would be a liar beside the `f` that there may be. The others cannot say how
//! far it had voted: those who answer may be behind it, or lie. So it counts as one of the `f` for
//! good, and is not started again; unless its application has kept
//! [`votes_below`](crate::broadcasts::votes_below) on disk for each source, before its first vote
//! and, raised, before each [`Member::next`]. From there it goes on by [`Member::skip_to`], before
//! anything else, and until the source is there it counts as faulty. Its own broadcasts have a gap
//! then, so that nobody votes on them until the applications of the others have skipped it, too.
//!
//! An application that does not take its deliveries keeps nobody from voting, nor the other
//! sources: [`UNTAKEN_MAX`](crate::broadcasts::UNTAKEN_MAX) of each source wait, then a window of
//! its broadcasts. Beyond that its member votes on no more of that source, as if it was away.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use convoke::cast::Digest;
use convoke::quorum::Configuration;
use convoke::quorum::echo::{EchoSpace, EchoSpaceBuilder, EchoStream, Payloads};
use convoke::{Endpoint, KeepConnected, NodeId, PeerState};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::broadcasts::{Broadcasts, Output};
pub use crate::broadcasts::{Delivery, Refused};
use crate::mutant::{self, Mutant};

/// A member. Dropped, it takes part no more.
#[derive(Debug)]
pub struct Member {
    shared: Arc<Shared>,
    /// Bounded by the core: of each source so many that are not taken.
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    _connected: Vec<KeepConnected>,
    _running: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    broadcasts: Mutex<Broadcasts>,
    /// This member has something to say.
    has_output: Notify,
    payloads: Payloads,
}

/// How long a member that lacks a value tries to get it, before it looks anew for who has it.
const PULL: Duration = Duration::from_secs(5);
/// And so much longer for each member that it may ask in vain, so that it comes to all.
const TURN: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(200);

/// How often a member looks at who is back, and at what makes no progress: far above what a vote
/// takes on its way, and short beside what a connection takes to break.
const TICK: Duration = Duration::from_millis(250);

/// The space of all broadcasts: the view of a tag is its source.
pub fn space(members: &Configuration) -> EchoSpaceBuilder {
    EchoSpace::builder("brb", members)
}

impl Member {
    /// Takes part from now on, and keeps connections to the others. The endpoint serves `payloads`,
    /// of which each source has a share.
    ///
    /// # Errors
    /// Unless there are `3f + 1` members and this endpoint is one.
    pub fn start(
        endpoint: &Endpoint,
        members: &Configuration,
        faulty: usize,
        payloads: &Payloads,
    ) -> Result<Self> {
        let broadcasts = Broadcasts::new(endpoint.node(), members, faulty)?;
        let votes = space(members).stream(endpoint)?;
        let (broadcasts, payloads) = (Mutex::new(broadcasts), payloads.clone());
        let shared = Arc::new(Shared { broadcasts, has_output: Notify::new(), payloads });
        let (delivered, deliveries) = mpsc::unbounded_channel();
        let others = || members.nodes().filter(|node| *node != endpoint.node());
        let connected = others().map(|node| endpoint.keep_connected(node)).collect();
        let peers = Peers::new(endpoint, others());
        let mut running = JoinSet::new();
        running.spawn(take_part(shared.clone(), endpoint.clone(), votes, peers, delivered));
        Ok(Self { shared, deliveries, _connected: connected, _running: running })
    }

    /// Broadcasts a value as the how-manieth of this member; from 0 without gaps, each once.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn broadcast(&mut self, sequence: u64, value: Bytes) -> Result<(), Refused> {
        self.shared.broadcasts().broadcast(sequence, value)?;
        self.shared.has_output.notify_one();
        Ok(())
    }

    /// Takes part in the broadcasts of a source from this one on; those below are not delivered
    /// here any more. For a member that was away for too long, as the [module](crate::node) says.
    /// It must have voted on none from there on in an earlier life.
    pub fn skip_to(&mut self, source: NodeId, sequence: u64) {
        self.shared.broadcasts().skip_to(source, sequence);
        self.shared.has_output.notify_one();
    }

    /// The next value that is delivered here, of any source, in any order.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.recv().await?;
        self.shared.broadcasts().handle_taken(&delivery);
        self.shared.has_output.notify_one();
        Some(delivery)
    }
}

impl Shared {
    fn broadcasts(&self) -> MutexGuard<'_, Broadcasts> {
        self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True of a member that is broken on purpose.
fn is_waiting(shared: &Shared) -> bool {
    mutant::is(Mutant::WaitsForTaker) && shared.broadcasts().is_holding()
}

/// The other members, as far as this one reaches them.
#[derive(Debug)]
struct Peers {
    states: Vec<(NodeId, watch::Receiver<PeerState>)>,
    /// Those that may have missed something that was said.
    missed: BTreeSet<NodeId>,
}

impl Peers {
    fn new(endpoint: &Endpoint, others: impl Iterator<Item = NodeId>) -> Self {
        let states = others.map(|node| (node, endpoint.watch_peer(node))).collect();
        Self { states, missed: BTreeSet::new() }
    }

    /// Members that are reached, and have missed something, or may have: what was on its way as a
    /// connection broke is lost, and nobody says so.
    fn take_back(&mut self, missed: Vec<NodeId>) -> Vec<NodeId> {
        self.missed.extend(missed);
        let mut back = Vec::new();
        for (node, state) in &mut self.states {
            if state.has_changed().unwrap_or(false) {
                self.missed.insert(*node);
            }
            if *state.borrow_and_update() == PeerState::Connected && self.missed.remove(node) {
                back.push(*node);
            }
        }
        back
    }
}

/// A broadcast, and its value if that was given.
type Pulled = ((NodeId, u64), Option<Bytes>);

async fn take_part(
    shared: Arc<Shared>,
    endpoint: Endpoint,
    mut votes: EchoStream,
    mut peers: Peers,
    delivered: mpsc::UnboundedSender<Delivery>,
) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pulls: JoinSet<Pulled> = JoinSet::new();
    loop {
        tokio::select! {
            cast = votes.next(), if !is_waiting(&shared) => {
                let Some(cast) = cast else { return };
                if let Ok(source) = NodeId::try_from(cast.tag.0) {
                    shared.broadcasts().handle_cast((source, cast.tag.1), cast.from, cast.body);
                }
            }
            Some(Ok((key, value))) = pulls.join_next() => {
                shared.broadcasts().handle_value(key, value);
            }
            () = shared.has_output.notified() => {}
            _ = tick.tick() => {
                let back = peers.take_back(votes.take_missed());
                let mut broadcasts = shared.broadcasts();
                broadcasts.handle_tick();
                back.into_iter().for_each(|node| broadcasts.repeat_to(node));
            }
        }
        loop {
            let Some(output) = shared.broadcasts().poll_output() else { break };
            match output {
                // Its size is within the share of a source, or the store is smaller than it must
                // be.
                Output::Keep(source, value) => drop(shared.payloads.insert_of(source, value)),
                Output::Cast((source, sequence), vote, value) => {
                    // Its size is within `VALUE_BYTES_MAX`, or limits are lower than they must be.
                    // Whom it does not reach is told again.
                    let _ = votes.cast((source.get(), sequence), vote, value);
                }
                Output::Again(to, (source, sequence), vote, value) => {
                    let _ = votes.send((source.get(), sequence), to, vote, value);
                }
                Output::Pull(key, digest, from) => {
                    let (payloads, endpoint) = (shared.payloads.clone(), endpoint.clone());
                    pulls.spawn(pull(payloads, endpoint, key, digest, from));
                }
                // Nobody listens when the member is going.
                Output::Deliver(delivery) => drop(delivered.send(delivery)),
            }
        }
    }
}

async fn pull(
    payloads: Payloads,
    endpoint: Endpoint,
    key: (NodeId, u64),
    digest: Digest,
    from: Vec<NodeId>,
) -> Pulled {
    let deadline = from.iter().fold(PULL, |deadline, _| deadline + TURN);
    match payloads.pull(&endpoint, digest, from, deadline).await {
        Ok(pulled) => (key, Some(pulled.value)),
        Err(_) => {
            sleep(PAUSE).await;
            (key, None)
        }
    }
}
