//! The machine as its clients see it, and its snapshots.

use std::num::NonZeroUsize;

use bytes::Bytes;
use node_kit::sessions::{Limits, SessionId};
use prost::Message as _;

use super::*;
use crate::core::{Ballot, Record, Slot, Value};
use crate::mutant::{Mutant, set};
use crate::proto::{Batch, Done, Found, Refusal, Scan, Scanned, command};

/// A machine and the next slot of its log.
struct Log {
    machine: Machine,
    next: u64,
}

impl Log {
    fn new() -> Self {
        Self { machine: Machine::default(), next: 1 }
    }

    fn apply(&mut self, entry: Entry) -> reply::Result {
        let batch = Batch { entries: vec![entry] };
        let value = Value::Commands(batch.encode_to_vec().into());
        let mut replies = self.machine.apply(Slot(self.next), &value);
        self.next += 1;
        assert_eq!(replies.len(), 1);
        replies.remove(0).result.expect("a reply has a result")
    }

    fn open(&mut self, nonce: u64) -> SessionName {
        match self.apply(Entry { what: Some(entry::What::Open(nonce)) }) {
            reply::Result::Opened(session) => session,
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, session: SessionName, number: u64, action: command::Action) -> reply::Result {
        self.apply(Command { session: Some(session), number, action: Some(action) }.into())
    }
}

fn put(key: &str, value: &str) -> command::Action {
    command::Action::Put(Pair { key: key.to_owned().into(), value: value.to_owned().into() })
}

fn cas(key: &str, expected: Option<&str>, value: &str) -> command::Action {
    let bytes = |text: &str| Bytes::from(text.to_owned());
    command::Action::Cas(Cas {
        key: bytes(key),
        expected: expected.map(bytes),
        value: bytes(value),
    })
}

fn delete(key: &str) -> command::Action {
    command::Action::Delete(key.to_owned().into())
}

fn found(value: Option<&str>) -> reply::Result {
    reply::Result::Found(Found { value: value.map(|value| value.to_owned().into()) })
}

const DONE: reply::Result = reply::Result::Done(Done {});

fn refused(refusal: Refusal) -> reply::Result {
    reply::Result::Refused(refusal.into())
}

#[test]
fn a_store_does_what_it_is_told() {
    let mut log = Log::new();
    let session = log.open(7);
    assert_eq!(log.run(session, 1, put("k", "a")), DONE);
    assert_eq!(log.run(session, 2, cas("k", None, "b")), found(Some("a")));
    assert_eq!(log.run(session, 3, cas("k", Some("a"), "b")), DONE);
    assert_eq!(log.run(session, 4, delete("k")), found(Some("b")));
    assert_eq!(log.run(session, 5, delete("k")), found(None));
    assert_eq!(log.run(session, 6, cas("k", None, "c")), DONE);
    assert_eq!(log.machine.get(b"k"), found(Some("c")).into());
    assert_eq!((log.machine.keys(), log.machine.bytes()), (1, 2));
}

/// Keys alone must not take more memory than the bound of the store: a pair takes some, too.
#[test]
fn each_pair_counts_as_96_bytes_more_than_its_key_and_value() {
    let mut log = Log::new();
    let session = log.open(7);
    for (number, key) in [(1, "a"), (2, "bc"), (3, "a")] {
        assert_eq!(log.run(session, number, put(key, "v")), DONE);
    }
    assert_eq!((log.machine.bytes(), log.machine.size()), (5, 5 + 2 * 96));
    assert_eq!(log.run(session, 4, delete("a")), found(Some("v")));
    assert_eq!((log.machine.bytes(), log.machine.size()), (3, 3 + 96));
}

fn runs_once() -> Result<(), String> {
    let mut log = Log::new();
    let session = log.open(7);
    let replies: Vec<_> = (0..2).map(|_| log.run(session, 1, cas("k", None, "a"))).collect();
    if replies == [DONE, DONE] { Ok(()) } else { Err(format!("{replies:?}")) }
}

#[test]
fn a_request_that_is_sent_again_runs_once() {
    runs_once().unwrap();
    set(Some(Mutant::RunsAgain));
    let found = runs_once();
    set(None);
    assert!(found.is_err(), "the mutant is not found");
}

#[test]
fn a_session_that_is_closed_or_strange_is_refused() {
    let mut log = Log::new();
    let session = log.open(7);
    let strange = SessionName::from(SessionId::from(1_u128 << 64 | 8));
    assert_eq!(log.run(strange, 1, put("k", "a")), refused(Refusal::Expired));
    assert_eq!(log.apply(Entry { what: Some(entry::What::Close(session)) }), DONE);
    assert_eq!(log.run(session, 1, put("k", "a")), refused(Refusal::Expired));
    assert_eq!(log.machine.keys(), 0);
}

/// A write that was acknowledged is not run again by whoever repeats it, in its session or later.
#[test]
fn a_session_beyond_the_bound_ends_the_one_that_was_used_longest_ago() {
    let sessions = NonZeroUsize::new(2).unwrap();
    let mut log = Log { machine: Machine::with(Limits { sessions, ..Limits::default() }), next: 1 };
    let first = log.open(1);
    assert!(!log.machine.is_crowded());
    let second = log.open(2);
    assert!(log.machine.is_crowded());
    for session in [second, first] {
        assert_eq!(log.run(session, 1, put("k", "a")), DONE);
    }
    log.open(3);
    assert_eq!(log.run(second, 1, put("k", "b")), refused(Refusal::Expired));
    assert_eq!(log.run(first, 1, put("k", "b")), DONE);
    assert_eq!(log.machine.get(b"k"), found(Some("a")).into());
}

#[test]
fn what_is_too_large_or_no_request_is_refused() {
    let mut log = Log::new();
    let session = log.open(7);
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let large = "v".repeat(VALUE_BYTES_MAX + 1);
    let requests = [put(&long, "a"), put("k", &large), delete(&long), cas("k", Some(&large), "a")];
    for request in requests {
        assert_eq!(log.run(session, 1, request), refused(Refusal::Invalid));
    }
    assert_eq!(log.apply(Entry::default()), refused(Refusal::Invalid));
    let nothing = Command { session: Some(session), number: 1, action: None };
    assert_eq!(log.apply(nothing.into()), refused(Refusal::Invalid));
    assert_eq!(log.run(session, 1, put("k", "a")), DONE, "the number was not used up");
    let no_batch = Value::Commands(Bytes::from_static(b"\xff\xff"));
    assert!(log.machine.apply(Slot(log.next), &no_batch).is_empty());
}

#[test]
fn a_scan_goes_on_where_it_ended() {
    let mut log = Log::new();
    let session = log.open(7);
    for number in 1..=5 {
        log.run(session, number, put(&format!("a{number}"), "x"));
    }
    log.run(session, 6, put("b", "x"));
    let mut keys = Vec::new();
    let mut scan = Scan { prefix: "a".into(), limit: 2, ..Scan::default() };
    loop {
        let scanned = match log.machine.scan(&scan).result {
            Some(reply::Result::Scanned(scanned)) => scanned,
            other => panic!("{other:?}"),
        };
        let Scanned { pairs, next } = scanned;
        assert!(pairs.len() <= 2);
        keys.extend(pairs.into_iter().map(|pair| pair.key));
        let Some(next) = next else { break };
        scan.from = next;
    }
    assert_eq!(keys, ["a1", "a2", "a3", "a4", "a5"]);
}

fn restored(frozen: &Frozen, own: Vec<Record>) -> Result<Restored, Malformed> {
    let mut restoring = Restoring::default();
    frozen.clone().parts(own).try_for_each(|part| restoring.part(part))?;
    restoring.finish()
}

fn keeps_sessions() -> Result<(), String> {
    let mut log = Log::new();
    let session = log.open(7);
    log.run(session, 1, cas("k", None, "a"));
    let machine = restored(&log.machine.freeze(), Vec::new()).map_err(|error| error.to_string())?;
    let mut later = Log { machine: machine.machine, next: log.next };
    match later.run(session, 1, cas("k", None, "a")) {
        DONE => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_snapshot_has_the_sessions() {
    keeps_sessions().unwrap();
    set(Some(Mutant::SessionsNotInSnapshot));
    let found = keeps_sessions();
    set(None);
    assert!(found.is_err(), "the mutant is not found");
}

#[test]
fn a_snapshot_is_of_the_time_it_was_frozen() {
    let mut log = Log::new();
    let session = log.open(7);
    for number in 0..3_000 {
        log.run(session, number + 1, put(&format!("key {number}"), "before"));
    }
    let frozen = log.machine.freeze();
    log.run(session, 3_001, put("key 7", "after"));
    log.run(session, 3_002, delete("key 8"));
    let own = vec![Record::Life(3), Record::Promised(Ballot { round: 2, node: 1 })];
    let restored = restored(&frozen, own.clone()).unwrap();
    assert_eq!(restored.own, own);
    let machine = restored.machine;
    assert_eq!((machine.applied(), machine.keys()), (Slot(3_001), 3_000));
    for key in ["key 7", "key 8"] {
        assert_eq!(machine.get(key.as_bytes()), found(Some("before")).into());
    }
    assert_eq!(log.machine.get(b"key 7"), found(Some("after")).into());
}

#[test]
fn a_snapshot_that_is_not_whole_is_refused() {
    let mut log = Log::new();
    let session = log.open(7);
    for number in 0..20 {
        log.run(session, number + 1, put(&format!("key {number}"), &"v".repeat(60_000)));
    }
    let parts: Vec<Bytes> = log.machine.freeze().parts(vec![Record::Life(3)]).collect();
    assert!(parts.len() > 6, "{} parts", parts.len());
    for missing in 0..parts.len() {
        let mut restoring = Restoring::default();
        let rest = parts.iter().enumerate().filter(|(index, _)| *index != missing);
        let taken: Result<(), Malformed> =
            rest.clone().try_for_each(|(_, part)| restoring.part(part.clone()));
        let is_own = missing == 1; // what the node itself must not forget: not counted
        assert!(is_own || taken.and_then(|()| restoring.finish()).is_err(), "part {missing}");
    }
    assert_eq!(Restoring::default().part(Bytes::from_static(b"\xff")), Err(Malformed::Part));
}
