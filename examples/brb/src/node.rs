//! A member over an endpoint: broadcasts, takes part in the broadcasts of all, and hands out what
//! is delivered.
//!
//! The module [`broadcasts`](crate::broadcasts) decides its part in them. It keeps nothing on disk;
//! votes that could not be sent are not said again, and a member that was away for more than
//! [`WINDOW`](crate::broadcasts::WINDOW) broadcasts of a source must be helped by the application.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use convoke::cast::Digest;
use convoke::quorum::Configuration;
use convoke::quorum::echo::{EchoSpace, EchoSpaceBuilder, EchoStream, Payloads};
use convoke::{Endpoint, NodeId};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::broadcasts::{Broadcasts, Output};
pub use crate::broadcasts::{Delivery, Refused};

/// A member. Dropped, it takes part no more.
#[derive(Debug)]
pub struct Member {
    shared: Arc<Shared>,
    deliveries: mpsc::Receiver<Delivery>,
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

/// Values delivered that nobody has taken yet.
const UNTAKEN_MAX: usize = 1_024;

/// The space of all broadcasts: the view of a tag is its source.
pub fn space(members: &Configuration) -> EchoSpaceBuilder {
    EchoSpace::builder("brb", members)
}

impl Member {
    /// Takes part from now on. The endpoint serves `payloads`, of which each source has a share.
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
        let (delivered, deliveries) = mpsc::channel(UNTAKEN_MAX);
        let mut running = JoinSet::new();
        running.spawn(take_part(shared.clone(), endpoint.clone(), votes, delivered));
        Ok(Self { shared, deliveries, _running: running })
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

    /// The next value that is delivered here, of any source, in any order.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await
    }
}

impl Shared {
    fn broadcasts(&self) -> MutexGuard<'_, Broadcasts> {
        self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A broadcast, and its value if that was given.
type Pulled = ((NodeId, u64), Option<Bytes>);

async fn take_part(
    shared: Arc<Shared>,
    endpoint: Endpoint,
    mut votes: EchoStream,
    delivered: mpsc::Sender<Delivery>,
) {
    let mut pulls: JoinSet<Pulled> = JoinSet::new();
    loop {
        tokio::select! {
            cast = votes.next() => {
                let Some(cast) = cast else { return };
                if let Ok(source) = NodeId::try_from(cast.tag.0) {
                    shared.broadcasts().handle_cast((source, cast.tag.1), cast.from, cast.body);
                }
            }
            Some(Ok((key, value))) = pulls.join_next() => {
                shared.broadcasts().handle_value(key, value);
            }
            () = shared.has_output.notified() => {}
        }
        loop {
            let Some(output) = shared.broadcasts().poll_output() else { break };
            match output {
                // Its size is within the share of a source, or the store is smaller than it must
                // be.
                Output::Keep(source, value) => drop(shared.payloads.insert_of(source, value)),
                Output::Cast((source, sequence), vote, value) => {
                    // Its size is within `VALUE_BYTES_MAX`, or limits are lower than they must be.
                    let _ = votes.cast((source.get(), sequence), vote, value);
                }
                Output::Pull(key, digest, from) => {
                    let (payloads, endpoint) = (shared.payloads.clone(), endpoint.clone());
                    pulls.spawn(pull(payloads, endpoint, key, digest, from));
                }
                // Nobody listens when the member is going.
                Output::Deliver(delivery) => drop(delivered.send(delivery).await),
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
