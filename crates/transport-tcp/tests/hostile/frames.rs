//! After the hello: frames that break the rules.

use convoke_transport::CloseReason;
use convoke_transport_tcp::TcpTransport;

use crate::places::Kind;
use crate::raw::{CREDIT, GOODBYE, KEEP_ALIVE, LAST, MORE, Victim, frame};

over_every_socket! {
    frames_that_do_not_exist_are_faults,
    a_chunk_over_the_limit_is_refused_before_its_bytes,
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
