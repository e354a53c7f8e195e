//! Peers of a port with TLS that speak none, or not to its end, or of another protocol.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::Recorder;
use convoke_transport::{Address, CloseReason, DialLimit, Lane, Transport};
use convoke_transport_grpc::GrpcTransport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::credulous::{client_config, server_config};
use crate::http2::PREFACE;
use crate::in_time;
use crate::log::Log;
use crate::nodes::dial;
use crate::over::{ATTACKER, Over};
use crate::tls_client;
use crate::trust::{handshake, identity};
use crate::victim::Victim;

async fn victim() -> Victim {
    Victim::new(Over::tls(), GrpcTransport::builder()).await
}

/// Sends these bytes, and answers all that comes until the end.
async fn answer_to(victim: &Victim, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(victim.address()).await.expect("the victim listens");
    let mut answer = Vec::new();
    // Reset or closed in order: either is an end.
    let _ = in_time(socket.write_all(bytes)).await;
    let _ = in_time(socket.read_to_end(&mut answer)).await;
    answer
}

#[tokio::test]
async fn a_plain_dialler_is_told_that_the_port_takes_tls() {
    let (log, victim) = (Log::start(), victim().await);
    let plain = format!("grpc://{}", victim.address()).parse().expect("it is an address");
    let dialled = GrpcTransport::new().dial(&plain, None, Arc::new(Recorder::new(7))).await;
    let message = handshake(dialled);
    assert!(message.contains("this port takes TLS only: dial it as grpcs://"), "{message}");
    log.refused("does not speak TLS").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_tls_dialler_is_told_that_the_port_is_plain() {
    let log = Log::start();
    let victim = Victim::new(Over::Plain, GrpcTransport::builder()).await;
    let address = format!("grpcs://{}", victim.address()).parse().expect("it is an address");
    let authority = Authority::new();
    let message = handshake(dial(identity(&authority.issue([7]), &authority), &address, 7).await);
    assert!(message.contains("does its port take TLS?"), "{message}");
    log.refused("it begins as TLS does").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn who_speaks_http_1_or_garbage_is_refused_by_name() {
    let refused: [(&[u8], &str, &str); 4] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it begins as HTTP does", "over TLS 1.3 only"),
        (&[0xff; 4_096], "no known protocol", "over TLS 1.3 only"),
        (b"\x16\x03\x01\x00\x04junk", "TLS failed", ""),
        (b"\x16\x03\x01\xff\xff and a record that is too long", "TLS failed", ""),
    ];
    for (bytes, logged, told) in refused {
        let (log, victim) = (Log::start(), victim().await);
        let answer = answer_to(&victim, bytes).await;
        assert!(String::from_utf8_lossy(&answer).contains(told), "{answer:?}");
        log.refused(logged).await;
        victim.lives_on().await;
    }
}

#[tokio::test]
async fn another_protocol_over_tls_is_refused_with_an_alert() {
    let (log, victim) = (Log::start(), victim().await);
    let Over::Tls(authority) = &victim.over else { unreachable!("it is") };
    let config = client_config(Some(&authority.issue([ATTACKER])), Some(b"convoke"));
    let stream = TcpStream::connect(victim.address()).await.expect("the victim listens");
    let refused = tls_client::handshake(config, stream).await.expect_err("it has another name");
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
    log.refused("it did not agree on the protocol inside TLS").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn no_protocol_over_tls_is_refused_in_words() {
    let (log, victim) = (Log::start(), victim().await);
    let Over::Tls(authority) = &victim.over else { unreachable!("it is") };
    let config = client_config(Some(&authority.issue([ATTACKER])), None);
    let stream = TcpStream::connect(victim.address()).await.expect("the victim listens");
    let mut stream = tls_client::handshake(config, stream).await.expect("TLS goes well");
    stream.write_all(PREFACE).await.expect("the victim reads");
    let mut answer = Vec::new();
    let _ = in_time(stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("this port speaks gRPC, which needs HTTP/2"), "{answer}");
    log.refused("it did not agree on the protocol inside TLS").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn dialling_what_speaks_no_tls_says_so() {
    let answers: [(&[u8], &str); 3] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no TLS"),
        (b"SSH-2.0-example\r\n", "is no TLS"),
        (b"", "closed the connection during the TLS handshake"),
    ];
    for (answer, expected) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let address = format!("grpcs://{}", listener.local_addr().expect("it is bound"));
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("somebody dials");
            // All of the client's hello, so that closing does not reset.
            let read = socket.read(&mut [0; 4_096]).await.expect("it says hello");
            assert!(read < 4_096, "the hello is short");
            socket.write_all(answer).await.expect("it listens");
        });
        let (authority, address) = (Authority::new(), address.parse().expect("an address"));
        let dialled = dial(identity(&authority.issue([7]), &authority), &address, 7).await;
        let message = handshake(dialled);
        assert!(message.contains(expected), "{message}");
        server.await.expect("the server does not panic");
    }
}

/// Accepts one connection with TLS, names this protocol or none, and says no more.
async fn accepting(protocol: Option<&'static [u8]>, authority: &Authority) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
    let address = format!("grpcs://{}", listener.local_addr().expect("it is bound"));
    let acceptor = TlsAcceptor::from(Arc::new(server_config(&authority.issue([1]), protocol)));
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("somebody dials");
        let mut stream = acceptor.accept(socket).await.expect("TLS goes well");
        // To the end, however it comes.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    address.parse().expect("it is an address")
}

#[tokio::test]
async fn dialling_what_names_no_protocol_says_so() {
    let authority = Authority::new();
    let address = accepting(None, &authority).await;
    let message = handshake(dial(identity(&authority.issue([7]), &authority), &address, 7).await);
    assert!(message.contains("it did not agree on the protocol inside TLS"), "{message}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_a_timeout_for_the_dialler() {
    let authority = Authority::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
    let silent = (format!("grpcs://{}", silent.local_addr().expect("it is bound")), silent);
    let before = silent.0.parse().expect("it is an address");
    let after = accepting(Some(b"h2"), &authority).await;
    let hasty = GrpcTransport::builder().handshake_timeout(Duration::from_millis(100));
    let transport = hasty.tls(identity(&authority.issue([7]), &authority)).build();
    let transport = transport.expect("the settings are legal");
    for address in [before, after] {
        let dialled = in_time(transport.dial(&address, None, Arc::new(Recorder::new(7)))).await;
        let limit = DialLimit::Handshake(Duration::from_millis(100));
        assert_eq!(dialled.err(), Some(limit.passed(&address)));
    }
}

#[tokio::test]
async fn silence_at_any_point_ends_with_the_handshake_timeout() {
    let log = Log::start();
    let hasty = GrpcTransport::builder().handshake_timeout(Duration::from_millis(300));
    let victim = Victim::new(Over::tls(), hasty).await;
    for said in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        assert_eq!(answer_to(&victim, said).await, b"", "nothing is said to the silent");
        log.refused("did not show within the handshake timeout").await;
    }
    // Within TLS it is one of the tests for plain ports, too.
    victim.lives_on().await;
}

/// Opens a socket from this address of the host.
#[cfg(target_os = "linux")] // Elsewhere 127.0.0.2 is no address of every host.
async fn connect_from(from: [u8; 4], victim: &Victim) -> io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(victim.address()).await
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_stalled_handshakes_takes_its_share_and_harms_nobody() {
    let log = Log::start();
    let builder = GrpcTransport::builder().handshakes_max(8);
    let victim = Victim::new(Over::tls(), builder).await;
    let mut stalled = Vec::new();
    for _ in 0..40 {
        let mut socket = connect_from([127, 0, 0, 2], &victim).await.expect("it listens");
        // The victim may have closed it already.
        let _ = socket.write_all(b"\x16\x03\x01\x02\x00\x01").await;
        stalled.push(socket);
    }
    // Four of the eight places are for others.
    log.refused("8 are taken, 4 of them by 127.0.0.2").await;
    victim.lives_on().await;
    let mut open = 0;
    for mut socket in stalled {
        let gone = tokio::time::timeout(Duration::ZERO, socket.read(&mut [0])).await;
        open += usize::from(gone.is_err());
    }
    assert_eq!(open, 4, "the others were closed at once");
}

/// Passes on what comes for the victim from one socket, and spoils it once it is told to.
async fn spoiling(victim: &Victim) -> (Address, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
    let address = format!("grpcs://{}", listener.local_addr().expect("it is bound"));
    let (to, spoils) = (victim.address(), Arc::new(AtomicBool::new(false)));
    let spoiling = Arc::clone(&spoils);
    tokio::spawn(async move {
        let (here, _) = listener.accept().await.expect("somebody dials");
        let there = TcpStream::connect(to).await.expect("the victim listens");
        let ((mut from, mut back), (mut answers, mut on)) = (here.into_split(), there.into_split());
        let answering = async move { tokio::io::copy(&mut answers, &mut back).await };
        let passing = async move {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = from.read(&mut bytes).await {
                if spoiling.load(Ordering::Relaxed) {
                    bytes[count - 1] ^= 1;
                }
                on.write_all(&bytes[..count]).await?;
            }
            io::Result::Ok(())
        };
        let _ = tokio::join!(answering, passing);
    });
    (address.parse().expect("it is an address"), spoils)
}

#[tokio::test]
async fn a_byte_that_was_changed_on_the_way_ends_the_connection() {
    let victim = victim().await;
    let (address, spoils) = spoiling(&victim).await;
    let Over::Tls(authority) = &victim.over else { unreachable!("it is") };
    let shown = identity(&authority.issue([7]), authority);
    let connection = dial(shown, &address, 7).await.expect("nothing is spoilt yet");
    spoils.store(true, Ordering::Relaxed);
    connection.append_bytes(Lane::Data, &[], Bytes::from_static(b"spoilt")).expect("it is open");
    connection.flush();
    let reason = victim.sink.closed(connection.link().nonce).await;
    assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
    victim.lives_on().await;
}
