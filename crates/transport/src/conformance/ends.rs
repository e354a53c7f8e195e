//! Ends: with a reason, once, and never with half a frame.

use std::cmp::Reverse;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::frames::{pattern, send};
use super::recorder::Recorder;
use super::{PATIENCE, Setup};
use crate::{CloseReason, Connection, Lane, NotWritable};

/// A close ends both ends, each once, the other with the text; handles then answer that it is over.
pub async fn a_close_reaches_both_ends_once(setup: Setup) {
    let reasons = [CloseReason::Local, CloseReason::Fault("it was a test".into())];
    for reason in reasons {
        let pair = setup.connect().await;
        let nonce = pair.to_b.link().nonce;
        pair.to_b.close(reason.clone());
        pair.to_b.close(CloseReason::Overloaded);
        let refused = pair.to_b.append_copy(Lane::Control, &[], &[]);
        assert_eq!(refused, Err(NotWritable::Closed));
        assert_eq!(pair.a.closed(nonce).await, reason);
        let CloseReason::Peer(text) = pair.b.closed(nonce).await else {
            panic!("the other end said goodbye")
        };
        if let CloseReason::Fault(fault) = reason {
            assert!(text.contains(&fault), "{text}");
        }
        for connection in [&pair.to_a, &pair.to_b] {
            let refused = connection.append_bytes(Lane::Data, &[], Bytes::new());
            assert_eq!(refused, Err(NotWritable::Closed));
            let polled = poll_fn(|cx| {
                let flush = connection.poll_flush(cx);
                Poll::Ready((flush, connection.poll_writable(Lane::Data, cx)))
            });
            assert_eq!(polled.await, (Poll::Ready(()), Poll::Ready(())));
        }
        pair.finish().await;
    }
}

/// A close without haste sends what was appended before.
pub async fn what_was_appended_before_a_close_arrives(setup: Setup) {
    const COUNT: usize = 100;
    let pair = setup.connect().await;
    for number in 0..COUNT {
        pair.to_b
            .append_bytes(Lane::Data, &[], pattern(number, 100))
            .expect("the connection is open");
    }
    pair.to_b.close(CloseReason::Local);
    let nonce = pair.to_a.link().nonce;
    assert!(matches!(pair.b.closed(nonce).await, CloseReason::Peer(_)));
    let expected = (0..COUNT).map(|number| (Lane::Data, pattern(number, 100)));
    assert!(pair.b.frames(nonce, COUNT).await.into_iter().eq(expected), "frames were lost");
    pair.finish().await;
}

/// A sink that finds a fault closes the connection, and both ends hear which.
pub async fn a_fault_found_by_the_sink_closes(setup: Setup) {
    let pair = setup.connect_as(Recorder::new(1), Recorder::new(2).choking_on(b"garbage")).await;
    send(&pair.to_b, Lane::Data, &Bytes::from_static(b"garbage")).await;
    let nonce = pair.to_b.link().nonce;
    assert_eq!(pair.b.closed(nonce).await, CloseReason::Fault("garbage".into()));
    match pair.a.closed(nonce).await {
        CloseReason::Peer(text) => assert!(text.contains("garbage"), "{text}"),
        other => panic!("expected the peer's goodbye, not {other:?}"),
    }
    pair.finish().await;
}

/// When the end comes in the middle of a frame, the frame does not arrive at all.
pub async fn a_close_in_the_middle_of_a_frame_delivers_no_part_of_it(setup: Setup) {
    const BYTES: usize = 1 << 20;
    let pair = setup.connect().await;
    let nonce = pair.to_a.link().nonce;
    pair.b.gate().shut();
    send(&pair.to_b, Lane::Data, &pattern(0, 1)).await;
    for number in 1..12 {
        match pair.to_b.append_bytes(Lane::Data, &[], pattern(number, BYTES)) {
            Ok(_) => pair.to_b.flush(),
            Err(error) => {
                assert_eq!(error, NotWritable::Full);
                break;
            }
        }
    }
    pair.to_b.close(CloseReason::Fault("enough".into()));
    pair.b.gate().open();
    let reason = pair.b.closed(nonce).await;
    assert!(matches!(reason, CloseReason::Peer(_) | CloseReason::Network(_)), "{reason:?}");
    let frames = pair.b.seen(nonce).expect("it was open").frames;
    for (number, (_, frame)) in frames.iter().enumerate() {
        let len = if number == 0 { 1 } else { BYTES };
        assert!(*frame == pattern(number, len), "frame {number} is not whole");
    }
    pair.finish().await;
}

/// Both ends close at the same time; each hears of one end.
pub async fn both_ends_may_close_at_once(setup: Setup) {
    let pair = setup.connect().await;
    let nonce = pair.to_a.link().nonce;
    pair.to_a.close(CloseReason::Local);
    pair.to_b.close(CloseReason::Local);
    for sink in [&pair.a, &pair.b] {
        let reason = sink.closed(nonce).await;
        assert!(matches!(reason, CloseReason::Local | CloseReason::Peer(_)), "{reason:?}");
    }
    pair.finish().await;
}

/// Both ends close gently, and all that they have to send arrives, be it more than a window: also
/// of the one that hears the other's goodbye before it has sent its own.
pub async fn both_ends_may_close_with_much_to_send(setup: Setup) {
    const BYTES: usize = 256 << 10;
    for counts in [[16, 0], [0, 16], [16, 6]] {
        let pair = setup.connect().await;
        let nonce = pair.to_a.link().nonce;
        let sinks = [&pair.a, &pair.b];
        // Nobody is to hear a goodbye before it has closed itself.
        sinks.iter().for_each(|sink| sink.gate().shut());
        let mut ends = [(&pair.to_a, counts[0]), (&pair.to_b, counts[1])];
        ends.sort_by_key(|(_, count)| Reverse(*count));
        for (connection, count) in ends {
            for number in 0..count {
                let frame = pattern(number, BYTES);
                connection.append_bytes(Lane::Data, &[], frame).expect("there is room");
            }
            connection.close(CloseReason::Local);
        }
        sinks.iter().for_each(|sink| sink.gate().open());
        for (sink, count) in sinks.into_iter().zip(counts) {
            let reason = sink.closed(nonce).await;
            assert!(matches!(reason, CloseReason::Local | CloseReason::Peer(_)), "{reason:?}");
            let frames = sink.seen(nonce).expect("it was open").frames;
            let expected = (0..count).map(|number| (Lane::Data, pattern(number, BYTES)));
            assert!(frames.into_iter().eq(expected), "frames were lost, of {counts:?}");
        }
        pair.finish().await;
    }
}

/// Owner of a body that looks at the connection when that drops it.
struct Looks(Arc<dyn Connection>);

impl AsRef<[u8]> for Looks {
    fn as_ref(&self) -> &[u8] {
        &[7; 32 << 10]
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.counters();
        let _ = self.0.poll_writable(Lane::Data, &mut Context::from_waker(Waker::noop()));
    }
}

/// Drops without its lock what a connection does not send any more: an owner may do anything then,
/// and need not know of the connection.
pub async fn an_owner_of_what_is_not_sent_may_look_at_the_connection(setup: Setup) {
    for is_closed_here in [true, false] {
        let pair = setup.connect().await;
        for _ in 0..3 {
            let body = Bytes::from_owner(Looks(Arc::clone(&pair.to_b)));
            pair.to_b.append_bytes(Lane::Data, &[], body).expect("there is room");
        }
        let closed = Arc::clone(if is_closed_here { &pair.to_b } else { &pair.to_a });
        let (ended, ends) = oneshot::channel();
        thread::spawn(move || {
            closed.close(CloseReason::Fault("enough".into()));
            ended.send(())
        });
        let ends = tokio::time::timeout(PATIENCE, ends).await;
        ends.expect("a close does not hang").expect("a close does not panic");
        pair.a.closed(pair.to_b.link().nonce).await;
        pair.finish().await;
    }
}

/// Drops without its lock what a connection has sent, which may have the last of it.
pub async fn an_owner_of_what_was_sent_may_look_at_the_connection(setup: Setup) {
    const COUNT: usize = 40;
    let pair = setup.connect().await;
    let to_b = Arc::clone(&pair.to_b);
    let (sent, is_sent) = oneshot::channel();
    thread::spawn(move || {
        for _ in 0..COUNT {
            let body = Bytes::from_owner(Looks(Arc::clone(&to_b)));
            to_b.append_bytes(Lane::Data, &[], body).expect("there is room");
            to_b.flush();
        }
        sent.send(())
    });
    let is_sent = tokio::time::timeout(PATIENCE, is_sent).await;
    is_sent.expect("to send does not hang").expect("to send does not panic");
    pair.b.frames(pair.to_a.link().nonce, COUNT).await;
    pair.finish().await;
}
