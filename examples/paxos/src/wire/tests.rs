//! All messages and records of the core survive their bytes.

use bytes::Bytes;
use convoke::NodeId;
use prost::Message;

use super::Malformed;
use crate::core::{Accepted, Answer, Ask, Ballot, Lives, Record, Slot, Value};
use crate::proto;

const BALLOT: Ballot = Ballot { round: 7, node: 2 };

fn all_lives() -> Lives {
    [(NodeId::new(1), 11), (NodeId::new(2), u64::MAX)].into()
}

fn some_values() -> Vec<Value> {
    let commands = Bytes::from_static(b"commands");
    vec![Value::Noop, Value::Formation(all_lives()), Value::Commands(commands)]
}

fn copy<M: Message + Default>(message: &M) -> M {
    M::decode(Bytes::from(message.encode_to_vec())).expect("it was encoded so")
}

#[test]
fn questions_survive_their_bytes() {
    let (first, values, chosen) = (Slot(3), some_values(), Slot(2));
    for ask in [
        Ask::Canvass { ballot: BALLOT },
        Ask::Prepare { ballot: BALLOT, from: Slot(4) },
        Ask::Accept { ballot: BALLOT, first, values, chosen, beat: 9 },
        Ask::CatchUp { from: Slot(1) },
        Ask::TakeOver { ballot: BALLOT },
    ] {
        let question = copy(&proto::Question::new(5, &ask));
        assert_eq!((question.cluster, Ask::try_from(question)), (5, Ok(ask)));
    }
}

#[test]
fn answers_survive_their_bytes() {
    let (ballot, life, chosen, first) = (BALLOT, 8, Slot(2), Slot(3));
    let slot = |value| Accepted { slot: Slot(4), ballot: Ballot { round: 6, node: 1 }, value };
    let accepted: Vec<_> = some_values().into_iter().map(slot).collect();
    for answer in [
        Answer::Canvassed { ballot, supports: true, promised: Ballot::NONE, chosen },
        Answer::Promise { ballot, life, chosen, accepted, more: Some(Slot(9)) },
        Answer::Promise { ballot, life, chosen, accepted: Vec::new(), more: None },
        Answer::Accepted { ballot, life, first, count: 3, accepted: Slot(6), chosen, beat: 9 },
        Answer::Refused { ballot, promised: Ballot { round: 8, node: 3 } },
        Answer::Chosen { first, values: some_values(), chosen },
        Answer::Trimmed { trimmed: Slot(3) },
        Answer::TakingOver,
    ] {
        assert_eq!(Answer::try_from(copy(&proto::Answer::from(&answer))), Ok(answer));
    }
}

#[test]
fn records_survive_their_bytes() {
    let (ballot, first) = (BALLOT, Slot(3));
    for record in [
        Record::Life(u64::MAX),
        Record::Promised(ballot),
        Record::Accepted { ballot, first, values: some_values() },
        Record::Chosen { ballot, upto: Slot(5) },
        Record::Learned { first, values: some_values() },
        Record::Trimmed { upto: Slot(5), lives: all_lives() },
    ] {
        assert_eq!(Record::try_from(copy(&proto::Record::from(&record))), Ok(record));
    }
}

#[test]
fn what_is_no_message_is_refused() {
    let empty = proto::Question { cluster: 1, ask: None };
    assert_eq!(Ask::try_from(empty), Err(Malformed("question")));
    assert_eq!(Answer::try_from(proto::Answer { answer: None }), Err(Malformed("answer")));
    assert_eq!(Record::try_from(proto::Record { record: None }), Err(Malformed("record")));
    let lives = proto::Lives { lives: [(0, 1)].into() };
    assert_eq!(super::core_lives(lives), Err(Malformed("node")));
    let nothing = proto::Value { value: None };
    for first in [0, u64::MAX] {
        let accept = proto::Accept { first, values: vec![nothing.clone()], ..Default::default() };
        let ask = Some(proto::question::Ask::Accept(accept));
        let question = proto::Question { cluster: 1, ask };
        assert_eq!(Ask::try_from(question), Err(Malformed("slot")));
    }
}
