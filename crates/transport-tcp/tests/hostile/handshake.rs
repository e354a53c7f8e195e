//! Before the hello: crowds, and answers that are none.

use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, DialError, Transport};
use convoke_transport_tcp::TcpTransport;

use crate::places::Kind;
use crate::raw::{RawListener, Victim, dial, envelope, hasty, hello};

over_every_socket! {
    a_malformed_hello_is_told_so,
    a_crowd_in_its_handshake_is_refused_and_leaves_room_later,
    more_connections_than_a_peers_share_are_refused_with_the_reason,
    dialling_something_else_says_what_was_wrong,
    dialling_silence_times_out,
}

async fn a_malformed_hello_is_told_so(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder()).await;
    let whole = hello(66);
    let too_long = [&envelope(1, 0, &[])[..12], &[0xff, 0xff]].concat();
    for message in [envelope(1, 0, &whole[14..40]), too_long, envelope(1, 7, &[])] {
        let mut raw = victim.attack().await;
        raw.send(&message).await;
        let text = raw.refusal().await;
        assert!(text.contains("malformed"), "{text}");
    }
    victim.lives_on().await;
}

async fn a_crowd_in_its_handshake_is_refused_and_leaves_room_later(kind: Kind) {
    let builder = TcpTransport::builder().handshakes_max(6);
    let victim = Victim::new(kind, builder.handshake_timeout(Duration::from_secs(600))).await;
    let mut crowd = Vec::new();
    loop {
        // The victim's earlier handshakes may be ending still, so the crowd grows until it is full.
        let mut raw = victim.attack().await;
        raw.send(b"\x93").await;
        let late = Arc::new(Recorder::new(4));
        crowd.push(raw);
        match dial(&*victim.listener, &late).await {
            Ok(connection) => connection.close(CloseReason::Local),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("in their handshake: 3 of 6 are taken, 3 of them"), "{text}");
                break;
            }
        }
        assert!(crowd.len() <= 3, "one address has half of them");
    }
    drop(crowd);
    eventually_accepts(&victim).await;
    victim.lives_on().await;
}

async fn more_connections_than_a_peers_share_are_refused_with_the_reason(kind: Kind) {
    let victim = Victim::new(kind, TcpTransport::builder().connections_max(4)).await;
    let second = Arc::new(Recorder::new(4));
    let to_victim =
        dial(&*victim.listener, &second).await.expect("half of them are for one address");
    let refused = dial(&*victim.listener, &Arc::new(Recorder::new(5))).await;
    match refused {
        Err(DialError::Handshake { message, .. }) => {
            let share = format!("open: 2 of 4 are taken, 2 of them by {}", peer_name(kind));
            assert!(message.contains(&share), "{message}");
        }
        other => panic!("expected a refusal, not {other:?}"),
    }
    to_victim.close(CloseReason::Local);
    second.closed(to_victim.link().nonce).await;
    eventually_accepts(&victim).await;
    victim.lives_on().await;
}

async fn dialling_something_else_says_what_was_wrong(kind: Kind) {
    let answers: [(Vec<u8>, &str); 4] = [
        (b"220 mail.example ESMTP\r\n".to_vec(), "does not speak convoke"),
        (envelope(9, 0, &[]), "version 9"),
        (envelope(9, 1, b"go\naway"), "it refused: go away"),
        (Vec::new(), "closed the connection before its hello"),
    ];
    for (answer, expected) in answers {
        let listener = RawListener::bind(kind).await;
        let address = listener.address.clone();
        let answering = tokio::spawn(async move {
            let mut raw = listener.accept().await;
            raw.envelope().await.expect("the dialler speaks first");
            raw.send(&answer).await;
        });
        let sink = Arc::new(Recorder::new(1));
        let dialled = TcpTransport::new().dial(&address, None, Arc::clone(&sink) as _).await;
        answering.await.expect("it answered");
        match dialled {
            Err(DialError::Handshake { message, .. }) => {
                assert!(message.contains(expected), "{message}");
            }
            other => panic!("expected a failed handshake, not {other:?}"),
        }
        assert_eq!(sink.opened_count(), 0);
    }
}

async fn dialling_silence_times_out(kind: Kind) {
    let listener = RawListener::bind(kind).await;
    let address = listener.address.clone();
    let transport = hasty().build().expect("the settings are legal");
    let dialled = transport.dial(&address, None, Arc::new(Recorder::new(1))).await;
    assert_eq!(dialled.err(), Some(DialError::Timeout { address }));
}

/// The name by which this process is counted when it connects over such a socket.
fn peer_name(kind: Kind) -> String {
    match kind {
        Kind::Tcp => "127.0.0.1".to_owned(),
        #[cfg(unix)]
        _ => format!("user {}", rustix::process::geteuid().as_raw()),
    }
}

/// A slot is free again some time after its connection ended.
async fn eventually_accepts(victim: &Victim) {
    loop {
        let sink = Arc::new(Recorder::new(6));
        if let Ok(connection) = dial(&*victim.listener, &sink).await {
            connection.close(CloseReason::Local);
            sink.closed(connection.link().nonce).await;
            return victim_has_room(victim).await;
        }
        tokio::task::yield_now().await;
    }
}

/// The connection made to find out must be gone too.
async fn victim_has_room(victim: &Victim) {
    let last = victim.sink.opened(victim.sink.opened_count() - 1).await;
    victim.sink.closed(last.link().nonce).await;
}
