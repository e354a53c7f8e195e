//! The replicated state: a key-value store with the sessions of its clients.
//!
//! A [`Machine`] is given the values of the log in order, and nothing else: so all replicas are the
//! same after the same slot. What it answers is a function of the log, too, and stands in the
//! sessions, whose table is a part of the state.
//!
//! ```text
//!   log ─▶ Machine::apply ─▶ a Reply for each entry of the batch
//!            │ get, scan  ─▶ a Reply
//!            └ freeze     ─▶ Frozen ─▶ parts of a snapshot ─▶ Restoring ─▶ Machine
//! ```
//!
//! Pairs are in [pages](node_kit::pages) of some hundred keys, shared between the machine and what
//! is frozen of it: to freeze a store of any size takes one step, and a page is copied when it is
//! first written to afterwards.

mod foresight;
mod machine;
mod snapshot;
#[cfg(test)]
mod tests;

pub use self::foresight::Foresight;
pub use self::machine::Machine;
pub use self::snapshot::{Frozen, Malformed, Restored, Restoring};

use crate::proto::{Cas, Command, Entry, Pair, Reply, SessionName, command, entry, reply};
use node_kit::sessions::SessionId;

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Bytes from which on nothing is stored any more: of each pair its key, its value, and 96 for the
/// memory that it takes besides. All replicas have to have the same bound, as it decides what a
/// request is answered.
pub const STORE_BYTES_MAX: u64 = 4 << 30;

/// Bytes of memory that a pair takes beside its key and its value.
const PAIR_BYTES: u64 = 96;

/// Bytes that a pair is counted as: its key, its value, and 96.
fn pair_bytes(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + PAIR_BYTES
}

/// Pairs of one answer to a scan.
pub const SCAN_PAIRS_MAX: usize = 1_000;

/// Bytes of one answer to a scan, if it has more than one pair.
pub const SCAN_BYTES_MAX: usize = 1 << 20;

/// True when a request of a client is one, and its keys and values are within bounds.
pub fn is_valid(entry: &Entry) -> bool {
    let Some(what) = &entry.what else { return false };
    let entry::What::Command(command) = what else { return true };
    let is_key = |key: &[u8]| key.len() <= KEY_BYTES_MAX;
    let is_value = |value: &[u8]| value.len() <= VALUE_BYTES_MAX;
    command.session.is_some()
        && match &command.action {
            Some(command::Action::Put(Pair { key, value })) => is_key(key) && is_value(value),
            Some(command::Action::Delete(key)) => is_key(key),
            Some(command::Action::Cas(Cas { key, expected, value })) => {
                is_key(key) && is_value(value) && is_value(expected.as_deref().unwrap_or_default())
            }
            None => false,
        }
}

impl From<SessionId> for SessionName {
    fn from(session: SessionId) -> Self {
        let number = session.get();
        let low = u64::try_from(number & u128::from(u64::MAX)).expect("64 bits");
        Self { opened_at: session.opened_at(), nonce: low }
    }
}

impl From<SessionName> for SessionId {
    fn from(name: SessionName) -> Self {
        Self::from(u128::from(name.opened_at) << 64 | u128::from(name.nonce))
    }
}

impl From<reply::Result> for Reply {
    fn from(result: reply::Result) -> Self {
        Self { result: Some(result), leader: 0 }
    }
}

impl From<Command> for Entry {
    fn from(command: Command) -> Self {
        Self { what: Some(entry::What::Command(command)) }
    }
}
