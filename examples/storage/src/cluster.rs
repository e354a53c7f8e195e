//! The cluster file: which replicas there are, and where.
//!
//! ```toml
//! [[replica]]
//! id = 1
//! listen = "tcp://10.0.0.1:7000"
//!
//! [[replica]]
//! id = 2
//! listen = "tcp://0.0.0.0:7000"
//! advertise = "tcp://10.0.0.2:7000"   # what the others dial, where that differs
//! ```

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use convoke::NodeId;
use convoke::quorum::{Configuration, Member, ToMember};
use serde::{Deserialize, Serialize};

/// Addresses of all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The replicas, in any order.
    #[serde(rename = "replica")]
    pub replicas: Vec<ReplicaAddress>,
}

/// Addresses of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaAddress {
    /// Its name: the id of its node, 1 or more.
    pub id: u64,
    /// Address at which it listens.
    pub listen: String,
    /// Address at which others dial it; `listen` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
}

impl ReplicaAddress {
    /// Address at which others dial it.
    pub fn dial(&self) -> &str {
        self.advertise.as_deref().unwrap_or(&self.listen)
    }

    /// Its node.
    ///
    /// # Errors
    /// When its id is 0.
    pub fn node(&self) -> Result<NodeId> {
        NodeId::try_from(self.id).context("the id of a replica is 1 or more, not 0")
    }
}

impl Cluster {
    /// Reads a cluster file.
    ///
    /// # Errors
    /// With file and reason, when it cannot be read or is not a cluster.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the cluster file {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in the cluster file {}", path.display()))
    }

    /// Parses the text of a cluster file.
    ///
    /// # Errors
    /// With the reason, when it is not a cluster: two replicas may have neither one id nor one
    /// address.
    pub fn parse(text: &str) -> Result<Self> {
        let cluster: Self = toml::from_str(text)?;
        for replica in &cluster.replicas {
            let address = replica.listen.parse::<convoke::transport::Address>();
            address.with_context(|| format!("replica {}", replica.id))?;
        }
        cluster.members()?;
        Ok(cluster)
    }

    /// As the text of a cluster file.
    ///
    /// # Panics
    /// Never: a cluster is a list of tables of numbers and strings.
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("a cluster is a list of tables of numbers and strings")
    }

    /// The replica of this id.
    ///
    /// # Errors
    /// When there is none; names those there are.
    pub fn replica(&self, id: u64) -> Result<&ReplicaAddress> {
        if let Some(found) = self.replicas.iter().find(|replica| replica.id == id) {
            return Ok(found);
        }
        let ids: Vec<String> = self.replicas.iter().map(|one| one.id.to_string()).collect();
        bail!("there is no replica {id}: the ids are {}", ids.join(", "))
    }

    /// The replicas as a configuration, with where to dial them.
    ///
    /// # Errors
    /// When two have one id or address, or one is malformed.
    pub fn members(&self) -> Result<Configuration> {
        let member = |replica: &ReplicaAddress| {
            let member = (replica.node()?, replica.dial()).to_member();
            member.with_context(|| format!("replica {}", replica.id))
        };
        let members = self.replicas.iter().map(member).collect::<Result<Vec<Member>>>()?;
        Ok(Configuration::new(members)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_survives_its_text() {
        let text = "[[replica]]\nid = 2\nlisten = \"tcp://127.0.0.1:7000\"\n\n[[replica]]\nid = 1\nlisten = \"tcp://0.0.0.0:7000\"\nadvertise = \"tcp://10.0.0.2:7000\"\n";
        let cluster = Cluster::parse(text).unwrap();
        assert_eq!(cluster.to_text(), text);
        assert_eq!(cluster.replica(1).unwrap().dial(), "tcp://10.0.0.2:7000");
        let nodes: Vec<u64> = cluster.members().unwrap().nodes().map(NodeId::get).collect();
        assert_eq!(nodes, [1, 2]);
        let error = cluster.replica(3).unwrap_err().to_string();
        assert_eq!(error, "there is no replica 3: the ids are 2, 1");
    }

    #[test]
    fn a_malformed_cluster_is_refused_with_its_reason() {
        let error = |text: &str| format!("{:#}", Cluster::parse(text).unwrap_err());
        let one = |id: u64, port: u16| {
            format!("[[replica]]\nid = {id}\nlisten = \"tcp://127.0.0.1:{port}\"\n")
        };
        assert!(error("replica = []").contains("at least one member"));
        assert!(error("[[replica]]\nid = 1\nlisten = 7").contains("line 3"));
        assert!(error(&(one(1, 7) + "port = 1")).contains("port"));
        assert!(error("[[replica]]\nid = 1\nlisten = \"nowhere\"").contains("not an address"));
        assert!(error(&one(0, 7)).contains("1 or more"));
        assert!(error(&(one(1, 7) + &one(1, 8))).contains("twice"));
        assert!(error(&(one(1, 7) + &one(2, 7))).contains("same address"));
    }
}
