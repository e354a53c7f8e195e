//! Clients: each calls, waits for the answer, and records both.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_sim::random::Random;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Program, World};
use crate::program::store::{Recorded, Store};

/// Clients at work.
#[derive(Debug)]
pub struct Load<C> {
    clients: JoinSet<C>,
    over: Over,
}

/// The word that clients are to end.
#[derive(Clone, Debug, Default)]
pub struct Over(Arc<AtomicBool>);

impl Over {
    /// True once they are.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<P: Program> World<P> {
    /// Lets its clients go to work.
    pub async fn load(&self) -> Load<P::Client> {
        let mut load = Load { clients: JoinSet::new(), over: Over::default() };
        let (keys, pause) = (self.conditions.keys, self.conditions.pause);
        for id in client_names(self.conditions.clients) {
            let client = Recorded::new(self.client(id).await, self.recorder.clone(), id);
            let caller = Caller { client, random: Random::of(self.seed, id), id, calls: 0 };
            load.spawn(|over| caller.run(keys, pause, over));
        }
        load
    }
}

impl<C: Store> Load<C> {
    /// Lets another client do what it does until the load is over.
    pub fn spawn<F>(&mut self, run: impl FnOnce(Over) -> F)
    where
        F: Future<Output = C> + Send + 'static,
    {
        self.clients.spawn(run(self.over.clone()));
    }

    /// Lets each end its call, and gives the clients.
    ///
    /// # Panics
    /// When one has.
    pub async fn end(self) -> Vec<C> {
        self.over.0.store(true, Ordering::Relaxed);
        self.clients.join_all().await
    }
}

/// Names of so many clients.
pub fn client_names(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|number| 100 + number)
}

/// The key of a number.
pub(super) fn key(number: u64) -> String {
    format!("key {number}")
}

struct Caller<C> {
    client: Recorded<C>,
    random: Random,
    id: u64,
    calls: u64,
}

impl<C: Store> Caller<C> {
    async fn run(mut self, keys: u64, pause: Duration, over: Over) -> C {
        while !over.is_over() {
            sleep(self.random.up_to(pause)).await;
            let key = key(self.random.within(0..keys));
            let value = self.value();
            // An error is one of these times, and recorded.
            match self.random.within(0..10) {
                0..4 => drop(self.client.get(&key).await),
                4..7 => drop(self.client.put(&key, value).await),
                7..9 => drop(self.client.swap(&key, value).await),
                _ => drop(self.client.delete(&key).await),
            }
        }
        self.client.into_inner()
    }

    /// A value that nobody else writes.
    fn value(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.id, self.calls)
    }
}
