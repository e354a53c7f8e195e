//! The client of a key-value store, as the commands of the kit see it.

use bytes::Bytes;
use node_kit::program::store::{Pairs, Store, StoreError};

use super::{Client, ClientError};
use crate::proto::Scan;

impl Store for Client {
    async fn get(&mut self, key: Bytes) -> Result<Option<Bytes>, StoreError> {
        Ok(Self::get(self, key).await?)
    }

    async fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), StoreError> {
        Ok(Self::put(self, key, value).await?)
    }

    async fn delete(&mut self, key: Bytes) -> Result<Option<Bytes>, StoreError> {
        Ok(Self::delete(self, key).await?)
    }

    async fn cas(
        &mut self,
        key: Bytes,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> Result<Result<(), Option<Bytes>>, StoreError> {
        Ok(Self::cas(self, key, expected, value).await?)
    }

    async fn scan(&mut self, from: Bytes, prefix: Bytes, limit: u32) -> Result<Pairs, StoreError> {
        let scanned = Self::scan(self, Scan { from, prefix, limit }).await?;
        let pairs = scanned.pairs.into_iter().map(|pair| (pair.key, pair.value));
        Ok((pairs.collect(), scanned.next))
    }
}

impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::OutcomeUnknown(_) => Self::Unknown(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}
