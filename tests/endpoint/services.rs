//! Services with a state: methods of a struct as handlers, and what can be served.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use convoke::{
    CallError, Context, Endpoint, Finish, IntoService, Method, Peer, Service, StartError, Status,
    Task,
};

const ADD: Method<u64, u64> = Method::new("services.Counter/Add");
const UP_TO: Method<u64, u64> = Method::new("services.Counter/UpTo");
const SPREAD: Method<u64, u64> = Method::new("services.Counter/Spread");
const DOUBLE: Method<u64, u64> = Method::new("services.Counter/Double");

#[derive(Default)]
struct Counter {
    sum: AtomicU64,
    names: Mutex<BTreeMap<u64, Peer>>,
    peers: Vec<Peer>,
}

impl Counter {
    async fn add(&self, number: u64, _: Context) -> Result<u64, Status> {
        // It borrows across an await.
        let sum = &self.sum;
        tokio::task::yield_now().await;
        Ok(sum.fetch_add(number, Ordering::SeqCst) + number)
    }

    async fn up_to(&self, number: u64, task: Task<u64>) -> Result<Finish, Status> {
        for number in 0..number {
            task.reply(&number)?;
        }
        Ok(task.finish())
    }

    /// Branches from iterators that borrow in every way.
    async fn spread(&self, number: u64, task: Task<u64>) -> Result<Finish, Status> {
        let here = [1, 2, 3].map(|n| (n, task.context().endpoint().me()));
        let known: BTreeMap<u64, Peer> = here.into_iter().collect();
        match number {
            0 => task.fan_out(self.peers.iter().map(|peer| (peer, ADD.request(1)))).await,
            1 => {
                let found = [1, 3, 5].iter().filter_map(|n| Some((known.get(n)?, ADD.request(*n))));
                task.fan_out(found).await
            }
            2 => task.fan_out(self.peers.iter().map(|peer| (peer.node(), ADD.request(1)))).await,
            _ => {
                self.names.lock().expect("nobody panics").extend(known);
                let locked = || self.names.lock().expect("nobody panics");
                let all = task.fan_out(locked().values().map(|peer| (peer, ADD.request(1))));
                all.await
            }
        }
    }
}

/// A function that borrows the state is as good as a method.
async fn double(counter: &Counter, number: u64, _: Context) -> Result<u64, Status> {
    counter.sum.store(0, Ordering::SeqCst);
    Ok(number * 2)
}

async fn start(service: impl IntoService) -> Result<Endpoint, StartError> {
    Endpoint::builder().serve(service).start().await
}

#[tokio::test]
async fn methods_of_a_state_are_handlers() -> Result<(), Box<dyn std::error::Error>> {
    let state = Arc::new(Counter::default());
    let service = Service::with_arc(state.clone())
        .unary(ADD, Counter::add)
        .tree(UP_TO, Counter::up_to)
        .unary(DOUBLE, double);
    let endpoint = start(service).await?;
    let me = endpoint.me();
    assert_eq!(endpoint.call(ADD, 2).to(me).await?, 2);
    assert_eq!(endpoint.call(ADD, 3).to(me).await?, 5);
    assert_eq!(state.sum.load(Ordering::SeqCst), 5, "it is the one that others hold");
    let (replies, _) = endpoint.call(UP_TO, 3).to(me).open()?.collect().await?;
    assert!(replies.iter().map(|reply| *reply.message()).eq(0..3));
    assert_eq!(endpoint.call(DOUBLE, 21).to(me).await?, 42);
    assert_eq!(state.sum.load(Ordering::SeqCst), 0);
    Ok(())
}

#[tokio::test]
async fn branches_come_from_iterators_that_borrow() -> Result<(), CallError> {
    let me = Endpoint::builder().start().await.expect("it listens nowhere").node();
    let peers = vec![me.into(); 3];
    let service = Service::with(Counter { peers, ..Counter::default() })
        .unary(ADD, Counter::add)
        .tree(SPREAD, Counter::spread);
    let endpoint = Endpoint::builder().node(me).serve(service).start().await;
    let endpoint = endpoint.expect("it listens nowhere");
    for (number, count) in [(0, 3), (1, 2), (2, 3), (3, 3)] {
        // In a task of its own, for what handlers hold must be `Send`.
        let client = endpoint.clone();
        let call = tokio::spawn(async move {
            let call = client.call(SPREAD, number).to(client.me());
            call.open()?.collect().await
        });
        let (replies, outcome) = call.await.expect("it does not panic")?;
        assert_eq!((replies.len(), outcome.is_complete()), (count, true), "{number}");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_service_has_besides_its_state_is_added_to_it() {
    let service = Service::with(Counter::default()).unary(ADD, Counter::add).and(|service| {
        service.unary(DOUBLE, |n: u64, _: Context| async move { Ok::<_, Status>(n * 2) })
    });
    let endpoint = start(service).await.expect("it listens nowhere");
    assert_eq!(endpoint.call(DOUBLE, 4).to(endpoint.me()).await.expect("it answers"), 8);
    let twice = Service::with(Counter::default()).unary(ADD, Counter::add).unary(ADD, Counter::add);
    assert!(matches!(start(twice).await, Err(StartError::MethodClash(..))));
    let choosy = Service::with(()).requires(|node| Err(format!("{node} will not do")));
    assert!(matches!(start(choosy).await, Err(StartError::Unfit { .. })));
}
