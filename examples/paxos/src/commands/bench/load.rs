//! Clients of a measurement.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use convoke::Endpoint;
use convoke_sim::random::Random;
use node_kit::load::{self, Outcome};
use paxos::client::{Client, ClientError, Options, Shape};
use paxos::settings;
use tokio::task::JoinSet;

use super::super::Cluster;
use crate::args::BenchArgs;

/// Keys that are read and written, where nobody says how many.
const KEYS: u64 = 10_000;

/// One who reads and writes.
pub(super) struct Caller {
    client: Client,
    random: Random,
    payload: Bytes,
    reads: u32,
    keys: u64,
}

impl Caller {
    /// So many, all by one endpoint.
    pub(super) fn all(
        args: &BenchArgs,
        (shape, clients): (Shape, u64),
        cluster: &Cluster,
        endpoint: &Endpoint,
    ) -> Result<Vec<Self>> {
        let members = settings::members(cluster)?;
        let caller = |number| {
            let seed = u64::from(std::process::id()) << 32 | number;
            let mut options = Options::new(cluster.id(), seed);
            options.attempt = Duration::from_secs(5);
            options.shape = shape;
            Self {
                client: Client::new(endpoint, &members, options),
                random: Random::new(seed),
                payload: Bytes::from(vec![b'v'; args.payload]),
                reads: args.reads,
                keys: args.keys.unwrap_or(KEYS),
            }
        };
        Ok((0..clients).map(caller).collect())
    }

    /// Writes all keys once, each of these so many of them.
    pub(super) async fn fill(callers: Vec<Self>) -> Result<()> {
        let (mut filling, count) = (JoinSet::new(), callers.len());
        for (first, mut caller) in (0..).zip(callers) {
            filling.spawn(async move {
                for number in (first..caller.keys).step_by(count) {
                    caller.client.put(key(number), caller.payload.clone()).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(filled) = filling.join_next().await {
            filled??;
        }
        Ok(())
    }
}

fn key(number: u64) -> String {
    format!("key {number:05}")
}

impl load::Client for Caller {
    async fn operate(&mut self) -> Outcome {
        let key = key(self.random.within(0..self.keys));
        let done = if self.random.chance(self.reads) {
            self.client.get(key).await.map(drop)
        } else {
            self.client.put(key, self.payload.clone()).await
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(ClientError::OutcomeUnknown(why)) => Outcome::Unknown(why),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}
