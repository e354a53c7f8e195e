use std::sync::Arc;

use convoke_transport::PeerName;
use convoke_transport::parts::{LaneLimits, SendLimits, SendPool};
use proptest::prelude::*;

use super::*;
use crate::framing::reassembly::Reassembly;
use crate::framing::record::Records;

const PAYLOAD_MAX: usize = 1020;

/// A queue and the account that bounds it.
struct Bounded {
    queue: SendQueue,
    account: SendAccount,
}

impl Bounded {
    fn put(&mut self, bytes: &[u8]) -> Result<Appended, NotWritable> {
        self.queue.append_copy(&mut self.account, &[], bytes)
    }

    fn poll_writable(&mut self) -> bool {
        self.queue.poll_writable(&self.account)
    }

    fn take_writable_again(&mut self) -> bool {
        self.queue.take_writable_again(&self.account)
    }
}

fn queue(soft_bytes: usize, hard_bytes: usize) -> Bounded {
    queue_of(soft_bytes, hard_bytes, &SendPool::new(usize::MAX))
}

/// One that has its share of the pool.
fn queue_of(soft_bytes: usize, hard_bytes: usize, pool: &Arc<SendPool>) -> Bounded {
    let lane = LaneLimits { soft_bytes, hard_bytes };
    let limits = SendLimits { frame_bytes_max: 1 << 20, lanes: [lane; 2] };
    let account = SendAccount::new(limits, pool.open(PeerName::Place("here".into())));
    Bounded { queue: SendQueue::new(Lane::Data, PAYLOAD_MAX), account }
}

/// Messages of so much room each, filled until nothing is left.
fn drain(bounded: &mut Bounded, mut room: impl FnMut() -> usize) -> (Vec<Vec<u8>>, u64) {
    let (mut messages, mut frames) = (Vec::new(), 0);
    let Bounded { queue, account } = bounded;
    while !account.is_empty() {
        let len = queue.measure(room());
        let mut message = vec![0xee; len];
        frames += queue.take(account, &mut message, &mut Spent::default());
        messages.push(message);
    }
    (messages, frames)
}

fn reassemble(messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut reassembly = Reassembly::new(u32::MAX);
    let mut frames = Vec::new();
    for message in messages {
        for record in Records::new(message) {
            let record = record.unwrap();
            let bytes = &message[record.range];
            if record.part == Part::Whole {
                frames.push(bytes.to_vec());
            } else {
                let is_long = bytes.len() >= FRAGMENT_BYTES_MIN;
                assert!(
                    is_long || record.part == Part::Last,
                    "a fragment of {} bytes",
                    bytes.len()
                );
                let frame = reassembly.put(record.lane, record.part, bytes).unwrap();
                frames.extend(frame.map(|frame| frame.to_vec()));
            }
        }
    }
    frames
}

#[test]
fn small_frames_share_a_message() {
    let mut queue = queue(1 << 20, 1 << 20);
    for at in 0..20 {
        queue.put(&[at; 40]).unwrap();
    }
    assert_eq!(queue.queue.measure(PAYLOAD_MAX), 20 * 44);
    let (messages, frames) = drain(&mut queue, || PAYLOAD_MAX);
    assert_eq!((messages.len(), frames), (1, 20));
}

#[test]
fn the_largest_frame_of_one_record_is_not_cut() {
    let mut queue = queue(1 << 20, 1 << 20);
    queue.put(&[7; PAYLOAD_MAX - WORD_BYTES]).unwrap();
    queue.put(&[8; PAYLOAD_MAX - WORD_BYTES + 1]).unwrap();
    let (messages, _) = drain(&mut queue, || PAYLOAD_MAX);
    assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [PAYLOAD_MAX, PAYLOAD_MAX, 9]);
}

#[test]
fn the_bounds_are_told() {
    let mut queue = queue(100, 200);
    assert_eq!(queue.put(&[0; 90]), Ok(Appended::Writable));
    assert!(!queue.take_writable_again(), "nobody was told to wait");
    assert_eq!(queue.put(&[0; 90]), Ok(Appended::Full));
    assert_eq!(queue.put(&[0; 90]), Err(NotWritable::Full));
    assert!(!queue.take_writable_again());
    drain(&mut queue, || PAYLOAD_MAX);
    assert!(queue.take_writable_again() && !queue.take_writable_again());
    // A frame beyond the hard bound is taken by an empty queue, or it could never go.
    assert_eq!(queue.put(&[0; 5000]), Ok(Appended::Full));
}

#[test]
fn a_queue_above_its_share_waits_until_what_it_has_is_low() {
    let pool = SendPool::new(1 << 20);
    let mut queue = queue_of(1 << 20, 1 << 20, &pool);
    let mut count = 0;
    while queue.put(&[0; 10_000]).is_ok() {
        count += 1;
    }
    assert!((15..=21).contains(&count), "a fifth of the room: {count}");
    assert!(!queue.take_writable_again(), "it would have to wait again");
    drain(&mut queue, || PAYLOAD_MAX);
    assert!(queue.take_writable_again());
    assert_eq!((pool.used(), queue.put(&[0; 10_000])), (0, Ok(Appended::Writable)));
}

#[test]
fn who_waits_for_room_that_others_have_taken_is_woken_when_what_the_queue_has_is_low() {
    let pool = SendPool::new(1 << 20);
    let mut queue = queue_of(1 << 20, 1 << 20, &pool);
    assert_eq!(queue.put(&[0; 50_000]), Ok(Appended::Writable));
    let mut others: Vec<Bounded> = (0..8).map(|_| queue_of(1 << 20, 1 << 20, &pool)).collect();
    for other in &mut others {
        while other.put(&[0; 10_000]).is_ok() {}
    }
    assert!(!queue.poll_writable() && !queue.take_writable_again());
    drain(&mut queue, || PAYLOAD_MAX);
    assert!(queue.take_writable_again() && queue.poll_writable());
    assert!(!queue.take_writable_again(), "nobody waits any more");
}

#[test]
fn what_is_cleared_is_gone() {
    let mut queue = queue(1 << 20, 1 << 20);
    queue.put(&[1; 5000]).unwrap();
    queue.put(&[2; 50]).unwrap();
    queue.queue.clear(&mut Spent::default());
    assert_eq!(queue.queue.measure(PAYLOAD_MAX), 0);
}

proptest! {
    #[test]
    fn frames_come_out_whole_and_in_order_whatever_room_there_is(
        frames in prop::collection::vec(
            (prop_oneof![0..80_usize, 900..1100_usize, 0..6000_usize], any::<bool>()), 1..20),
        rooms in prop::collection::vec(0..PAYLOAD_MAX, 1..20),
    ) {
        let mut queue = queue(1 << 20, 1 << 24);
        let mut sent = Vec::new();
        for (at, (len, has_head)) in frames.into_iter().enumerate() {
            let bytes = (0..len).map(|byte| u8::try_from((byte + at) % 251).unwrap());
            let bytes: Vec<u8> = bytes.collect();
            if has_head {
                let (head, body) = bytes.split_at(len / 3);
                let body = Bytes::copy_from_slice(body);
                queue.queue.append_bytes(&mut queue.account, head, body).unwrap();
            } else {
                queue.put(&bytes).unwrap();
            }
            sent.push(bytes);
        }
        // Now and then there is all the room, so it ends.
        let mut rooms = rooms.into_iter().chain([PAYLOAD_MAX]).cycle();
        let (messages, count) = drain(&mut queue, || rooms.next().unwrap());
        prop_assert!(messages.iter().all(|message| message.len() <= PAYLOAD_MAX));
        prop_assert_eq!(count, sent.len() as u64);
        prop_assert_eq!(reassemble(&messages), sent);
    }
}
