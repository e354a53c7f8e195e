//! After the hello: frames that break the rules.

use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, Lane};
use convoke_transport_tcp::TcpTransport;

use crate::places::Kind;
use crate::raw::{CREDIT, GOODBYE, KEEP_ALIVE, LAST, MORE, Victim, frame};

over_every_socket! {
    frames_that_do_not_exist_are_faults,
    a_chunk_over_the_limit_is_refused_before_its_bytes,
    chunks_without_end_are_refused_at_the_largest_frame,
    sending_without_credit_is_a_fault,
    giving_back_credit_that_was_not_used_is_a_fault,
    a_connection_lost_in_the_middle_of_a_frame_delivers_nothing_of_it,
    a_goodbye_closes_with_its_text_made_harmless,
    random_bytes_end_one_connection_and_no_other,
}

/// Sends `bytes` after a hello and asserts that the victim closes with a fault that has `expected`
/// in it, at both ends.
async fn is_a_fault(victim: &Victim, bytes: &[u8], expected: &str) {
    let (mut raw, connection) = victim.attack_after_hello().await;
    raw.send(bytes).await;
    let goodbye = raw.goodbye().await;
    assert!(goodbye.contains(expected), "{goodbye}");
    let reason = victim.sink.closed(connection.link().nonce).await;
    assert_eq!(reason, CloseReason::Fault(goodbye));
    assert_eq!(victim.sink.frame_count(connection.link().nonce), 0);
}

async fn frames_that_do_not_exist_are_faults(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    is_a_fault(&victim, &frame(5, 0, b""), "frame kind 5").await;
    is_a_fault(&victim, &frame(7, 1, b""), "frame kind 7").await;
    is_a_fault(&victim, &frame(MORE, 1, b""), "More frame of 0 bytes").await;
    is_a_fault(&victim, &frame(KEEP_ALIVE, 0, b"x"), "KeepAlive frame of 1 bytes").await;
    is_a_fault(&victim, &frame(CREDIT, 1, b"123"), "Credit frame of 3 bytes").await;
    is_a_fault(&victim, &frame(GOODBYE, 0, &[b'x'; 513]), "Goodbye frame of 513 bytes").await;
    victim.lives_on().await;
}

async fn a_chunk_over_the_limit_is_refused_before_its_bytes(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder().chunk_bytes(2_000)).await;
    let word = &frame(LAST, 1, &[0; 2_001])[..4];
    is_a_fault(&victim, word, "a chunk of 2001 bytes is over the limit of 2000").await;
    victim.lives_on().await;
}

async fn chunks_without_end_are_refused_at_the_largest_frame(kind: Kind) {
    let sink = Recorder::new(1).taking(100_000);
    let victim = Victim::with(kind, TcpTransport::builder(), sink).await;
    let bytes = frame(MORE, 1, &[0; 10_000]).repeat(11);
    is_a_fault(&victim, &bytes, "a frame is over the limit of 100000 bytes").await;
    victim.lives_on().await;
}

async fn sending_without_credit_is_a_fault(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder().control_window_bytes(4_096)).await;
    is_a_fault_at_once(&victim, 0, "more was sent than there was credit for on the Control lane")
        .await;
    victim.lives_on().await;
}

/// More than the window in one read, so that the sink has taken nothing of it.
async fn is_a_fault_at_once(victim: &Victim, lane: u32, expected: &str) {
    let (mut raw, connection) = victim.attack_after_hello().await;
    let nonce = connection.link().nonce;
    raw.send(&frame(LAST, lane, &[0; 30]).repeat(1_000)).await;
    let goodbye = raw.goodbye().await;
    assert!(goodbye.contains(expected), "{goodbye}");
    assert_eq!(victim.sink.closed(nonce).await, CloseReason::Fault(goodbye));
    assert!(victim.sink.frame_count(nonce) <= 4_096 / 34, "taken beyond the window");
}

async fn giving_back_credit_that_was_not_used_is_a_fault(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    for bytes in [1_u32, u32::MAX] {
        let credit = frame(CREDIT, 1, &bytes.to_le_bytes());
        is_a_fault(&victim, &credit, "more credit was given back than was used on the Data lane")
            .await;
    }
    victim.lives_on().await;
}

async fn a_connection_lost_in_the_middle_of_a_frame_delivers_nothing_of_it(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let whole = [frame(LAST, 1, b"whole"), frame(MORE, 1, b"half a frame")].concat();
    for end in [whole.len(), whole.len() - 3] {
        let (mut raw, connection) = victim.attack_after_hello().await;
        let nonce = connection.link().nonce;
        raw.send(&whole[..end]).await;
        victim.sink.frames(nonce, 1).await;
        drop(raw);
        let reason = victim.sink.closed(nonce).await;
        assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
        let frames = victim.sink.seen(nonce).expect("it was open").frames;
        assert_eq!(frames, [(Lane::Data, "whole".into())]);
    }
    victim.lives_on().await;
}

async fn a_goodbye_closes_with_its_text_made_harmless(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let (mut raw, connection) = victim.attack_after_hello().await;
    raw.send(&frame(GOODBYE, 0, b"bye\x1b[2J\n\xff")).await;
    let reason = victim.sink.closed(connection.link().nonce).await;
    assert_eq!(reason, CloseReason::Peer("bye [2J \u{fffd}".into()));
    victim.lives_on().await;
}

async fn random_bytes_end_one_connection_and_no_other(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..100 {
        let (mut raw, connection) = victim.attack_after_hello().await;
        let len = 1 + next() % 5_000;
        let bytes: Vec<_> = (0..len).map(|_| next().to_le_bytes()[3]).collect();
        raw.send(&bytes).await;
        drop(raw);
        let reason = victim.sink.closed(connection.link().nonce).await;
        assert_ne!(reason, CloseReason::Local);
    }
    victim.lives_on().await;
}
