//! Large frames: what passes them and what does not, and that nothing of them is lost.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Hooked, Recorder, pattern, send};
use convoke_transport::{CloseReason, Lane, Order, Transport};

use quinn::SendStream;

use crate::raw::{Raw, word};
use crate::{Cluster, any};

/// A recorder that cares for the order of frames with the same first byte only; 0 is all.
fn by_first_byte(node: u64) -> Recorder {
    Recorder::new(node).ordering(|head| match head.first() {
        None | Some(0) => Order::Lane,
        Some(group) => Order::Group((*group).into()),
    })
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&word(0, bytes.len())[..], bytes].concat()
}

#[tokio::test]
async fn frames_of_other_calls_pass_a_large_one_and_those_of_its_own_do_not() {
    let cluster = Cluster::new();
    let sink = Arc::new(by_first_byte(2));
    let listener = cluster.node(2).listen(&any(), Arc::clone(&sink) as _).await;
    let listener = listener.expect("a port is free");
    let mut raw = Raw::hello(&listener.local_address(), &cluster.issue(9), 9).await;
    let nonce = sink.opened(0).await.link().nonce;

    let large = [1; 100_000];
    raw.send(&[&word(1, large.len())[..], &large[..152]].concat()).await;
    raw.send(&[frame(b"\x01 waits"), frame(b"\x02 passes"), frame(b"\x03 passes")].concat()).await;
    let passed = sink.frames(nonce, 2).await;
    let bytes = |frames: &[(Lane, Bytes)]| -> Vec<Bytes> {
        frames.iter().map(|frame| frame.1.clone()).collect()
    };
    assert_eq!(bytes(&passed), [&b"\x02 passes"[..], b"\x03 passes"]);

    // From here on everything waits, since this one keeps its order with all.
    raw.send(&[frame(b"\0 bars"), frame(b"\x04 waits")].concat()).await;
    let mut stream = raw.quic.open_uni().await.expect("there is credit");
    stream.write_all(&large[152..]).await.expect("it is open");
    stream.finish().expect("it is open");
    let all = bytes(&sink.frames(nonce, 6).await);
    assert_eq!(all[2..], [&large[..], b"\x01 waits", b"\0 bars", b"\x04 waits"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_frames_among_small_ones_arrive_whole_and_in_order_within_their_group() {
    const COUNT: usize = 400;
    let cluster = Cluster::new();
    let sink = Arc::new(by_first_byte(2));
    let listener = cluster.node(2).listen(&any(), Arc::clone(&sink) as _).await;
    let listener = listener.expect("a port is free");
    let dialler = Arc::new(Recorder::new(1));
    let dialled = cluster.node(1).dial(&listener.local_address(), None, dialler).await;
    let to_b = dialled.expect("it listens");
    let group = |number: usize| u8::try_from(1 + number % 5).expect("it is small");
    let made = |number: usize| {
        let len = if number.is_multiple_of(7) { 150_000 } else { 40 };
        let head = [&[group(number)][..], &number.to_le_bytes()].concat();
        Bytes::from([&head[..], &pattern(number, len)].concat())
    };
    for number in 0..COUNT {
        send(&to_b, Lane::Data, &made(number)).await;
    }
    let frames = sink.frames(to_b.link().nonce, COUNT).await;
    for wanted in 1..=5 {
        let got = frames.iter().map(|frame| &frame.1).filter(|frame| frame[0] == wanted);
        let sent = (0..COUNT).filter(|number| group(*number) == wanted).map(made);
        assert!(got.cloned().eq(sent), "group {wanted} is not as it was sent");
    }
    to_b.close(CloseReason::Local);
    sink.closed(to_b.link().nonce).await;
    sink.check();
}

#[tokio::test]
async fn a_close_without_haste_waits_for_large_frames() {
    let pair = Cluster::new().setup().connect().await;
    for number in 0..5 {
        let frame = pattern(number, 300_000);
        pair.to_b.append_bytes(Lane::Data, &[], frame).expect("there is room");
    }
    pair.to_b.append_bytes(Lane::Data, &[], Bytes::from_static(b"last")).expect("there is room");
    pair.to_b.close(CloseReason::Local);
    let nonce = pair.to_a.link().nonce;
    assert!(matches!(pair.b.closed(nonce).await, CloseReason::Peer(_)));
    let frames = pair.b.frames(nonce, 6).await;
    assert!((0..5).all(|number| frames[number].1 == pattern(number, 300_000)));
    assert_eq!(frames[5].1, b"last"[..]);
    pair.finish().await;
}

/// The clock jumps while its only thread is busy.
fn jump(by: Duration) {
    tokio::time::pause();
    let _ = pin!(tokio::time::advance(by)).poll(&mut Context::from_waker(Waker::noop()));
    tokio::time::resume();
}

/// Sends two large frames and a goodbye. The streams of the frames.
async fn send_two_and_leave(raw: &mut Raw) -> [SendStream; 2] {
    let large = [1; 100_000];
    let announced = [&word(1, large.len())[..], &large[..152]].concat();
    raw.send(&[&announced[..], &announced, &word(2, 3), b"bye"].concat()).await;
    raw.data.0.finish().expect("it is open");
    let open = || raw.quic.open_uni();
    let mut streams = [open().await, open().await].map(|it| it.expect("there is credit"));
    for stream in &mut streams {
        stream.write_all(&large[152..]).await.expect("it is open");
        stream.finish().expect("it is open");
    }
    streams
}

#[tokio::test]
async fn what_came_before_a_goodbye_is_delivered_also_when_its_sink_takes_longer_than_the_grace() {
    let cluster = Cluster::new();
    let is_first = AtomicBool::new(true);
    let sink = Hooked::new(2, move |asked, _| {
        if asked == "batch" && is_first.swap(false, Ordering::Relaxed) {
            jump(Duration::from_secs(3));
        }
    });
    let transport = cluster.builder(2).large_bytes_max(100_000).build().expect("they go together");
    let listener = transport.listen(&any(), Arc::clone(&sink) as _).await.expect("a port is free");
    let mut raw = Raw::hello(&listener.local_address(), &cluster.issue(9), 9).await;
    let nonce = sink.recorder.opened(0).await.link().nonce;
    let _streams = send_two_and_leave(&mut raw).await;
    assert_eq!(sink.recorder.closed(nonce).await, CloseReason::Peer("bye".into()));
    assert_eq!(sink.recorder.frame_count(nonce), 2);
    sink.recorder.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_came_before_a_goodbye_is_delivered_also_when_the_connection_is_gone_by_then() {
    let cluster = Cluster::new();
    let (may_go_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let sink = Hooked::new(2, move |asked, _| {
        if asked == "batch" {
            let waits = waits.lock().expect("nobody panics");
            let _ = tokio::task::block_in_place(|| waits.recv());
        }
    });
    let transport = cluster.builder(2).large_bytes_max(100_000).build().expect("they go together");
    let listener = transport.listen(&any(), Arc::clone(&sink) as _).await.expect("a port is free");
    let mut raw = Raw::hello(&listener.local_address(), &cluster.issue(9), 9).await;
    let nonce = sink.recorder.opened(0).await.link().nonce;
    for stream in send_two_and_leave(&mut raw).await {
        assert_eq!(stream.stopped().await, Ok(None), "the other end has all of it");
    }
    raw.leave().await;
    drop(may_go_on);
    assert_eq!(sink.recorder.closed(nonce).await, CloseReason::Peer("bye".into()));
    assert_eq!(sink.recorder.frame_count(nonce), 2);
    sink.recorder.check();
}
