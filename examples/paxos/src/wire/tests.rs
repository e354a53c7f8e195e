//! All messages and records of the core survive their bytes.

use bytes::Bytes;
use convoke::NodeId;
use prost::Message;

use super::Malformed;
use crate::core::{
    Accepted, Answer, Ask, Ballot, Member, Members, Membership, Part, Record, Slot, Value,
};
use crate::proto;

const BALLOT: Ballot = Ballot { round: 7, node: 2 };

fn membership() -> Membership {
    let lives = [(NodeId::new(1), 11), (NodeId::new(2), u64::MAX)].into();
    let mut membership = Membership::new(4, Members::formed(&lives));
    let mut next = membership.now.clone();
    next.epoch += 1;
    let addresses = vec!["tcp://10.0.0.3:7000".to_owned()];
    next.nodes.insert(NodeId::new(3), Member { part: Part::Joining, addresses });
    next.nodes.insert(NodeId::new(4), Member { part: Part::Learner, addresses: Vec::new() });
    membership.next = Some((Slot(7), next));
    membership
}

fn some_values() -> Vec<Value> {
    let commands = Bytes::from_static(b"commands");
    let (formation, change) = (membership(), membership().now);
    vec![
        Value::Noop,
        Value::Formation(formation.into()),
        Value::Change(change),
        Value::Commands(commands),
    ]
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
        let question = copy(&proto::Question::new(5, 6, &ask));
        let (cluster, epoch) = (question.cluster, question.epoch);
        assert_eq!((cluster, epoch, Ask::try_from(question)), (5, 6, Ok(ask)));
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
        Answer::OtherEpoch { epoch: 3, is_member: true, chosen },
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
        Record::Trimmed { upto: Slot(5), membership: membership() },
    ] {
        assert_eq!(Record::try_from(copy(&proto::Record::from(&record))), Ok(record));
    }
}

#[test]
fn what_is_no_message_is_refused() {
    let empty = proto::Question { cluster: 1, epoch: 1, ask: None };
    assert_eq!(Ask::try_from(empty), Err(Malformed("question")));
    assert_eq!(Answer::try_from(proto::Answer { answer: None }), Err(Malformed("answer")));
    assert_eq!(Record::try_from(proto::Record { record: None }), Err(Malformed("record")));
    let part = Some(proto::member::Part::Voter(1));
    let member = proto::Member { node: 0, part, addresses: Vec::new() };
    let mut members = proto::Members { epoch: 1, members: vec![member] };
    assert_eq!(Members::try_from(members.clone()), Err(Malformed("node")));
    members.members[0] = proto::Member { node: 1, part: None, addresses: Vec::new() };
    assert_eq!(Members::try_from(members), Err(Malformed("part")));
    assert_eq!(Membership::try_from(proto::Membership::default()), Err(Malformed("members")));
    let nothing = proto::Value { value: None };
    for first in [0, u64::MAX] {
        let accept = proto::Accept { first, values: vec![nothing.clone()], ..Default::default() };
        let ask = Some(proto::question::Ask::Accept(accept));
        let question = proto::Question { cluster: 1, epoch: 1, ask };
        assert_eq!(Ask::try_from(question), Err(Malformed("slot")));
    }
}
