//! Flow: a sink that does not take, and what must go on nevertheless.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use tokio::sync::Notify;

use super::frames::{of_lane, pattern, send, writable};
use super::recorder::Recorder;
use super::{PATIENCE, Setup};
use crate::{Appended, Connection, Lane, NotWritable};

const FRAME_BYTES: usize = 32 << 10;
/// More than any transport may take without credit.
const FRAMES_MAX: usize = 16_384;

/// Appends data frames until the connection takes no more and stays so; answers how many it took.
async fn fill(connection: &Arc<dyn Connection>) -> usize {
    let (mut count, mut was_full) = (0, false);
    let filled = async {
        loop {
            match connection.append_bytes(Lane::Data, &[], pattern(count, FRAME_BYTES)) {
                Ok(appended) => {
                    was_full |= appended == Appended::Full;
                    count += 1;
                    assert!(count < FRAMES_MAX, "the send buffer has no bound");
                }
                Err(NotWritable::Full) => {
                    let polled =
                        poll_fn(|cx| Poll::Ready(connection.poll_writable(Lane::Data, cx)));
                    if polled.await.is_pending() {
                        return;
                    }
                }
                Err(other) => panic!("a legal frame is not taken: {other}"),
            }
            connection.flush();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, filled)
        .await
        .expect("a connection whose peer does not read fills");
    assert!(was_full, "the soft bound comes before the hard one");
    count
}

/// A sender whose peer does not take becomes not writable, keeps what it took, and everybody who
/// waits is woken when the peer takes again.
pub async fn a_slow_sink_stops_the_sender_and_nothing_is_lost(setup: Setup) {
    let pair = setup.connect().await;
    pair.b.gate().shut();
    let count = fill(&pair.to_b).await;
    let nonce = pair.to_a.link().nonce;
    assert_eq!(pair.b.frame_count(nonce), 0);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let to_b = Arc::clone(&pair.to_b);
            tokio::spawn(async move { writable(&to_b, Lane::Data).await })
        })
        .collect();
    pair.b.gate().open();
    for waiter in waiters {
        waiter.await.expect("everybody who waits is woken");
    }
    send(&pair.to_b, Lane::Data, &pattern(count, FRAME_BYTES)).await;
    let frames = pair.b.frames(nonce, count + 1).await;
    let expected = (0..=count).map(|number| (Lane::Data, pattern(number, FRAME_BYTES)));
    assert!(frames.into_iter().eq(expected), "frames were lost or changed");
    pair.finish().await;
}

/// A control frame is taken when the data lane is full, and arrives before data that was appended
/// before it.
pub async fn control_overtakes_data(setup: Setup) {
    let pair = setup.connect().await;
    pair.b.gate().shut();
    let count = fill(&pair.to_b).await;
    let urgent = Bytes::from_static(b"urgent");
    pair.to_b
        .append_bytes(Lane::Control, &[], urgent.clone())
        .expect("the control lane has room of its own");
    pair.to_b.flush();
    pair.b.gate().open();
    let frames = pair.b.frames(pair.to_a.link().nonce, count + 1).await;
    let position = frames.iter().position(|frame| frame.0 == Lane::Control);
    let position = position.expect("the control frame is among them");
    assert_eq!(frames[position].1, urgent);
    assert!(position * 2 < count, "control came after {position} of {count} data frames");
    assert_eq!(of_lane(&frames, Lane::Data).len(), count);
    pair.finish().await;
}

/// A peer that does not take holds up nobody else.
pub async fn a_slow_sink_holds_up_no_other_connection(setup: Setup) {
    let pair = setup.connect().await;
    let c = Arc::new(Recorder::new(3));
    let to_b_of_c = setup.dial(&*pair.listener, &c).await.expect("the other end listens");
    c.gate().shut();
    let to_c = pair.b.opened(1).await;
    let count = fill(&to_c).await;
    for number in 0..100 {
        send(&pair.to_b, Lane::Data, &pattern(number, 1_000)).await;
    }
    pair.b.frames(pair.to_a.link().nonce, 100).await;
    assert_eq!(c.frame_count(to_c.link().nonce), 0);
    c.gate().open();
    c.frames(to_c.link().nonce, count).await;
    to_b_of_c.close(crate::CloseReason::Local);
    c.closed(to_c.link().nonce).await;
    pair.b.closed(to_c.link().nonce).await;
    c.check();
    pair.finish().await;
}

/// A waiter whose connection has much of the room for all is woken when that has left, though
/// nobody appends anything more.
pub async fn who_waits_for_a_share_of_the_room_is_woken(setup: Setup) {
    let pair = setup.connect().await;
    let mut count = 0;
    let mut append = || {
        count += 1;
        pair.to_b.append_bytes(Lane::Data, &[], pattern(count, 4_000)).expect("there is room")
    };
    while append() == Appended::Writable {}
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let polled = pair.to_b.poll_writable(Lane::Data, &mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "it is above its share");
    pair.to_b.flush();
    let woken = tokio::time::timeout(PATIENCE, woken.0.notified()).await;
    woken.expect("who waits is woken");
    pair.b.frames(pair.to_a.link().nonce, count).await;
    pair.finish().await;
}

/// Somebody who does not look again before being woken.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
