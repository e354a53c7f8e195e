//! The replicated state: a machine and the sessions of its clients, and its checkpoints.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use node_kit::sessions::{Begin, Limits, SessionId, Sessions};

use super::group::{ClientId, Digest, Sequence};
use super::message::{Batch, Outcome, Request};
use super::text::Text;
use crate::mutant::{self, Mutant};

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

/// Machine and sessions.
#[derive(Clone, Debug)]
pub(super) struct State<M> {
    machine: M,
    sessions: Sessions,
}

impl<M: Machine> State<M> {
    /// The state before the first batch: every client has its session.
    pub(super) fn new(
        machine: M,
        clients: impl ExactSizeIterator<Item = ClientId>,
        window: usize,
    ) -> Self {
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
        Self { machine, sessions }
    }

    pub(super) fn machine(&self) -> &M {
        &self.machine
    }

    /// The outcome of a request, if it is decided: it is not run here.
    pub(super) fn outcome(&self, client: ClientId, number: u64) -> Option<Outcome> {
        outcome(self.sessions.known(session(client), number))
    }

    /// Executes a batch: each request once, however often it is ordered.
    pub(super) fn execute(&mut self, sequence: Sequence, batch: &Batch) -> Vec<Executed> {
        let run = |signed| self.execute_one(sequence, signed);
        batch.requests().iter().map(|signed| &signed.request).map(run).collect()
    }

    fn execute_one(&mut self, sequence: Sequence, request: &Request) -> Executed {
        let Request { client, number, ref operation } = *request;
        let known = self.sessions.begin(session(client), number, sequence.0);
        let is_new = known == Begin::Run;
        let outcome = outcome(known).unwrap_or_else(|| {
            let result = self.machine.apply(operation);
            self.sessions.finish(session(client), number, result.clone());
            Outcome::Done(result)
        });
        Executed { client, number, outcome, is_new }
    }

    /// The state as bytes: length and bytes of the sessions, then the machine's.
    pub(super) fn encode(&self) -> Bytes {
        let sessions = match mutant::is(Mutant::CheckpointWithoutSessions) {
            true => Sessions::new(*self.sessions.limits()).encode(),
            false => self.sessions.encode(),
        };
        let mut bytes = (sessions.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&sessions);
        bytes.extend_from_slice(&self.machine.encode());
        bytes.into()
    }

    /// The state of these bytes. `None` if they are not a state.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (sessions, machine) = rest.split_at_checked(length)?;
        let sessions = Sessions::decode(sessions).ok()?;
        Some(Self { machine: M::decode(machine)?, sessions })
    }
}

impl<M: Hash> Hash for State<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.machine.hash(state);
        self.sessions.encode().hash(state);
    }
}

/// The session of a client, which it has from the start.
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
    pub(super) bytes: Bytes,
    pub(super) parts: Arc<[Digest]>,
    part_bytes: usize,
}

impl Snapshot {
    pub(super) fn new(bytes: Bytes, part_bytes: usize) -> Self {
        let part_bytes = part_bytes.max(1);
        let parts = bytes.chunks(part_bytes).map(part_digest).collect();
        Self { bytes, parts, part_bytes }
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

/// The digest of a state with these parts.
pub(super) fn state_digest(parts: &[Digest]) -> Digest {
    let mut text = Text::named("state");
    text.put(parts.len() as u64);
    parts.iter().for_each(|part| text.put_digest(*part));
    text.digest()
}
