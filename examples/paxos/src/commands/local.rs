//! Nodes as processes of this machine.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use convoke::NodeId;
use node_kit::cluster::Node;
use node_kit::processes::{Member, Ports};
use paxos::settings::Settings;
use tokio::process::Command;

use super::Cluster;

/// Nodes of a cluster on the loopback, with ledgers and logs in one folder.
pub(crate) struct Local {
    config: PathBuf,
    folder: PathBuf,
    cluster: Cluster,
    members: Vec<Option<Member>>,
    _ports: Ports,
}

impl Local {
    /// Writes the cluster file. No node runs yet.
    pub(crate) fn new(folder: &Path, nodes: usize, settings: Settings) -> Result<Self> {
        let node = |(number, port): (u64, u16)| -> Result<Node<_>> {
            let address = format!("tcp://127.0.0.1:{port}").parse()?;
            Ok(Node::new(NodeId::new(number), address, format!("node-{number}")))
        };
        let ports = Ports::reserve(nodes)?;
        let of_file = (1..).zip(ports.iter().copied()).map(node).collect::<Result<Vec<_>>>()?;
        let text = Cluster::new(rand_id(), "local", of_file, settings)?.to_text();
        let config = folder.join("cluster.toml");
        std::fs::write(&config, text).with_context(|| format!("{}", config.display()))?;
        let cluster = super::read(&config)?;
        let members = (0..nodes).map(|_| None).collect();
        Ok(Self { config, folder: folder.to_owned(), cluster, members, _ports: ports })
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Starts a node, and waits until it listens.
    pub(crate) async fn start(&mut self, id: u64) -> Result<()> {
        let log = self.folder.join(format!("node-{id}.log"));
        let log = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("node").arg("--config").arg(&self.config).args(["--child", "--id"]);
        command.arg(id.to_string()).stderr(log);
        let mut member = Member::spawn(command)?;
        member.line("an address").await.with_context(|| {
            format!(
                "node {id} says why in {}",
                self.folder.join(format!("node-{id}.log")).display()
            )
        })?;
        *self.member(id)? = Some(member);
        Ok(())
    }

    pub(crate) async fn start_all(&mut self) -> Result<()> {
        for id in self.ids() {
            self.start(id).await?;
        }
        Ok(())
    }

    /// Kills a node (`kill -9`).
    pub(crate) async fn kill(&mut self, id: u64) -> Result<()> {
        if let Some(mut member) = self.member(id)?.take() {
            member.kill().await?;
        }
        Ok(())
    }

    pub(crate) async fn kill_all(&mut self) -> Result<()> {
        for id in self.ids() {
            self.kill(id).await?;
        }
        Ok(())
    }

    /// Stops all in good order.
    pub(crate) async fn stop(self) -> Result<()> {
        for member in self.members.into_iter().flatten() {
            member.stop().await?;
        }
        Ok(())
    }

    fn ids(&self) -> std::ops::RangeInclusive<u64> {
        1..=self.members.len() as u64
    }

    fn member(&mut self, id: u64) -> Result<&mut Option<Member>> {
        let index = usize::try_from(id)?.wrapping_sub(1);
        self.members.get_mut(index).with_context(|| format!("there is no node {id}"))
    }
}

/// A number for a cluster that nobody else has.
fn rand_id() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};

    RandomState::new().hash_one("cluster") >> 2 | 1
}
