//! One of the clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::store::{Recorded, Store};
use super::Shared;

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
    client: Recorded<C>,
    shared: Arc<Shared>,
    id: u64,
    count: u64,
}

impl<C: Store> Caller<C> {
    pub(super) fn new(client: C, shared: Arc<Shared>, id: u64) -> Self {
        let client = Recorded::new(client, shared.recorder.clone(), id);
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
            if self.put(&key, value.clone()).await {
                acknowledged.push((key, value));
            }
        }
        acknowledged
    }

    async fn put(&mut self, key: &str, value: String) -> bool {
        let put = self.client.put(key, value).await;
        self.progressed(put.is_ok())
    }

    /// Writes a shared key: at times whatever there is, else if it is what was read.
    async fn share(&mut self, value: String) {
        let turn = self.count / SHARED_EVERY;
        let key = format!("shared/{}", turn % SHARED_KEYS);
        if (turn / SHARED_KEYS).is_multiple_of(SHARED_PUT_EVERY) {
            self.put(&key, value).await;
        } else {
            let swapped = self.client.swap(&key, value).await;
            self.progressed(swapped.is_ok());
        }
    }

    fn progressed(&self, has: bool) -> bool {
        if has {
            self.shared.progressed();
        }
        has
    }
}
