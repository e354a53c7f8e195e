//! The cluster file: where each shard listens.
//!
//! ```toml
//! [[shard]]
//! listen = "tcp://10.0.0.1:7000"
//!
//! [[shard]]
//! listen = "tcp://0.0.0.0:7000"
//! advertise = "tcp://10.0.0.2:7000"   # what the others dial, where that differs
//! ```
//! The shards are numbered in this order, from 0; shard 0 is node 1, and so on.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use convoke::{Endpoint, NodeId, Peer};
use serde::{Deserialize, Serialize};

use crate::store::Sharding;

/// Addresses of all shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The shards, in the order of their numbers.
    #[serde(rename = "shard")]
    pub shards: Vec<ShardAddress>,
}

/// Addresses of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardAddress {
    /// Address at which it listens.
    pub listen: String,
    /// Address at which others dial it; `listen` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
}

impl ShardAddress {
    /// Address at which others dial it.
    pub fn dial(&self) -> &str {
        self.advertise.as_deref().unwrap_or(&self.listen)
    }
}

impl Cluster {
    /// Reads a cluster file.
    ///
    /// # Errors
    /// With file, line and reason, when it cannot be read or is not a cluster.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the cluster file {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in the cluster file {}", path.display()))
    }

    /// Parses the text of a cluster file.
    ///
    /// # Errors
    /// With line and reason, when it is not a cluster.
    pub fn parse(text: &str) -> Result<Self> {
        let cluster: Self = toml::from_str(text)?;
        if cluster.shards.is_empty() {
            bail!("there is no [[shard]]");
        }
        for (index, shard) in cluster.shards.iter().enumerate() {
            for address in [Some(&shard.listen), shard.advertise.as_ref()].into_iter().flatten() {
                let parsed = address.parse::<convoke::transport::Address>();
                parsed.with_context(|| format!("shard {index}"))?;
            }
        }
        Ok(cluster)
    }

    /// As the text of a cluster file.
    ///
    /// # Panics
    /// Never: a cluster is a list of tables of strings.
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("a cluster is a list of tables of strings")
    }

    /// How ids are spread over it.
    ///
    /// # Panics
    /// Never: a cluster has a shard.
    pub fn sharding(&self) -> Sharding {
        Sharding::over(NonZeroUsize::new(self.shards.len()).expect("parse refuses an empty one"))
    }

    /// Its shards as peers of an endpoint.
    ///
    /// # Errors
    /// When an address is none.
    pub fn peers(&self, endpoint: &Endpoint) -> Result<Vec<Peer>> {
        let peer = |(index, shard): (usize, &ShardAddress)| {
            Ok(endpoint.peer(shard_node(index), [shard.dial()])?)
        };
        self.shards.iter().enumerate().map(peer).collect()
    }
}

/// The node that a shard runs at.
///
/// # Panics
/// If there are 2^64 shards.
pub fn shard_node(index: usize) -> NodeId {
    NodeId::new(index as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_survives_its_text() {
        let text = "[[shard]]\nlisten = \"tcp://127.0.0.1:7000\"\n\n[[shard]]\nlisten = \"tcp://0.0.0.0:7000\"\nadvertise = \"tcp://10.0.0.2:7000\"\n";
        let cluster = Cluster::parse(text).unwrap();
        assert_eq!(cluster.to_text(), text);
        assert_eq!(cluster.shards[1].dial(), "tcp://10.0.0.2:7000");
    }

    #[test]
    fn a_malformed_cluster_is_refused_with_its_line_and_reason() {
        let error = |text: &str| format!("{:#}", Cluster::parse(text).unwrap_err());
        assert!(error("shard = []").contains("no [[shard]]"));
        assert!(error("[[shard]]\nlisten = 7").contains("line 2"));
        assert!(error("[[shard]]\nlisten = \"tcp://a:1\"\nport = 1").contains("port"));
        assert!(error("[[shard]]\nlisten = \"nowhere\"").contains("not an address"));
    }
}
