//! Large values beside small votes: members vote for digests, and who lacks a value pulls it from
//! those who voted for it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Code, Context, Digest, Endpoint, Method, NodeId, Service, Status};
use tokio::time::{sleep, timeout};

use super::digest::digest_of;

/// Asks a member for a value by its digest.
const PULL: Method<PullRequest, PullReply> = Method::new("convoke.Echo/Pull").read_only();

#[derive(Clone, PartialEq, prost::Message)]
struct PullRequest {
    #[prost(bytes = "bytes", tag = "1")]
    digest: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PullReply {
    #[prost(bytes = "bytes", tag = "1")]
    value: Bytes,
}

/// Values by digest, bounded in bytes: the oldest make room. Cheap to clone; clones are the same
/// store.
///
/// An endpoint that serves [`Self::service`] gives them to whoever asks for one by its digest.
/// There is one store for an endpoint.
#[derive(Clone)]
pub struct Payloads {
    store: Arc<Mutex<Store>>,
}

struct Store {
    values: BTreeMap<Digest, Bytes>,
    /// In the order they came.
    order: VecDeque<Digest>,
    bytes: usize,
    bytes_max: usize,
}

/// A value that was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The value, which has the digest.
    pub value: Bytes,
    /// Members that have answered with something else: faulty ones.
    pub liars: Vec<NodeId>,
}

/// Reason why a value was not pulled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// There was nobody to ask.
    #[error("there is nobody to pull {digest:?} from")]
    Nobody {
        /// Digest of the value.
        digest: Digest,
    },
    /// Nobody gave it in time.
    #[error("none of {asked:?} gave the value of {digest:?} in time; another value gave {liars:?}")]
    NotGiven {
        /// Digest of the value.
        digest: Digest,
        /// Members that were asked.
        asked: Vec<NodeId>,
        /// Members that have answered with something else.
        liars: Vec<NodeId>,
    },
}

/// Time a member is given before the next is asked; doubled each time all have been.
const PATIENCE: Duration = Duration::from_millis(200);

impl Payloads {
    /// An empty store for so many bytes, 64 more for each value.
    pub fn new(bytes_max: usize) -> Self {
        let (values, order) = (BTreeMap::new(), VecDeque::new());
        Self { store: Arc::new(Mutex::new(Store { values, order, bytes: 0, bytes_max })) }
    }

    /// Keeps a value, and gives its digest. One that is larger than the store is not kept.
    pub fn insert(&self, value: Bytes) -> Digest {
        let digest = digest_of(&value);
        self.with(|store| store.insert(digest, value));
        digest
    }

    /// The value of this digest, if it is here.
    pub fn get(&self, digest: Digest) -> Option<Bytes> {
        self.with(|store| store.values.get(&digest).cloned())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        // Nothing panics while it is held.
        act(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Service that gives the values to others.
    pub fn service(&self) -> Service {
        let payloads = self.clone();
        Service::new().unary(PULL, move |request: PullRequest, _: Context| {
            let answer = payloads.answer(&request);
            async move { answer }
        })
    }

    fn answer(&self, request: &PullRequest) -> Result<PullReply, Status> {
        let bytes: Result<[u8; 32], _> = request.digest[..].try_into();
        let bytes =
            bytes.map_err(|_| Status::new(Code::InvalidArgument, "no digest of 32 bytes"))?;
        let value = self.get(Digest(bytes));
        let value = value.ok_or_else(|| Status::new(Code::NotFound, "the value is not here"))?;
        Ok(PullReply { value })
    }

    /// The value of a digest: from here, or from the first of these members that gives it; then it
    /// is kept. They are asked one after the other, each given 200 ms, then all again with twice
    /// the time, until `deadline` has passed. What does not have the digest is not taken.
    ///
    /// # Errors
    /// [`PullError`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the value may have come and not be kept.
    pub async fn pull(
        &self,
        endpoint: &Endpoint,
        digest: Digest,
        members: impl IntoIterator<Item = NodeId>,
        deadline: Duration,
    ) -> Result<Pulled, PullError> {
        if let Some(value) = self.get(digest) {
            return Ok(Pulled { value, liars: Vec::new() });
        }
        let me = endpoint.node();
        let asked: Vec<NodeId> = members.into_iter().filter(|node| *node != me).collect();
        if asked.is_empty() {
            return Err(PullError::Nobody { digest });
        }
        let mut liars = Vec::new();
        let pulling = self.pull_until_given(endpoint, digest, &asked, &mut liars);
        let given = timeout(deadline, pulling).await.ok().flatten();
        match given {
            Some(value) => Ok(Pulled { value, liars }),
            None => Err(PullError::NotGiven { digest, asked, liars }),
        }
    }

    /// `None` when all have lied.
    async fn pull_until_given(
        &self,
        endpoint: &Endpoint,
        digest: Digest,
        members: &[NodeId],
        liars: &mut Vec<NodeId>,
    ) -> Option<Bytes> {
        let mut patience = PATIENCE;
        while liars.len() < members.len() {
            for node in members {
                if liars.contains(node) {
                    continue;
                }
                match ask(endpoint, digest, *node, patience).await {
                    Some(value) if digest_of(&value) == digest => {
                        self.with(|store| store.insert(digest, value.clone()));
                        return Some(value);
                    }
                    Some(_) => liars.push(*node),
                    None => {}
                }
            }
            // They may get it yet.
            sleep(patience).await;
            patience *= 2;
        }
        None
    }
}

/// Answer of a member, if it gives anything.
async fn ask(
    endpoint: &Endpoint,
    digest: Digest,
    node: NodeId,
    patience: Duration,
) -> Option<Bytes> {
    let request = PullRequest { digest: Bytes::copy_from_slice(&digest.0) };
    let request = PULL.request(request).deadline(patience);
    let reply = endpoint.invoke(request).to(node).await;
    reply.ok().map(|reply| reply.value)
}

/// Cost of a value besides its bytes.
const VALUE_BYTES: usize = 64;

impl Store {
    fn insert(&mut self, digest: Digest, value: Bytes) {
        let cost = value.len() + VALUE_BYTES;
        if cost > self.bytes_max || self.values.contains_key(&digest) {
            return;
        }
        while self.bytes + cost > self.bytes_max
            && let Some(oldest) = self.order.pop_front()
            && let Some(value) = self.values.remove(&oldest)
        {
            self.bytes -= value.len() + VALUE_BYTES;
        }
        self.bytes += cost;
        self.order.push_back(digest);
        self.values.insert(digest, value);
    }
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = self.with(|store| (store.values.len(), store.bytes));
        f.debug_struct("Payloads").field("count", &count).field("bytes", &bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_what_is_too_large_is_not_kept() {
        let payloads = Payloads::new(3 * (100 + VALUE_BYTES));
        let value = |byte| Bytes::from(vec![byte; 100]);
        let digests: Vec<Digest> = (0..4).map(|byte| payloads.insert(value(byte))).collect();
        let kept: Vec<bool> = digests.iter().map(|d| payloads.get(*d).is_some()).collect();
        assert_eq!(kept, [false, true, true, true]);
        payloads.insert(value(3));
        let large = payloads.insert(Bytes::from(vec![9; 1_000]));
        assert_eq!((payloads.get(large), payloads.get(digests[1])), (None, Some(value(1))));
        assert!(format!("{payloads:?}").contains("bytes: 492"), "{payloads:?}");
    }

    #[test]
    fn what_is_no_digest_and_what_is_not_here_are_refused() {
        let payloads = Payloads::new(1_000);
        let code = |digest: &[u8]| {
            let request = PullRequest { digest: Bytes::copy_from_slice(digest) };
            payloads.answer(&request).map_err(|status| status.code())
        };
        assert_eq!(code(b"short"), Err(Code::InvalidArgument));
        assert_eq!(code(&[0; 32]), Err(Code::NotFound));
        let digest = payloads.insert(Bytes::from_static(b"heron"));
        assert_eq!(code(&digest.0), Ok(PullReply { value: Bytes::from_static(b"heron") }));
    }
}
