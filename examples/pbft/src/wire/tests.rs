//! Values survive their bytes, and other bytes are refused without harm.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use convoke::NodeId;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::{FORMAT, Malformed, Wire, decode, encode};
use crate::core::{
    Batch, Beside, Change, Changed, Checker, Checkpoint, ClientId, Digest, Fetch, Fetched,
    Forgotten, Handover, Member, Members, Membership, Message, NewView, NotChanged, Outcome,
    Outline, Phase, Prepared, Record, Reply, Request, Sequence, Signature, Signatures, Signed,
    SignedReply, SignedRequest, Stable, Status, View, ViewChange, Vote, Vouch,
};

fn node() -> impl Strategy<Value = NodeId> {
    (1..9_u64).prop_map(NodeId::new)
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn signature() -> impl Strategy<Value = Signature> {
    vec(any::<u8>(), 64).prop_map(|bytes| Signature(bytes.try_into().expect("64 bytes")))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn place() -> impl Strategy<Value = (View, Sequence)> {
    any::<(u64, u64)>().prop_map(|(view, sequence)| (View(view), Sequence(sequence)))
}

fn signatures() -> impl Strategy<Value = Signatures> {
    btree_map(node(), signature(), 0..4)
}

fn signed<T: Debug>(body: impl Strategy<Value = T>) -> impl Strategy<Value = Signed<T>> {
    (1..4_u64, node(), body, signature()).prop_map(|(epoch, by, body, signature)| Signed {
        epoch,
        by,
        body,
        signature,
    })
}

fn request() -> impl Strategy<Value = SignedRequest> {
    let request = (any::<u64>(), any::<u64>(), bytes()).prop_map(|(client, number, operation)| {
        Request { client: ClientId(client), number, operation }
    });
    (request, signature()).prop_map(|(request, signature)| SignedRequest { request, signature })
}

fn batch() -> impl Strategy<Value = Batch> {
    vec(request(), 0..4).prop_map(Batch::new)
}

fn vote() -> impl Strategy<Value = Vote> {
    let phase = prop_oneof![Just(Phase::Propose), Just(Phase::Prepare), Just(Phase::Commit)];
    (phase, place(), digest()).prop_map(|(phase, (view, sequence), digest)| Vote {
        phase,
        view,
        sequence,
        digest,
    })
}

fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    (place(), digest()).prop_map(|((_, sequence), digest)| Checkpoint { sequence, digest })
}

fn stable() -> impl Strategy<Value = Stable> {
    (checkpoint(), signatures())
        .prop_map(|(checkpoint, signatures)| Stable { checkpoint, signatures })
}

fn prepared() -> impl Strategy<Value = Prepared> {
    (place(), digest(), signatures()).prop_map(|((view, sequence), digest, signatures)| Prepared {
        view,
        sequence,
        digest,
        signatures,
    })
}

fn change() -> impl Strategy<Value = Arc<ViewChange>> {
    (place(), stable(), vec(prepared(), 0..3))
        .prop_map(|((view, _), stable, prepared)| Arc::new(ViewChange { view, stable, prepared }))
}

fn new_view() -> impl Strategy<Value = Arc<NewView>> {
    (place(), vec(signed(change()), 0..3))
        .prop_map(|((view, _), changes)| Arc::new(NewView { view, changes }))
}

fn status() -> impl Strategy<Value = Status> {
    (place(), any::<bool>(), any::<u64>()).prop_map(|((view, stable), is_changing, done)| Status {
        view,
        is_changing,
        stable,
        done: Sequence(done),
    })
}

fn fetch() -> impl Strategy<Value = Fetch> {
    prop_oneof![
        digest().prop_map(Fetch::Batch),
        place().prop_map(|(_, sequence)| Fetch::Parts(sequence)),
        (place(), any::<u32>()).prop_map(|((_, sequence), index)| Fetch::Part { sequence, index }),
    ]
}

fn fetched() -> impl Strategy<Value = Fetched> {
    prop_oneof![
        batch().prop_map(Fetched::Batch),
        (place(), membership(), vec(digest(), 0..4))
            .prop_map(|((_, sequence), of, parts)| { Fetched::Parts(sequence, of, parts.into()) }),
        bytes().prop_map(Fetched::Part),
        vec(request(), 0..3).prop_map(Fetched::Requests),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (vote(), proptest::option::of(batch()))
            .prop_map(|(vote, batch)| Message::Propose(vote, batch)),
        vote().prop_map(Message::Vote),
        checkpoint().prop_map(Message::Checkpoint),
        change().prop_map(Message::ViewChange),
        new_view().prop_map(Message::NewView),
        stable().prop_map(Message::Stable),
        status().prop_map(Message::Status),
        fetch().prop_map(Message::Fetch),
        fetched().prop_map(Message::Fetched),
        vec(request().prop_map(|signed| Vouch::of(&signed.request)), 0..4).prop_map(Message::Vouch),
        vec(request(), 0..3).prop_map(Message::Pass),
        (vote(), vec(digest(), 0..4))
            .prop_map(|(vote, digests)| Message::Outline(vote, Outline::new(digests))),
        vec(digest(), 0..4).prop_map(Message::Pull),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let outcome = prop_oneof![bytes().prop_map(Outcome::Done), Just(Outcome::Forgotten)];
    (any::<u64>(), place(), outcome).prop_map(|(client, (view, number), outcome)| Reply {
        client: ClientId(client),
        number: number.0,
        view,
        outcome,
    })
}

fn signed_reply() -> impl Strategy<Value = SignedReply> {
    let beside = (any::<bool>(), digest());
    let beside = beside.prop_map(|(is_left, digest)| Beside { is_left, digest });
    (1..4_u64, node(), reply(), vec(beside, 0..4), signature()).prop_map(
        |(epoch, by, reply, way, signature)| SignedReply { epoch, by, reply, way, signature },
    )
}

fn checker() -> impl Strategy<Value = Checker> {
    prop_oneof![
        any::<[u8; 32]>().prop_map(Checker::Ed25519),
        any::<[u8; 32]>().prop_map(Checker::StandIn),
        Just(Checker::Unsigned),
        node().prop_map(Checker::Connection),
    ]
}

fn member() -> impl Strategy<Value = Member> {
    (checker(), vec(".{0,9}", 0..3)).prop_map(|(key, addresses)| Member { key, addresses })
}

fn members() -> impl Strategy<Value = Members> {
    (any::<u64>(), btree_map(node(), member(), 0..4))
        .prop_map(|(epoch, nodes)| Members { epoch, nodes })
}

fn membership() -> impl Strategy<Value = Membership> {
    let next = (place(), members()).prop_map(|((_, end), members)| (end, members));
    (members(), proptest::option::of(next)).prop_map(|(now, next)| Membership { now, next })
}

fn handover() -> impl Strategy<Value = Handover> {
    (stable(), digest(), members()).prop_map(|(stable, parts, members)| Handover {
        stable,
        parts,
        members,
    })
}

fn change_of_members() -> impl Strategy<Value = Change> {
    let add = proptest::option::of((node(), member()));
    (any::<u64>(), proptest::option::of(node()), add).prop_map(|(epoch, remove, add)| Change {
        epoch,
        remove,
        add,
    })
}

fn changed() -> impl Strategy<Value = Changed> {
    prop_oneof![
        (members(), place()).prop_map(|(members, (_, end))| Changed::Taken(members, end)),
        place().prop_map(|(_, end)| Changed::Refused(NotChanged::Changing(end))),
        node().prop_map(|node| Changed::Refused(NotChanged::Key(node))),
        Just(Changed::Refused(NotChanged::TooFew)),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        (place(), membership(), bytes())
            .prop_map(|((_, sequence), of, state)| Record::Snapshot(sequence, of, state)),
        handover().prop_map(Record::HandedOver),
        place().prop_map(|(view, _)| Record::Lost(Forgotten::View(view))),
        place().prop_map(|(_, sequence)| Record::Lost(Forgotten::Checkpoint(sequence))),
        stable().prop_map(Record::Stable),
        place().prop_map(|(view, _)| Record::Left(view)),
        signed(new_view()).prop_map(Record::Entered),
        batch().prop_map(Record::Batch),
        (vote(), proptest::option::of(signature()))
            .prop_map(|(vote, signature)| Record::Accepted(vote, signature)),
        prepared().prop_map(Record::Prepared),
        vote().prop_map(Record::Committed),
    ]
}

/// The value comes back; no beginning of its bytes is one; whatever other bytes are read as, they
/// are the bytes of.
fn check<T: Wire + PartialEq + Debug>(
    value: &T,
    at: usize,
    other: u8,
) -> Result<(), TestCaseError> {
    let bytes = encode(value);
    prop_assert!(bytes.len() > T::LEAST);
    let found = decode::<T>(bytes.clone());
    prop_assert_eq!(found.as_ref(), Ok(value));
    for end in 0..bytes.len() {
        prop_assert!(decode::<T>(bytes.slice(..end)).is_err(), "{end} bytes of {value:?}");
    }
    let mut more = bytes.to_vec();
    more.push(0);
    prop_assert_eq!(decode::<T>(more.into()), Err(Malformed::Follows(1)));
    let mut changed = bytes.to_vec();
    let at = at % changed.len();
    changed[at] ^= other;
    if let Ok(found) = decode::<T>(changed.clone().into()) {
        prop_assert_eq!(encode(&found).to_vec(), changed);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn words_survive_their_bytes(words in signed(message()), at: usize, other in 1..=255_u8) {
        check(&words, at, other)?;
    }

    #[test]
    fn requests_survive_their_bytes(request in request(), at: usize, other in 1..=255_u8) {
        check(&request, at, other)?;
    }

    #[test]
    fn replies_survive_their_bytes(reply in signed_reply(), at: usize, other in 1..=255_u8) {
        check(&reply, at, other)?;
    }

    #[test]
    fn records_survive_their_bytes(record in record(), at: usize, other in 1..=255_u8) {
        check(&record, at, other)?;
    }

    #[test]
    fn changes_survive_their_bytes(
        change in change_of_members(), result in changed(), at: usize, other in 1..=255_u8
    ) {
        check(&change, at, other)?;
        check(&result, at, other)?;
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from([&[FORMAT], &bytes[..]].concat());
        if let Ok(found) = decode::<Signed<Message>>(bytes.clone()) {
            prop_assert_eq!(encode(&found), bytes.clone());
        }
        if let Ok(found) = decode::<Record>(bytes.clone()) {
            prop_assert_eq!(encode(&found), bytes);
        }
    }
}

/// A batch that is said to have as many requests as fit into four bytes.
#[test]
fn a_count_is_not_believed() {
    let bytes = [&[FORMAT, 5][..], &u32::MAX.to_le_bytes(), &[0; 64]].concat();
    let found = decode::<Record>(bytes.into());
    assert_eq!(found, Err(Malformed::Count(u32::MAX.into())));
}

#[test]
fn members_are_named_once_and_in_order() {
    let (one, two) = (NodeId::new(1), NodeId::new(2));
    for pair in [[two, one], [one, one]] {
        let mut bytes = vec![FORMAT, 2, 0, 0, 0];
        for node in pair {
            node.put(&mut bytes);
            Signature([0; 64]).put(&mut bytes);
        }
        assert_eq!(decode::<Signatures>(bytes.into()), Err(Malformed::Order));
    }
}
