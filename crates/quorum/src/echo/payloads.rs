//! Large values beside small votes: members vote for digests, and who lacks a value pulls it from
//! those who voted for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::seam::{EndpointSeam as _, Timer, in_time};
use convoke_core::{
    CallError, Cause, Code, Context, Digest, Endpoint, Limits, Method, NodeId, Service, Status,
};
use tokio::task::JoinSet;

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
/// There is one store for an endpoint. Where others decide what is kept, such as the sources of
/// broadcasts, each has a [share](Self::shared) of its own, so that none pushes out another's.
#[derive(Clone)]
pub struct Payloads {
    store: Arc<Mutex<Store>>,
}

struct Store {
    /// With the number of owners that keep each.
    values: BTreeMap<Digest, (Bytes, usize)>,
    /// Those who keep any.
    owners: BTreeMap<Option<NodeId>, Owned>,
    /// Bytes that all may keep.
    bytes_max: usize,
    /// Bytes that one owner may keep.
    share: usize,
    value_bytes_max: usize,
}

/// Values of one owner.
#[derive(Default)]
struct Owned {
    /// In the order they came.
    order: VecDeque<Digest>,
    digests: BTreeSet<Digest>,
    bytes: usize,
}

/// A value that nobody could pull: it is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a value of {bytes} bytes is larger than {bytes_max}: it could not be pulled")]
pub struct ValueTooLarge {
    /// Its size.
    pub bytes: usize,
    /// The largest that is kept.
    pub bytes_max: usize,
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
    /// All that were asked are down, but for those that lie: nobody can have it from them.
    #[error("there is no way to {down:?} for the value of {digest:?}; another gave {liars:?}")]
    NoHolder {
        /// Digest of the value.
        digest: Digest,
        /// Members that there is no way to.
        down: Vec<NodeId>,
        /// Members that have answered with something else.
        liars: Vec<NodeId>,
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

/// Time without an answer before the next member is asked; doubled once all have been.
const PATIENCE: Duration = Duration::from_millis(200);

impl Payloads {
    /// An empty store for so many bytes, 64 more for each value, of which each fits into a message
    /// of the default size, 4 MiB.
    pub fn new(bytes_max: usize) -> Self {
        let message_bytes_max = Limits::default().message_bytes_max;
        Self::for_messages(bytes_max, message_bytes_max)
    }

    /// As [`Self::new`], where endpoints have another
    /// [`message_bytes_max`](Limits::message_bytes_max): the least of all.
    pub fn for_messages(bytes_max: usize, message_bytes_max: usize) -> Self {
        let (values, owners) = (BTreeMap::new(), BTreeMap::new());
        let value_bytes_max = message_bytes_max.min(bytes_max).saturating_sub(VALUE_BYTES);
        let store = Store { values, owners, bytes_max, share: bytes_max, value_bytes_max };
        Self { store: Arc::new(Mutex::new(store)) }
    }

    /// Divides the store among so many owners and what has none, in equal shares. Where there are
    /// more, the oldest of those that keep most make room.
    #[must_use]
    pub fn shared(self, owners: usize) -> Self {
        self.with(|store| {
            store.share /= owners.saturating_add(1);
            let largest = store.share.saturating_sub(VALUE_BYTES);
            store.value_bytes_max = store.value_bytes_max.min(largest);
        });
        self
    }

    /// Keeps a value, and gives its digest.
    ///
    /// # Errors
    /// [`ValueTooLarge`] when it would not fit into the store, or into the message by which another
    /// member pulls it.
    pub fn insert(&self, value: Bytes) -> Result<Digest, ValueTooLarge> {
        self.insert_for(None, value)
    }

    /// Keeps a value in the share of an owner: only its own older ones make room, as long as there
    /// are no more owners than [shares](Self::shared).
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn insert_of(&self, owner: NodeId, value: Bytes) -> Result<Digest, ValueTooLarge> {
        self.insert_for(Some(owner), value)
    }

    fn insert_for(&self, owner: Option<NodeId>, value: Bytes) -> Result<Digest, ValueTooLarge> {
        let (bytes, bytes_max) = (value.len(), self.with(|store| store.value_bytes_max));
        if bytes > bytes_max {
            return Err(ValueTooLarge { bytes, bytes_max });
        }
        let digest = digest_of(&value);
        self.keep(owner, digest, value);
        Ok(digest)
    }

    fn keep(&self, owner: Option<NodeId>, digest: Digest, value: Bytes) {
        // A value may be memory of the user's, whose end runs code of the user's.
        let _dropped_unlocked = self.with(|store| store.insert(owner, digest, value));
    }

    /// The value of this digest, if it is here.
    pub fn get(&self, digest: Digest) -> Option<Bytes> {
        self.with(|store| store.values.get(&digest).map(|(value, _)| value.clone()))
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
    /// is kept. They are asked in turn, the next beside those before when these have not answered
    /// for 200 ms; those without it again, with twice the pause each time all have been asked,
    /// until `deadline` has passed. So each that is silent costs 200 ms of the deadline. What does
    /// not have the digest is not taken.
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
        let mut asked = Vec::new();
        for node in members {
            if node != me && !asked.contains(&node) {
                asked.push(node);
            }
        }
        if asked.is_empty() {
            return Err(PullError::Nobody { digest });
        }
        let mut found = Found::default();
        let pulling = self.pull_until_given(endpoint, digest, (&asked, deadline), &mut found);
        let given = in_time(Timer::after(endpoint.runtime(), deadline), pulling).await;
        let Found { liars, down } = found;
        match given {
            Some(Some(value)) => Ok(Pulled { value, liars }),
            Some(None) if !down.is_empty() => Err(PullError::NoHolder { digest, down, liars }),
            _ => Err(PullError::NotGiven { digest, asked, liars }),
        }
    }

    /// Asks the members in turn, the next when those before have nothing or take long: what they
    /// send is not thrown away. `None` when all have lied or are down.
    async fn pull_until_given(
        &self,
        endpoint: &Endpoint,
        digest: Digest,
        (members, deadline): (&[NodeId], Duration),
        Found { liars, down }: &mut Found,
    ) -> Option<Bytes> {
        let mut patience = PATIENCE;
        let mut due = VecDeque::from_iter(members.iter().copied());
        // They may get it yet, or come back.
        let mut again = Vec::new();
        let mut asking = JoinSet::new();
        loop {
            if let Some(node) = due.pop_front() {
                down.retain(|other| *other != node);
                asking.spawn_on(ask(endpoint.clone(), digest, node, deadline), endpoint.runtime());
            }
            let patient = Timer::after(endpoint.runtime(), patience);
            let answer = match asking.is_empty() {
                true => {
                    patient.await;
                    None
                }
                false => in_time(patient, asking.join_next()).await.flatten(),
            };
            match answer {
                Some(Ok((_, Answer::Value(value)))) if digest_of(&value) == digest => {
                    self.keep(None, digest, value.clone());
                    return Some(value);
                }
                Some(Ok((node, Answer::Value(_)))) => liars.push(node),
                Some(Ok((node, Answer::Down))) => {
                    down.push(node);
                    again.push(node);
                }
                Some(Ok((node, Answer::Nothing))) => again.push(node),
                // Of a runtime that ends.
                Some(Err(_)) => return None,
                None if due.is_empty() => {
                    patience *= 2;
                    due.extend(again.drain(..));
                }
                None => {}
            }
            if liars.len() + down.len() == members.len() {
                return None;
            }
        }
    }
}

/// Members that do not give a value, as far as they were asked.
#[derive(Default)]
struct Found {
    liars: Vec<NodeId>,
    down: Vec<NodeId>,
}

/// Answer of a member.
enum Answer {
    /// Its value, as it says.
    Value(Bytes),
    /// It has none, or has not answered.
    Nothing,
    /// There is no way to it.
    Down,
}

/// Asks a member.
async fn ask(
    endpoint: Endpoint,
    digest: Digest,
    node: NodeId,
    deadline: Duration,
) -> (NodeId, Answer) {
    let request = PullRequest { digest: Bytes::copy_from_slice(&digest.0) };
    let request = PULL.request(request).deadline(deadline);
    let answer = match endpoint.invoke(request).to(node).await {
        Ok(reply) => Answer::Value(reply.value),
        Err(CallError::Branch(failure)) if failure.cause == Cause::Unreachable => Answer::Down,
        Err(_) => Answer::Nothing,
    };
    (node, answer)
}

/// Cost of a value besides its bytes.
const VALUE_BYTES: usize = 64;

/// A value below this size is copied out of the buffer that it came in, which it would keep as a
/// whole: as a mailbox does with the payload of a vote.
const COPIED_BYTES_MAX: usize = 32 << 10;

impl Store {
    /// Keeps a value. Gives what is not kept any more, or was not: to be dropped without the lock.
    fn insert(&mut self, owner: Option<NodeId>, digest: Digest, value: Bytes) -> Vec<Bytes> {
        let cost = value.len() + VALUE_BYTES;
        let mut gone = vec![value];
        if cost > self.share {
            return gone;
        }
        let owned = self.owners.entry(owner).or_default();
        if !owned.digests.insert(digest) {
            return gone;
        }
        owned.order.push_back(digest);
        owned.bytes += cost;
        let of_digest = self.values.entry(digest).or_insert_with(|| {
            let kept = match gone[0].len() {
                0..COPIED_BYTES_MAX => Bytes::copy_from_slice(&gone[0]),
                _ => gone[0].clone(),
            };
            (kept, 0)
        });
        of_digest.1 += 1;
        while self.owners.get(&owner).is_some_and(|owned| owned.bytes > self.share) {
            gone.extend(self.take_oldest(owner));
        }
        while self.bytes() > self.bytes_max
            && let Some(largest) = self.largest_beside_new_of(owner)
        {
            gone.extend(self.take_oldest(largest));
        }
        gone
    }

    /// The owner that keeps most, this one only if it keeps more than its newest value.
    fn largest_beside_new_of(&self, owner: Option<NodeId>) -> Option<Option<NodeId>> {
        let has_other =
            |(of, owned): &(&Option<NodeId>, &Owned)| **of != owner || owned.order.len() > 1;
        let others = self.owners.iter().filter(has_other);
        others.max_by_key(|(of, owned)| (owned.bytes, **of == owner)).map(|(of, _)| *of)
    }

    /// The oldest value of an owner is its no more. Gives it when it was nobody else's.
    fn take_oldest(&mut self, owner: Option<NodeId>) -> Option<Bytes> {
        let owned = self.owners.get_mut(&owner)?;
        let oldest = owned.order.pop_front()?;
        owned.digests.remove(&oldest);
        let mut taken = None;
        if let Some((value, owners)) = self.values.get_mut(&oldest) {
            owned.bytes -= value.len() + VALUE_BYTES;
            *owners -= 1;
            if *owners == 0 {
                taken = self.values.remove(&oldest).map(|(value, _)| value);
            }
        }
        if owned.order.is_empty() {
            self.owners.remove(&owner);
        }
        taken
    }

    fn bytes(&self) -> usize {
        self.owners.values().map(|owned| owned.bytes).sum()
    }
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = self.with(|store| (store.values.len(), store.bytes()));
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
        let insert = |byte| payloads.insert(value(byte)).unwrap();
        let digests: Vec<Digest> = (0..4).map(insert).collect();
        let kept: Vec<bool> = digests.iter().map(|d| payloads.get(*d).is_some()).collect();
        assert_eq!(kept, [false, true, true, true]);
        insert(3);
        let large = payloads.insert(Bytes::from(vec![9; 1_000]));
        assert_eq!(large, Err(ValueTooLarge { bytes: 1_000, bytes_max: 428 }));
        assert_eq!(payloads.get(digests[1]), Some(value(1)));
        let small = Payloads::for_messages(1 << 20, 1_000);
        assert!(small.insert(Bytes::from(vec![9; 1_000])).is_err());
        assert!(small.insert(Bytes::from(vec![9; 900])).is_ok());
        assert!(format!("{payloads:?}").contains("bytes: 492"), "{payloads:?}");
    }

    #[test]
    fn a_small_value_keeps_nothing_of_what_it_came_with() {
        let payloads = Payloads::new(1 << 20);
        let buffer = Bytes::from(vec![7; 64 << 10]);
        payloads.insert(buffer.slice(..100)).unwrap();
        assert!(buffer.is_unique());
        assert_eq!(payloads.insert(buffer.clone()), Ok(digest_of(&buffer)));
        assert!(!buffer.is_unique(), "what is large is not copied");
    }

    /// Memory whose owner asks the store as it goes.
    struct Asks(Payloads, Vec<u8>);

    impl AsRef<[u8]> for Asks {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }

    impl Drop for Asks {
        fn drop(&mut self) {
            assert_eq!(self.0.get(Digest([0; 32])), None);
        }
    }

    #[test]
    fn the_owner_of_what_goes_may_ask_the_store() {
        let payloads = Payloads::new(100 << 10);
        let insert = |byte: u8, len: usize| {
            let value = Bytes::from_owner(Asks(payloads.clone(), vec![byte; len]));
            payloads.insert(value).unwrap();
        };
        insert(0, 100); // It is copied.
        (0..4).for_each(|byte| insert(byte, 60 << 10));
        insert(3, 60 << 10); // It is there.
        assert_eq!(payloads.with(|store| store.values.len()), 1);
    }

    #[test]
    fn an_owner_pushes_out_its_own_values_alone_also_where_another_has_the_same() {
        let payloads = Payloads::new(3 * 1_000).shared(2);
        let [liar, correct] = [1, 2].map(NodeId::new);
        let value = |byte: u8| Bytes::from(vec![byte; 300]);
        let kept = payloads.insert_of(correct, value(0)).unwrap();
        let same = payloads.insert_of(liar, value(0)).unwrap();
        assert_eq!(kept, same);
        let mut last = same;
        for byte in 1..100 {
            last = payloads.insert_of(liar, value(byte)).unwrap();
        }
        let here = (payloads.get(kept), payloads.get(last));
        assert_eq!(here, (Some(value(0)), Some(value(99))));
        let count = payloads.with(|store| (store.values.len(), store.bytes()));
        assert_eq!(count, (3, 3 * (300 + VALUE_BYTES)), "two of one, and one of the other");
        assert!(payloads.insert_of(liar, Bytes::from(vec![1; 940])).is_err());
    }

    #[test]
    fn among_any_number_of_owners_each_has_what_a_division_gives() {
        let payloads = Payloads::new(1_000).shared(usize::MAX);
        assert_eq!(payloads.with(|store| store.share), 0);
    }

    #[test]
    fn more_owners_than_shares_keep_no_more_than_the_store_is_for() {
        let payloads = Payloads::new(3 * 1_000).shared(2);
        let value = |number: u64, len: usize| {
            let mut value = vec![0; len];
            value[..8].copy_from_slice(&number.to_le_bytes());
            Bytes::from(value)
        };
        for owner in 1..=100 {
            let kept = payloads.insert_of(NodeId::new(owner), value(owner, 300)).unwrap();
            assert!(payloads.get(kept).is_some(), "the newest is kept");
        }
        let counts = || payloads.with(|store| (store.owners.len(), store.bytes()));
        assert_eq!(counts(), (8, 8 * (300 + VALUE_BYTES)));
        let large = payloads.insert_of(NodeId::new(101), value(101, 900)).unwrap();
        assert!(payloads.get(large).is_some(), "also where it is the largest");
        assert_eq!(counts(), (6, 5 * (300 + VALUE_BYTES) + 900 + VALUE_BYTES));
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
        let digest = payloads.insert(Bytes::from_static(b"heron")).unwrap();
        assert_eq!(code(&digest.0), Ok(PullReply { value: Bytes::from_static(b"heron") }));
    }
}
