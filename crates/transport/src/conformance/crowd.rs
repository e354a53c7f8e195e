//! Crowds: peers that take all they can get, and what must be left to others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::frames::{pattern, send};
use super::hostile::{Attacker, Deed};
use super::process::Process;
use super::recorder::Recorder;
use super::victim::Victim;
use super::{PATIENCE, Setup};
use crate::{CloseReason, Connection, DialError, Lane, NotWritable};

/// Bytes of the frames that nobody reads.
const FRAME_BYTES: usize = 60_000;
/// Handshakes, or connections, that a crowd begins at once.
const AT_ONCE: usize = 16;
/// Calls of the honest peer, before the crowd and while it is there.
const ROUNDS: usize = 200;

/// `count` peers whose process hangs, so that they never read, are sent all that is taken for them:
/// in all at most `total`, and what is under way to each, `under_way`. An honest peer is served as
/// before: its frames go out at once, and take no more writes. Prints how long they took before and
/// besides.
///
/// Each setup must have transports of its own, with a keep-alive timeout that outlasts the case.
/// One peer may have no more than `total` of what all connections queue.
pub async fn peers_that_never_read_leave_others_alone(
    setup: impl Fn() -> Setup,
    count: usize,
    (total, under_way): (usize, usize),
) {
    let (ours, honest) = (setup(), Arc::new(Recorder::new(2)));
    let sink = Arc::new(Recorder::new(1));
    let listener = ours.listen(&sink).await;
    let to_sink = setup().dial(&*listener, &honest).await.expect("it listens");
    let to_honest = sink.opened(0).await;
    let alone = exchange((&to_sink, &sink), (&to_honest, &honest)).await;

    let process = Process::start();
    let crowd = Arc::new(Recorder::new(3));
    for begun in (0..count).step_by(AT_ONCE) {
        let mut dials = JoinSet::new();
        for _ in 0..AT_ONCE.min(count - begun) {
            let dial = ours.dialling.dial(&listener.local_address(), None, Arc::clone(&crowd) as _);
            dials.spawn_on(dial, process.handle());
        }
        for dialled in dials.join_all().await {
            dialled.expect("each of them is let in");
        }
    }
    let mut to_crowd = Vec::new();
    for index in 1..=count {
        to_crowd.push(sink.opened(index).await);
    }
    let hung = process.hang().await;
    let frame = Bytes::from(vec![0; FRAME_BYTES]);
    let mut taken = 0;
    for connection in &to_crowd {
        taken += fill(connection, &frame).await;
    }
    assert!(taken <= total + count * under_way, "{taken} bytes were taken for who never reads");

    let besides = exchange((&to_sink, &sink), (&to_honest, &honest)).await;
    println!("{ROUNDS} round trips: {alone:?} alone, {besides:?} besides {count}, {taken} bytes");
    assert!(besides.writes <= 2 * alone.writes, "{besides:?} besides a crowd, {alone:?} alone");
    to_sink.close(CloseReason::Local);
    for connection in &to_crowd {
        connection.close(CloseReason::Overloaded);
    }
    drop(hung);
    for connection in to_crowd.iter().chain([&to_honest]) {
        sink.closed(connection.link().nonce).await;
    }
    sink.check();
    honest.check();
}

/// Cost of frames that were exchanged.
#[derive(Debug)]
struct Exchanged {
    /// Writes of both ends.
    writes: u64,
    #[expect(dead_code, reason = "it is printed")]
    took: Duration,
}

/// Frames one after the other, each answered before the next is sent.
async fn exchange(
    (to_b, b): (&Arc<dyn Connection>, &Recorder),
    (to_a, a): (&Arc<dyn Connection>, &Recorder),
) -> Exchanged {
    let writes = || to_a.counters().writes + to_b.counters().writes;
    let (before, nonce, begun) = (writes(), to_b.link().nonce, Instant::now());
    let (at_b, at_a) = (b.frame_count(nonce), a.frame_count(nonce));
    for round in 1..=ROUNDS {
        send(to_b, Lane::Data, &pattern(round, 100)).await;
        b.frames(nonce, at_b + round).await;
        send(to_a, Lane::Data, &pattern(round, 100)).await;
        a.frames(nonce, at_a + round).await;
    }
    Exchanged { writes: writes() - before, took: begun.elapsed() }
}

/// Sends frames until there is no room. How many bytes were taken.
pub async fn fill(connection: &Arc<dyn Connection>, frame: &Bytes) -> usize {
    let mut taken = 0;
    loop {
        match connection.append_bytes(Lane::Data, &[], frame.clone()) {
            Ok(_) => taken += frame.len(),
            Err(error) => {
                assert_eq!(error, NotWritable::Full);
                return taken;
            }
        }
        connection.flush();
        tokio::task::yield_now().await;
    }
}

/// One peer alone gets half of the connections, whose number is four in this setup, and is told
/// so. A connection that has ended leaves its place.
pub async fn a_peer_has_its_share_of_the_connections(setup: Setup) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = setup.listen(&b).await;
    let first = setup.dial(&*listener, &a).await.expect("there is room");
    let second = setup.dial(&*listener, &a).await.expect("there is room");
    let Err(DialError::Handshake { message, .. }) = setup.dial(&*listener, &a).await else {
        panic!("its share is used up")
    };
    assert!(message.contains("2 of 4 are taken, 2 of them by"), "{message}");
    first.close(CloseReason::Local);
    let third = eventually(&setup, &*listener, &a).await;
    for connection in [&first, &second, &third] {
        connection.close(CloseReason::Local);
        a.closed(connection.link().nonce).await;
        b.closed(connection.link().nonce).await;
    }
    a.check();
    b.check();
}

/// A peer in its handshake has a place among few: while three are, in a setup where no more may be,
/// others are refused, and let in later. The number of places is six where all come from one
/// address, which may have half, and four where those without proof have a share, too. `deed` keeps
/// one in what counts as the handshake there. Answers what those are told who are refused.
///
/// The setup should have a short timeout of the handshake, after which the crowd comes again until
/// somebody was refused.
pub async fn a_crowd_in_its_handshake_leaves_room_later(
    setup: Setup,
    attacker: Arc<dyn Attacker>,
    deed: Deed,
) -> DialError {
    let victim = Victim::new(setup.clone()).await;
    let (late, mut crowd) = (Arc::new(Recorder::new(2)), JoinSet::new());
    let refused = async {
        loop {
            for _ in crowd.len()..3 {
                let (attacker, address) = (Arc::clone(&attacker), victim.address());
                crowd.spawn(async move { attacker.attack(address, deed).await });
            }
            // Behind them, mostly: its own handshake takes a place, too.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            match setup.dial(&*victim.listener, &late).await {
                Ok(connection) => connection.close(CloseReason::Local),
                Err(error) => return error,
            }
            while crowd.try_join_next().is_some() {}
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused).await.expect("the crowd has its share");
    while crowd.join_next().await.is_some() {}
    eventually(&setup, &*victim.listener, &late).await.close(CloseReason::Local);
    for index in 1..victim.sink.opened_count() {
        let nonce = victim.sink.opened(index).await.link().nonce;
        victim.sink.closed(nonce).await;
    }
    victim.lives_on().await;
    refused
}

/// Dials until there is room: a place is free some time after it was left.
async fn eventually(
    setup: &Setup,
    listener: &dyn crate::Listener,
    sink: &Arc<Recorder>,
) -> Arc<dyn Connection> {
    let dialled = async {
        loop {
            if let Ok(connection) = setup.dial(listener, sink).await {
                return connection;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, dialled).await.expect("a place becomes free")
}
