//! The state in parts, and back.

use bytes::Bytes;
use node_kit::pages::Pages;
use node_kit::sessions::{self, Limits, Sessions};
use prost::Message as _;

use super::machine::Machine;
use crate::core::{Membership, Record, Slot};
use crate::mutant::{self, Mutant};
use crate::proto::{self, Head, OwnRecords, Pair, Pairs, Part, Tail, part};
use crate::wire;

/// Bytes of a part, about: a peer asks for one at a time, and a disk reads it whole.
const PART_BYTES: usize = 256 << 10;

/// State of a machine as it was when it was frozen.
#[derive(Clone, Debug)]
pub struct Frozen(pub(super) Machine);

impl Frozen {
    /// All up to here is in it.
    pub fn applied(&self) -> Slot {
        self.0.applied
    }

    /// Parts of a snapshot: the state, and what its node itself must not forget. What was written
    /// is let go of part by part.
    pub fn parts(self, own: Vec<Record>) -> impl Iterator<Item = Bytes> {
        let Machine { applied, membership, pages, sessions } = self.0;
        let membership = membership.as_ref().map(proto::Membership::from);
        let head = Head { applied: applied.0, membership };
        let tail = Tail { keys: pages.len() };
        let kept = if mutant::is(Mutant::SessionsNotInSnapshot) {
            Sessions::new(*sessions.limits())
        } else {
            sessions
        };
        [part::Part::Head(head)]
            .into_iter()
            .chain(own_parts(own))
            .chain(pair_parts(pages))
            .chain(session_parts(&kept))
            .chain([part::Part::Tail(tail)])
            .map(|part| Part { part: Some(part) }.encode_to_vec().into())
    }
}

/// Records one by one: each may be as large as a message.
fn own_parts(own: Vec<Record>) -> impl Iterator<Item = part::Part> {
    own.into_iter().map(|record| {
        let records = vec![proto::Record::from(&record)];
        part::Part::Own(OwnRecords { records })
    })
}

fn pair_parts(pages: Pages) -> impl Iterator<Item = part::Part> {
    let mut rest = pages.into_pairs();
    std::iter::from_fn(move || {
        let mut pairs = Pairs::default();
        let mut bytes = 0;
        while bytes < PART_BYTES
            && let Some((key, value)) = rest.next()
        {
            bytes += key.len() + value.len() + 8;
            pairs.pairs.push(Pair { key, value });
        }
        (!pairs.pairs.is_empty()).then_some(part::Part::Pairs(pairs))
    })
}

fn session_parts(sessions: &Sessions) -> impl Iterator<Item = part::Part> + use<> {
    let mut bytes = Bytes::from(sessions.encode());
    std::iter::from_fn(move || {
        let next = bytes.split_to(bytes.len().min(PART_BYTES));
        (!next.is_empty()).then_some(part::Part::Sessions(next))
    })
}

/// The reason bytes are no snapshot: they were damaged, or another program wrote them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A part is no message, or one of another release.
    #[error("this program does not know a part of the snapshot")]
    Part,
    /// Parts are missing, or come in another order.
    #[error("the snapshot is not whole: {0}")]
    NotWhole(&'static str),
    /// The table of sessions cannot be read.
    #[error("the snapshot has no sessions: {0}")]
    Sessions(#[from] sessions::Malformed),
    /// Bytes that stand for a record of the node and cannot be read as one.
    #[error("a record of the snapshot cannot be read: {0}")]
    Record(#[from] wire::Malformed),
}

/// A snapshot that is being read, part by part.
#[derive(Debug)]
pub struct Restoring {
    machine: Machine,
    own: Vec<Record>,
    sessions: Vec<u8>,
    has_head: bool,
    is_whole: bool,
}

/// Contents of a snapshot.
#[derive(Debug)]
pub struct Restored {
    /// The state.
    pub machine: Machine,
    /// Records that the node which wrote it must not forget.
    pub own: Vec<Record>,
}

impl Default for Restoring {
    fn default() -> Self {
        Self {
            machine: Machine::with(Limits::default()),
            own: Vec::new(),
            sessions: Vec::new(),
            has_head: false,
            is_whole: false,
        }
    }
}

impl Restoring {
    /// Takes the next part, as it was written.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn part(&mut self, bytes: Bytes) -> Result<(), Malformed> {
        self.take(Part::decode(bytes).map_err(|_| Malformed::Part)?)
    }

    /// Takes the next part.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn take(&mut self, part: Part) -> Result<(), Malformed> {
        let part = part.part.ok_or(Malformed::Part)?;
        let is_head = matches!(part, part::Part::Head(_));
        if is_head == self.has_head || self.is_whole {
            return Err(Malformed::NotWhole("it begins in the middle, or twice"));
        }
        match part {
            part::Part::Head(head) => {
                self.has_head = true;
                self.machine.applied = Slot(head.applied);
                self.machine.membership = head.membership.map(Membership::try_from).transpose()?;
            }
            part::Part::Own(own) => {
                for record in own.records {
                    self.own.push(record.try_into()?);
                }
            }
            part::Part::Pairs(pairs) => {
                for Pair { key, value } in pairs.pairs {
                    self.machine.pages.insert(&key, &value);
                }
            }
            part::Part::Sessions(bytes) => self.sessions.extend_from_slice(&bytes),
            part::Part::Tail(tail) if tail.keys == self.machine.pages.len() => {
                self.is_whole = true;
            }
            part::Part::Tail(_) => return Err(Malformed::NotWhole("it has lost pairs")),
        }
        Ok(())
    }

    /// The state, once all parts were taken.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn finish(mut self) -> Result<Restored, Malformed> {
        if !self.is_whole {
            return Err(Malformed::NotWhole("it ends in the middle"));
        }
        self.machine.sessions = Sessions::decode(&self.sessions)?;
        Ok(Restored { machine: self.machine, own: self.own })
    }
}
