//! Callers that are polled once and no more, as in a `select!` that went another way: nobody waits
//! for them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Waker};

use convoke_core::transport::mem::MemTransport;
use convoke_core::{Context, Endpoint, Method, NodeId, Peer, Service, Status};

/// Answered once it is let go, which it is not.
const HOLD: Method<u64, u64> = Method::new("test.Test/Hold");
const ECHO: Method<u64, u64> = Method::new("test.Test/Echo");

/// Turns that the runtime is given for a request to come: few are needed.
const TURNS: usize = 1_000;

/// A client, a server that counts the requests that it holds, and that count.
async fn client_of_server() -> (Endpoint, Endpoint, Arc<AtomicUsize>) {
    let (transport, held) = (MemTransport::new(), Arc::<AtomicUsize>::default());
    let counter = held.clone();
    let service =
        Service::new().unary(ECHO, |number, _: Context| async move { Ok::<_, Status>(number) });
    let service = service.unary(HOLD, move |number, _: Context| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            std::future::pending::<()>().await;
            Ok::<_, Status>(number)
        }
    });
    let server = Endpoint::builder().node(NodeId::new(1)).transport(transport.clone());
    let server = server.listen("mem://server:0").serve(service).start().await;
    let server = server.expect("the name is free");
    let client = Endpoint::builder().node(NodeId::new(2)).transport(transport).start().await;
    let client = client.expect("nothing to bind");
    client.connect(&server.addresses()[0]).await.expect("it listens");
    (client, server, held)
}

/// Turns of the runtime until so many requests have come, a thousand at most.
async fn turns_until(held: &AtomicUsize, count: usize) {
    for _ in 0..TURNS {
        if held.load(Ordering::Relaxed) == count {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} of {count} requests came", held.load(Ordering::Relaxed));
}

#[tokio::test]
async fn requests_leave_without_the_caller_that_came_before_theirs() {
    let (client, _server, held) = client_of_server().await;
    let peer = Peer::from(NodeId::new(1));
    // Nobody is alone beside this one.
    let first = tokio::spawn(client.call(HOLD, 0).to(peer).into_future());
    turns_until(&held, 1).await;
    let mut polled_once = pin!(client.call(HOLD, 1).to(peer).into_future());
    let mut cx = TaskContext::from_waker(Waker::noop());
    assert!(polled_once.as_mut().poll(&mut cx).is_pending());
    let last = tokio::spawn(client.call(HOLD, 2).to(peer).into_future());
    turns_until(&held, 3).await;
    first.abort();
    last.abort();
}

/// The flusher is to run on the worker whose thread that caller does not let go of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_leave_beside_a_caller_that_blocks_its_thread() {
    let (client, _server, _) = client_of_server().await;
    let peer = Peer::from(NodeId::new(1));
    // Nobody is alone beside this one.
    let _first = client.call(HOLD, 0).to(peer).open().expect("it is connected");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (told, blocks) = tokio::sync::oneshot::channel();
    let blocking = client.clone();
    let blocking = tokio::spawn(async move {
        let mut polled_once = pin!(blocking.call(HOLD, 1).to(peer).into_future());
        let mut cx = TaskContext::from_waker(Waker::noop());
        assert!(polled_once.as_mut().poll(&mut cx).is_pending());
        let _ = (told.send(()), released.recv());
    });
    blocks.await.expect("it says so before it blocks");
    assert_eq!(client.call(ECHO, 7).to(peer).await.expect("it is answered"), 7);
    drop(release);
    blocking.await.expect("it is let go");
}
