//! The replicated state: a machine and the sessions of its clients, and its checkpoints.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use node_kit::sessions::{Begin, Limits, SessionId, Sessions};

use super::group::{ClientId, Digest, Sequence};
use super::members::{Members, Membership};
use super::message::{Batch, Outcome, Request};
use super::text::Text;
use crate::mutant::{self, Mutant};
use crate::wire;

/// A deterministic machine: equal operations in equal order lead to equal results and states.
pub trait Machine: fmt::Debug + Clone {
    /// Executes an operation.
    fn apply(&mut self, operation: &[u8]) -> Bytes;

    /// Bytes of its state. Equal states have equal bytes.
    fn encode(&self) -> Vec<u8>;

    /// The machine whose state has these bytes; `None` if no state has.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// An outcome of the execution of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executed {
    /// The client.
    pub client: ClientId,
    /// The request's number.
    pub number: u64,
    /// The outcome.
    pub outcome: Outcome,
    /// True when it ran now; else it had run before.
    pub is_new: bool,
}

/// Machine, sessions and members.
#[derive(Clone, Debug)]
pub(super) struct State<M> {
    machine: M,
    sessions: Sessions,
    membership: Membership,
}

/// The rules by which members change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changing {
    /// The client whose requests are changes, and nothing else.
    pub(super) administrator: Option<ClientId>,
    /// Places between two checkpoints.
    pub(super) every: u64,
    /// Places above a checkpoint that are open.
    pub(super) window: u64,
}

impl Changing {
    /// The last place of an epoch that a change ends which is executed in this one.
    fn end(self, sequence: Sequence) -> Sequence {
        let window = if mutant::is(Mutant::ChangeAtOnce) { 0 } else { self.window };
        Sequence(sequence.plus(window).0.next_multiple_of(self.every.max(1)))
    }
}

impl<M: Machine> State<M> {
    /// The state before the first batch: every client has its session.
    pub(super) fn new(
        machine: M,
        clients: impl ExactSizeIterator<Item = ClientId>,
        window: usize,
        members: Members,
    ) -> Self {
        let sessions = sessions(clients, window);
        Self { machine, sessions, membership: Membership::of(members) }
    }

    /// Begins anew with these clients, before the first batch.
    pub(super) fn begin_with(
        &mut self,
        clients: impl ExactSizeIterator<Item = ClientId>,
        window: usize,
    ) {
        self.sessions = sessions(clients, window);
    }

    pub(super) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(super) fn machine(&self) -> &M {
        &self.machine
    }

    /// True when a client has its session: those have that the first state had.
    pub(super) fn knows(&self, client: ClientId) -> bool {
        self.sessions.contains(session(client))
    }

    /// The outcome of a request, if it is decided: it is not run here.
    pub(super) fn outcome(&self, client: ClientId, number: u64) -> Option<Outcome> {
        outcome(self.sessions.known(session(client), number))
    }

    /// Executes a batch: each request once, however often it is ordered.
    pub(super) fn execute(
        &mut self,
        sequence: Sequence,
        batch: &Batch,
        changing: Changing,
    ) -> Vec<Executed> {
        let run = |signed| self.execute_one(sequence, signed, changing);
        let requests = batch.requests().iter().map(|signed| &signed.request);
        let executed = requests.map(run).collect();
        self.membership.reach(sequence);
        executed
    }

    fn execute_one(
        &mut self,
        sequence: Sequence,
        request: &Request,
        changing: Changing,
    ) -> Executed {
        let Request { client, number, ref operation } = *request;
        let known = self.sessions.begin(session(client), number, sequence.0);
        let is_new = known == Begin::Run;
        let outcome = outcome(known).unwrap_or_else(|| {
            let result = match changing.administrator == Some(client) {
                true => {
                    let changed = self.membership.execute(operation, changing.end(sequence));
                    wire::encode(&changed)
                }
                false => self.machine.apply(operation),
            };
            self.sessions.finish(session(client), number, result.clone());
            Outcome::Done(result)
        });
        Executed { client, number, outcome, is_new }
    }

    /// The state as bytes, but for its members: length and bytes of the sessions, then the
    /// machine's.
    fn encode(&self) -> Bytes {
        let sessions = match mutant::is(Mutant::CheckpointWithoutSessions) {
            true => Sessions::new(*self.sessions.limits()).encode(),
            false => self.sessions.encode(),
        };
        let mut bytes = (sessions.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&sessions);
        bytes.extend_from_slice(&self.machine.encode());
        bytes.into()
    }

    /// All of it, in parts.
    pub(super) fn snapshot(&self, part_bytes: usize) -> Snapshot {
        Snapshot::new(self.membership.clone(), self.encode(), part_bytes)
    }

    /// The state of these bytes and members. `None` if the bytes are not a state.
    pub(super) fn decode(membership: Membership, bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (sessions, machine) = rest.split_at_checked(length)?;
        let sessions = Sessions::decode(sessions).ok()?;
        Some(Self { machine: M::decode(machine)?, sessions, membership })
    }
}

impl<M: Hash> Hash for State<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.machine.hash(state);
        self.sessions.encode().hash(state);
        self.membership.hash(state);
    }
}

/// The session of a client, which it has from the start.
/// A session of each client.
fn sessions(clients: impl ExactSizeIterator<Item = ClientId>, window: usize) -> Sessions {
    let limits = Limits {
        sessions: NonZeroUsize::new(clients.len().max(1)).expect("at least 1"),
        idle: u64::MAX,
        window: NonZeroUsize::new(window.max(1)).expect("at least 1"),
        ..Limits::default()
    };
    let mut sessions = Sessions::new(limits);
    clients.for_each(|client| {
        sessions.open(0, client.0);
    });
    sessions
}

fn session(client: ClientId) -> SessionId {
    SessionId::from(u128::from(client.0))
}

fn outcome(known: Begin) -> Option<Outcome> {
    match known.reply() {
        Ok(None) => None,
        Ok(Some(result)) => Some(Outcome::Done(result)),
        Err(_) => Some(Outcome::Forgotten),
    }
}

/// State at a checkpoint, in parts that can be fetched and checked one by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Snapshot {
    pub(super) membership: Membership,
    pub(super) bytes: Bytes,
    pub(super) parts: Arc<[Digest]>,
    part_bytes: usize,
}

impl Snapshot {
    pub(super) fn new(membership: Membership, bytes: Bytes, part_bytes: usize) -> Self {
        let part_bytes = part_bytes.max(1);
        let parts = bytes.chunks(part_bytes).map(part_digest).collect();
        Self { membership, bytes, parts, part_bytes }
    }

    /// The digest of the state, as a checkpoint claims it.
    pub(super) fn digest(&self) -> Digest {
        state_digest(&self.membership, &self.parts)
    }

    pub(super) fn part(&self, index: u32) -> Option<Bytes> {
        let start = usize::try_from(index).ok()?.checked_mul(self.part_bytes)?;
        let end = start.checked_add(self.part_bytes)?.min(self.bytes.len());
        (start < end).then(|| self.bytes.slice(start..end))
    }
}

/// The digest of one part.
pub(super) fn part_digest(bytes: &[u8]) -> Digest {
    let mut text = Text::named("part");
    text.put_bytes(bytes);
    text.digest()
}

/// The digest of a state with these members and parts.
pub(super) fn state_digest(membership: &Membership, parts: &[Digest]) -> Digest {
    digest_of(membership.digest(), parts_digest(parts))
}

/// The digest of all parts of a state but its members.
pub(super) fn parts_digest(parts: &[Digest]) -> Digest {
    let mut text = Text::named("parts of a state");
    text.put(parts.len() as u64);
    parts.iter().for_each(|part| text.put_digest(*part));
    text.digest()
}

/// The digest of a state, of those of its members and its parts.
pub(super) fn digest_of(membership: Digest, parts: Digest) -> Digest {
    let mut text = Text::named("state");
    text.put_digest(membership);
    text.put_digest(parts);
    text.digest()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use convoke::NodeId;

    use super::*;
    use crate::core::{
        Change, Changed, Checker, FIRST_EPOCH, Member, NotChanged, Signature, SignedRequest,
    };
    use crate::kv;

    const ADMINISTRATOR: ClientId = ClientId(8);

    fn state() -> State<kv::Machine> {
        let member = |node: u8| Member { key: Checker::Ed25519([node; 32]), addresses: vec![] };
        let nodes = (1..=5).map(|node| (NodeId::new(node.into()), member(node)));
        let members = Members { epoch: FIRST_EPOCH, nodes: BTreeMap::from_iter(nodes) };
        let clients = [ADMINISTRATOR, ClientId(9)].into_iter();
        State::new(kv::Machine::default(), clients, 8, members)
    }

    fn ask(state: &mut State<kv::Machine>, client: ClientId, number: u64, at: u64) -> Bytes {
        let change = Change { epoch: 1, remove: Some(NodeId::new(5)), add: None };
        let request = Request { client, number, operation: wire::encode(&change) };
        let batch = Batch::new([SignedRequest { request, signature: Signature::NONE }]);
        let rules = Changing { administrator: Some(ADMINISTRATOR), every: 4, window: 8 };
        let executed = state.execute(Sequence(at), &batch, rules);
        let Outcome::Done(result) = executed[0].outcome.clone() else { panic!("{executed:?}") };
        result
    }

    #[test]
    fn only_the_administrator_changes_the_members() {
        let mut state = state();
        let before = state.membership().clone();
        let refused = ask(&mut state, ClientId(9), 0, 1);
        assert_eq!(refused, wire::encode(&kv::Answer::Invalid));
        assert_eq!(*state.membership(), before);
        let taken = wire::decode(ask(&mut state, ADMINISTRATOR, 0, 2)).unwrap();
        let Changed::Taken(members, end) = taken else { panic!("{taken:?}") };
        assert_eq!((members.epoch, members.nodes.len(), end), (2, 4, Sequence(12)));
        // Repeated, it has the same result and no effect; asked for anew, it is refused.
        let again: Changed = wire::decode(ask(&mut state, ADMINISTRATOR, 0, 3)).unwrap();
        assert_eq!(again, Changed::Taken(members, end));
        let anew: Changed = wire::decode(ask(&mut state, ADMINISTRATOR, 1, 4)).unwrap();
        assert_eq!(anew, Changed::Refused(NotChanged::Changing(end)));
    }

    /// A replica with the same bytes and other members, or the change forgotten, claims another
    /// state.
    #[test]
    fn members_and_those_that_come_are_in_the_digest() {
        let mut state = state();
        let digest = |state: &State<kv::Machine>| state.snapshot(64).digest();
        ask(&mut state, ADMINISTRATOR, 0, 1);
        let with = digest(&state);
        let without = State { membership: Membership::of(self::state().membership.now), ..state };
        assert_ne!(digest(&without), with);
    }
}
