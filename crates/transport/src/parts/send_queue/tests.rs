use std::io::IoSlice;

use proptest::prelude::*;

use super::super::{Decoder, Item, LaneLimits, SLICES_MAX, SendPool};
use super::*;
use crate::PeerName;
use crate::id::NodeId;

const WINDOW: u32 = 4_096;

fn limits() -> QueueLimits {
    let lane = LaneLimits { soft_bytes: 20_000, hard_bytes: 60_000 };
    QueueLimits {
        send: SendLimits { frame_bytes_max: 40_000, lanes: [lane; 2] },
        chunk_bytes_max: 1_000,
        windows: Some([WINDOW; 2]),
        batch_bytes: 128 << 10,
    }
}

fn queue_of(limits: &QueueLimits) -> SendQueue {
    SendQueue::new(limits, SendPool::new(usize::MAX).open(PeerName::Node(NodeId::new(1))))
}

/// A peer: decodes what the queue sends and gives the credit back when asked to.
struct Peer {
    decoder: Decoder,
    input: BytesMut,
    owed: [u32; 2],
    frames: Vec<(Lane, Bytes)>,
    goodbye: Option<String>,
}

impl Peer {
    fn new() -> Self {
        Self {
            decoder: Decoder::new(Words::WITH_CREDIT, 40_000, 1_000),
            input: BytesMut::new(),
            owed: [0; 2],
            frames: Vec::new(),
            goodbye: None,
        }
    }

    /// Takes one batch, `step` bytes a write; answers what the batch says it completed.
    fn take_batch(&mut self, queue: &mut SendQueue, step: usize) -> Completed {
        let (mut batch, mut completed) = (Batch::default(), Completed::default());
        queue.fill(&mut batch);
        while !batch.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = batch.slices(&mut slices);
            let bytes: Vec<u8> =
                slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
            let written = step.min(bytes.len());
            self.input.extend_from_slice(&bytes[..written]);
            let part = batch.advance(written);
            completed.frames += part.frames;
            completed.transport_frames += part.transport_frames;
        }
        self.decode();
        completed
    }

    fn decode(&mut self) {
        while let Some(item) = self.decoder.decode(&mut self.input).expect("the queue is right") {
            match item {
                Item::Frame { lane, bytes, cost } => {
                    self.owed[index(lane)] += cost;
                    self.frames.push((lane, bytes));
                }
                Item::Part { lane, cost } => self.owed[index(lane)] += cost,
                Item::Goodbye(text) => self.goodbye = Some(text),
                Item::Credit { .. } | Item::KeepAlive => {}
            }
        }
        assert!(self.owed.iter().all(|owed| *owed <= WINDOW), "sent without credit");
    }

    fn give_back(&mut self, queue: &mut SendQueue) {
        for lane in [Lane::Control, Lane::Data] {
            let owed = std::mem::take(&mut self.owed[index(lane)]);
            queue.grant(lane, owed).unwrap();
        }
    }

    fn take_all(&mut self, queue: &mut SendQueue) -> Completed {
        let mut completed = Completed::default();
        while !queue.is_empty() {
            let part = self.take_batch(queue, usize::MAX);
            completed.frames += part.frames;
            self.give_back(queue);
        }
        completed
    }
}

fn append(queue: &mut SendQueue, lane: Lane, bytes: &[u8]) -> Result<Appended, NotWritable> {
    queue.append_copy(lane, &[], bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Append(Lane, usize),
    AppendBytes(Lane, usize, usize),
    Take(usize),
    GiveBack,
}

fn step() -> impl Strategy<Value = Step> {
    let lane = || prop_oneof![Just(Lane::Control), Just(Lane::Data)];
    let size = || prop_oneof![4 => 0_usize..50, 2 => 900_usize..1_100, 1 => 0_usize..9_000];
    prop_oneof![
        3 => (lane(), size()).prop_map(|(lane, len)| Step::Append(lane, len)),
        3 => (lane(), size(), size()).prop_map(|(lane, a, b)| Step::AppendBytes(lane, a, b)),
        3 => (1_usize..3_000).prop_map(Step::Take),
        2 => Just(Step::GiveBack),
    ]
}

proptest! {
    #[test]
    fn frames_come_out_whole_in_order_and_within_credit(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let (mut queue, mut peer) = (queue_of(&limits()), Peer::new());
        let (mut sent, mut completed) = ([Vec::new(), Vec::new()], 0);
        for (number, step) in steps.into_iter().enumerate() {
            let fill = u8::try_from(number).unwrap();
            match step {
                Step::Append(lane, len) => {
                    let bytes = vec![fill; len];
                    if append(&mut queue, lane, &bytes).is_ok() {
                        sent[index(lane)].push(Bytes::from(bytes));
                    }
                }
                Step::AppendBytes(lane, head, body) => {
                    let whole = vec![fill; head + body];
                    let (head, body) = whole.split_at(head);
                    let appended = match number % 2 {
                        0 => queue.append_bytes(lane, head, Bytes::copy_from_slice(body)),
                        _ => queue.append_copy(lane, head, body),
                    };
                    if appended.is_ok() {
                        sent[index(lane)].push(Bytes::from(whole));
                    }
                }
                Step::Take(step) => completed += peer.take_batch(&mut queue, step).frames,
                Step::GiveBack => peer.give_back(&mut queue),
            }
            prop_assert!(LANES.iter().all(|lane| queue.account.queued(*lane) <= 60_000));
        }
        completed += peer.take_all(&mut queue).frames;
        prop_assert_eq!(completed, peer.frames.len() as u64);
        for lane in [Lane::Control, Lane::Data] {
            let of_lane = peer.frames.iter().filter(|frame| frame.0 == lane);
            let got: Vec<_> = of_lane.map(|frame| frame.1.clone()).collect();
            prop_assert_eq!(&got, &sent[index(lane)]);
        }
    }
}

#[test]
fn control_overtakes_data_that_was_appended_before() {
    let (mut queue, mut peer) = (queue_of(&limits()), Peer::new());
    append(&mut queue, Lane::Data, &[1; 30_000]).unwrap();
    peer.take_batch(&mut queue, usize::MAX);
    append(&mut queue, Lane::Control, b"now").unwrap();
    peer.take_all(&mut queue);
    let lanes: Vec<_> = peer.frames.iter().map(|frame| frame.0).collect();
    assert_eq!(lanes, [Lane::Control, Lane::Data]);
}

#[test]
fn data_gets_a_block_in_however_much_control_there_is() {
    let mut limits = limits();
    limits.windows = Some([1 << 20, WINDOW]);
    limits.send.lanes[0].hard_bytes = 1 << 20;
    let (mut queue, mut batch) = (queue_of(&limits), Batch::default());
    for _ in 0..2 * limits.batch_bytes / 1_000 {
        append(&mut queue, Lane::Control, &[0; 1_000]).unwrap();
    }
    append(&mut queue, Lane::Data, b"me too").unwrap();
    queue.fill(&mut batch);
    assert_eq!(queue.account.queued(Lane::Data), 0);
    assert!(queue.account.queued(Lane::Control) > 0);
}

#[test]
fn a_lane_is_full_at_its_bounds_while_the_other_takes_frames() {
    let mut queue = queue_of(&limits());
    assert_eq!(append(&mut queue, Lane::Data, &[0; 19_000]), Ok(Appended::Writable));
    assert_eq!(append(&mut queue, Lane::Data, &[0; 39_000]), Ok(Appended::Full));
    assert!(!queue.is_writable(Lane::Data));
    assert_eq!(append(&mut queue, Lane::Data, &[0; 39_000]), Err(NotWritable::Full));
    assert_eq!(append(&mut queue, Lane::Control, b"x"), Ok(Appended::Writable));
}

#[test]
fn an_empty_lane_takes_any_legal_frame() {
    let mut limits = limits();
    limits.send.lanes[0].hard_bytes = 100;
    let mut queue = queue_of(&limits);
    assert_eq!(append(&mut queue, Lane::Control, &[0; 20_000]), Ok(Appended::Full));
    assert_eq!(append(&mut queue, Lane::Control, &[0; 1]), Err(NotWritable::Full));
}

/// As a transport sends that has credit of its own: a message has a largest size.
#[test]
fn without_windows_everything_goes_and_no_batch_is_larger_than_two_blocks_more() {
    let limits = QueueLimits { windows: None, batch_bytes: 2_000, ..limits() };
    let (mut queue, mut decoder) =
        (queue_of(&limits), Decoder::new(Words::WITHOUT_CREDIT, 40_000, 1_000));
    assert_eq!(queue.grant(Lane::Data, 1), Err(Fault::NoCredit));
    let mut frames = 0;
    for lane in LANES {
        append(&mut queue, lane, &[1; 30_000]).unwrap();
        (0..50).for_each(|_| _ = append(&mut queue, lane, &[2; 300]).unwrap());
    }
    while !queue.is_empty() {
        let mut batch = Batch::default();
        queue.fill(&mut batch);
        let (parts, completed) = batch.take();
        let mut message = Bytes::from(parts.collect::<Vec<_>>().concat());
        assert!(message.len() <= 2_000 + 2 * (1_000 + WORD_BYTES), "{}", message.len());
        let mut came = 0;
        while let Some(item) = decoder.decode(&mut message).unwrap() {
            came += u64::from(matches!(item, Item::Frame { .. }));
        }
        assert_eq!(completed.frames, came);
        frames += came;
    }
    assert_eq!(frames, 102);
}

#[test]
fn a_frame_over_the_peers_limit_is_not_written() {
    let mut queue = queue_of(&limits());
    let refused = queue.append_copy(Lane::Data, &[1], &[0; 40_000]);
    assert_eq!(refused, Err(NotWritable::TooLarge { size: 40_001, limit: 40_000 }));
}

#[test]
fn a_large_body_is_not_copied() {
    let mut limits = limits();
    limits.chunk_bytes_max = 64 * 1024;
    limits.windows = Some([1 << 20; 2]);
    let (mut queue, mut batch) = (queue_of(&limits), Batch::default());
    let body = Bytes::from(vec![7; 30_000]);
    queue.append_bytes(Lane::Data, b"head", body.clone()).unwrap();
    queue.fill(&mut batch);
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    assert_eq!(batch.slices(&mut slices), 2);
    assert_eq!(slices[1].as_ptr(), body.as_ptr());
    assert_eq!(batch.advance(WORD_BYTES + 4).frames, 0, "its body is still to come");
    assert_eq!(batch.advance(body.len()).frames, 1);
}

#[test]
fn the_goodbye_comes_after_what_was_appended() {
    let (mut queue, mut peer) = (queue_of(&limits()), Peer::new());
    append(&mut queue, Lane::Data, &[1; 9_000]).unwrap();
    drop(queue.close("that is all".into(), true));
    assert_eq!(append(&mut queue, Lane::Data, b"x"), Err(NotWritable::Closed));
    peer.take_all(&mut queue);
    assert_eq!(peer.frames.len(), 1);
    assert_eq!(peer.goodbye.as_deref(), Some("that is all"));
    assert!(queue.is_finished());
}

#[test]
fn an_abrupt_close_drops_what_was_appended() {
    let (mut queue, mut peer) = (queue_of(&limits()), Peer::new());
    append(&mut queue, Lane::Data, &[1; 9_000]).unwrap();
    drop(queue.close("enough".into(), false));
    let completed = peer.take_batch(&mut queue, 1);
    assert_eq!(completed, Completed { frames: 0, transport_frames: 1 });
    assert_eq!((peer.frames.len(), peer.goodbye.as_deref()), (0, Some("enough")));
}

#[test]
fn the_transports_own_frames_need_no_credit_and_do_not_pile_up() {
    let (mut queue, mut peer) = (queue_of(&limits()), Peer::new());
    append(&mut queue, Lane::Data, &[0; 39_000]).unwrap();
    peer.take_batch(&mut queue, usize::MAX);
    for _ in 0..100 {
        queue.return_credit(Lane::Data, 7);
        queue.keep_alive();
    }
    let completed = peer.take_batch(&mut queue, usize::MAX);
    assert_eq!(completed, Completed { frames: 0, transport_frames: 2 });
}

/// Bytes that are being written count, too: a peer that reads nothing holds a batch beside its
/// queue.
#[test]
fn a_queue_takes_no_more_than_its_share_until_what_it_has_is_written() {
    let wide = LaneLimits { soft_bytes: 8 << 20, hard_bytes: 16 << 20 };
    let limits = QueueLimits {
        send: SendLimits { frame_bytes_max: 4 << 20, lanes: [wide; 2] },
        chunk_bytes_max: 64 << 10,
        windows: Some([1 << 20; 2]),
        batch_bytes: 128 << 10,
    };
    let pool = SendPool::new(1 << 20);
    let name = PeerName::Node(NodeId::new(1));
    let (mut queue, mut batch) = (SendQueue::new(&limits, pool.open(name)), Batch::default());
    let append = |queue: &mut SendQueue| queue.append_copy(Lane::Data, &[], &[0; 10_000]);
    let mut answers = Vec::new();
    let refused = loop {
        match append(&mut queue) {
            Ok(appended) => answers.push(appended),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, NotWritable::Full);
    // A fifth, by steps of 16 KiB.
    assert!((15..=22).contains(&answers.len()), "{}", answers.len());
    assert_eq!(answers.first(), Some(&Appended::Writable));
    assert_eq!(answers.last(), Some(&Appended::Full), "who can wait is told before");
    assert!(!queue.is_writable(Lane::Data));

    queue.fill(&mut batch);
    assert!(!batch.is_empty());
    assert_eq!(append(&mut queue), Err(NotWritable::Full), "it is not written yet");
    while !queue.is_empty() {
        batch = Batch::default();
        queue.fill(&mut batch);
    }
    queue.fill(&mut Batch::default());
    assert_eq!(pool.used(), 0);
    assert!(queue.is_writable(Lane::Data) && append(&mut queue).is_ok());
    drop(queue);
    assert_eq!(pool.used(), 0);
}
