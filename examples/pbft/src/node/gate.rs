//! The gate: signatures of what has come by now are checked together, beside the actor's task.
//!
//! While one batch is checked the next gathers, so that batches grow with the load and a single
//! message never waits for another. Requests of clients have a gate of their own, so that no word
//! of a replica stands behind them, or is checked once more for a wrong one among them.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::core::{Claims, Refused, Unproven, Verified};

/// The way in.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    waiting: mpsc::Sender<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    claims: Arc<Claims>,
    tell: oneshot::Sender<()>,
}

impl Gate {
    /// That of words of replicas, which checks on as many threads as the machine has. A gate is
    /// open until the last of its clones is dropped.
    pub(super) fn of_words() -> Self {
        Self::open(threads())
    }

    /// That of requests of clients: it leaves a thread to all else, where there is another.
    pub(super) fn of_requests() -> Self {
        Self::open((threads() - 1).max(1))
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
            let waiting = Waiting { claims: Arc::clone(words.claims()), tell };
            if self.waiting.send(waiting).await.is_ok() {
                let _ = told.await; // an error: the runtime ends, and they are checked here
            }
        }
        words.open()
    }
}

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Checks what waits, on so many threads at once.
async fn check(mut received: mpsc::Receiver<Waiting>, threads: usize) {
    let free = Arc::new(Semaphore::new(threads));
    while let Ok(turn) = Arc::clone(&free).acquire_owned().await
        && let Some(first) = received.recv().await
    {
        let mut count = first.claims.len();
        let mut batch = vec![first];
        while count < CLAIMS_MAX
            && let Ok(next) = received.try_recv()
        {
            count += next.claims.len();
            batch.push(next);
        }
        tokio::spawn(async move {
            Claims::prove(batch.iter().map(|waiting| &*waiting.claims));
            for Waiting { tell, .. } in batch {
                let _ = tell.send(()); // who waited may have given up
            }
            drop(turn);
        });
    }
}

/// Messages that wait, at most: their senders wait for room.
const WAITING_MAX: usize = 1_024;

/// Signatures checked together, about: a millisecond.
const CLAIMS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use convoke::NodeId;

    use super::*;
    use crate::core::{ClientId, Group, Keys, Request, Scope, Signature, SignedRequest, Signer};

    const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };
    const FROM: NodeId = NodeId::new(99);

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
