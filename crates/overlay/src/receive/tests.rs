use super::*;
use crate::payload::PLACE_BYTES;
use crate::wire::{CHUNK_BYTES, CHUNKS_MAX, Forward, WINDOW};
use bytes::Bytes;
use proptest::prelude::*;

const SOURCE: Site = Site(1);
const LIFE: Life = Life(5);

fn receiver(order: Order, reorder_bytes_max: usize) -> Receiver {
    let limits = Limits { reorder_bytes_max, ..Limits::default() };
    let mut receiver = Receiver::new(order, &limits);
    assert!(receiver.begin(SOURCE, LIFE).is_empty());
    receiver
}

fn chunk(first: u64, index: u32, count: u32) -> Data {
    let op = OpId { source: SOURCE, life: LIFE, seq: first };
    let len = if index + 1 < count { CHUNK_BYTES } else { 9 };
    let payload = Bytes::from(vec![first.to_le_bytes()[0]; len]);
    Data {
        op,
        index,
        count,
        epoch: 0,
        forward: Forward::Nobody,
        is_repair: false,
        is_body: false,
        payload,
    }
}

/// Chunks of operations with these counts.
fn chunks(counts: &[u32]) -> Vec<Data> {
    let mut first = 0;
    let mut all = Vec::new();
    for count in counts {
        all.extend((0..*count).map(|index| chunk(first, index, *count)));
        first += u64::from(*count);
    }
    all
}

fn take(receiver: &mut Receiver, data: Data) -> Vec<u64> {
    match receiver.take(Timestamp::ZERO, data) {
        Ok(Taken::New { delivered, .. }) => delivered.into_iter().map(|(op, _)| op.seq).collect(),
        Ok(_) => Vec::new(),
        Err(fault) => panic!("{fault}"),
    }
}

proptest! {
    /// P11, at one receiver.
    #[test]
    fn any_order_with_copies_delivers_each_operation_once(
        counts in proptest::collection::vec(1..5u32, 1..20), order: bool,
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let order = if order { Order::SourceFifo } else { Order::Unordered };
        let mut receiver = receiver(order, usize::MAX);
        let all = chunks(&counts);
        let mut delivered = Vec::new();
        let drawn = picks.iter().map(|pick| pick.get(&all).clone());
        for data in drawn.chain(all.clone()) {
            delivered.extend(take(&mut receiver, data));
        }
        let firsts = all.iter().filter(|data| data.index == 0);
        let firsts: Vec<u64> = firsts.map(|data| data.op.seq).collect();
        if order == Order::Unordered {
            delivered.sort_unstable();
        }
        prop_assert_eq!(delivered, firsts);
        prop_assert_eq!(receiver.waiting_bytes(SOURCE), 0);
        let ack = receiver.ack(SOURCE).expect("it is known");
        prop_assert_eq!((ack.next, ack.beyond.len()), (all.len() as u64, 0));
    }

    /// However little room there is, the oldest is always taken: so repeating all often enough
    /// delivers all.
    #[test]
    fn a_full_stream_empties(
        counts in proptest::collection::vec(1..6u32, 1..12), order: bool, room in 0..100_000usize,
    ) {
        let order = if order { Order::SourceFifo } else { Order::Unordered };
        let mut receiver = receiver(order, room);
        let all = chunks(&counts);
        let mut delivered = 0;
        for _ in 0..all.len() {
            for data in all.iter().rev() {
                delivered += take(&mut receiver, data.clone()).len();
                let waiting = receiver.waiting_bytes(SOURCE);
                prop_assert!(waiting <= room + 6 * (CHUNK_BYTES + PLACE_BYTES));
            }
        }
        prop_assert_eq!(delivered, counts.len());
    }
}

#[test]
fn another_life_is_another_stream_and_the_earlier_one_ends() {
    let mut receiver = receiver(Order::Unordered, usize::MAX);
    assert_eq!(take(&mut receiver, chunk(0, 0, 1)), [0]);
    take(&mut receiver, chunk(3, 0, 2));
    let op = OpId { life: Life(6), ..chunk(0, 0, 1).op };
    let next = Data { op, ..chunk(0, 0, 1) };
    assert!(matches!(receiver.take(Timestamp::ZERO, next.clone()), Ok(Taken::Stale)));
    assert!(receiver.begin(SOURCE, LIFE).is_empty());
    let ended = receiver.begin(SOURCE, Life(6)).pop().expect("it is another");
    assert_eq!((ended.life, ended.holes), (LIFE, vec![(1, 5)]));
    assert_eq!(take(&mut receiver, next), [0]);
    // What has come of the earlier one is known, what has not can be fetched.
    let expects = |seq| receiver.expects(OpId { source: SOURCE, life: LIFE, seq });
    assert_eq!([0, 1, 3, 9].map(expects), [Some(false), None, None, None]);
    assert!(matches!(receiver.take(Timestamp::ZERO, chunk(1, 0, 1)), Ok(Taken::Stale)));
}

#[test]
fn what_waited_for_an_earlier_operation_is_delivered_when_its_life_ends() {
    let mut receiver = receiver(Order::SourceFifo, usize::MAX);
    assert!(take(&mut receiver, chunk(1, 0, 1)).is_empty());
    let ended = receiver.begin(SOURCE, Life(6)).pop().expect("it is another");
    assert_eq!(ended.holes, [(0, 1)]);
    assert_eq!(ended.delivered.len(), 1);
}

/// Others were asked for it, and their answers would come in any order.
#[test]
fn what_a_source_has_given_up_is_missing_for_good_when_its_life_ends() {
    let mut receiver = receiver(Order::SourceFifo, usize::MAX);
    take(&mut receiver, chunk(0, 0, 1));
    receiver.floor(Timestamp::ZERO, SOURCE, LIFE, 3);
    assert_eq!(receiver.holes(SOURCE), [(1, 3)]);
    let ended = receiver.begin(SOURCE, Life(6)).pop().expect("it is another");
    assert_eq!(ended.holes, [(1, 3)]);
}

/// It was asked of another before its source has said so. Asked for again it would come again.
#[test]
fn what_has_come_and_is_for_others_has_come() {
    let mut receiver = receiver(Order::Unordered, usize::MAX);
    assert_eq!(take(&mut receiver, chunk(1, 0, 1)), [1]);
    assert!(take(&mut receiver, chunk(3, 0, 2)).is_empty());
    assert!(receiver.leave_out(Timestamp::ZERO, SOURCE, LIFE, &vec![(0, 3), (3, 5)]).is_empty());
    let expects = |seq| receiver.expects(OpId { source: SOURCE, life: LIFE, seq });
    assert_eq!([0, 1, 2].map(expects), [None, Some(false), None]);
    assert_eq!([3, 4, 5].map(expects), [None, None, Some(true)], "it had not come whole");
}

/// Its first chunk was given up before another site brought all of it.
#[test]
fn what_comes_whole_and_was_given_up_in_part_is_delivered_in_its_turn() {
    let mut receiver = receiver(Order::SourceFifo, 200_000);
    let op = OpId { source: SOURCE, life: LIFE, seq: 1 };
    receiver.floor(Timestamp::ZERO, SOURCE, LIFE, 4);
    assert_eq!(receiver.skip(op, 2).0, [(1, 2)]);
    assert!(receiver.may_take_whole(op, 3) && !receiver.may_take_whole(op, 7));
    let payload = Payload::cut(vec![7; 70_000].into());
    assert!(receiver.leave_whole(Timestamp::ZERO, op, payload, true).is_empty());
    assert!(receiver.waiting_bytes(SOURCE) > 70_000);
    assert_eq!(take(&mut receiver, chunk(0, 0, 1)), [0, 1]);
    assert_eq!((receiver.waiting_bytes(SOURCE), receiver.has_holes(SOURCE)), (0, false));
}

#[test]
fn what_lies_below_a_floor_is_missing_until_it_comes_or_nobody_has_it() {
    let mut receiver = receiver(Order::SourceFifo, usize::MAX);
    for data in [chunk(1, 0, 1), chunk(2, 1, 3), chunk(6, 0, 1), chunk(7, 0, 2)] {
        assert!(take(&mut receiver, data).is_empty());
    }
    let (holes, delivered) = receiver.floor(Timestamp::ZERO, SOURCE, LIFE, 7);
    assert!(holes.is_empty() && delivered.is_empty() && receiver.owes_nothing(SOURCE));
    assert_eq!(receiver.holes(SOURCE), [(0, 1), (2, 3), (4, 6), (8, 9)]);
    let first = OpId { source: SOURCE, life: LIFE, seq: 0 };
    let (holes, delivered) = receiver.skip(first, u64::MAX);
    assert_eq!(holes, [(0, 1), (2, 6)]);
    let delivered: Vec<u64> = delivered.into_iter().map(|(op, _)| op.seq).collect();
    assert_eq!(delivered, [1, 6]);
    assert!(!receiver.owes_nothing(SOURCE));
    assert_eq!(take(&mut receiver, chunk(7, 1, 2)), [7]);
    assert!(take(&mut receiver, chunk(0, 0, 1)).is_empty(), "it was given up");
    let expects = |seq| receiver.expects(OpId { source: SOURCE, life: LIFE, seq });
    assert_eq!([0, 1, 3, 7, 9].map(expects), [None, Some(false), None, Some(false), Some(true)]);
}

#[test]
fn what_a_receiver_gives_up_by_itself_is_not_acknowledged() {
    let mut receiver = receiver(Order::SourceFifo, usize::MAX);
    take(&mut receiver, chunk(2, 0, 1));
    let op = |seq| OpId { source: SOURCE, life: LIFE, seq };
    assert_eq!(receiver.skip(op(0), 1).0, [(0, 1)]);
    let (_, delivered) = receiver.skip(op(1), 2);
    assert_eq!(delivered.len(), 1);
    let ack = receiver.ack(SOURCE).expect("it is known");
    assert_eq!((ack.next, ack.iter_beyond().collect::<Vec<_>>()), (0, vec![2]));
    // Until the source has given it up, too.
    receiver.floor(Timestamp::ZERO, SOURCE, LIFE, 2);
    assert_eq!(receiver.ack(SOURCE).map(|ack| ack.next), Some(3));
}

#[test]
fn what_lies_beyond_the_window_is_not_taken() {
    let mut receiver = receiver(Order::Unordered, usize::MAX);
    assert_eq!(take(&mut receiver, chunk(WINDOW - 1, 0, 1)), [WINDOW - 1]);
    let beyond = receiver.take(Timestamp::ZERO, chunk(WINDOW - 1, 1, 2));
    assert!(matches!(beyond, Ok(Taken::NoRoom)));
    let ack = receiver.ack(SOURCE).expect("it is known");
    assert_eq!(ack.beyond.len() as u64, WINDOW / 8);
}

#[test]
fn operations_that_claim_many_chunks_and_send_one_are_bounded() {
    let room = 1 << 20;
    let mut receiver = receiver(Order::Unordered, room);
    // All of them would cover the first that is missing.
    for first in (0..CHUNKS_MAX.into()).rev() {
        let last =
            Data { payload: Bytes::from_static(b"x"), ..chunk(first, CHUNKS_MAX - 1, CHUNKS_MAX) };
        assert!(receiver.take(Timestamp::ZERO, last).is_ok());
        assert!(receiver.waiting_bytes(SOURCE) <= room + CHUNKS_MAX as usize * PLACE_BYTES + 1);
    }
}

#[test]
fn chunks_that_contradict_each_other_are_a_fault() {
    let mut receiver = receiver(Order::Unordered, usize::MAX);
    take(&mut receiver, chunk(0, 0, 3));
    let fault = receiver.take(Timestamp::ZERO, chunk(0, 1, 2)).expect_err("it has three");
    assert_eq!(fault, Fault::Chunks { op: chunk(0, 0, 3).op });
}

#[test]
fn a_source_is_told_at_once_and_then_not_more_often_than_the_delay() {
    let mut receiver = receiver(Order::Unordered, usize::MAX);
    let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
    let hear = |receiver: &mut Receiver, now, seq| receiver.take(now, chunk(seq, 0, 1)).map(drop);
    hear(&mut receiver, at(100), 0).expect("it is right");
    assert_eq!(receiver.poll_ack(at(100)), Some(SOURCE));
    hear(&mut receiver, at(101), 1).expect("it is right");
    assert_eq!((receiver.poll_ack(at(109)), receiver.poll_timeout()), (None, Some(at(110))));
    assert_eq!(receiver.poll_ack(at(110)), Some(SOURCE));
    assert_eq!((receiver.poll_ack(at(200)), receiver.poll_timeout()), (None, None));
}

/// At a high rate there are always many holes that relays are filling: a site that took itself to
/// be behind on their account relayed nothing, and no site did.
#[test]
fn new_chunks_that_are_on_their_way_are_not_missed_from_before() {
    let mut receiver = receiver(Order::Unordered, usize::MAX);
    for seq in [0, 300] {
        take(&mut receiver, chunk(seq, 0, 1));
    }
    assert_eq!((receiver.holes(SOURCE), receiver.missing_before()), (vec![(1, 300)], 0));
    receiver.resume(SOURCE);
    take(&mut receiver, Data { is_repair: true, ..chunk(310, 0, 1) });
    assert_eq!(receiver.missing_before(), 0, "nobody has said what was sent meanwhile");
    take(&mut receiver, chunk(400, 0, 1));
    take(&mut receiver, chunk(500, 0, 1));
    assert_eq!(receiver.missing_before(), 299 + 9 + 89);
    receiver.floor(Timestamp::ZERO, SOURCE, LIFE, 450);
    assert_eq!(receiver.missing_before(), 299 + 9 + 89 + 49, "what is given up is to be asked for");
}
