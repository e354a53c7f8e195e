//! Clients: each calls, waits for the answer, and records both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_sim::random::Random;
use node_kit::history::{Call, Outcome, Pending, Recorder};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::World;
use crate::client::{Client, ClientError};

/// Clients at work.
pub(super) struct Load {
    clients: JoinSet<()>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    pub(super) async fn start(world: &World) -> Self {
        let (mut clients, is_over) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for number in 1..=world.plan.clients {
            let id = name_of(number);
            let caller = Caller {
                client: world.client(id).await,
                recorder: world.recorder.clone(),
                random: Random::of(world.seed, id),
                id,
                writes: 0,
            };
            let (plan, is_over) = (world.plan.clone(), Arc::clone(&is_over));
            clients.spawn(caller.run(plan.keys, plan.pause, is_over));
        }
        Self { clients, is_over }
    }

    /// Lets each end its call.
    pub(super) async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("clients do not panic");
        }
    }
}

/// The name of a client.
pub(super) fn name_of(number: u64) -> u64 {
    100 + number
}

/// The key of a number.
pub(super) fn key(number: u64) -> String {
    format!("key {number}")
}

/// Reads and records it. True when it was answered.
pub(super) async fn get(client: &mut Client, recorder: &Recorder, id: u64, key: &str) -> bool {
    let call = recorder.call(id, key, Call::Get);
    match client.get(key.to_owned()).await {
        Ok(found) => {
            call.returned(Outcome::Found(found.map(text)));
            true
        }
        Err(_) => {
            call.did_not_run(); // a read has no effect
            false
        }
    }
}

fn text(bytes: bytes::Bytes) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Caller {
    client: Client,
    recorder: Recorder,
    random: Random,
    id: u64,
    writes: u64,
}

impl Caller {
    async fn run(mut self, keys: u64, pause: Duration, is_over: Arc<AtomicBool>) {
        while !is_over.load(Ordering::Relaxed) {
            sleep(self.random.up_to(pause)).await;
            let key = key(self.random.within(0..keys));
            match self.random.within(0..10) {
                0..4 => {
                    get(&mut self.client, &self.recorder, self.id, &key).await;
                }
                4..7 => self.put(key).await,
                7..9 => self.cas(key).await,
                _ => self.delete(key).await,
            }
        }
    }

    /// A value that nobody else writes.
    fn value(&mut self) -> String {
        self.writes += 1;
        format!("{}-{}", self.id, self.writes)
    }

    async fn put(&mut self, key: String) {
        let value = self.value();
        let call = self.recorder.call(self.id, &key, Call::Put { value: value.clone() });
        let put = self.client.put(key, value).await;
        end(call, put.map(|()| Outcome::Done));
    }

    async fn cas(&mut self, key: String) {
        let Ok(expected) = self.client.get(key.clone()).await else { return };
        let value = self.value();
        let asked = Call::Cas { expected: expected.clone().map(text), value: value.clone() };
        let call = self.recorder.call(self.id, &key, asked);
        let swapped = self.client.cas(key, expected, value).await;
        let outcome = |swapped: Result<(), Option<bytes::Bytes>>| match swapped {
            Ok(()) => Outcome::Applied(true),
            Err(found) => Outcome::Found(found.map(text)),
        };
        end(call, swapped.map(outcome));
    }

    async fn delete(&mut self, key: String) {
        let call = self.recorder.call(self.id, &key, Call::Delete);
        let deleted = self.client.delete(key).await;
        end(call, deleted.map(|found| Outcome::Found(found.map(text))));
    }
}

fn end(call: Pending, result: Result<Outcome, ClientError>) {
    match result {
        Ok(outcome) => call.returned(outcome),
        Err(ClientError::OutcomeUnknown(_)) => call.unknown(),
        Err(_) => call.did_not_run(),
    }
}
