//! Peers that are slow, silent or dead, and pauses of this process.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::{CloseReason, Lane, NotWritable};
use convoke_transport_tcp::TcpTransport;

use crate::places::Kind;
use crate::raw::{HELLO_BYTES, KEEP_ALIVE, LAST, Victim, frame, hello};

over_every_socket! {
    a_peer_that_does_not_read_fills_a_bounded_buffer_and_can_be_closed,
    a_peer_that_does_not_read_its_credit_cannot_go_on_without,
    a_silent_peer_is_closed_after_the_keep_alive_timeout,
    a_peer_that_falls_silent_after_much_talk_is_closed,
    an_idle_connection_stays_open,
    frames_that_waited_while_this_process_was_paused_are_not_delivered,
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
    connection.append_copy(Lane::Control, &[], &[0]).expect("control has a reserve");
    connection.close(CloseReason::Overloaded);
    // Now it reads: of what was sent some sockets have taken all, others only a part.
    let (goodbye, reason) =
        tokio::join!(raw.goodbye(), victim.sink.closed(connection.link().nonce));
    poll_fn(|cx| connection.poll_flush(cx)).await;
    assert_eq!(reason, CloseReason::Overloaded);
    assert!(goodbye.contains("did not read"), "{goodbye}");
    victim.lives_on().await;
}

async fn a_peer_that_does_not_read_its_credit_cannot_go_on_without(kind: Kind) {
    let builder = TcpTransport::builder().data_window_bytes(8 << 10);
    let victim = Victim::new(kind, builder).await;
    let mut raw = victim.attack().await;
    let mut hello = hello(66);
    let window = HELLO_BYTES - 9..HELLO_BYTES - 5;
    hello[window].copy_from_slice(&u32::MAX.to_le_bytes());
    let at = victim.sink.opened_count();
    raw.send(&hello).await;
    let connection = victim.sink.opened(at).await;
    // More than fits into sockets: credit waits behind it.
    for _ in 0..15 {
        let frame = Bytes::from_static(&[0; 1 << 20]);
        connection.append_bytes(Lane::Data, &[], frame).expect("there is room");
    }
    connection.flush();
    // Never more than a window that the victim has not taken.
    let three = frame(LAST, 1, &[0; 1_000]).repeat(3);
    let goes_on = async {
        for received in (3..).step_by(3) {
            raw.send(&three).await;
            while connection.counters().frames_received < received {
                tokio::task::yield_now().await;
            }
        }
    };
    let reason = tokio::select! {
        reason = victim.sink.closed(connection.link().nonce) => reason,
        () = goes_on => unreachable!("it goes on for ever"),
    };
    let CloseReason::Fault(text) = reason else { panic!("it broke a rule: {reason:?}") };
    assert!(text.contains("more was sent than there was credit for"), "{text}");
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

async fn a_peer_that_falls_silent_after_much_talk_is_closed(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let (mut raw, connection) = victim.attack_after_hello().await;
    let nonce = connection.link().nonce;
    tokio::time::pause();
    // Of 40 s, four times the keep-alive timeout, each wake by the timer finds a frame, too.
    for sent in 1..=400 {
        raw.send_at_once(&frame(LAST, 1, b"talk"));
        tokio::time::advance(Duration::from_millis(100)).await;
        while victim.sink.frame_count(nonce) < sent {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(victim.sink.closed(nonce).await, CloseReason::KeepAlive);
    tokio::time::resume();
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
