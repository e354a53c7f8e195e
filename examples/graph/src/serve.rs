//! Runs one shard.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::Endpoint;
use convoke::sim::delay::DelayLine;
use convoke::transport::Transport;

use crate::cluster::{self, Cluster, ShardNode};
use crate::csv;
use crate::generate::{Recipe, generate};
use crate::node::Node;
use crate::proto::GraphServer;
use crate::steps::MIXED;
use crate::store::{Graph, Part, Shard, Sharding, mix};

/// Source of a shard's part of the graph.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// An LDBC folder.
    Folder(&'a Path),
    /// A made-up graph.
    Generated(Recipe),
}

impl Source<'_> {
    /// One part of it.
    ///
    /// # Errors
    /// With file, line and reason, when a file is missing or malformed.
    pub fn shard(self, part: Part) -> Result<Shard> {
        Ok(match self {
            Self::Folder(dir) => Shard::read(dir, part)?,
            Self::Generated(recipe) => generate(recipe).shard(part),
        })
    }

    /// Fingerprint of it, by which shards know that they have parts of one graph. Neither 0 nor
    /// [`MIXED`].
    ///
    /// # Errors
    /// As [`Source::shard`].
    pub fn fingerprint(self) -> Result<u64> {
        let hash = match self {
            Self::Folder(dir) => csv::fingerprint(dir)?,
            Self::Generated(Recipe { persons, seed }) => mix(mix(seed) ^ u64::from(persons)),
        };
        Ok(hash.clamp(1, MIXED - 1))
    }

    /// All of it.
    ///
    /// # Errors
    /// As [`Source::shard`].
    pub fn graph(self) -> Result<Graph> {
        Ok(match self {
            Self::Folder(dir) => Graph::read(dir)?,
            Self::Generated(recipe) => generate(recipe),
        })
    }
}

/// TCP, with each frame held back for `delay` on its way out.
pub fn transport(delay: Duration) -> Arc<dyn Transport> {
    let tcp: Arc<dyn Transport> = Arc::new(convoke::transport::TcpTransport::new());
    if delay.is_zero() { tcp } else { DelayLine::wrap(tcp, delay) }
}

/// A running shard.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Starts the shard of this node, one of `sharding` in the cluster of this number. It answers
    /// once it has joined the others.
    ///
    /// # Errors
    /// When the part is not there, cannot be read, or the address cannot be listened on.
    pub async fn start(
        source: Source<'_>,
        at: &ShardNode,
        cluster: u64,
        sharding: Sharding,
        delay: Duration,
    ) -> Result<Self> {
        let index = usize::try_from(at.id.get() - 1)?;
        let Some(part) = Part::new(index, sharding) else {
            bail!("there is no shard {index} among {}", sharding.shards());
        };
        let node = Node::new(source.shard(part)?, cluster, source.fingerprint()?);
        let builder = Endpoint::builder()
            .transport(transport(delay))
            .node(at.id)
            .listen(&at.listen)
            .serve(GraphServer::new(node));
        let builder =
            if at.listen == at.addresses { builder } else { builder.advertise(&at.addresses) };
        let endpoint = builder.start().await.with_context(|| format!("shard {index}"))?;
        Ok(Self { endpoint })
    }

    /// Address at which it listens.
    pub fn address(&self) -> &convoke::transport::Address {
        &self.endpoint.addresses()[0]
    }

    /// Tells it where the others are.
    ///
    /// # Errors
    /// When an address is invalid.
    pub fn join(&self, cluster: &Cluster) -> Result<()> {
        cluster::peers(cluster, &self.endpoint)?;
        Ok(())
    }

    /// Connects to the others, so that the first query need not wait for it.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn warm_up(&self, cluster: &Cluster) -> Result<()> {
        for peer in cluster::peers(cluster, &self.endpoint)? {
            self.endpoint.warm_up(&peer).await?;
        }
        Ok(())
    }

    /// Lets running steps end for up to a second, then stops.
    pub async fn stop(self) {
        self.endpoint.shutdown(Duration::from_secs(1)).await;
    }
}
