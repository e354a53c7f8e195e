use proptest::prelude::*;

use super::*;
use crate::framing::{Decoder, Item};

const FRAME_BYTES_MAX: usize = 64 * 1024;

fn limits(message_bytes_max: usize, hard_bytes: usize) -> Limits {
    let lane = LaneLimits { soft_bytes: hard_bytes / 2, hard_bytes };
    Limits { frame_bytes_max: FRAME_BYTES_MAX, message_bytes_max, control: lane, data: lane }
}

fn roomy() -> SendQueue {
    SendQueue::new(&limits(4 * 1024, 1 << 20))
}

fn frame(seed: usize, len: usize) -> Bytes {
    (0..len).map(|at| u8::try_from((seed + at) % 251).unwrap()).collect()
}

/// All items the queue has, and the sizes of the messages they came in.
fn drain(queue: &mut SendQueue) -> (Vec<Item>, Vec<usize>) {
    let mut decoder = Decoder::new(u32::try_from(FRAME_BYTES_MAX).unwrap());
    let (mut items, mut sizes) = (Vec::new(), Vec::new());
    while let Some(filled) = queue.fill() {
        let mut message = Bytes::from(filled.parts.0.concat());
        assert_eq!(message.len(), filled.bytes);
        sizes.push(filled.bytes);
        while let Some(item) = decoder.decode(&mut message).unwrap() {
            items.push(item);
        }
    }
    (items, sizes)
}

fn frames_of(items: &[Item], of: Lane) -> Vec<Bytes> {
    let frames = items.iter().filter_map(|item| match item {
        Item::Frame { lane, bytes } if *lane == of => Some(bytes.clone()),
        _ => None,
    });
    frames.collect()
}

#[test]
fn small_frames_share_a_message_and_control_is_first() {
    let mut queue = roomy();
    for seed in 0..3 {
        queue.append_bytes(Lane::Data, b"d", frame(seed, 10)).unwrap();
    }
    queue.append(Lane::Control, 1, &mut |out| out[0] = b'c').unwrap();
    let (items, sizes) = drain(&mut queue);
    assert_eq!(sizes.len(), 1);
    assert!(matches!(&items[0], Item::Frame { lane: Lane::Control, .. }), "{items:?}");
    assert_eq!(frames_of(&items, Lane::Data).len(), 3);
}

#[test]
fn control_passes_between_the_chunks_of_a_large_frame() {
    let mut queue = roomy();
    queue.append_bytes(Lane::Data, &[], frame(0, 20_000)).unwrap();
    assert!(queue.fill().is_some());
    queue.append_bytes(Lane::Control, &[], frame(1, 3)).unwrap();
    let next = queue.fill().unwrap();
    let word = framing::word(Kind::Last, Lane::Control, 3);
    assert_eq!(next.parts.0[0][..WORD_BYTES], word);
}

#[test]
fn data_gets_a_block_in_however_much_control_there_is() {
    let mut queue = roomy();
    queue.append_bytes(Lane::Data, &[], frame(0, 900)).unwrap();
    for seed in 0..100 {
        queue.append_bytes(Lane::Control, &[], frame(seed, 900)).unwrap();
    }
    assert!(queue.fill().is_some());
    assert_eq!(queue.lanes[index(Lane::Data)].queued_bytes, 0, "the data waits");
}

#[test]
fn the_bounds_come_one_after_the_other() {
    let mut queue = SendQueue::new(&limits(4 * 1024, 10_000));
    let mut append = |len| queue.append_bytes(Lane::Data, &[], frame(0, len));
    assert_eq!(append(4_000), Ok(Appended::Writable));
    assert_eq!(append(4_000), Ok(Appended::Full));
    assert_eq!(append(4_000), Err(NotWritable::Full));
    let too_large = NotWritable::TooLarge { size: FRAME_BYTES_MAX + 1, limit: FRAME_BYTES_MAX };
    assert_eq!(append(FRAME_BYTES_MAX + 1), Err(too_large));
    assert!(!queue.is_writable(Lane::Data) && queue.is_writable(Lane::Control));
    drain(&mut queue);
    let whole = queue.append_bytes(Lane::Data, &[], frame(0, FRAME_BYTES_MAX));
    assert_eq!(whole, Ok(Appended::Full), "an empty lane takes any legal frame");
}

#[test]
fn a_gentle_close_sends_what_was_appended_and_then_the_goodbye() {
    let mut queue = roomy();
    queue.append_bytes(Lane::Data, &[], frame(0, 9_000)).unwrap();
    queue.keep_alive();
    queue.close("enough".into(), true);
    assert_eq!(queue.append_bytes(Lane::Data, &[], frame(0, 1)), Err(NotWritable::Closed));
    let (items, _) = drain(&mut queue);
    assert_eq!(items[0], Item::KeepAlive);
    assert_eq!(frames_of(&items, Lane::Data), [frame(0, 9_000)]);
    assert_eq!(items.last(), Some(&Item::Goodbye("enough".into())));
    assert!(queue.is_finished());
}

#[test]
fn a_hasty_close_sends_only_the_goodbye() {
    let mut queue = roomy();
    queue.append_bytes(Lane::Data, &[], frame(0, 9_000)).unwrap();
    queue.close("fault".into(), false);
    assert_eq!(drain(&mut queue).0, [Item::Goodbye("fault".into())]);
}

#[test]
fn a_frame_whose_writer_panics_is_not_sent() {
    let mut queue = roomy();
    let panicking = std::panic::AssertUnwindSafe(|| {
        let _ = queue.append(Lane::Data, 5, &mut |_| panic!("the writer's bug"));
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    queue.append_bytes(Lane::Data, &[], frame(0, 3)).unwrap();
    assert_eq!(frames_of(&drain(&mut queue).0, Lane::Data), [frame(0, 3)]);
}

proptest! {
    #[test]
    fn any_frames_arrive_in_order_within_the_message_limit(
        frames in prop::collection::vec((any::<bool>(), 0_usize..12_000, any::<bool>()), 1..60),
        message_bytes_max in 4_096_usize..40_000,
    ) {
        let mut queue = SendQueue::new(&limits(message_bytes_max, 16 << 20));
        let mut expected = [Vec::new(), Vec::new()];
        for (seed, (is_control, len, in_place)) in frames.into_iter().enumerate() {
            let lane = if is_control { Lane::Control } else { Lane::Data };
            let body = frame(seed, len);
            if in_place {
                queue.append(lane, len, &mut |out| out.copy_from_slice(&body)).unwrap();
            } else {
                queue.append_bytes(lane, &body[..len / 3], body.slice(len / 3..)).unwrap();
            }
            expected[index(lane)].push(body);
        }
        let (items, sizes) = drain(&mut queue);
        prop_assert!(sizes.iter().all(|size| *size <= message_bytes_max), "{:?}", sizes);
        for lane in [Lane::Control, Lane::Data] {
            prop_assert_eq!(&frames_of(&items, lane), &expected[index(lane)]);
        }
        prop_assert!(queue.is_empty());
    }
}
