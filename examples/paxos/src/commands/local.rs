//! Nodes as processes of this machine.

mod links;

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use convoke::NodeId;
use node_kit::cluster::Node;
use node_kit::processes::{Member, Passage, Ports};
use paxos::settings::Settings;
use tokio::process::Command;

use self::links::Links;
use super::Cluster;

/// The cluster file, in the folder.
const CONFIG: &str = "cluster.toml";

/// Nodes of a cluster on the loopback, with ledgers and logs in one folder.
pub(crate) struct Local {
    folder: PathBuf,
    cluster: Cluster,
    members: Vec<Option<Member>>,
    links: Option<Links>,
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
        let config = folder.join(CONFIG);
        std::fs::write(&config, text).with_context(|| format!("{}", config.display()))?;
        let cluster = super::read(&config)?;
        let members = (0..nodes).map(|_| None).collect();
        let folder = folder.to_owned();
        Ok(Self { folder, cluster, members, links: None, _ports: ports })
    }

    /// As [`new`](Self::new), and nodes reach each other by links that can be cut. Clients do not.
    pub(crate) async fn linked(folder: &Path, nodes: usize, settings: Settings) -> Result<Self> {
        let mut local = Self::new(folder, nodes, settings)?;
        let links = Links::of(&local.cluster).await?;
        for id in local.ids() {
            std::fs::write(local.linked_config(id), links.file_of(id, &local.cluster)?)?;
        }
        local.links = Some(links);
        Ok(local)
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Starts a node, and waits until it listens.
    pub(crate) async fn start(&mut self, id: u64) -> Result<()> {
        let log = self.folder.join(format!("node-{id}.log"));
        let log = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        let config = match &self.links {
            Some(_) => self.linked_config(id),
            None => self.folder.join(CONFIG),
        };
        command.arg("node").arg("--config").arg(config).args(["--child", "--id"]);
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

    /// Lets a node rest, without its knowing (SIGSTOP).
    pub(crate) fn pause(&mut self, id: u64) -> Result<()> {
        Ok(self.running(id)?.pause()?)
    }

    /// Lets a node go on.
    pub(crate) fn resume(&mut self, id: u64) -> Result<()> {
        Ok(self.running(id)?.resume()?)
    }

    /// Has each link, by who dials and who is dialled, let pass what is said here. For a
    /// [linked](Self::linked) cluster.
    pub(crate) fn set_links(&self, passage: impl Fn(u64, u64) -> Passage) {
        if let Some(links) = &self.links {
            links.set(passage);
        }
    }

    /// # Errors
    /// When a node has ended that nobody killed.
    pub(crate) fn check(&mut self) -> Result<()> {
        for (id, member) in (1..).zip(&mut self.members) {
            if let Some(member) = member
                && let Some(status) = member.ended()?
            {
                bail!("node {id} has ended by itself: {status}");
            }
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

    pub(crate) fn ids(&self) -> RangeInclusive<u64> {
        1..=self.members.len() as u64
    }

    fn linked_config(&self, id: u64) -> PathBuf {
        self.folder.join(format!("node-{id}.toml"))
    }

    fn running(&mut self, id: u64) -> Result<&mut Member> {
        self.member(id)?.as_mut().with_context(|| format!("node {id} does not run"))
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
