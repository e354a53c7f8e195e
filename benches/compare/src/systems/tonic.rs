//! `tonic`, `tonic-4ch` and `tonic-late`: gRPC as most people use it, a call for each request, over
//! one connection or four.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::bench::{Bench, Form, ITEMS, QUORUM};
use crate::bencher::{Bencher, Sample};
use crate::drive::{Client, Work, refused};
use crate::proto::rival_client::RivalClient;
use crate::proto::{NOT_FOUND, Payload, counted, expect_bytes};

/// A connection of its own to a server.
pub(crate) async fn connect(address: &str) -> Result<RivalClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    Ok(RivalClient::new(endpoint.connect().await?))
}

/// The end of those calls of a quorum whose answers are not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// They are dropped, as one does who has the answers, which resets their streams.
    Dropped,
    /// Each is a task, which goes on until its answer is there.
    Finished,
}

/// Connects to all servers, `channels` times each, and keeps its callers busy.
pub(crate) async fn measure(bencher: Bencher<'_>, channels: usize, late: Late) -> Result<Sample> {
    let mut sets = Vec::new();
    for _ in 0..channels {
        let mut set = Vec::new();
        for address in bencher.servers.addresses() {
            set.push(connect(&address).await?);
        }
        sets.push(set.into());
    }
    let caller = Caller { servers: Arc::clone(&sets[0]), sets: sets.into(), late };
    bencher.closed_loop(caller).await
}

type Set = Arc<[RivalClient<Channel>]>;

#[derive(Clone, Debug)]
struct Caller {
    /// All servers, over the connections of this caller.
    servers: Set,
    sets: Arc<[Set]>,
    late: Late,
}

impl Client for Caller {
    fn of_caller(&self, index: usize) -> Self {
        let servers = Arc::clone(&self.sets[index % self.sets.len()]);
        Self { servers, ..self.clone() }
    }

    async fn operate(&self, work: &Work) -> Result<()> {
        let mut first = self.servers[0].clone();
        match (work.bench, work.form) {
            (Bench::StreamItems, _) => {
                let mut items = first.items(counted(work, ITEMS as usize)).await?.into_inner();
                let mut came = 0;
                while let Some(item) = items.message().await? {
                    expect_bytes(&item, work.payload.len())?;
                    came += 1;
                }
                ensure!(came == ITEMS, "{came} items instead of {ITEMS}");
                Ok(())
            }
            (Bench::Hops { servers, .. }, Form::Nested) => {
                let reply = first.hops(counted(work, servers)).await?;
                expect_bytes(reply.get_ref(), work.payload.len())
            }
            (Bench::Hops { servers, .. }, _) => {
                for server in &self.servers[..servers] {
                    echo(server, work).await?;
                }
                Ok(())
            }
            (Bench::Fanout { leaves }, Form::Nested) => {
                let reply = first.fanout(counted(work, leaves)).await?;
                expect_bytes(reply.get_ref(), leaves * work.payload.len())
            }
            (Bench::Fanout { .. }, _) => {
                echo(&self.servers[0], work).await?;
                try_join_all(self.servers[1..].iter().map(|leaf| echo(leaf, work))).await?;
                Ok(())
            }
            (Bench::Quorum, _) => self.quorum(work).await,
            _ if work.is_refused => {
                let request = Payload { count: NOT_FOUND, ..counted(work, 0) };
                refused(first.unary(request).await, |status| status.code() == Code::NotFound)
            }
            _ => echo(&self.servers[0], work).await,
        }
    }
}

impl Caller {
    /// Asks all, and is done with the first answers.
    async fn quorum(&self, work: &Work) -> Result<()> {
        if self.late == Late::Dropped {
            return first_of(self.servers.iter().map(|server| echo(server, work))).await;
        }
        let spawned = self.servers.iter().map(|server| {
            let (server, work) = (server.clone(), work.clone());
            let call = tokio::spawn(async move { echo(&server, &work).await });
            async { call.await.context("a call panicked")? }
        });
        first_of(spawned).await
    }
}

/// Waits for as many of these calls as are a quorum.
async fn first_of(calls: impl Iterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    let mut calls: FuturesUnordered<_> = calls.collect();
    for _ in 0..QUORUM {
        // A connection that was lost with the calls of others on it fails the operation.
        calls.next().await.expect("there are more servers than a quorum")?;
    }
    Ok(())
}

async fn echo(server: &RivalClient<Channel>, work: &Work) -> Result<()> {
    let reply = server.clone().unary(counted(work, 0)).await?;
    expect_bytes(reply.get_ref(), work.payload.len())
}
