//! Credits: every message finds a receive, whatever the number of slots, and a slow sink stops its
//! sender only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{PATIENCE, Recorder, flushed, pattern, send, writable};
use convoke_transport::{Appended, Connection, Lane, NotWritable};
use convoke_transport_rdma::PollMode;
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};

use crate::support::{Ends, ends_with, is_ready, until};

/// Sends frames of one message each.
async fn send_many(to: Arc<dyn Connection>, count: usize, seed: usize) {
    for number in 0..count {
        send(&to, Lane::Data, &pattern(seed + number, 600)).await;
    }
}

/// Both ends send so many messages each at once, in slots of 1 KiB.
async fn saturate(fabric: Fabric, slots: u16, count: usize) -> Ends {
    let ends = ends_with(fabric, DeviceSettings::default(), |builder| {
        builder.slots(slots).slot_bytes(1 << 10)
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a.clone(), &b).await;
    let senders = [(&link.to_b, 0), (&link.to_a, count)]
        .map(|(to, seed)| tokio::spawn(send_many(Arc::clone(to), count, seed)));
    for sender in senders {
        sender.await.expect("sending ends");
    }
    let nonce = link.to_b.link().nonce;
    for (sink, seed) in [(&b, 0), (&a, count)] {
        let frames = sink.frames(nonce, count).await;
        let expected = (0..count).map(|number| (Lane::Data, pattern(seed + number, 600)));
        assert!(frames.into_iter().eq(expected), "frames were lost or changed");
    }
    ends.check();
    ends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_messages_find_their_receives_with_any_number_of_slots() {
    for slots in [1, 2, 8, 32] {
        // Each way more than the 16 bits of a window count to.
        let ends = saturate(Fabric::new(), slots, 70_000).await;
        let delivered = ends.fabric.counters().delivered;
        println!("{slots} slots: {delivered} messages");
        assert!(delivered >= 140_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_slots_serve_as_well() {
    saturate(Fabric::new(), 1_024, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_late_find_their_receives() {
    for (seed, slots) in [(1, 1), (2, 3), (3, 32)] {
        println!("seed {seed}, {slots} slots");
        saturate(Fabric::seeded(seed), slots, 2_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_around_every_limit_arrive_whole() {
    const INLINE: usize = 220;
    const SLOT: usize = 8 << 10;
    const CAP: usize = 1 << 20;
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| builder);
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a, &b).await;
    // A header of 4 bytes goes before a frame that is alone in its message, and where it is copied
    // a word of 4.
    let around = |edge: usize| edge - 14..=edge + 1;
    let edges = [INLINE, 1_024, SLOT, 2 * SLOT, 100 * SLOT];
    let sizes = [0, 1].into_iter().chain(edges.into_iter().flat_map(around)).chain([CAP - 1, CAP]);
    let sizes: Vec<_> = sizes.collect();
    for (seed, size) in sizes.iter().enumerate() {
        send(&link.to_b, Lane::Data, &pattern(seed, *size)).await;
        flushed(&link.to_b).await;
    }
    let frames = b.frames(link.to_a.link().nonce, sizes.len()).await;
    for (seed, (size, (_, frame))) in sizes.iter().zip(&frames).enumerate() {
        assert!(*frame == pattern(seed, *size), "the frame of {size} bytes changed");
    }
    let refused = link.to_b.append_bytes(Lane::Data, &[], pattern(0, CAP + 1));
    assert_eq!(refused, Err(NotWritable::TooLarge { size: CAP + 1, limit: CAP }));
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sink_that_does_not_take_stops_its_sender_and_loses_nothing() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder
            .send_buffer_bytes_soft(32 << 10)
            .frame_bytes_max(64 << 10)
            .send_buffer_bytes_hard(96 << 10)
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a, &b).await;
    b.gate().shut();
    let mut count = 0;
    loop {
        match link.to_b.append_bytes(Lane::Data, &[], pattern(count, 4_000)) {
            Ok(Appended::Full) if !is_ready(|cx| link.to_b.poll_writable(Lane::Data, cx)).await => {
                count += 1;
                break;
            }
            Ok(_) => count += 1,
            Err(error) => panic!("a writable lane takes a frame: {error}"),
        }
        link.to_b.flush();
        tokio::task::yield_now().await;
    }
    // What is under way is bounded by the slots of the receiver, and what waits by the buffer of
    // the sender.
    assert!(count <= 32 + 32 + 8 + 2, "{count} frames were taken");
    assert_eq!(b.frame_count(link.to_a.link().nonce), 0);
    b.gate().open();
    writable(&link.to_b, Lane::Data).await;
    send(&link.to_b, Lane::Data, &Bytes::from_static(b"last")).await;
    let frames = b.frames(link.to_a.link().nonce, count + 1).await;
    let sent = (0..count).map(|number| pattern(number, 4_000));
    let sent = sent.chain([Bytes::from_static(b"last")]);
    assert!(frames.into_iter().map(|(_, frame)| frame).eq(sent));
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sink_that_takes_again_gives_credit_without_being_probed() {
    const COUNT: usize = 50;
    let hour = Duration::from_secs(3_600);
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder.slots(4).keep_alive_interval(hour).keep_alive_timeout(3 * hour)
    });
    let [a, b, c] = [1, 2, 3].map(|node| Arc::new(Recorder::new(node)));
    let (link, other) = (ends.connect(a.clone(), &b).await, ends.connect(a, &c).await);
    b.gate().shut();
    for (round, numbers) in [0..1, 1..COUNT].into_iter().enumerate() {
        for number in numbers {
            let appended = link.to_b.append_bytes(Lane::Data, &[], pattern(number, 4_000));
            assert_eq!(appended, Ok(Appended::Writable));
            link.to_b.flush();
        }
        // Gets through when the engine that the sink blocks has been relieved, and its relief has
        // seen what came before.
        send(&other.to_b, Lane::Data, &Bytes::from_static(b"past it")).await;
        c.frames(other.to_a.link().nonce, round + 1).await;
    }
    assert_eq!(b.frame_count(link.to_a.link().nonce), 0);
    b.gate().open();
    let frames = b.frames(link.to_a.link().nonce, COUNT).await;
    assert!(frames.into_iter().map(|(_, frame)| frame).eq((0..COUNT).map(|n| pattern(n, 4_000))));
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sink_that_blocks_an_engine_that_never_sleeps_holds_up_no_other_connection() {
    // Probes tell the time: between two of them nothing happens for longer than deliveries are
    // watched.
    let interval = Duration::from_millis(50);
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        let builder = builder.keep_alive_interval(interval).keep_alive_timeout(PATIENCE);
        builder.poll_mode(PollMode::Busy)
    });
    let [a, b, c] = [1, 2, 3].map(|node| Arc::new(Recorder::new(node)));
    let (link, other) = (ends.connect(a.clone(), &b).await, ends.connect(a, &c).await);
    until("both were probed", || ends.fabric.counters().probes >= 8).await;
    b.gate().shut();
    send(&link.to_b, Lane::Data, &Bytes::from_static(b"stays")).await;
    send(&other.to_b, Lane::Data, &Bytes::from_static(b"past it")).await;
    c.frames(other.to_a.link().nonce, 1).await;
    assert_eq!(b.frame_count(link.to_a.link().nonce), 0);
    b.gate().open();
    b.frames(link.to_a.link().nonce, 1).await;
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_waits_for_room_is_woken_though_the_sink_of_the_connection_is_slow() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder
            .slots(2)
            .send_buffer_bytes_soft(32 << 10)
            .frame_bytes_max(64 << 10)
            .send_buffer_bytes_hard(96 << 10)
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(Arc::clone(&a) as _, &b).await;
    a.gate().shut();
    send(&link.to_a, Lane::Data, &Bytes::from_static(b"stays")).await;
    flushed(&link.to_a).await;
    // More than there is credit for: the rest goes when the peer has given some back.
    for _ in 0..2 {
        let fill = || link.to_b.append_bytes(Lane::Data, &[], pattern(0, 4_000));
        while fill() == Ok(Appended::Writable) {}
        link.to_b.flush();
        writable(&link.to_b, Lane::Data).await;
    }
    flushed(&link.to_b).await;
    assert_eq!(a.frame_count(link.to_b.link().nonce), 0, "its sink is slow");
    a.gate().open();
    a.frames(link.to_b.link().nonce, 1).await;
    ends.check();
}
