//! The machine: what the values of the log do.

use std::sync::LazyLock;

use bytes::Bytes;
use node_kit::pages::{Pages, Range};
use node_kit::sessions::{Begin, Limits, SessionId, Sessions};
use prost::Message as _;

use super::snapshot::Frozen;
use super::{PAIR_BYTES, SCAN_BYTES_MAX, SCAN_PAIRS_MAX, STORE_BYTES_MAX, is_valid, pair_bytes};
use crate::core::{Members, Membership, Slot, Value};
use crate::mutant::{self, Mutant};
use crate::proto::{
    Batch, Cas, Command, Done, Entry, Found, Pair, Refusal, Reply, Scan, Scanned, command, entry,
    reply,
};

/// A replica's state after some slot.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) applied: Slot,
    pub(super) membership: Option<Membership>,
    pub(super) pages: Pages,
    pub(super) sessions: Sessions,
}

impl Default for Machine {
    fn default() -> Self {
        Self::with(Limits::default())
    }
}

impl Machine {
    /// A store without keys and sessions, which are bounded so.
    pub fn with(limits: Limits) -> Self {
        Self {
            applied: Slot::default(),
            membership: None,
            pages: Pages::default(),
            sessions: Sessions::new(limits),
        }
    }

    /// Applies the value of the next slot. One reply for each entry of a batch.
    pub fn apply(&mut self, slot: Slot, value: &Value) -> Vec<Reply> {
        self.applied = slot;
        Membership::learn(&mut self.membership, slot, value);
        match value {
            Value::Noop | Value::Formation(_) => Vec::new(),
            Value::Change(members) => vec![self.changed(members)],
            Value::Commands(batch) => {
                // Nodes write batches and nobody else does: bytes that are no batch are so everywhere.
                let batch = Batch::decode(batch.clone()).unwrap_or_default();
                batch.entries.into_iter().map(|entry| self.apply_entry(entry)).collect()
            }
        }
    }

    /// The reply to a change of the members, after it was taken or not.
    fn changed(&self, members: &Members) -> Reply {
        let is_taken = self.membership.as_ref().is_some_and(|membership| {
            let next = membership.next.as_ref().map(|(_, next)| next);
            next == Some(members) || membership.now == *members
        });
        if is_taken { done() } else { refused(Refusal::Overtaken) }
    }

    fn apply_entry(&mut self, entry: Entry) -> Reply {
        if !is_valid(&entry) {
            return refused(Refusal::Invalid);
        }
        match entry.what {
            Some(entry::What::Open(nonce)) => {
                let session = self.sessions.open(self.applied.0, nonce);
                reply::Result::Opened(session.into()).into()
            }
            Some(entry::What::Close(session)) => {
                self.sessions.close(session.into(), self.applied.0);
                done()
            }
            Some(entry::What::Command(command)) => self.apply_command(command),
            None => refused(Refusal::Invalid),
        }
    }

    fn apply_command(&mut self, command: Command) -> Reply {
        let (Some(session), Some(action)) = (command.session, command.action) else {
            return refused(Refusal::Invalid);
        };
        let session = SessionId::from(session);
        match self.sessions.begin(session, command.number, self.applied.0) {
            Begin::Repeat(_) if mutant::is(Mutant::RunsAgain) => self.run(action),
            Begin::Run => {
                let reply = self.run(action);
                self.sessions.finish(session, command.number, kept(&reply));
                reply
            }
            Begin::Repeat(known) => Reply::decode(known).unwrap_or_default(),
            Begin::Forgotten => refused(Refusal::Forgotten),
            Begin::Expired => refused(Refusal::Expired),
        }
    }

    fn run(&mut self, action: command::Action) -> Reply {
        match action {
            command::Action::Put(Pair { key, value }) => self.write(&key, &value),
            command::Action::Delete(key) => found(self.pages.remove(&key)),
            command::Action::Cas(Cas { key, expected, value }) => {
                let known = self.pages.get(&key);
                if known != expected.as_ref() {
                    return found(known.cloned());
                }
                self.write(&key, &value)
            }
        }
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Reply {
        if self.size() + pair_bytes(key, value) > STORE_BYTES_MAX {
            return refused(Refusal::Full);
        }
        self.pages.insert(key, value);
        done()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Reply {
        found(self.pages.get(key).cloned())
    }

    /// Pairs in the order of their keys, as many as were asked for and an answer takes.
    pub fn scan(&self, scan: &Scan) -> Reply {
        let wanted = usize::try_from(scan.limit).unwrap_or(usize::MAX);
        let limit = if wanted == 0 { SCAN_PAIRS_MAX } else { wanted.min(SCAN_PAIRS_MAX) };
        let (from, prefix) = (&scan.from[..], &scan.prefix[..]);
        let range = Range { from, prefix, pairs_max: limit, bytes_max: SCAN_BYTES_MAX };
        let (pairs, next) = self.pages.scan(&range);
        let pairs = pairs.into_iter().map(|(key, value)| Pair { key, value }).collect();
        reply::Result::Scanned(Scanned { pairs, next }).into()
    }

    /// Its state as it is now, for a snapshot: pages are shared until they are written to. The
    /// table of sessions is copied, which is bounded by its [`Limits`].
    pub fn freeze(&self) -> Frozen {
        Frozen(self.clone())
    }

    /// All up to here is applied.
    pub fn applied(&self) -> Slot {
        self.applied
    }

    /// Members behind what is applied. `None` before the first value.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// Count of keys.
    pub fn keys(&self) -> u64 {
        self.pages.len()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// Bytes that all pairs are counted as.
    pub(super) fn size(&self) -> u64 {
        self.bytes() + self.keys() * PAIR_BYTES
    }

    /// Count of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// True when there are as many sessions as may be: a further one ends another.
    pub fn is_crowded(&self) -> bool {
        !self.sessions.has_room_for(1)
    }
}

fn done() -> Reply {
    reply::Result::Done(Done {}).into()
}

/// A reply as its session keeps it: the one that most writes have is made once.
fn kept(reply: &Reply) -> Bytes {
    static DONE: LazyLock<Bytes> = LazyLock::new(|| done().encode_to_vec().into());
    match reply {
        Reply { result: Some(reply::Result::Done(_)), leader: 0 } => DONE.clone(),
        _ => reply.encode_to_vec().into(),
    }
}

fn found(value: Option<Bytes>) -> Reply {
    reply::Result::Found(Found { value }).into()
}

fn refused(refusal: Refusal) -> Reply {
    reply::Result::Refused(refusal.into()).into()
}
