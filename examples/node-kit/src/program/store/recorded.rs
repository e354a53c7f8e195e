//! A client whose calls are recorded, for those who judge them.

use bytes::Bytes;

use super::{Store, StoreError};
use crate::history::{Call, Outcome, Pending, Recorder};

/// A client of a key-value store that records its calls, and what became of them.
#[derive(Debug)]
pub struct Recorded<C> {
    client: C,
    recorder: Recorder,
    id: u64,
}

impl<C: Store> Recorded<C> {
    /// Records the calls of a client in this name.
    pub fn new(client: C, recorder: Recorder, id: u64) -> Self {
        Self { client, recorder, id }
    }

    /// The client.
    pub fn into_inner(self) -> C {
        self.client
    }

    fn record(&self, key: &str, call: Call) -> Pending {
        self.recorder.call(self.id, key, call)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn get(&mut self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let call = self.record(key, Call::Get);
        let found = self.client.get(key.to_owned().into()).await;
        match &found {
            Ok(found) => call.returned(Outcome::Found(found.as_ref().map(text))),
            Err(_) => call.did_not_run(), // a read has no effect
        }
        found
    }

    /// Writes a value, whatever there was.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn put(&mut self, key: &str, value: String) -> Result<(), StoreError> {
        let call = self.record(key, Call::Put { value: value.clone() });
        let put = self.client.put(key.to_owned().into(), value.into()).await;
        end(call, &put, |()| Outcome::Done);
        put
    }

    /// Reads what there is, and writes a value if it is still the same. True when it was.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn swap(&mut self, key: &str, value: String) -> Result<bool, StoreError> {
        let expected = self.get(key).await?;
        let asked = Call::Cas { expected: expected.as_ref().map(text), value: value.clone() };
        let call = self.record(key, asked);
        let swapped = self.client.cas(key.to_owned().into(), expected, value.into()).await;
        end(call, &swapped, |swapped| match swapped {
            Ok(()) => Outcome::Applied(true),
            Err(found) => Outcome::Found(found.as_ref().map(text)),
        });
        Ok(swapped?.is_ok())
    }

    /// Removes a key, and gives the value that it had.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete(&mut self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let call = self.record(key, Call::Delete);
        let deleted = self.client.delete(key.to_owned().into()).await;
        end(call, &deleted, |found| Outcome::Found(found.as_ref().map(text)));
        deleted
    }
}

fn end<T>(call: Pending, result: &Result<T, StoreError>, outcome: impl FnOnce(&T) -> Outcome) {
    match result {
        Ok(found) => call.returned(outcome(found)),
        Err(StoreError::Unknown(_)) => call.unknown(),
        Err(StoreError::Failed(_)) => call.did_not_run(),
    }
}

/// A value as a history has it.
pub(in crate::program) fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
