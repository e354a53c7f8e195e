//! At the port that carries frames.

use std::time::Duration;

use convoke_transport::CloseReason;
use convoke_transport_grpc::GrpcTransport;
use tonic::Code;

use crate::attack::{Attack, PATH, announced, hello, message};
use crate::http2::{PREFACE, Raw, SETTINGS, frame};
use crate::in_time;
use crate::over::{ATTACKER, Over, over_both};
use crate::victim::Victim;

over_both! {
    http_1_is_told_what_is_spoken_here,
    garbage_behind_the_preface_ends_the_connection,
    who_says_no_more_than_http_2_is_closed_after_the_handshake_timeout,
    another_method_is_unimplemented,
    a_hello_that_is_none_is_refused_with_the_reason,
    a_message_above_the_limit_is_never_buffered,
    a_connection_that_is_cut_is_an_end_by_the_network,
    streams_of_one_socket_have_the_share_of_one_peer,
}

async fn http_1_is_told_what_is_spoken_here(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let mut raw = Raw::connect(&victim.over, victim.address()).await;
    raw.send(b"GET / HTTP/1.1\r\nHost: victim\r\n\r\n").await;
    let answer = String::from_utf8(raw.read_to_end().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    assert!(answer.contains("this port speaks gRPC"), "{answer}");
    victim.lives_on().await;
}

async fn garbage_behind_the_preface_ends_the_connection(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let mut raw = Raw::connect(&victim.over, victim.address()).await;
    raw.send(&[PREFACE, &[0xff; 1_000]].concat()).await;
    raw.read_to_end().await;
    victim.lives_on().await;
}

async fn who_says_no_more_than_http_2_is_closed_after_the_handshake_timeout(over: Over) {
    let hasty = GrpcTransport::builder().handshake_timeout(Duration::from_millis(100));
    let victim = Victim::new(over, hasty).await;
    let preface = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    for said in [&PREFACE[..10], &preface] {
        let mut raw = Raw::connect(&victim.over, victim.address()).await;
        raw.send(said).await;
        raw.read_to_end().await;
    }
    victim.lives_on().await;
}

async fn another_method_is_unimplemented(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let (over, to) = (&victim.over, victim.address());
    let refused = Attack::begin(over, to, "/shop.Stock/Reserve", Vec::new()).await;
    let status = refused.err().expect("it is refused");
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains(PATH), "{status}");
    victim.lives_on().await;
}

async fn a_hello_that_is_none_is_refused_with_the_reason(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let cases = [(&b"\xff\xff"[..], "not a protobuf message"), (&[0; 10_000], "too long")];
    for (first, reason) in cases {
        let refused = Attack::begin(&victim.over, victim.address(), PATH, message(first)).await;
        let status = refused.err().expect("it is refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(reason), "{status}");
    }
    victim.lives_on().await;
}

async fn a_message_above_the_limit_is_never_buffered(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder().message_bytes_max(4 << 10)).await;
    let index = victim.sink.opened_count();
    let attack = Attack::after_hello(&victim.over, victim.address()).await;
    let nonce = victim.sink.opened(index).await.link().nonce;
    attack.say(announced(5_000).to_vec()).await;
    assert!(attack.goodbye().await.contains("limit"));
    match victim.sink.closed(nonce).await {
        CloseReason::Fault(text) => assert!(text.contains("limit"), "{text}"),
        other => panic!("expected a fault, not {other:?}"),
    }
    victim.lives_on().await;
}

async fn a_connection_that_is_cut_is_an_end_by_the_network(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let index = victim.sink.opened_count();
    let attack = Attack::after_hello(&victim.over, victim.address()).await;
    let nonce = victim.sink.opened(index).await.link().nonce;
    drop(attack);
    let reason = victim.sink.closed(nonce).await;
    assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
    victim.lives_on().await;
}

/// Each has a place among the connections, and before it has said hello, too.
async fn streams_of_one_socket_have_the_share_of_one_peer(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder().connections_max(8)).await;
    let attack = Attack::after_hello(&victim.over, victim.address()).await;
    let mut beside = Vec::new();
    let refused = loop {
        match attack.beside(PATH, hello(1, ATTACKER)).await {
            Ok(stream) => beside.push(stream),
            Err(status) => break status,
        }
        assert!(beside.len() < 8, "there are no more places");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let silent = attack.beside(PATH, Vec::new()).await.err().expect("it has no place");
    assert_eq!(silent.code(), Code::ResourceExhausted, "{silent}");
    // A place is free again once its stream has ended.
    drop(beside.pop());
    let free = async {
        while attack.beside(PATH, hello(1, ATTACKER)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(free).await;
}
