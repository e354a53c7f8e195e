//! Frames: whole, in order, both ways, counted.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;

use super::recorder::Recorder;
use super::{PATIENCE, Pair, Setup};
use crate::{Appended, Connection, Lane, NotWritable};

/// `len` bytes that differ from those of another seed and from themselves shifted.
pub fn pattern(seed: usize, len: usize) -> Bytes {
    let mixed = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(101)) & 0xff;
    (0..len).map(|at| u8::try_from(mixed(at)).expect("it is masked")).collect()
}

/// Appends a frame and flushes, waiting for room as long as there is none.
pub async fn send(connection: &Arc<dyn Connection>, lane: Lane, frame: &Bytes) {
    loop {
        match connection.append_bytes(lane, &[], frame.clone()) {
            Ok(Appended::Writable) => break connection.flush(),
            Ok(Appended::Full) => {
                connection.flush();
                break writable(connection, lane).await;
            }
            Err(NotWritable::Full) => writable(connection, lane).await,
            Err(other) => panic!("a legal frame is not taken: {other}"),
        }
    }
}

/// Waits until the lane has room.
pub async fn writable(connection: &Arc<dyn Connection>, lane: Lane) {
    let writable = poll_fn(|cx| connection.poll_writable(lane, cx));
    tokio::time::timeout(PATIENCE, writable).await.expect("the lane gets room");
}

/// Waits until everything appended was handed to the network.
pub async fn flushed(connection: &Arc<dyn Connection>) {
    let flushed = poll_fn(|cx| connection.poll_flush(cx));
    tokio::time::timeout(PATIENCE, flushed).await.expect("what was appended is sent");
}

/// The frames of one lane, in order.
pub fn of_lane(frames: &[(Lane, Bytes)], lane: Lane) -> Vec<Bytes> {
    frames.iter().filter(|frame| frame.0 == lane).map(|frame| frame.1.clone()).collect()
}

/// Frames of one lane arrive in the order they were appended, however they are flushed.
pub async fn frames_of_a_lane_keep_their_order(setup: Setup) {
    const COUNT: usize = 20_000;
    let pair = setup.connect().await;
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..COUNT {
        let lane = if number % 3 == 0 { Lane::Control } else { Lane::Data };
        let frame = [&number.to_le_bytes()[..], &pattern(number, number % 50)].concat();
        while let Err(error) = pair.to_b.append_copy(lane, &[], &frame) {
            assert_eq!(error, NotWritable::Full);
            pair.to_b.flush();
            writable(&pair.to_b, lane).await;
        }
        if number % 7 == 0 {
            pair.to_b.flush();
        }
        expected[usize::from(lane == Lane::Data)].push(Bytes::from(frame));
    }
    flushed(&pair.to_b).await;
    let frames = pair.b.frames(pair.to_a.link().nonce, COUNT).await;
    assert_eq!(frames.len(), COUNT);
    assert!(of_lane(&frames, Lane::Control) == expected[0], "the control lane is out of order");
    assert!(of_lane(&frames, Lane::Data) == expected[1], "the data lane is out of order");
    pair.finish().await;
}

/// Frames that are appended together, by all ways and to both lanes, arrive in order, and as they
/// were sent. One that finds no room is not taken, and those before it are.
pub async fn frames_appended_together_keep_their_order(setup: Setup) {
    const COUNT: usize = 2_000;
    let pair = setup.connect().await;
    let sent: Vec<(Lane, Bytes)> = (0..COUNT)
        .map(|number| {
            let lane = if number % 5 == 0 { Lane::Control } else { Lane::Data };
            (lane, pattern(number, number * 7 % 3_000))
        })
        .collect();
    let mut taken = 0;
    while taken < COUNT {
        let group = taken..COUNT.min(taken + taken % 70 + 1);
        let mut refused = None;
        pair.to_b.with_buffer(&mut |buffer| {
            for number in group.clone() {
                let (lane, frame) = &sent[number];
                let (head, body) = frame.split_at(frame.len().min(40));
                let appended = match number % 3 {
                    0 => buffer.append_copy(*lane, &[], frame),
                    1 => buffer.append_copy(*lane, head, body),
                    _ => buffer.append_bytes(*lane, head, frame.slice_ref(body)),
                };
                if let Err(error) = appended {
                    refused = Some((*lane, error));
                    return;
                }
                taken += 1;
            }
        });
        pair.to_b.flush();
        if let Some((lane, error)) = refused {
            assert_eq!(error, NotWritable::Full);
            writable(&pair.to_b, lane).await;
        }
    }
    let frames = pair.b.frames(pair.to_a.link().nonce, COUNT).await;
    for lane in [Lane::Control, Lane::Data] {
        assert!(of_lane(&frames, lane) == of_lane(&sent, lane), "the {lane:?} lane changed");
    }
    pair.finish().await;
}

/// Frames from nothing to the largest arrive as they were sent, whichever way they were appended.
pub async fn frames_of_every_size_arrive_whole(setup: Setup) {
    const MAX: usize = 1 << 20;
    let steps = [1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, MAX];
    let around = steps.iter().flat_map(|step| step - 9..=step + 5);
    let sizes: Vec<_> = (0..20).chain(around).filter(|size| *size <= MAX).collect();
    let pair = setup.connect().await;
    let mut expected = Vec::new();
    for (seed, size) in sizes.iter().enumerate() {
        let lane = if seed % 4 == 3 { Lane::Control } else { Lane::Data };
        let frame = pattern(seed, *size);
        let (head, body) = (&frame[..seed % 40 * size / 40], frame.slice(seed % 40 * size / 40..));
        let append = || match seed % 3 {
            0 => pair.to_b.append_copy(lane, &[], &frame),
            1 => pair.to_b.append_copy(lane, head, &body),
            _ => pair.to_b.append_bytes(lane, head, body.clone()),
        };
        let taken = async {
            // A lane that has room may still have too little for a frame this large.
            while let Err(error) = append() {
                assert_eq!(error, NotWritable::Full);
                tokio::task::yield_now().await;
                writable(&pair.to_b, lane).await;
            }
        };
        tokio::time::timeout(PATIENCE, taken).await.expect("a legal frame is taken in the end");
        pair.to_b.flush();
        expected.push((lane, frame));
    }
    let frames = pair.b.frames(pair.to_a.link().nonce, sizes.len()).await;
    for lane in [Lane::Control, Lane::Data] {
        let (got, sent) = (of_lane(&frames, lane), of_lane(&expected, lane));
        let lengths = |frames: &[Bytes]| frames.iter().map(Bytes::len).collect::<Vec<_>>();
        assert_eq!(lengths(&got), lengths(&sent));
        assert!(got == sent, "the content of a frame of the {lane:?} lane changed");
    }
    pair.finish().await;
}

/// Both ends send much at the same time, and neither waits for the other for ever.
pub async fn both_directions_at_once(setup: Setup) {
    const COUNT: usize = 300;
    async fn send_many(connection: Arc<dyn Connection>, seed: usize) {
        for number in 0..COUNT {
            send(&connection, Lane::Data, &pattern(seed + number, number * 97 % 40_000)).await;
        }
    }
    let pair = setup.connect().await;
    let from_a = tokio::spawn(send_many(Arc::clone(&pair.to_b), 0));
    let from_b = tokio::spawn(send_many(Arc::clone(&pair.to_a), COUNT));
    from_a.await.expect("sending ends");
    from_b.await.expect("sending ends");
    let nonce = pair.to_b.link().nonce;
    for (sink, seed) in [(&pair.b, 0), (&pair.a, COUNT)] {
        let frames = sink.frames(nonce, COUNT).await;
        let expected = (0..COUNT).map(|n| (Lane::Data, pattern(seed + n, n * 97 % 40_000)));
        assert!(frames.into_iter().eq(expected), "frames changed on their way");
    }
    pair.finish().await;
}

/// Frames that a sink appends in `on_open` arrive first.
pub async fn frames_appended_while_opening_arrive(setup: Setup) {
    let (a, b) = (Recorder::new(1).greeting(b"from a"), Recorder::new(2).greeting(b"from b"));
    let pair = setup.connect_as(a, b).await;
    let nonce = pair.to_b.link().nonce;
    assert_eq!(pair.a.frames(nonce, 1).await[0].1.as_ref(), b"from b");
    assert_eq!(pair.b.frames(nonce, 1).await[0].1.as_ref(), b"from a");
    pair.finish().await;
}

/// A frame above what the peer takes is refused before it is written, and changes nothing.
pub async fn too_large_a_frame_is_refused(setup: Setup) {
    let pair = setup.connect_as(Recorder::new(1), Recorder::new(2).taking(10_000)).await;
    let refused = NotWritable::TooLarge { size: 10_001, limit: 10_000 };
    for lane in [Lane::Control, Lane::Data] {
        assert_eq!(pair.to_b.append_bytes(lane, b"1", pattern(0, 10_000)), Err(refused));
        assert_eq!(pair.to_b.append_copy(lane, b"1", &pattern(0, 10_000)), Err(refused));
    }
    send(&pair.to_b, Lane::Data, &pattern(0, 10_000)).await;
    let frames = pair.b.frames(pair.to_a.link().nonce, 1).await;
    assert_eq!(frames, [(Lane::Data, pattern(0, 10_000))]);
    pair.finish().await;
}

/// Frames and bytes that one end counts as sent, the other counts as received.
pub async fn counters_of_both_ends_add_up(setup: Setup) {
    const COUNT: usize = 1_000;
    let pair = setup.connect().await;
    let mut payload_bytes = 0;
    for number in 0..COUNT {
        let frame = pattern(number, number * 13 % 5_000);
        payload_bytes += frame.len() as u64;
        send(&pair.to_b, Lane::Data, &frame).await;
        if number % 10 == 0 {
            send(&pair.to_a, Lane::Control, &frame).await;
        }
    }
    pair.b.frames(pair.to_a.link().nonce, COUNT).await;
    // What waits for a task of the transport is counted nowhere yet.
    flushed(&pair.to_a).await;
    flushed(&pair.to_b).await;
    settled(&pair).await;
    let (at_a, at_b) = (pair.to_b.counters(), pair.to_a.counters());
    assert_eq!((at_a.frames_sent, at_b.frames_sent), (COUNT as u64, COUNT as u64 / 10));
    assert_eq!((at_a.frames_received, at_b.frames_received), (COUNT as u64 / 10, COUNT as u64));
    assert!(at_a.bytes_sent >= payload_bytes, "{at_a:?}");
    pair.finish().await;
}

/// Threads that append and flush at the same time lose nothing, and each keeps its order.
pub async fn threads_that_send_at_once_lose_nothing(setup: Setup) {
    const THREADS: u32 = 4;
    const COUNT: u32 = 1_000;
    fn send_all(connection: &Arc<dyn Connection>, thread: u32) {
        for number in 0..COUNT {
            let frame = [thread.to_le_bytes(), number.to_le_bytes()].concat();
            while let Err(error) = connection.append_copy(Lane::Data, &[], &frame) {
                assert_eq!(error, NotWritable::Full);
                std::thread::yield_now();
            }
            connection.flush();
        }
    }
    let pair = setup.connect().await;
    let start = |thread| {
        let connection = Arc::clone(&pair.to_b);
        std::thread::spawn(move || send_all(&connection, thread))
    };
    let threads: Vec<_> = (0..THREADS).map(start).collect();
    let frames = pair.b.frames(pair.to_a.link().nonce, (THREADS * COUNT) as usize).await;
    threads.into_iter().for_each(|thread| thread.join().expect("sending ends"));
    for thread in 0..THREADS {
        let of_thread = frames.iter().filter(|(_, frame)| frame[..4] == thread.to_le_bytes());
        let numbers = of_thread.map(|(_, frame)| frame[4..].to_vec());
        assert!(numbers.eq((0..COUNT).map(|number| number.to_le_bytes().to_vec())));
    }
    flushed(&pair.to_b).await;
    assert_eq!(pair.to_b.counters().frames_sent, u64::from(THREADS * COUNT));
    pair.finish().await;
}

/// Waits until nothing is on its way any more, by what the counters say.
async fn settled(pair: &Pair) {
    let settled = async {
        loop {
            let (at_a, at_b) = (pair.to_b.counters(), pair.to_a.counters());
            let there =
                (at_a.frames_sent, at_a.bytes_sent) == (at_b.frames_received, at_b.bytes_received);
            let back =
                (at_b.frames_sent, at_b.bytes_sent) == (at_a.frames_received, at_a.bytes_received);
            if there && back {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(PATIENCE, settled).await.is_err() {
        let (at_a, at_b) = (pair.to_b.counters(), pair.to_a.counters());
        panic!("the counters do not add up: {at_a:?} and {at_b:?}");
    }
}
