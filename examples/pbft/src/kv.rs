//! The replicated state: a key-value store.
//!
//! Its operations and their results are bytes to the core, which signs, orders and compares them.
//! Reads are ordered like writes: there is no shortcut past the order, by which a client could be
//! told of the past.

use bytes::Bytes;
use node_kit::pages::{Pages, Range};

use crate::core;
use crate::wire::{self, Malformed, Reader, Wire, kinds, put_bytes, put_kind};

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 1 << 10;

/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 32 << 10;

/// Most bytes of an operation: two values and a key, and some.
pub const OPERATION_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX + KEY_BYTES_MAX + 64;

/// Bytes of the store from which on nothing is written any more. A checkpoint has all of it, as one
/// record of the ledger.
pub const STORE_BYTES_MAX: u64 = 32 << 20;

/// Pairs of one answer to a scan.
const SCAN_PAIRS_MAX: usize = 1_000;

/// Bytes of one answer to a scan, if it has more than one pair: it is kept for its client.
const SCAN_BYTES_MAX: usize = VALUE_BYTES_MAX;

/// Bytes that a pair takes in the state beside its own.
const PAIR_BYTES: u64 = 8;

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes a value, whatever there was.
    Put(Bytes, Bytes),
    /// Removes a key.
    Delete(Bytes),
    /// Writes the last, if the value of the key is the second.
    Cas(Bytes, Option<Bytes>, Bytes),
    /// Reads the value of a key.
    Get(Bytes),
    /// Reads pairs from a key on, whose keys begin with the second: so many at most, or as many as
    /// an answer takes for 0.
    Scan(Bytes, Bytes, u32),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is written.
    Done,
    /// What was there: of a get and a delete; instead of what a cas expected.
    Found(Option<Bytes>),
    /// Pairs, and the key of the first that is left out.
    Scanned(Vec<(Bytes, Bytes)>, Option<Bytes>),
    /// The store has as many bytes as it may. Nothing is written.
    Full,
    /// It is no operation, or a key or value is larger than it may be. Nothing is done.
    Invalid,
}

kinds! {
    Operation "operation" {
        1 => Put(key, value),
        2 => Delete(key),
        3 => Cas(key, expected, value),
        4 => Get(key),
        5 => Scan(from, prefix, limit)
    }
    Answer "answer" {
        1 => Done,
        2 => Found(value),
        3 => Scanned(pairs, next),
        4 => Full,
        5 => Invalid
    }
}

impl Operation {
    /// True when its keys and values are within bounds.
    pub fn is_valid(&self) -> bool {
        let is_key = |key: &Bytes| key.len() <= KEY_BYTES_MAX;
        let is_value = |value: &Bytes| value.len() <= VALUE_BYTES_MAX;
        match self {
            Self::Put(key, value) => is_key(key) && is_value(value),
            Self::Delete(key) | Self::Get(key) => is_key(key),
            Self::Cas(key, expected, value) => {
                is_key(key) && is_value(value) && expected.as_ref().is_none_or(is_value)
            }
            Self::Scan(from, prefix, _) => is_key(from) && is_key(prefix),
        }
    }
}

/// A store after some operations.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pages: Pages,
    executed: u64,
}

impl Machine {
    /// Count of operations that it has executed.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Count of keys.
    pub fn keys(&self) -> u64 {
        self.pages.len()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    fn run(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Put(key, value) => self.write(key, value),
            Operation::Delete(key) => Answer::Found(self.pages.remove(key)),
            Operation::Cas(key, expected, value) => {
                let known = self.pages.get(key);
                if known != expected.as_ref() {
                    return Answer::Found(known.cloned());
                }
                self.write(key, value)
            }
            Operation::Get(key) => Answer::Found(self.pages.get(key).cloned()),
            Operation::Scan(from, prefix, limit) => self.scan(from, prefix, *limit),
        }
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Answer {
        let more = (key.len() + value.len()) as u64 + PAIR_BYTES;
        if self.pages.bytes() + PAIR_BYTES * self.pages.len() + more > STORE_BYTES_MAX {
            return Answer::Full;
        }
        self.pages.insert(key, value);
        Answer::Done
    }

    fn scan(&self, from: &[u8], prefix: &[u8], limit: u32) -> Answer {
        let wanted = usize::try_from(limit).unwrap_or(SCAN_PAIRS_MAX);
        let pairs_max = if wanted == 0 { SCAN_PAIRS_MAX } else { wanted.min(SCAN_PAIRS_MAX) };
        let range = Range { from, prefix, pairs_max, bytes_max: SCAN_BYTES_MAX };
        let (pairs, next) = self.pages.scan(&range);
        Answer::Scanned(pairs, next)
    }
}

impl core::Machine for Machine {
    fn apply(&mut self, operation: &[u8]) -> Bytes {
        self.executed += 1;
        let operation = wire::decode::<Operation>(Bytes::copy_from_slice(operation));
        let operation = operation.ok().filter(Operation::is_valid);
        wire::encode(&operation.map_or(Answer::Invalid, |operation| self.run(&operation)))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.executed.put(&mut bytes);
        self.pages.len().put(&mut bytes);
        for (key, value) in self.pages.range(&[]) {
            put_bytes(key, &mut bytes);
            value.put(&mut bytes);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(Bytes::copy_from_slice(bytes));
        let (executed, count) = <(u64, u64)>::take(&mut from).ok()?;
        let mut machine = Self { pages: Pages::default(), executed };
        let mut last = None;
        for _ in 0..count {
            let (key, value) = <(Bytes, Bytes)>::take(&mut from).ok()?;
            if last.as_ref().is_some_and(|last| *last >= key) {
                return None;
            }
            machine.pages.insert(&key, &value);
            last = Some(key);
        }
        from.finish().ok().map(|()| machine)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::Machine as _;

    fn run(machine: &mut Machine, operation: &Operation) -> Answer {
        let answer = machine.apply(&wire::encode(operation));
        wire::decode(answer).expect("an answer is encoded so")
    }

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn put(key: &str, value: &str) -> Operation {
        Operation::Put(bytes(key), bytes(value))
    }

    #[test]
    fn operations_do_what_they_say() {
        let mut machine = Machine::default();
        let cas = |expected: Option<&str>, value| {
            Operation::Cas(bytes("k"), expected.map(bytes), bytes(value))
        };
        assert_eq!(run(&mut machine, &put("k", "a")), Answer::Done);
        assert_eq!(run(&mut machine, &cas(None, "b")), Answer::Found(Some(bytes("a"))));
        assert_eq!(run(&mut machine, &cas(Some("a"), "b")), Answer::Done);
        let scan = Operation::Scan(Bytes::new(), bytes("k"), 0);
        let scanned = Answer::Scanned(vec![(bytes("k"), bytes("b"))], None);
        assert_eq!(run(&mut machine, &scan), scanned);
        assert_eq!(
            run(&mut machine, &Operation::Delete(bytes("k"))),
            Answer::Found(Some(bytes("b")))
        );
        assert_eq!(run(&mut machine, &Operation::Get(bytes("k"))), Answer::Found(None));
        assert_eq!((machine.executed(), machine.keys()), (6, 0));
    }

    #[test]
    fn what_is_no_operation_changes_nothing() {
        let mut machine = Machine::default();
        let large = Operation::Put(bytes("k"), vec![0; VALUE_BYTES_MAX + 1].into());
        assert_eq!(run(&mut machine, &large), Answer::Invalid);
        assert_eq!(machine.apply(b"\xff"), wire::encode(&Answer::Invalid));
        assert_eq!(machine.keys(), 0);
    }

    #[test]
    fn a_full_store_writes_nothing() {
        let mut machine = Machine::default();
        let value = "v".repeat(VALUE_BYTES_MAX);
        let answers = (0..1_100).map(|key| run(&mut machine, &put(&format!("{key}"), &value)));
        let full = answers.filter(|answer| *answer == Answer::Full).count();
        assert!(full > 50 && machine.bytes() <= STORE_BYTES_MAX, "{full}");
    }

    proptest! {
        #[test]
        fn a_state_survives_its_bytes(
            pairs in proptest::collection::btree_map(".{0,9}", ".{0,9}", 0..40), at: usize
        ) {
            let mut machine = Machine::default();
            for (key, value) in &pairs {
                run(&mut machine, &put(key, value));
            }
            let bytes = machine.encode();
            let again = Machine::decode(&bytes).expect("it is a state");
            prop_assert_eq!(again.encode(), bytes.clone());
            let cut = &bytes[..at % bytes.len()];
            prop_assert!(Machine::decode(cut).is_none());
        }
    }
}
