//! Nodes as processes of this machine.

mod links;

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::NodeId;
use node_kit::cluster::{Authority, Node};
use node_kit::processes::{Member, Passage, Ports};
use paxos::settings::{Role, Settings};
use tokio::process::Command;

use self::links::Links;
use super::Cluster;
use super::client::Proof;

/// The cluster file, in the folder.
const CONFIG: &str = "cluster.toml";

/// Form of a cluster on this machine.
pub(crate) struct Form {
    pub(crate) nodes: usize,
    pub(crate) settings: Settings,
    /// Scheme of all addresses.
    pub(crate) scheme: &'static str,
    /// Nodes reach each other by links that can be cut, and take so long. Clients do not.
    pub(crate) links: Option<Duration>,
}

impl Form {
    fn node(&self, id: u64, port: u16) -> Result<Node<Role>> {
        let address = format!("{}://127.0.0.1:{port}", self.scheme).parse()?;
        let mut node = Node::new(NodeId::new(id), address, format!("node-{id}"));
        let is_secure = matches!(self.scheme, "tls" | "quic");
        node.keys = is_secure.then(|| format!("node-{id}/keys").into());
        Ok(node)
    }

    /// Over TCP, without links.
    pub(crate) fn plain(nodes: usize, settings: Settings) -> Self {
        Self { nodes, settings, scheme: "tcp", links: None }
    }
}

/// Nodes of a cluster on the loopback, with ledgers, keys and logs in one folder.
pub(crate) struct Local {
    folder: PathBuf,
    cluster: Cluster,
    members: Vec<Option<Member>>,
    links: Option<Links>,
    proof: Option<Proof>,
    _ports: Ports,
}

impl Local {
    /// Writes the cluster file, and keys where they are needed. No node runs yet.
    pub(crate) async fn new(folder: &Path, form: &Form) -> Result<Self> {
        let ports = Ports::reserve(form.nodes)?;
        let nodes = (1..).zip(ports.iter().copied()).map(|(id, port)| form.node(id, port));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let settings = form.settings.clone();
        let text = Cluster::new(rand_id(), "local", nodes, settings)?.to_text();
        let config = folder.join(CONFIG);
        std::fs::write(&config, text).with_context(|| format!("{}", config.display()))?;
        let cluster = super::read(&config)?;
        let members = (0..form.nodes).map(|_| None).collect();
        let proof = if cluster.is_secure() { Some(issue(&cluster, folder)?) } else { None };
        let folder = folder.to_owned();
        let mut local = Self { folder, cluster, members, links: None, proof, _ports: ports };
        if let Some(delay) = form.links {
            local.link(delay).await?;
        }
        Ok(local)
    }

    async fn link(&mut self, delay: Duration) -> Result<()> {
        let links = Links::of(&self.cluster, delay).await?;
        for id in self.ids() {
            std::fs::write(self.linked_config(id), links.file_of(id, &self.cluster)?)?;
        }
        self.links = Some(links);
        Ok(())
    }

    /// Proof of a client, where nodes want one.
    pub(crate) fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
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

    /// Has each link, by who dials and who is dialled, let pass what is said here, if there
    /// are links.
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

/// Issues keys of all nodes, and of a client.
fn issue(cluster: &Cluster, folder: &Path) -> Result<Proof> {
    let authority = Authority::new("local.example")?;
    for node in cluster.nodes() {
        if let Some(folder) = &node.keys {
            authority.issue(node.id, folder)?;
        }
    }
    let name = NodeId::new(cluster.nodes().len() as u64 + 1);
    let keys = authority.issue(name, &folder.join("client"))?;
    Ok(Proof { name, keys })
}

/// A number for a cluster that nobody else has.
fn rand_id() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};

    RandomState::new().hash_one("cluster") >> 2 | 1
}
