//! Peers that are slow, silent or dead, and ends of this process's own making.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{PATIENCE, Recorder};
use convoke_transport::{
    CloseReason, Connection, Hello, Lane, Link, Listener, NotWritable, Received, Sink, Transport,
};
use convoke_transport_tcp::TcpTransport;

use crate::places::{Kind, Place};
use crate::raw::{KEEP_ALIVE, LAST, Victim, dial, frame};

over_every_socket! {
    a_peer_that_does_not_read_fills_a_bounded_buffer_and_can_be_closed,
    a_silent_peer_is_closed_after_the_keep_alive_timeout,
    an_idle_connection_stays_open,
    frames_that_waited_while_this_process_was_paused_are_not_delivered,
    a_runtime_that_shuts_down_ends_its_connections_at_both_ends,
    nothing_of_a_closed_connection_stays,
    a_sink_that_panics_still_hears_the_end,
    frames_a_sink_leaves_are_dropped_and_cost_no_credit,
}

async fn a_peer_that_does_not_read_fills_a_bounded_buffer_and_can_be_closed(kind: Kind) {
    const HARD: usize = 8 << 20;
    let victim = Victim::new(kind, TcpTransport::builder().send_buffer_bytes_hard(HARD)).await;
    let (raw, connection) = victim.attack_after_hello().await;
    let mut taken = 0;
    loop {
        match connection.append_bytes(Lane::Data, &[], Bytes::from_static(&[0; 60_000])) {
            Ok(_) => taken += 60_000,
            Err(error) => break assert_eq!(error, NotWritable::Full),
        }
        connection.flush();
        tokio::task::yield_now().await;
    }
    assert!(taken <= HARD + (1 << 20), "at most the bound and the window: {taken}");
    connection.append(Lane::Control, 1, &mut |_| ()).expect("control has a reserve");
    connection.close(CloseReason::Overloaded);
    // Now it reads: of what was sent some sockets have taken all, others only a part.
    let (goodbye, reason) =
        tokio::join!(raw.goodbye(), victim.sink.closed(connection.link().nonce));
    poll_fn(|cx| connection.poll_flush(cx)).await;
    assert_eq!(reason, CloseReason::Overloaded);
    assert!(goodbye.contains("did not read"), "{goodbye}");
    victim.lives_on().await;
}

async fn a_silent_peer_is_closed_after_the_keep_alive_timeout(kind: Kind) {
    let builder = TcpTransport::builder().keep_alive_interval(Duration::from_millis(20));
    let victim = Victim::new(kind, builder.keep_alive_timeout(Duration::from_millis(200))).await;
    let (raw, connection) = victim.attack_after_hello().await;
    assert_eq!(victim.sink.closed(connection.link().nonce).await, CloseReason::KeepAlive);
    let frames = raw.frames_to_the_end().await;
    let count = frames.iter().filter(|frame| frame.0 == KEEP_ALIVE).count();
    assert!(count > 0, "an idle connection is kept alive: {frames:?}");
    assert_eq!(connection.counters().transport_frames_sent, frames.len() as u64);
    victim.sink.check();
}

async fn an_idle_connection_stays_open(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(300)).await;
    tokio::time::resume();
    victim.lives_on().await;
}

async fn frames_that_waited_while_this_process_was_paused_are_not_delivered(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let (mut raw, connection) = victim.attack_after_hello().await;
    tokio::time::pause();
    // Nothing of this runtime runs between the write and the jump of the clock.
    raw.send_at_once(&frame(LAST, 1, b"stale"));
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let nonce = connection.link().nonce;
    let reason = victim.sink.closed(nonce).await;
    assert!(matches!(reason, CloseReason::Stale | CloseReason::KeepAlive), "{reason:?}");
    assert_eq!(victim.sink.frame_count(nonce), 0);
}

async fn a_runtime_that_shuts_down_ends_its_connections_at_both_ends(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let (sink, address) = (Arc::new(Recorder::new(4)), victim.listener.local_address());
    let dialling = Arc::clone(&sink);
    let dialled = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let dial = TcpTransport::new().dial(&address, None, dialling);
        runtime.expect("the system has room for a runtime").block_on(dial).map(drop)
    });
    assert_eq!(dialled.await.expect("it ran"), Ok(()));
    let nonce = victim.sink.opened(1).await.link().nonce;
    let reason = victim.sink.closed(nonce).await;
    assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
    assert!(sink.seen(nonce).expect("it was open").closed.is_some());
    sink.check();
    victim.lives_on().await;
}

/// A sink with a bug: it takes only the first frame of a batch, and panics when that is empty.
#[derive(Debug)]
struct Faulty(Recorder);

impl Sink for Faulty {
    fn hello(&self) -> Hello {
        self.0.hello()
    }
    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        self.0.on_open(connection)
    }
    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let first = frames.next().expect("a batch has a frame");
        assert!(!first.bytes.is_empty(), "as the test wants it");
        self.0.on_batch(from, &mut std::iter::once(first))
    }
    fn on_closed(&self, link: &Link, reason: CloseReason) {
        self.0.on_closed(link, reason);
    }
}

impl Faulty {
    async fn listen(self: &Arc<Self>, place: &Place) -> Box<dyn Listener> {
        let transport = TcpTransport::builder().data_window_bytes(4 << 10).build();
        let transport = transport.expect("the settings are legal");
        transport.listen(&place.address, Arc::clone(self) as _).await.expect("it binds")
    }
}

async fn nothing_of_a_closed_connection_stays(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let sink = Arc::new(Recorder::new(4));
    let connection = dial(&*victim.listener, &sink).await.expect("the victim listens");
    connection.close(CloseReason::Local);
    sink.closed(connection.link().nonce).await;
    let (weak_connection, weak_sink) = (Arc::downgrade(&connection), Arc::downgrade(&sink));
    drop((connection, sink));
    let gone = async {
        while weak_connection.strong_count() + weak_sink.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("its tasks have ended");
    victim.lives_on().await;
}

async fn a_sink_that_panics_still_hears_the_end(kind: Kind) {
    let (a, sink) = (Arc::new(Recorder::new(2)), Arc::new(Faulty(Recorder::new(1))));
    let place = kind.place();
    let listener = sink.listen(&place).await;
    let connection = dial(&*listener, &a).await.expect("the other end listens");
    connection.append(Lane::Data, 0, &mut |_| ()).expect("it is open");
    connection.flush();
    let nonce = connection.link().nonce;
    a.closed(nonce).await;
    sink.0.closed(nonce).await;
    sink.0.check();
    assert_eq!(dial(&*listener, &a).await.map(drop), Ok(()));
}

async fn frames_a_sink_leaves_are_dropped_and_cost_no_credit(kind: Kind) {
    let (a, sink) = (Arc::new(Recorder::new(2)), Arc::new(Faulty(Recorder::new(1))));
    let place = kind.place();
    let listener = sink.listen(&place).await;
    let connection = dial(&*listener, &a).await.expect("the other end listens");
    let nonce = connection.link().nonce;
    for round in 0..200_usize {
        // So small that both come with one read, and together more than the window.
        for number in [2 * round, 2 * round + 1] {
            let number = number.to_le_bytes();
            connection.append_bytes(Lane::Data, &number, Bytes::new()).expect("it is open");
        }
        connection.flush();
        sink.0.frames(nonce, round + 1).await;
    }
    let frames = sink.0.seen(nonce).expect("it is open").frames;
    let numbers = frames.iter().map(|frame| usize::from_le_bytes(*frame.1.first_chunk().unwrap()));
    assert!(numbers.eq((0..200).map(|round| 2 * round)), "the second of each pair is dropped");
    connection.close(CloseReason::Local);
    a.closed(nonce).await;
    sink.0.check();
}
