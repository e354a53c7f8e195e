//! A node stops at full load beneath others that hand requests on to it: of nothing that failed it
//! is in doubt whether it ran.

#![cfg(feature = "tcp")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{Cause, Context, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const WORK: Method<u64, u64> = Method::new("test.Draining/Work");
const SPREAD: Method<u64, u64> = Method::new("test.Draining/Spread");

/// The one that stops, and one that does not.
const WORKERS: [NodeId; 2] = [NodeId::new(1), NodeId::new(2)];

/// Work that has begun, by worker and number.
type Begun = Arc<Mutex<BTreeSet<(NodeId, u64)>>>;

fn work(begun: &Begun) -> Service {
    let begun = begun.clone();
    Service::new().unary(WORK, move |number: u64, context: Context| {
        let begun = begun.clone();
        async move {
            begun
                .lock()
                .expect("nobody panics with it")
                .insert((context.endpoint().node(), number));
            tokio::task::yield_now().await;
            Ok::<_, Status>(number)
        }
    })
}

/// Hands work on: as a tail, by a branch beside a reply, and to both.
async fn spread(number: u64, task: Task<u64>) -> std::result::Result<Finish, Status> {
    let request = || WORK.request(number);
    match number % 3 {
        0 => Ok(task.tail(WORKERS[0], request()).await?),
        1 => {
            task.delegate(WORKERS[0], request()).await?;
            task.answer(&number)
        }
        _ => task.fan_out(WORKERS.map(|to| (to, request()))).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_in_doubt_when_a_node_stops_beneath_others() -> Result {
    let (begun, next) = (Begun::default(), Arc::new(AtomicU64::new(0)));
    let builder = || Endpoint::builder().transport(TcpTransport::new());
    let mut workers = Vec::new();
    for node in WORKERS {
        let worker = builder().node(node).listen("tcp://127.0.0.1:0").serve(work(&begun));
        workers.push(worker.start().await?);
    }
    let mut delegators = Vec::new();
    for _ in 0..2 {
        let service = Service::new().tree(SPREAD, spread);
        let mut builder = builder().listen("tcp://127.0.0.1:0").serve(service);
        for worker in &workers {
            builder = builder.peer(worker.node(), worker.addresses());
        }
        delegators.push(builder.start().await?);
    }
    let client = builder().listen("tcp://127.0.0.1:0").start().await?;
    let mut peers = Vec::new();
    for delegator in &delegators {
        peers.push(client.connect(delegator.addresses()).await?);
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let caller = |index: usize| {
        let (client, next, stopped) = (client.clone(), next.clone(), stopped.clone());
        let peer: Peer = peers[index % peers.len()];
        tokio::spawn(async move {
            let mut failures = Vec::new();
            while !*stopped.borrow() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let call = client.call(SPREAD, number).to(peer).open();
                let outcome = call.expect("there is room for the call").outcome().await;
                failures.extend(outcome.failures.into_iter().map(|failure| (number, failure)));
            }
            failures
        })
    };
    let callers: Vec<_> = (0..64).map(caller).collect();
    while next.load(Ordering::Relaxed) < 1_000 {
        tokio::task::yield_now().await;
    }
    let leaves = workers.remove(0);
    assert!(leaves.shutdown(Duration::from_secs(60)).await, "its tasks end");
    stop.send(true)?;
    let (begun, mut refused) = (begun.lock().expect("nobody panics with it").clone(), 0);
    for caller in callers {
        for (number, failure) in caller.await? {
            // After its end it cannot be reached, as its delegator says, or fails itself.
            let is_word = matches!(failure.cause, Cause::ShuttingDown | Cause::Unreachable);
            assert!(is_word, "{number} may be lost: {failure}");
            let has_begun = begun.contains(&(WORKERS[0], number));
            assert!(!has_begun, "{number} has begun, and failed: {failure}");
            refused += usize::from(failure.cause == Cause::ShuttingDown);
        }
    }
    assert!(refused > 0, "it was asked to its end");
    Ok(())
}
