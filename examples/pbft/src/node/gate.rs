//! The gate: signatures of what has come by now are checked together, beside the actor's task.
//!
//! While one batch is checked the next gathers, so that batches grow with the load and a single
//! message never waits for another. Requests of clients have a gate of their own, so that no word
//! of a replica stands behind them, or is checked once more for a wrong one among them. What its
//! sender has given up meanwhile is not checked.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::core::{Claims, Refused, Unproven, Verified};

/// The way in.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    waiting: mpsc::Sender<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Gone with who waits.
    claims: Weak<Claims>,
    tell: oneshot::Sender<()>,
}

impl Gate {
    /// That of words of replicas, which checks on as many threads as the runtime has workers. A
    /// gate is open until the last of its clones is dropped.
    pub(super) fn of_words() -> Self {
        Self::open(workers())
    }

    /// That of requests of clients: it leaves a worker to all else, where there is another.
    pub(super) fn of_requests() -> Self {
        Self::open(of_requests(workers()))
    }

    fn open(threads: usize) -> Self {
        let (waiting, received) = mpsc::channel(WAITING_MAX);
        tokio::spawn(check(received, threads));
        Self { waiting }
    }

    /// Lets words in that were examined, and whose signatures are right.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) async fn pass<T>(
        &self,
        examined: Result<Unproven<T>, Refused>,
    ) -> Result<Verified<T>, Refused> {
        let words = examined?;
        if !words.claims().is_empty() {
            let (tell, told) = oneshot::channel();
            let waiting = Waiting { claims: Arc::downgrade(words.claims()), tell };
            if self.waiting.send(waiting).await.is_ok() {
                let _ = told.await; // an error: the runtime ends, and they are checked here
            }
        }
        words.open()
    }
}

/// Workers of the runtime on which a gate is opened, and so checks: they may be more or fewer than
/// the machine has processors.
fn workers() -> usize {
    Handle::current().metrics().num_workers()
}

/// Those of so many that check requests at a time, at most.
fn of_requests(workers: usize) -> usize {
    (workers - 1).max(1)
}

/// Checks what waits, on so many threads at once.
async fn check(mut received: mpsc::Receiver<Waiting>, threads: usize) {
    let free = Arc::new(Semaphore::new(threads));
    while let Ok(turn) = Arc::clone(&free).acquire_owned().await
        && let Some(batch) = next_batch(&mut received).await
    {
        tokio::spawn(async move {
            Claims::prove(batch.iter().map(|(claims, _)| &**claims));
            for (_, tell) in batch {
                let _ = tell.send(()); // who waited may have given up
            }
            drop(turn);
        });
    }
}

/// Words that are checked together, of those who still wait, with whom to tell. `None` once the
/// gate is closed.
async fn next_batch(
    received: &mut mpsc::Receiver<Waiting>,
) -> Option<Vec<(Arc<Claims>, oneshot::Sender<()>)>> {
    let (mut batch, mut count) = (Vec::new(), 0);
    while count < CLAIMS_MAX {
        let next = match batch.is_empty() {
            true => received.recv().await?,
            false => match received.try_recv() {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        if let Some(claims) = next.claims.upgrade() {
            count += claims.len();
            batch.push((claims, next.tell));
        }
    }
    Some(batch)
}

/// Messages that wait, at most: their senders wait for room.
const WAITING_MAX: usize = 1_024;

/// Signatures checked together, about: a millisecond.
const CLAIMS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use bytes::Bytes;
    use convoke::NodeId;

    use super::*;
    use crate::core::{ClientId, Group, Keys, Request, Scope, Signature, SignedRequest, Signer};

    const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };
    const FROM: NodeId = NodeId::new(99);
    /// More than most machines have processors.
    const WORKERS: usize = 77;

    /// A machine has as many processors for all of its nodes.
    #[test]
    fn a_gate_checks_on_the_workers_of_its_runtime() {
        let many = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).build();
        assert_eq!(many.expect("it starts").block_on(async { workers() }), WORKERS);
        let one = tokio::runtime::Builder::new_current_thread().build();
        assert_eq!(one.expect("it starts").block_on(async { workers() }), 1);
        assert_eq!([1, 2, WORKERS].map(of_requests), [1, 1, WORKERS - 1]);
    }

    /// A signed request of a client, with what it takes at the door.
    fn examined(keys: &Keys, client: u8) -> Unproven<SignedRequest> {
        let request = Request { client: ClientId(client.into()), number: 1, operation: "x".into() };
        let signed = Signer::ed25519([client; 32]).sign_request(SCOPE, request);
        keys.examine_request(FROM, signed).unwrap()
    }

    /// All checks are under way while many ask and give up: what they have asked for is gone, and
    /// who asks next does not wait for it.
    #[tokio::test]
    async fn what_was_given_up_is_neither_kept_nor_checked() {
        let checker = |client: u8| Signer::ed25519([client; 32]).checker();
        let clients = (0..100).map(|client| (ClientId(client.into()), checker(client)));
        let group = Group::new((1..=4).map(NodeId::new)).unwrap();
        let keys = Keys::new(SCOPE, group, BTreeMap::new(), clients.collect());
        let (waiting, mut received) = mpsc::channel(WAITING_MAX);
        let gate = Gate { waiting };
        let mut claims = Vec::new();
        for client in 0..99 {
            let words = examined(&keys, client);
            claims.push(Arc::downgrade(words.claims()));
            let passing = tokio::time::timeout(Duration::ZERO, gate.pass(Ok(words))).await;
            assert!(passing.is_err(), "nothing is checked yet");
        }
        assert!(claims.iter().all(|claims| claims.upgrade().is_none()), "they are kept");
        let (last, passing) = (gate.clone(), examined(&keys, 99));
        let passing = tokio::spawn(async move { last.pass(Ok(passing)).await });
        drop(gate);
        let batch = next_batch(&mut received).await.expect("somebody waits");
        assert_eq!(batch.len(), 1, "what was given up is checked, too");
        drop(batch);
        passing.await.unwrap().expect("it is signed");
    }

    /// One request in a hundred is signed by somebody else: it alone is refused.
    #[tokio::test]
    async fn a_wrong_signature_is_refused_and_none_of_those_checked_with_it() {
        let signer = |client: u8| Signer::ed25519([client; 32]);
        let clients = (0..200).map(|client| (ClientId(client.into()), signer(client).checker()));
        let group = Group::new((1..=4).map(NodeId::new)).unwrap();
        let keys = Keys::new(SCOPE, group, BTreeMap::new(), clients.collect()).remembering(1_000);
        let gate = Gate::of_requests();
        let pass = |client: u8| {
            let (id, operation) = (ClientId(client.into()), Bytes::from_static(b"x"));
            let request = Request { client: id, number: 1, operation };
            let signed = match client % 100 {
                99 => signer(client - 1).sign_request(SCOPE, request),
                _ => signer(client).sign_request(SCOPE, request),
            };
            let (gate, words) = (gate.clone(), keys.examine_request(FROM, signed));
            tokio::spawn(async move { gate.pass(words).await.is_ok() })
        };
        let passing: Vec<_> = (0..200).map(pass).collect();
        for (client, passed) in (0_u8..).zip(passing) {
            assert_eq!(passed.await.unwrap(), client % 100 != 99, "client {client}");
        }
        let request = Request { client: ClientId(1), number: 1, operation: "x".into() };
        let again = signer(1).sign_request(SCOPE, request.clone());
        assert!(keys.examine_request(FROM, again).unwrap().claims().is_empty(), "it is known");
        let forged = SignedRequest { request, signature: Signature([1; 64]) };
        let forged = keys.examine_request(FROM, forged);
        assert_eq!(gate.pass(forged).await.unwrap_err(), Refused::Request);
    }
}
