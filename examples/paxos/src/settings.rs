//! Settings of a node in a cluster file, the table `[protocol]`.

use std::time::Duration;

use convoke::NodeId;
use convoke::quorum::{Configuration, ConfigurationError};
use node_kit::cluster::{Cluster, LedgerForm, Node, Protocol};
use serde::{Deserialize, Serialize};

use crate::node::Options;

/// A node's part at the beginning. What comes of it later is in the log: see `paxos member`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It forms the cluster, votes, and may lead.
    #[default]
    Voter,
    /// It is no member until it joins.
    Spare,
}

/// The table `[protocol]`. All nodes should have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Place of the records: `disk` or `ram`.
    pub ledger: LedgerForm,
    /// A leader that was not heard for so long is missed. Default 500.
    pub election_timeout_ms: u64,
    /// Pause between rounds of an idle leader. Default 50.
    pub heartbeat_ms: u64,
    /// Batches proposed and not chosen yet, at most. Default 4.
    pub pipeline: usize,
    /// Requests of one batch, at most. Default 1,024.
    pub batch: usize,
    /// Mebibytes of the log between two snapshots. Default 64.
    pub snapshot_mib: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ledger: LedgerForm::Disk,
            election_timeout_ms: 500,
            heartbeat_ms: 50,
            pipeline: 4,
            batch: 1_024,
            snapshot_mib: 64,
        }
    }
}

impl Protocol for Settings {
    type Role = Role;

    fn contradictions(&self, nodes: &[Node<Role>]) -> Vec<String> {
        let mut found = Vec::new();
        if self.heartbeat_ms == 0 || self.heartbeat_ms.saturating_mul(3) > self.election_timeout_ms
        {
            found.push(format!(
                "heartbeat_ms is {} and election_timeout_ms is {}: the first has to be 1 or more, \
                 and the second three times as much",
                self.heartbeat_ms, self.election_timeout_ms
            ));
        }
        if self.pipeline == 0 || self.batch == 0 || self.snapshot_mib == 0 {
            found.push("pipeline, batch and snapshot_mib have to be 1 or more".to_owned());
        }
        if nodes.iter().all(|node| node.role != Role::Voter) {
            found.push("no node votes: one at least is to be no spare".to_owned());
        }
        found
    }
}

/// Members of a cluster file, with their addresses.
///
/// # Errors
/// [`ConfigurationError`].
pub fn members(cluster: &Cluster<Settings>) -> Result<Configuration, ConfigurationError> {
    Configuration::new(cluster.peers())
}

/// Options of one of its nodes, for a start with this seed.
///
/// # Errors
/// [`ConfigurationError`].
pub fn options(
    cluster: &Cluster<Settings>,
    node: NodeId,
    seed: u64,
) -> Result<Options, ConfigurationError> {
    let settings = cluster.protocol();
    let mut options = Options::new(cluster.id(), node, members(cluster)?, seed);
    options.core.voters = cluster.of(&Role::Voter).map(|node| node.id).collect();
    options.core.election_timeout = Duration::from_millis(settings.election_timeout_ms);
    options.core.heartbeat = Duration::from_millis(settings.heartbeat_ms);
    options.pipeline = settings.pipeline;
    options.batch_requests_max = settings.batch;
    options.snapshot_bytes = settings.snapshot_mib.saturating_mul(1 << 20);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cluster file of the guide page.
    fn of_the_guide() -> String {
        let page = include_str!("../../../docs/paxos.md");
        let (_, rest) = page.split_once("```toml\n").expect("the page has a cluster file");
        let (text, _) = rest.split_once("```").expect("it ends");
        text.lines().map(|line| line.trim().to_owned() + "\n").collect()
    }

    #[test]
    fn the_file_of_the_guide_is_one() {
        let cluster = Cluster::<Settings>::parse(&of_the_guide()).unwrap();
        assert_eq!(cluster.protocol(), &Settings::default());
        let options = options(&cluster, NodeId::new(2), 7).unwrap();
        assert_eq!((options.cluster, options.members.len()), (480_231, 3));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let refused = |from: &str, to: &str| {
            let text = of_the_guide().replace(from, to);
            Cluster::<Settings>::parse(&text).unwrap_err().to_string()
        };
        let words = refused("heartbeat_ms = 50", "heartbeat_ms = 200");
        assert!(words.contains("heartbeat_ms is 200"), "{words}");
        let words = refused("pipeline = 4", "pipeline = 0");
        assert!(words.contains("pipeline, batch and snapshot_mib"), "{words}");
        let words = refused("snapshot_mib", "snapshots_mib");
        assert!(words.contains("snapshots_mib"), "{words}");
    }

    /// As after a member has left; but the cluster has to be formed by somebody.
    #[test]
    fn two_nodes_may_vote_and_none_may_not() {
        let text = of_the_guide();
        let at = text.find("[[node]]\nid = 3").expect("it has a third node");
        let end = text.find("[protocol]").expect("and settings");
        let two = text[..at].to_owned() + &text[end..];
        let cluster = Cluster::<Settings>::parse(&two).unwrap();
        assert_eq!(cluster.of(&Role::Voter).count(), 2);
        let spares = two.replace("[[node]]\n", "[[node]]\nrole = \"spare\"\n");
        let words = Cluster::<Settings>::parse(&spares).unwrap_err().to_string();
        assert!(words.contains("no node votes"), "{words}");
    }
}
