//! Peers that take what they can of what all connections share, and leave enough to others.
#![cfg(target_os = "linux")] // Elsewhere 127.0.0.2 is no address of every host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Recorder, fill};
use convoke_transport::{
    CloseReason, Connection, Hello, Lane, Link, NotWritable, Received, Remote, Sink, Transport,
};
use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};

use crate::flows::open;
use crate::places::Kind;
use crate::raw::{LAST, Raw, Victim, frame, hello};

const FRAME_BYTES_MAX: usize = 1 << 20;
const TOTAL: usize = 32 << 20;
/// Window that the hello of a raw peer grants: what a connection may send before the peer reads
/// any.
const WINDOW: usize = 1 << 20;

fn builder() -> TcpTransportBuilder {
    TcpTransport::builder()
        .frame_bytes_max(1 << 20)
        .send_bytes_total_max(TOTAL)
        .keep_alive_timeout(Duration::from_secs(600))
}

#[tokio::test]
async fn who_never_reads_leaves_room_to_send_to_others_over_however_many_connections() {
    const CROWD: usize = 128;
    let victim = Victim::new(Kind::Tcp, builder()).await;
    let (mut crowd, mut taken) = (Vec::new(), 0);
    let frame = Bytes::from(vec![0; 60_000]);
    for _ in 0..CROWD {
        let (raw, connection) = victim.attack_after_hello().await;
        taken += fill(&connection, &frame).await;
        crowd.push((raw, connection));
    }
    let besides = CROWD * (WINDOW + (16 << 10));
    assert!(taken <= TOTAL / 2 + besides, "a half of the room, and what was written: {taken}");
    assert!(taken > TOTAL / 3, "what one address may have is taken: {taken}");

    // Another address has what it needs.
    let (_raw, connection) = attack_from([127, 0, 0, 2], &victim).await;
    let large = Bytes::from(vec![0; FRAME_BYTES_MAX]);
    connection.append_bytes(Lane::Data, &[], large.clone()).expect("it has a share of its own");

    // What they had is free again once they are gone.
    for (raw, connection) in crowd {
        let nonce = connection.link().nonce;
        connection.close(CloseReason::Overloaded);
        drop(raw);
        victim.sink.closed(nonce).await;
    }
    let (_raw, connection) = victim.attack_after_hello().await;
    let alone = fill(&connection, &large).await;
    assert!(alone > TOTAL / 8, "a quarter of nearly all of it: {alone}");
    victim.lives_on().await;
}

#[tokio::test]
async fn a_connection_of_several_flows_takes_the_room_of_one() {
    let victim = Victim::new(Kind::Tcp, builder().flows(4)).await;
    let (_raws, connection) = open(&victim).await;
    // Each frame takes a flow by its first bytes.
    let (mut taken, mut refused) = (0, 0);
    for number in 0_u64.. {
        let frame = [&number.to_le_bytes()[..], &[0; 60_000]].concat();
        match connection.append_bytes(Lane::Data, &[], frame.into()) {
            Ok(_) => (taken, refused) = (taken + 60_008, 0),
            Err(error) => {
                assert_eq!(error, NotWritable::Full);
                refused += 1;
            }
        }
        // So often, no flow has room.
        if refused == 100 {
            break;
        }
        connection.flush();
        tokio::task::yield_now().await;
    }
    let besides = 4 * (WINDOW + (16 << 10));
    assert!(taken <= TOTAL / 5 + besides, "what one connection may have: {taken}");
    assert!(taken > TOTAL / 5, "which it has: {taken}");
    victim.lives_on().await;
}

#[tokio::test]
async fn an_address_that_has_its_share_of_connections_leaves_some_to_others() {
    let victim = Victim::with(Kind::Tcp, builder().connections_max(16), Recorder::new(1)).await;
    // The honest one of the victim comes from the same address.
    let mut crowd = Vec::new();
    for _ in 1..8 {
        crowd.push(victim.attack_after_hello().await);
    }
    let mut refused = victim.attack().await;
    refused.send(&hello(66)).await;
    let text = refused.refusal().await;
    assert!(text.contains("8 of 16 are taken, 8 of them by 127.0.0.1"), "{text}");
    let (_raw, connection) = attack_from([127, 0, 0, 2], &victim).await;
    assert_eq!(connection.link().remote, Some(Remote::Host("127.0.0.2".into())));
    crowd.clear();
}

/// Counts what it is given at once.
#[derive(Debug, Default)]
struct Turns {
    most: AtomicUsize,
    total: AtomicUsize,
}

impl Sink for Turns {
    fn hello(&self) -> Hello {
        Recorder::new(1).hello()
    }

    fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
        Ok(())
    }

    fn on_batch(
        &self,
        _: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let count = frames.count();
        self.most.fetch_max(count, Ordering::Relaxed);
        self.total.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn on_closed(&self, _: &Link, _: CloseReason) {}
}

#[tokio::test]
async fn a_read_of_many_frames_leaves_others_their_turn() {
    let sink = Arc::new(Turns::default());
    let transport = builder().build().expect("it is legal");
    let address = "tcp://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&address, Arc::clone(&sink) as _).await.expect("it binds");
    let mut raw = Raw::connect(&listener.local_address()).await;
    raw.send(&hello(66)).await;
    assert_eq!(raw.envelope().await.expect("it says hello").0, 0);
    raw.send(&frame(LAST, 1, b"x").repeat(5_000)).await;
    while sink.total.load(Ordering::Relaxed) < 5_000 {
        tokio::task::yield_now().await;
    }
    let most = sink.most.load(Ordering::Relaxed);
    assert!((2..=128).contains(&most), "{most} at once");
}

/// After its hello, as from another host.
async fn attack_from(address: [u8; 4], victim: &Victim) -> (Raw, Arc<dyn Connection>) {
    let socket = tokio::net::TcpSocket::new_v4().expect("there are sockets");
    socket.bind((address, 0).into()).expect("all of 127.0.0.0/8 is this host");
    let to = victim.listener.local_address().rest().parse().expect("it is a socket address");
    let stream = socket.connect(to).await.expect("the victim listens");
    let mut raw = Raw(Box::new(stream));
    let index = victim.sink.opened_count();
    raw.send(&hello(67)).await;
    let (kind, _) = raw.envelope().await.expect("the victim says hello");
    assert_eq!(kind, 0, "the victim says hello");
    (raw, victim.sink.opened(index).await)
}
