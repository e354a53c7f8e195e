//! Peers that do not speak TLS, or nothing else, or nothing at all.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::{PATIENCE, Recorder};
use convoke_transport::{Address, CloseReason, DialError, DialLimit, ListenError, Transport};
use convoke_transport_tcp::TcpTransport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::certificates::Authority;
use crate::log::Log;
use crate::node::{Victim, dial};
use crate::raw::{attack, hello, say};
use crate::trust::{handshake, identity_of};

/// Everything somebody at `address` answers to `bytes` until it closes.
async fn answer_to(address: &Address, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address.rest()).await.expect("the victim listens");
    let mut answer = Vec::new();
    let exchange = async {
        // Reset or closed in order: either is an end.
        let _ = socket.write_all(bytes).await;
        let _ = socket.read_to_end(&mut answer).await;
    };
    timeout(PATIENCE, exchange).await.expect("the victim closes");
    answer
}

#[tokio::test]
async fn a_transport_with_tls_serves_nothing_else() {
    let identity = identity_of(&Authority::new(), 1);
    let transport = TcpTransport::tls(identity);
    assert_eq!(transport.schemes(), ["tls"]);
    for other in ["tcp://127.0.0.1:0", "unix:///run/a.sock", "unix://@a"] {
        let address: Address = other.parse().expect("it is an address");
        let listening = transport.listen(&address, Arc::new(Recorder::new(1))).await;
        assert_eq!(listening.err(), Some(ListenError::NoTransport { address: address.clone() }));
        let dialled = transport.dial(&address, None, Arc::new(Recorder::new(1))).await;
        assert_eq!(dialled.err(), Some(DialError::NoTransport { address }));
    }
}

#[tokio::test]
async fn a_plain_dialler_is_told_that_the_port_takes_tls() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let plain: Address = format!("tcp://{}", victim.address().rest()).parse().expect("an address");
    let dialled = TcpTransport::new().dial(&plain, None, Arc::new(Recorder::new(7))).await;
    let message = handshake(dialled);
    assert!(message.contains("this port takes TLS only"), "{message}");
    log.refused("it begins with a plain hello of convoke").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_tls_dialler_is_told_that_the_port_has_no_time() {
    let authority = Authority::new();
    let patient = TcpTransport::builder().handshake_timeout(Duration::from_secs(600));
    let busy = patient.handshakes_max(2).tls(identity_of(&authority, 1));
    let (transport, sink) =
        (busy.build().expect("the settings are legal"), Arc::new(Recorder::new(1)));
    let secure = "tls://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&secure, sink).await.expect("it binds");
    let address = listener.local_address();
    // One place may have half of the handshakes: this one.
    let silent = TcpStream::connect(address.rest()).await.expect("it listens");
    let dialled = dial(identity_of(&authority, 7), &address, &Arc::new(Recorder::new(7))).await;
    let message = handshake(dialled);
    assert!(message.contains("in their handshake: 1 of 2 are taken"), "{message}");
    drop(silent);
}

#[tokio::test]
async fn a_tls_dialler_is_told_that_the_port_is_plain() {
    let log = Log::start();
    let (transport, sink) = (TcpTransport::new(), Arc::new(Recorder::new(1)));
    let plain = "tcp://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&plain, Arc::clone(&sink) as _).await.expect("it binds");
    let address = format!("tls://{}", listener.local_address().rest());
    let address = address.parse().expect("it is an address");
    let identity = identity_of(&Authority::new(), 7);
    let message = handshake(dial(identity, &address, &Arc::new(Recorder::new(7))).await);
    assert!(message.contains("does its port take TLS?"), "{message}");
    log.refused("it begins as TLS does").await;
    assert_eq!(sink.opened_count(), 0);
}

#[tokio::test]
async fn http_and_garbage_are_refused_by_name() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let refused: [(&[u8], &str); 4] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it begins as HTTP does"),
        (&[0xff; 4_096], "no known protocol"),
        (b"\x16\x03\x01\x00\x04junk", "TLS failed"),
        (b"\x16\x03\x01\xff\xff and a record that is too long", "TLS failed"),
    ];
    for (bytes, reason) in refused {
        answer_to(&victim.address(), bytes).await;
        log.refused(reason).await;
    }
    victim.lives_on().await;
}

#[tokio::test]
async fn http_within_tls_is_refused_as_well() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let issued = victim.authority.issue([7]);
    let request = |raw: &mut _| say(raw, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let heard = attack(&victim.address(), Some(issued), request).await;
    assert_eq!(heard.unwrap_or_default(), b"");
    log.refused("it begins as HTTP does").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn dialling_what_speaks_no_tls_says_so() {
    let answers: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it begins as HTTP does"),
        (&hello(9), "a plain hello of convoke"),
        (b"SSH-2.0-example\r\n", "no known protocol"),
        (b"", "closed the connection during the TLS handshake"),
    ];
    for (answer, expected) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let address = format!("tls://{}", listener.local_addr().expect("it is bound"));
        let answer = answer.to_vec();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("somebody dials");
            // All of the client's hello, so that closing does not reset.
            let mut scrap = [0; 4_096];
            let read = socket.read(&mut scrap).await.expect("it says hello");
            assert!(read < scrap.len(), "the hello is short");
            socket.write_all(&answer).await.expect("it listens");
        });
        let identity = identity_of(&Authority::new(), 7);
        let address = address.parse().expect("it is an address");
        let message = handshake(dial(identity, &address, &Arc::new(Recorder::new(7))).await);
        assert!(message.contains(expected), "{message}");
        server.await.expect("the server does not panic");
    }
}

#[tokio::test]
async fn silence_at_any_point_ends_with_the_handshake_timeout() {
    let log = Log::start();
    let builder = TcpTransport::builder().handshake_timeout(Duration::from_millis(300));
    let victim = Victim::with(builder).await;
    for said in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut socket = TcpStream::connect(victim.address().rest()).await.expect("it listens");
        socket.write_all(said).await.expect("it reads");
        let ended = timeout(PATIENCE, socket.read(&mut [0; 64])).await.expect("it is closed");
        assert_eq!(ended.unwrap_or(0), 0, "nothing is said to the silent");
        log.refused("no hello in time").await;
    }
    // A handshake that goes well, and no hello after it.
    let issued = victim.authority.issue([7]);
    attack(&victim.address(), Some(issued), |raw| say(raw, b"").map(|_| ())).await.ok();
    log.refused("no hello in time").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_silent_server_is_a_timeout_for_the_dialler() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
    let address: Address = format!("tls://{}", listener.local_addr().expect("it is bound"))
        .parse()
        .expect("it is an address");
    let builder = TcpTransport::builder().handshake_timeout(Duration::from_millis(100));
    let transport = builder.tls(identity_of(&Authority::new(), 7)).build().expect("legal");
    let dialled = transport.dial(&address, None, Arc::new(Recorder::new(7))).await;
    let limit = DialLimit::Handshake(Duration::from_millis(100));
    assert_eq!(dialled.err(), Some(limit.passed(&address)));
}

#[tokio::test]
async fn a_byte_that_was_changed_on_the_way_ends_the_connection() {
    let victim = Victim::new().await;
    let issued = victim.authority.issue([7]);
    let tamper = |raw: &mut crate::raw::RawClient| {
        raw.write_all(&hello(7)).expect("the victim reads");
        raw.read_exact(&mut [0; 14]).expect("the victim says hello");
        // A record as it should be, but for its seal.
        raw.sock.write_all(b"\x17\x03\x03\x00\x20").expect("the victim reads");
        raw.sock.write_all(&[7; 0x20]).expect("the victim reads");
        // What comes before the end, and how that comes, is not the matter.
        let _ = raw.read_to_end(&mut Vec::new());
    };
    attack(&victim.address(), Some(issued), tamper).await;
    let connection = victim.sink.opened(1).await;
    let reason = victim.sink.closed(connection.link().nonce).await;
    match reason {
        CloseReason::Network(text) => assert!(text.contains("decrypt"), "{text}"),
        other => panic!("expected a failure of TLS, not {other}"),
    }
    victim.lives_on().await;
}
