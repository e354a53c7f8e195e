//! Effects of the simulated network on connections, under a paused clock: every time is exact.

mod hooks;
mod support;

use std::sync::Arc;
use std::time::Duration;

use self::support::{Pair, connect, dial, listen, ms, node, send};
use convoke_sim::transport::{Conditions, SimNetwork, Timing, dilate};
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, DialError, Lane, ListenError, NotWritable};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_frame_takes_exactly_the_latency_of_its_way() {
    let network = SimNetwork::new(1);
    network.latency(node(1), node(2), ms(10));
    network.latency(node(2), node(1), ms(7));
    let start = Instant::now();
    let pair = connect(&network).await;
    assert_eq!(start.elapsed(), ms(17), "a hello there and a hello back");

    let start = Instant::now();
    send(&pair.to_b, Lane::Data, b"there");
    pair.b.frames(pair.nonce(), 1).await;
    assert_eq!(start.elapsed(), ms(10));
    send(&pair.to_a, Lane::Data, b"back");
    pair.a.frames(pair.nonce(), 1).await;
    assert_eq!(start.elapsed(), ms(17));

    let start = Instant::now();
    pair.to_b.close(CloseReason::Local);
    pair.b.closed(pair.nonce()).await;
    assert_eq!(start.elapsed(), ms(10));
    pair.a.closed(pair.nonce()).await;
    assert_eq!(start.elapsed(), ms(17), "a gentle close waits for the other end's");
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn a_simulated_microsecond_can_be_a_step_of_the_clock() {
    let network = SimNetwork::new(1);
    network.default_latency(dilate(Duration::from_micros(3)));
    let pair = connect(&network).await;
    let start = Instant::now();
    for number in 1..=5 {
        send(&pair.to_b, Lane::Data, b"there");
        pair.b.frames(pair.nonce(), number).await;
        send(&pair.to_a, Lane::Data, b"back");
        pair.a.frames(pair.nonce(), number).await;
    }
    assert_eq!(start.elapsed(), dilate(Duration::from_micros(30)));
}

#[tokio::test(start_paused = true)]
async fn without_latency_no_time_passes() {
    let network = SimNetwork::new(1);
    let start = Instant::now();
    let pair = connect(&network).await;
    for number in 1..=100 {
        send(&pair.to_b, Lane::Data, b"there");
        pair.b.frames(pair.nonce(), number).await;
    }
    pair.to_b.close(CloseReason::Local);
    pair.a.closed(pair.nonce()).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lane_stays_in_order_when_the_latency_shrinks_and_jitters() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    for number in 0..200_u8 {
        let latency = ms(u64::from(200 - number));
        let conditions = Conditions { latency, jitter: ms(50), ..Conditions::default() };
        network.conditions(node(1), node(2), conditions);
        send(&pair.to_b, Lane::Data, &[number]);
    }
    let frames = pair.b.frames(pair.nonce(), 200).await;
    assert!(frames.iter().map(|(_, bytes)| bytes[0]).eq(0..200));
}

#[tokio::test(start_paused = true)]
async fn control_that_arrives_with_data_comes_first() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    let pair = connect(&network).await;
    for (lane, text) in [(Lane::Data, b"data"), (Lane::Control, b"ctrl")] {
        send(&pair.to_b, lane, text);
    }
    let lanes: Vec<_> = pair.b.frames(pair.nonce(), 2).await.iter().map(|frame| frame.0).collect();
    assert_eq!(lanes, [Lane::Control, Lane::Data]);
}

#[tokio::test(start_paused = true)]
async fn bandwidth_is_shared_by_data_and_free_for_control() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let conditions =
        Conditions { latency: ms(10), bandwidth: Some(1_000_000), ..Conditions::default() };
    network.conditions(node(1), node(2), conditions);
    let start = Instant::now();
    // With its 16 bytes of overhead each takes 1 ms at 1 MB/s.
    (0..3).for_each(|_| send(&pair.to_b, Lane::Data, &[7; 984]));
    send(&pair.to_b, Lane::Control, &[7; 984]);
    for (count, time) in [(1, ms(10)), (2, ms(11)), (3, ms(12)), (4, ms(13))] {
        pair.b.frames(pair.nonce(), count).await;
        assert_eq!(start.elapsed(), time);
    }
}

#[tokio::test(start_paused = true)]
async fn every_frame_is_counted_once_on_its_way() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    assert_eq!(network.total_traffic().frames(), 0, "a hello is no frame");
    send(&pair.to_b, Lane::Data, b"12345");
    send(&pair.to_b, Lane::Control, b"1");
    send(&pair.to_a, Lane::Data, b"");
    pair.b.frames(pair.nonce(), 2).await;
    let there = network.traffic(node(1), node(2));
    assert_eq!((there.data_frames, there.control_frames, there.bytes), (1, 1, 5 + 1 + 2 * 16));
    assert_eq!(network.traffic(node(2), node(1)).frames(), 1);
    assert_eq!(network.total_traffic().frames(), 3);
    assert_eq!(network.traffic(node(2), node(3)).frames(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_both_ends_at_once_and_can_be_dialled_over() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    let pair = connect(&network).await;
    send(&pair.to_b, Lane::Data, b"in flight");
    assert_eq!(network.cut(node(2), node(1)), 1);
    let start = Instant::now();
    for sink in [&pair.a, &pair.b] {
        assert!(matches!(sink.closed(pair.nonce()).await, CloseReason::Network(_)));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(pair.b.frame_count(pair.nonce()), 0);
    let refused = pair.to_b.append_copy(Lane::Data, &[], &[1]);
    assert_eq!(refused, Err(NotWritable::Closed));
    assert_eq!(network.cut(node(1), node(2)), 0);
    let again = dial(&network, &*pair.listener, &pair.a).await.unwrap();
    assert_ne!(again.link().nonce, pair.nonce());
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn a_lost_frame_ends_the_connection_and_later_frames_do_not_arrive() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let conditions = Conditions { loss: 0.05, ..Conditions::default() };
    network.conditions(node(1), node(2), conditions);
    let mut sent = 0;
    while pair.to_b.append_bytes(Lane::Data, &[], vec![sent].into()).is_ok() {
        pair.to_b.flush();
        sent += 1;
        tokio::task::yield_now().await;
    }
    for sink in [&pair.a, &pair.b] {
        let reason = sink.closed(pair.nonce()).await;
        assert_eq!(reason, CloseReason::Network("a frame was lost".into()));
    }
    let frames = pair.b.seen(pair.nonce()).unwrap().frames;
    assert!(frames.len() < usize::from(sent), "the last of {sent} was lost");
    assert!(frames.iter().enumerate().all(|(number, (_, bytes))| usize::from(bytes[0]) == number));
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_frames_back_one_way_until_it_heals() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    let pair = connect(&network).await;
    network.partition(node(1), node(2));
    send(&pair.to_b, Lane::Data, b"held");
    send(&pair.to_a, Lane::Data, b"the other way");
    pair.a.frames(pair.nonce(), 1).await;
    sleep(ms(3_000)).await;
    assert_eq!(pair.b.frame_count(pair.nonce()), 0);
    let start = Instant::now();
    network.heal(node(1), node(2));
    pair.b.frames(pair.nonce(), 1).await;
    assert_eq!(start.elapsed(), ms(5));
    assert_eq!(pair.b.seen(pair.nonce()).unwrap().closed, None);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_hears_nothing_closes_and_the_other_hears_why() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    network.timing(Timing { keep_alive_timeout: ms(400), ..Timing::default() });
    let pair = connect(&network).await;
    let start = Instant::now();
    network.partition(node(1), node(2));
    assert_eq!(pair.b.closed(pair.nonce()).await, CloseReason::KeepAlive);
    assert_eq!(start.elapsed(), ms(400));
    assert!(matches!(pair.a.closed(pair.nonce()).await, CloseReason::Peer(_)));
    assert_eq!(start.elapsed(), ms(405));

    network.heal_all();
    let again = dial(&network, &*pair.listener, &pair.a).await.unwrap();
    let nonce = again.link().nonce;
    network.partition(node(1), node(2));
    network.partition(node(2), node(1));
    for sink in [&pair.a, &pair.b] {
        assert_eq!(sink.closed(nonce).await, CloseReason::KeepAlive);
    }
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_healed_before_anything_arrives_is_one_silence() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(10));
    network.timing(Timing { keep_alive_timeout: ms(400), ..Timing::default() });
    let pair = connect(&network).await;
    let start = Instant::now();
    let flap = async {
        loop {
            network.partition(node(1), node(2));
            sleep(ms(150)).await;
            network.heal(node(1), node(2));
            sleep(ms(5)).await;
        }
    };
    tokio::select! {
        () = flap => {}
        reason = pair.b.closed(pair.nonce()) => assert_eq!(reason, CloseReason::KeepAlive),
    }
    assert_eq!(start.elapsed(), ms(400), "nothing came through");

    network.heal_all();
    let again = dial(&network, &*pair.listener, &pair.a).await.unwrap();
    for _ in 0..5 {
        network.partition(node(1), node(2));
        sleep(ms(350)).await;
        network.heal(node(1), node(2));
        sleep(ms(10)).await; // A keep-alive has come.
    }
    assert_eq!(pair.b.seen(again.link().nonce).unwrap().closed, None);
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn a_dial_through_a_partition_times_out_or_succeeds_once_healed() {
    let network = SimNetwork::new(1);
    let b = Arc::new(Recorder::new(2));
    let listener = listen(&network, &b).await;
    let a = Arc::new(Recorder::new(1));
    for (from, to) in [(node(1), node(2)), (node(2), node(1))] {
        network.partition(from, to);
        let start = Instant::now();
        let dialled = dial(&network, &*listener, &a).await;
        assert!(matches!(dialled, Err(DialError::Timeout { .. })), "{dialled:?}");
        assert_eq!(start.elapsed(), Timing::default().dial_timeout);
        let healing = network.clone();
        tokio::spawn(async move {
            sleep(ms(500)).await;
            healing.heal(from, to);
        });
        let start = Instant::now();
        dial(&network, &*listener, &a).await.unwrap();
        assert_eq!(start.elapsed(), ms(500));
    }
    // The way there was open the second time: what opened there was given up again.
    let given_up = b.opened(1).await.link().nonce;
    assert!(matches!(b.closed(given_up).await, CloseReason::Peer(_)));
    a.check();
    b.check();
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_is_dropped_leaves_no_connection_behind() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = listen(&network, &b).await;
    let dropped = tokio::time::timeout(ms(7), dial(&network, &*listener, &a)).await;
    assert!(dropped.is_err());
    let opened = b.opened(0).await.link().nonce;
    assert!(matches!(b.closed(opened).await, CloseReason::Peer(_)));
    assert_eq!(a.opened_count(), 0);
    b.check();
}

/// A client may be in no connection at the moment: its first dial is on its way, or its last
/// connection has ended.
#[tokio::test(start_paused = true)]
async fn a_node_that_crashes_without_a_connection_does_not_come_back() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(10));
    let (server, client) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = listen(&network, &server).await;
    let crash = async {
        sleep(ms(5)).await;
        network.crash(node(2));
    };
    let (dialled, ()) = tokio::join!(dial(&network, &*listener, &client), crash);
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");

    let between = Arc::new(Recorder::new(3));
    let connection = dial(&network, &*listener, &between).await.unwrap();
    let nonce = connection.link().nonce;
    drop(connection);
    network.cut(node(1), node(3));
    between.closed(nonce).await;
    sleep(ms(50)).await;
    network.crash(node(3));
    let dialled = dial(&network, &*listener, &between).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_lets_out_what_was_sent_and_ends_everything_of_that_life() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    let Pair { a, b, to_b, to_a, listener } = connect(&network).await;
    let nonce = to_b.link().nonce;
    send(&to_a, Lane::Data, b"last words");
    send(&to_b, Lane::Data, b"too late");
    let start = Instant::now();
    network.crash(node(2));
    assert!(matches!(b.closed(nonce).await, CloseReason::Network(_)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(matches!(a.closed(nonce).await, CloseReason::Network(_)));
    assert_eq!(start.elapsed(), ms(5));
    assert_eq!(a.frame_count(nonce), 1);
    assert_eq!(b.frame_count(nonce), 0);

    let dialled = dial(&network, &*listener, &a).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");
    let same_life = Arc::new(Recorder::new(2));
    let address = "sim://again".parse().unwrap();
    let refused = network.transport().listen(&address, same_life.clone()).await;
    assert!(matches!(refused, Err(ListenError::Bind { .. })), "{refused:?}");
    let other = listen(&network, &a).await;
    let dialled = dial(&network, &*other, &same_life).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");

    let next_life = Arc::new(Recorder::new(2));
    next_life.say(|hello| hello.incarnation.0 += 1);
    let again = network.transport().listen(&listener.local_address(), next_life).await.unwrap();
    drop(listener);
    dial(&network, &*again, &a).await.unwrap();
    a.check();
    b.check();
}

#[tokio::test(start_paused = true)]
async fn a_silent_crash_is_known_by_the_keep_alive_alone() {
    let network = SimNetwork::new(1);
    network.default_latency(ms(5));
    network.timing(Timing { keep_alive_timeout: ms(400), ..Timing::default() });
    let Pair { a, b, to_b, to_a, listener } = connect(&network).await;
    let nonce = to_b.link().nonce;
    send(&to_a, Lane::Data, b"last words");
    let start = Instant::now();
    network.crash_silently(node(2));
    assert!(matches!(b.closed(nonce).await, CloseReason::Network(_)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    send(&to_b, Lane::Data, b"to nobody");
    sleep(ms(50)).await;
    // Nothing more comes that a partition could hold.
    network.partition(node(2), node(1));
    sleep(ms(100)).await;
    network.heal_all();
    assert_eq!(a.closed(nonce).await, CloseReason::KeepAlive);
    assert_eq!(start.elapsed(), ms(405), "after the last words had come");
    assert_eq!((a.frame_count(nonce), b.frame_count(nonce)), (1, 0));

    let start = Instant::now();
    let dialled = dial(&network, &*listener, &a).await;
    assert!(matches!(dialled, Err(DialError::Timeout { .. })), "{dialled:?}");
    assert_eq!(start.elapsed(), Timing::default().dial_timeout);
    let next_life = Arc::new(Recorder::new(2));
    next_life.say(|hello| hello.incarnation.0 += 1);
    let address = listener.local_address();
    let again = network.transport().listen(&address, next_life.clone()).await.unwrap();
    drop(listener);
    let nonce = dial(&network, &*again, &a).await.unwrap().link().nonce;

    // What a partition holds comes when that ends, and the silence begins then.
    network.partition(node(2), node(1));
    send(&next_life.opened(0).await, Lane::Data, b"last words");
    let start = Instant::now();
    network.crash_silently(node(2));
    sleep(ms(200)).await;
    network.heal_all();
    assert_eq!(a.closed(nonce).await, CloseReason::KeepAlive);
    assert_eq!((start.elapsed(), a.frame_count(nonce)), (ms(605), 1));
    a.check();
    b.check();
}

#[tokio::test(start_paused = true)]
async fn a_close_does_not_wait_longer_than_the_grace() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    network.partition(node(1), node(2));
    let start = Instant::now();
    pair.to_b.close(CloseReason::Local);
    assert_eq!(pair.a.closed(pair.nonce()).await, CloseReason::Local);
    assert_eq!(start.elapsed(), Timing::default().close_grace);
    network.heal(node(1), node(2));
    assert!(matches!(pair.b.closed(pair.nonce()).await, CloseReason::Peer(_)));
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn every_time_may_be_without_end() {
    let network = SimNetwork::new(1);
    let most = Duration::MAX;
    let timing = Timing { dial_timeout: most, close_grace: most, keep_alive_timeout: most };
    network.timing(timing);
    let pair = connect(&network).await;
    network.partition(node(1), node(2));
    send(&pair.to_b, Lane::Data, b"held");
    pair.to_b.close(CloseReason::Local);
    sleep(ms(3_600_000)).await;
    for sink in [&pair.a, &pair.b] {
        assert_eq!(sink.seen(pair.nonce()).unwrap().closed, None);
    }
    network.heal_all();
    pair.a.closed(pair.nonce()).await;

    let again = dial(&network, &*pair.listener, &pair.a).await.unwrap();
    network.default_conditions(Conditions { latency: most, jitter: most, ..Conditions::default() });
    send(&again, Lane::Data, b"on its way");
    sleep(ms(3_600_000)).await;
    assert_eq!(pair.b.frame_count(again.link().nonce), 0);
    network.crash(node(1));
    network.partition(node(1), node(2));
    network.heal_all();
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn an_address_is_taken_once_and_free_again_after_a_close() {
    let network = SimNetwork::new(1);
    let transport = network.transport();
    let sink = Arc::new(Recorder::new(1));
    let (fixed, chosen) = ("sim://here".parse().unwrap(), "sim://here:0".parse().unwrap());
    let first = transport.listen(&fixed, sink.clone()).await.unwrap();
    let taken = transport.listen(&fixed, sink.clone()).await;
    assert!(matches!(taken, Err(ListenError::Bind { .. })), "{taken:?}");
    let names = [
        transport.listen(&chosen, sink.clone()).await.unwrap(),
        transport.listen(&chosen, sink.clone()).await.unwrap(),
    ];
    assert_eq!(
        names.map(|listener| listener.local_address().to_string()),
        ["sim://here:1", "sim://here:2"]
    );
    first.close();
    transport.listen(&fixed, sink.clone()).await.unwrap();
    let elsewhere = transport.listen(&"tcp://here".parse().unwrap(), sink).await;
    assert!(matches!(elsewhere, Err(ListenError::NoTransport { .. })), "{elsewhere:?}");
}

#[test]
fn the_end_of_the_runtime_is_an_end() {
    let network = SimNetwork::new(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let pair = runtime.block_on(connect(&network));
    drop(runtime);
    for sink in [&pair.a, &pair.b] {
        assert!(sink.seen(pair.nonce()).unwrap().closed.is_some());
    }
    pair.check();
}
