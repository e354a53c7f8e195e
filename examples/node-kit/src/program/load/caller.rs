//! One of the clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::store::{Store, StoreError};
use super::Shared;
use crate::history::{Call, Outcome, Pending};

/// Keys that all clients write.
pub(super) const SHARED_KEYS: u64 = 4;

/// Every so many requests of a client are about a shared key.
const SHARED_EVERY: u64 = 8;

/// Every so many requests about a shared key do not look at what is there.
const SHARED_PUT_EVERY: u64 = 3;

/// Keys of single clients begin so.
pub(super) const OWN: &str = "own/";

/// A client with one request at a time.
pub(super) struct Caller<C> {
    client: C,
    shared: Arc<Shared>,
    id: u64,
    count: u64,
}

impl<C: Store> Caller<C> {
    pub(super) fn new(client: C, shared: Arc<Shared>, id: u64) -> Self {
        Self { client, shared, id, count: 0 }
    }

    /// Its writes of keys that nobody else writes, as far as they were acknowledged.
    pub(super) async fn run(mut self) -> Vec<(String, String)> {
        let mut acknowledged = Vec::new();
        while !self.shared.is_over.load(Ordering::Relaxed) {
            self.count += 1;
            let value = format!("{}-{}", self.id, self.count);
            if self.count.is_multiple_of(SHARED_EVERY) {
                self.share(value).await;
                continue;
            }
            let key = format!("{OWN}{}/{:08}", self.id, self.count);
            if self.put(key.clone(), value.clone()).await {
                acknowledged.push((key, value));
            }
        }
        acknowledged
    }

    fn record(&self, key: &str, call: Call) -> Pending {
        self.shared.recorder.call(self.id, key, call)
    }

    async fn put(&mut self, key: String, value: String) -> bool {
        let call = self.record(&key, Call::Put { value: value.clone() });
        let put = self.client.put(key.into(), value.into()).await;
        let is_done = put.is_ok();
        self.end(call, put.map(|()| Outcome::Done));
        is_done
    }

    /// Writes a shared key: at times whatever there is, else if it is what was read.
    async fn share(&mut self, value: String) {
        let turn = self.count / SHARED_EVERY;
        let key = format!("shared/{}", turn % SHARED_KEYS);
        if (turn / SHARED_KEYS).is_multiple_of(SHARED_PUT_EVERY) {
            self.put(key, value).await;
        } else {
            self.swap(key, value).await;
        }
    }

    async fn swap(&mut self, key: String, value: String) {
        let call = self.record(&key, Call::Get);
        let expected = match self.client.get(key.clone().into()).await {
            Ok(found) => {
                call.returned(Outcome::Found(found.clone().map(text)));
                found
            }
            Err(_) => return call.did_not_run(), // a read has no effect
        };
        let asked = Call::Cas { expected: expected.clone().map(text), value: value.clone() };
        let call = self.record(&key, asked);
        let swapped = self.client.cas(key.into(), expected, value.into()).await;
        self.end(
            call,
            swapped.map(|swapped| match swapped {
                Ok(()) => Outcome::Applied(true),
                Err(found) => Outcome::Found(found.map(text)),
            }),
        );
    }

    fn end(&self, call: Pending, result: Result<Outcome, StoreError>) {
        match result {
            Ok(outcome) => {
                call.returned(outcome);
                self.shared.progressed();
            }
            Err(StoreError::Unknown(_)) => call.unknown(),
            Err(StoreError::Failed(_)) => call.did_not_run(),
        }
    }
}

pub(super) fn text(bytes: Bytes) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}
