//! Hooks on the simulated network: what they see, and what becomes of frames and connections.

use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::id::{CallId, Incarnation, MethodId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{Frame, Header, Message, Reply, ReplyRoute, Request};
use convoke_sim::transport::{Action, Conditions, SimNetwork, Timing};
use convoke_transport::{CloseReason, Lane};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::support::{Pair, connect, dial, ms, node, send};

/// Frames that node 2 has received of node 1 on the connection, as text.
async fn texts(pair: &Pair, count: usize) -> Vec<String> {
    let frames = pair.b.frames(pair.nonce(), count).await;
    frames.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
}

fn send_all(pair: &Pair, texts: &[&str]) {
    texts.iter().for_each(|text| send(&pair.to_b, Lane::Data, text.as_bytes()));
}

/// Lets everything go that needs no time.
async fn settle() {
    sleep(ms(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_sees_both_ways_and_lets_all_pass() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = network.hook(node(2), node(1), {
        let seen = Arc::clone(&seen);
        move |frame| {
            let what = (frame.from().get(), frame.to().get(), frame.lane(), frame.connection());
            seen.lock().push((what, frame.bytes().clone()));
            Action::Pass
        }
    });
    let others = network.hook(node(1), node(3), |_| Action::Drop);
    send(&pair.to_b, Lane::Data, b"there");
    texts(&pair, 1).await;
    send(&pair.to_a, Lane::Control, b"back");
    pair.a.frames(pair.nonce(), 1).await;
    let there = ((1, 2, Lane::Data, pair.nonce()), Bytes::from_static(b"there"));
    let back = ((2, 1, Lane::Control, pair.nonce()), Bytes::from_static(b"back"));
    assert_eq!(*seen.lock(), [there, back]);
    drop((hook, others));
    send(&pair.to_b, Lane::Data, b"unseen");
    texts(&pair, 2).await;
    assert_eq!(seen.lock().len(), 2, "a hook that was removed sees nothing");
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn frames_are_dropped_doubled_and_replaced() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let _hook = network.hook_all(|frame| match &frame.bytes()[..] {
        b"drop" => Action::Drop,
        b"double" => Action::Duplicate,
        b"replace" => Action::Replace(Bytes::from_static(b"other")),
        _ => Action::Pass,
    });
    send_all(&pair, &["first", "drop", "double", "replace", "last"]);
    assert_eq!(texts(&pair, 5).await, ["first", "double", "double", "other", "last"]);
    assert_eq!(network.traffic(node(1), node(2)).data_frames, 5, "as sent");
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_holds_is_passed_by_the_rest_of_its_lane() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let hook = network.hook_all(|frame| match frame.bytes()[0] {
        b'h' => Action::Hold,
        b't' => Action::HoldFor(ms(30)),
        _ => Action::Pass,
    });
    let start = Instant::now();
    send_all(&pair, &["h1", "t1", "h2", "a", "b"]);
    assert_eq!(texts(&pair, 2).await, ["a", "b"]);
    assert_eq!(hook.held(), 3);
    assert_eq!(texts(&pair, 3).await[2], "t1");
    assert_eq!(start.elapsed(), ms(30));
    assert_eq!(hook.release(), 2);
    assert_eq!(texts(&pair, 5).await[3..], ["h1", "h2"]);
    send_all(&pair, &["h3", "t2"]);
    settle().await;
    assert_eq!(hook.held(), 2);
    drop(hook);
    assert_eq!(texts(&pair, 7).await[5..], ["h3", "t2"], "a hook that is removed lets go");
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn hooks_are_asked_in_turn_and_a_held_frame_goes_on_behind_its_own() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let replace = |text: &'static str| Action::Replace(Bytes::from_static(text.as_bytes()));
    let _first = network.hook_all(move |frame| match &frame.bytes()[..] {
        b"a" => replace("b"),
        other => panic!("it sees what was sent alone, not {other:?}"),
    });
    let second = network.hook_all(|_| Action::Hold);
    let _third = network.hook_all(move |frame| {
        assert_eq!(frame.bytes(), "b");
        Action::Duplicate
    });
    let _fourth = network.hook_all(move |_| replace("c"));
    send_all(&pair, &["a"]);
    settle().await;
    assert_eq!((pair.b.frame_count(pair.nonce()), second.release()), (0, 1));
    assert_eq!(texts(&pair, 2).await, ["c", "c"]);
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_asked_behind_latency_and_partitions() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let hook = network.hook_all({
        let arrivals = Arc::clone(&arrivals);
        move |frame| {
            arrivals.lock().push(Instant::now());
            if frame.bytes() == "hold" { Action::HoldFor(ms(5)) } else { Action::Pass }
        }
    });
    network.latency(node(1), node(2), ms(10));
    let start = Instant::now();
    send_all(&pair, &["hold"]);
    sleep(ms(12)).await;
    assert_eq!(*arrivals.lock(), [start + ms(10)]);
    // What is due at 15 ms is held up by the partition, and comes one latency behind its end.
    network.partition(node(1), node(2));
    send_all(&pair, &["during"]);
    sleep(ms(100)).await;
    assert_eq!(hook.release(), 1);
    sleep(ms(8)).await;
    assert_eq!((arrivals.lock().len(), pair.b.frame_count(pair.nonce())), (1, 0));
    network.heal(node(1), node(2));
    assert_eq!(texts(&pair, 2).await, ["hold", "during"]);
    assert_eq!(start.elapsed(), ms(130));
    assert_eq!(arrivals.lock().len(), 2, "what was let go is not asked about again");
    pair.check();
}

/// The end of a connection takes what is held with it, and is told as without a hook.
#[tokio::test(start_paused = true)]
async fn a_held_frame_of_a_connection_that_ended_is_gone() {
    type End = fn(&SimNetwork, &Pair);
    type Expected = fn(&CloseReason) -> bool;
    let cut: End = |network, _| assert_eq!(network.cut(node(1), node(2)), 1);
    let ends: [(End, Expected); 4] = [
        (cut, |r| matches!(r, CloseReason::Network(_))),
        (|network, _| network.crash(node(1)), |r| matches!(r, CloseReason::Network(_))),
        (|_, pair| pair.to_b.close(CloseReason::Local), |r| matches!(r, CloseReason::Peer(_))),
        (|_, pair| pair.to_a.close(CloseReason::Local), |r| *r == CloseReason::Local),
    ];
    for (end, is_expected) in ends {
        let network = SimNetwork::new(1);
        let pair = connect(&network).await;
        let hook = network.hook_all(|_| Action::Hold);
        send_all(&pair, &["held"]);
        settle().await;
        assert_eq!(hook.held(), 1);
        let start = Instant::now();
        end(&network, &pair);
        let reason = pair.b.closed(pair.nonce()).await;
        assert!(is_expected(&reason) && start.elapsed() < ms(1), "{reason:?}");
        pair.a.closed(pair.nonce()).await;
        assert_eq!((hook.held(), hook.release()), (0, 0));
        settle().await;
        assert_eq!(pair.b.frame_count(pair.nonce()), 0);
        pair.check();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_let_go_before_a_goodbye_arrives_before_it() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let hook = network.hook_all(|_| Action::Hold);
    send_all(&pair, &["held"]);
    settle().await;
    assert_eq!(hook.release(), 1);
    pair.to_b.close(CloseReason::Local);
    pair.b.closed(pair.nonce()).await;
    assert_eq!(texts(&pair, 1).await, ["held"]);
    pair.check();
}

/// Bounded by the window, so that a sender finds its lane full and no memory fills.
#[tokio::test(start_paused = true)]
async fn a_hook_holds_no_more_than_the_window() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let hook = network.hook_all(|_| Action::Hold);
    let mut sent = 0;
    let frame = vec![7; 64 << 10];
    while pair.to_b.append_copy(Lane::Data, &[], &frame).is_ok() {
        pair.to_b.flush();
        sent += 1;
        assert!(sent < 10_000, "nobody takes anything");
    }
    settle().await;
    let held = hook.held();
    assert!((1..=16).contains(&held), "{held} of 64 KiB in a window of 1 MiB");
    drop(hook);
    assert_eq!(pair.b.frames(pair.nonce(), sent).await.len(), sent);
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_gives_its_window_back() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let hook = network.hook_all(|_| Action::Drop);
    for _ in 0..100 {
        send(&pair.to_b, Lane::Data, &[7; 64 << 10]);
        settle().await;
    }
    drop(hook);
    send_all(&pair, &["after"]);
    assert_eq!(texts(&pair, 1).await, ["after"]);
    assert_eq!(pair.to_a.counters().frames_received, 1);
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_too_large_is_a_fault_of_its_sender() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let largest = usize::try_from(pair.to_b.link().peer.frame_bytes_max).expect("it fits");
    let large = Bytes::from(vec![7; largest + 1]);
    let _hook = network.hook_all(move |frame| match &frame.bytes()[..] {
        b"large" => Action::Replace(large.clone()),
        b"largest" => Action::Replace(large.slice(1..)),
        _ => Action::Pass,
    });
    send_all(&pair, &["largest", "large", "behind"]);
    assert!(matches!(pair.b.closed(pair.nonce()).await, CloseReason::Fault(_)));
    assert!(matches!(pair.a.closed(pair.nonce()).await, CloseReason::Peer(_)));
    assert_eq!(pair.b.frame_count(pair.nonce()), 1);
    pair.check();
}

/// No lock is held while a hook decides.
#[tokio::test(start_paused = true)]
async fn a_hook_may_end_the_connection_and_then_its_frame_is_lost() {
    let ends: [fn(&SimNetwork); 2] =
        [|network| assert_eq!(network.cut(node(1), node(2)), 1), |network| network.crash(node(2))];
    for end in ends {
        let network = SimNetwork::new(1);
        let pair = connect(&network).await;
        let _hook = network.hook_all({
            let network = network.clone();
            move |frame| {
                if frame.bytes() == "now" {
                    network.partition(node(2), node(3));
                    assert!(network.traffic(node(1), node(2)).frames() > 0);
                    end(&network);
                }
                Action::Pass
            }
        });
        send_all(&pair, &["before", "now", "behind"]);
        pair.b.closed(pair.nonce()).await;
        pair.a.closed(pair.nonce()).await;
        assert_eq!(pair.b.frame_count(pair.nonce()), 1);
        pair.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_remove_itself() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let itself = Arc::new(Mutex::new(None));
    let hook = network.hook_all({
        let itself = Arc::clone(&itself);
        move |_| {
            drop(itself.lock().take());
            Action::Hold
        }
    });
    *itself.lock() = Some(hook);
    send_all(&pair, &["one", "two"]);
    // Held by a hook that is gone, the first goes on at once.
    let mut texts = texts(&pair, 2).await;
    texts.sort();
    assert_eq!(texts, ["one", "two"]);
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn loss_comes_before_a_hook() {
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let _hook = network.hook_all(|frame| panic!("it arrives nowhere: {frame:?}"));
    network.conditions(node(1), node(2), Conditions { loss: 1.0, ..Conditions::default() });
    send_all(&pair, &["lost"]);
    assert!(matches!(pair.b.closed(pair.nonce()).await, CloseReason::Network(_)));
    pair.a.closed(pair.nonce()).await;
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn what_is_held_keeps_no_silent_connection_alive() {
    let network = SimNetwork::new(1);
    network.timing(Timing { keep_alive_timeout: ms(500), ..Timing::default() });
    let pair = connect(&network).await;
    let hook = network.hook_all(|_| Action::Hold);
    send_all(&pair, &["held"]);
    settle().await;
    network.partition(node(1), node(2));
    assert_eq!(pair.b.closed(pair.nonce()).await, CloseReason::KeepAlive);
    pair.a.closed(pair.nonce()).await;
    assert_eq!(hook.held(), 0);
    network.heal_all();
    drop(hook);
    let again = dial(&network, &*pair.listener, &pair.a).await.expect("node 2 listens");
    send(&again, Lane::Data, b"again");
    assert_eq!(pair.b.frames(again.link().nonce, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_frame_says_what_it_is() {
    let header = Header {
        call: CallId { origin: Incarnation(7), seq: 9 },
        task: TaskKey { path: Path::root(), hop: 0 },
    };
    let request = Request {
        key: Key(1),
        budget_us: 5_000_000,
        outlasted_us: 0,
        floor: 0,
        method: MethodId::of("shop.Stock/Reserve"),
        reply_route: ReplyRoute::Sender,
        inherited: Vec::new(),
        extensions: Vec::new(),
        payload: Bytes::from_static(b"two herons"),
    };
    let request = Frame::new(header.clone(), Message::Request(request));
    let reply = Message::Reply(Reply::sole(Bytes::from_static(b"reserved")));
    let reply = Frame::keyed(header.clone(), Key(1), reply);
    let network = SimNetwork::new(1);
    let pair = connect(&network).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let _hook = network.hook_all({
        let seen = Arc::clone(&seen);
        move |frame| {
            let is_reserve = frame.is_request_of("shop.Stock/Reserve");
            assert!(!frame.is_request_of("shop.Stock/Count"));
            let decoded = frame.decode().ok();
            seen.lock().push((frame.name(), frame.call(), frame.method(), is_reserve, decoded));
            Action::Pass
        }
    });
    for bytes in
        [request.to_bytes(), reply.to_bytes(), Bytes::from_static(b"\xffgarbled"), Bytes::new()]
    {
        send(&pair.to_b, Lane::Data, &bytes);
    }
    pair.b.frames(pair.nonce(), 4).await;
    let (call, method) = (Some(header.call), Some(MethodId::of("shop.Stock/Reserve")));
    let seen = seen.lock();
    assert_eq!(seen[0], ("REQUEST", call, method, true, Some(request)));
    assert_eq!(seen[1], ("REPLY", call, None, false, Some(reply)));
    for garbled in &seen[2..] {
        assert_eq!(*garbled, ("", None, None, false, None));
    }
    pair.check();
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_and_hooks_give_the_same_run() {
    async fn run() -> Vec<(u128, Vec<u8>)> {
        let network = SimNetwork::new(5);
        let conditions = Conditions { latency: ms(3), jitter: ms(20), ..Conditions::default() };
        network.default_conditions(conditions);
        let pair = connect(&network).await;
        let mut number = 0_u64;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let _recorded = network.hook_all({
            let (seen, start) = (Arc::clone(&seen), Instant::now());
            move |frame| {
                number += 1;
                seen.lock().push((start.elapsed().as_millis(), frame.bytes().to_vec()));
                match number % 4 {
                    0 => Action::HoldFor(ms(number)),
                    1 => Action::Duplicate,
                    _ => Action::Pass,
                }
            }
        });
        for byte in 0..100 {
            send(&pair.to_b, Lane::Data, &[byte]);
            send(&pair.to_a, Lane::Control, &[byte]);
            sleep(ms(2)).await;
        }
        sleep(ms(1_000)).await;
        let received = pair.b.frames(pair.nonce(), 100).await;
        let received = received.iter().map(|(_, bytes)| (0, bytes.to_vec()));
        let mut seen = std::mem::take(&mut *seen.lock());
        seen.extend(received);
        seen
    }
    assert_eq!(run().await, run().await);
}
