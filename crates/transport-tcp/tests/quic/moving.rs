//! Connections that move: a dialler with a new address, and a transport with a new runtime.

use std::sync::Arc;

use convoke_transport::conformance::{Recorder, flushed, pattern, send};
use convoke_transport::{CloseReason, Lane, Listener};

use crate::{Cluster, dial, listen};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_goes_on_while_its_dialler_changes_sockets() {
    const ROUNDS: usize = 5;
    const FRAMES: usize = 100;
    let cluster = Cluster::new();
    let (moving, sink) = (cluster.node(1), Arc::new(Recorder::new(2)));
    let listener = listen(&cluster.node(2), &sink).await;
    let dialler = Arc::new(Recorder::new(1));
    let to_b = dial(&moving, &*listener, &dialler).await.expect("it listens");
    let to_a = sink.opened(0).await;
    let nonce = to_b.link().nonce;
    let mut sockets = Vec::new();
    for round in 0..ROUNDS {
        for number in 0..FRAMES {
            let len = if number == 50 { 200_000 } else { 300 };
            send(&to_b, Lane::Data, &pattern(round * FRAMES + number, len)).await;
            send(&to_a, Lane::Data, &pattern(number, 300)).await;
        }
        // With frames on their way in both directions.
        let moved = moving.rebind().expect("a port is free");
        assert_eq!(moved.len(), 1, "only IPv4 was dialled");
        sockets.extend(moved);
    }
    let frames = sink.frames(nonce, ROUNDS * FRAMES).await;
    for (number, (_, frame)) in frames.iter().enumerate() {
        let len = if number % FRAMES == 50 { 200_000 } else { 300 };
        assert!(*frame == pattern(number, len), "frame {number} changed");
    }
    dialler.frames(nonce, ROUNDS * FRAMES).await;
    assert!(sink.seen(nonce).expect("it is open").closed.is_none());
    sockets.dedup();
    assert_eq!(sockets.len(), ROUNDS, "every move is to another port");
    to_b.close(CloseReason::Local);
    dialler.closed(nonce).await;
    sink.closed(nonce).await;
    dialler.check();
    sink.check();
}

#[test]
fn a_transport_outlives_the_runtime_it_dialled_on() {
    let cluster = Cluster::new();
    let (dialling, sink) = (cluster.node(1), Arc::new(Recorder::new(2)));
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let of_listener = runtime().expect("a runtime starts");
    let listener: Arc<dyn Listener> =
        Arc::from(of_listener.block_on(async { listen(&cluster.node(2), &sink).await }));
    for _ in 0..2 {
        let own = runtime().expect("a runtime starts");
        own.block_on(async {
            let dialler = Arc::new(Recorder::new(1));
            let to_b = dial(&dialling, &*listener, &dialler).await.expect("it listens");
            send(&to_b, Lane::Data, &pattern(1, 100)).await;
            flushed(&to_b).await;
            sink.frames(to_b.link().nonce, 1).await;
        });
    }
    assert_eq!(sink.opened_count(), 2);
}
