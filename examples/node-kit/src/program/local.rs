//! Nodes as processes of this machine: the program runs itself.

mod links;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::{EndpointBuilder, NodeId};
use serde::Serialize;
use tokio::process::Command;

use self::links::Links;
use crate::cluster::{Authority, Cluster, Keys, Node, Protocol, Rdma};
use crate::processes::{Member, Passage, Ports};

/// Form of a cluster on this machine.
#[derive(Clone, Debug)]
pub struct Form<P: Protocol> {
    /// Number of nodes.
    pub nodes: usize,
    /// Role of each, by its number from 1 on.
    pub role: fn(u64) -> P::Role,
    /// Settings of the protocol.
    pub settings: P,
    /// Scheme of all addresses.
    pub scheme: &'static str,
    /// Host of all addresses, of this machine.
    pub host: IpAddr,
    /// Settings of the clients' connections, where the scheme is `rdma`.
    pub rdma: Rdma,
    /// Each node serves its metrics.
    pub has_metrics: bool,
    /// Arguments of the command `node`, beside those that all programs have.
    pub arguments: Vec<String>,
    /// Nodes reach each other by links over TCP that can be cut, and take so long. Clients do not.
    pub links: Option<Duration>,
}

impl<P: Protocol> Form<P> {
    /// Over TCP on the loopback, without links, each in the role of a node that the file gives
    /// none.
    pub fn plain(nodes: usize, settings: P) -> Self {
        Self {
            nodes,
            role: |_| P::Role::default(),
            settings,
            scheme: "tcp",
            host: Ipv4Addr::LOCALHOST.into(),
            rdma: Rdma::default(),
            has_metrics: false,
            arguments: Vec::new(),
            links: None,
        }
    }
}

/// Nodes of a cluster on the loopback, with ledgers and logs in one folder.
///
/// Each is this program itself with `node --config FILE --child --id N`, and says where it listens
/// in its first line. Together they have as many worker threads as there are processors, and each
/// at least one; the variable `TOKIO_WORKER_THREADS` overrules that.
#[derive(Debug)]
pub struct Local<P: Protocol> {
    folder: PathBuf,
    cluster: Cluster<P>,
    client: Option<(NodeId, Keys)>,
    members: Vec<Option<Member>>,
    links: Option<Links>,
    arguments: Vec<String>,
    _ports: [Ports; 2],
}

impl<P: Protocol<Role: Serialize> + Serialize + Clone> Local<P> {
    /// Writes the cluster file: nodes from 1 on, with their files in `node-1` and so on. Where the
    /// scheme wants it, keys are issued. No node runs yet.
    ///
    /// # Errors
    /// When files cannot be written, or the settings contradict themselves.
    pub async fn new(folder: &Path, form: Form<P>) -> Result<Self> {
        let Form { nodes, role, settings, scheme, host, .. } = form;
        let is_secure = matches!(scheme, "tls" | "quic");
        let authority = is_secure.then(|| Authority::new("local.example")).transpose()?;
        let issue = |id, place: &str| {
            let keys = authority.as_ref().map(|authority| authority.issue(id, &folder.join(place)));
            keys.transpose()
        };
        let node = |(number, port): (u64, u16)| -> Result<Node<_>> {
            let (id, place) = (NodeId::new(number), format!("node-{number}"));
            let address = format!("{scheme}://{}", SocketAddr::new(host, port)).parse()?;
            let mut node = Node::new(id, address, &place);
            node.role = role(number);
            let keys = format!("{place}/keys");
            node.keys = issue(id, &keys)?.map(|_| keys.into());
            Ok(node)
        };
        let ports = Ports::reserve_at(host, nodes);
        let ports = ports.with_context(|| format!("ports of {host} for the nodes"))?;
        let metrics = Ports::reserve(if form.has_metrics { nodes } else { 0 })?;
        let of_file = (1..).zip(ports.iter().copied()).map(node);
        let mut of_file = of_file.collect::<Result<Vec<_>>>()?;
        for (node, port) in of_file.iter_mut().zip(metrics.iter()) {
            node.operation = Some((Ipv4Addr::LOCALHOST, *port).into());
        }
        let client = NodeId::new(nodes as u64 + 1);
        let client = issue(client, "client")?.map(|keys| (client, keys));
        let text = Cluster::new(rand_id(), "local", of_file, settings)?.to_text();
        let config = folder.join(CONFIG);
        std::fs::write(&config, text).with_context(|| format!("{}", config.display()))?;
        let cluster = Cluster::read(&config)?.over_rdma(form.rdma);
        let members = (0..nodes).map(|_| None).collect();
        let folder = folder.to_owned();
        let arguments = form.arguments;
        let mut local = Self {
            folder,
            cluster,
            client,
            members,
            links: None,
            arguments,
            _ports: [ports, metrics],
        };
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

    /// The cluster, as its file has it.
    pub fn cluster(&self) -> &Cluster<P> {
        &self.cluster
    }

    /// An endpoint for clients.
    ///
    /// # Errors
    /// When their keys cannot be used.
    pub fn client(&self) -> Result<EndpointBuilder> {
        let keys = self.client.as_ref().map(|(id, keys)| (*id, keys));
        Ok(self.cluster.client(keys)?)
    }

    /// Starts a node, and waits until it listens.
    ///
    /// # Errors
    /// When it ends before, or does not listen within a minute: its log says why.
    pub async fn start(&mut self, id: u64) -> Result<()> {
        self.start_with(id, &[]).await
    }

    /// Starts a node with more arguments, and waits until it listens.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn start_with(&mut self, id: u64, arguments: &[&str]) -> Result<()> {
        let log = self.folder.join(format!("node-{id}.log"));
        let log = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        let config = match &self.links {
            Some(_) => self.linked_config(id),
            None => self.folder.join(CONFIG),
        };
        command.arg("node").arg("--config").arg(config).args(["--child", "--id"]);
        command.arg(id.to_string()).args(&self.arguments).args(arguments).stderr(log);
        if std::env::var_os(WORKERS).is_none() {
            command.env(WORKERS, self.workers().to_string());
        }
        let mut member = Member::spawn(command)?;
        member.line_within("an address", START_WITHIN).await.with_context(|| {
            format!(
                "node {id} says why in {}",
                self.folder.join(format!("node-{id}.log")).display()
            )
        })?;
        *self.member(id)? = Some(member);
        Ok(())
    }

    /// Worker threads of a node: its share of the processors, which all nodes have in common. With
    /// more, threads wake each other for pieces of work that are smaller than the waking.
    fn workers(&self) -> usize {
        let processors = available_parallelism().map_or(1, usize::from);
        (processors / self.members.len().max(1)).max(1)
    }

    /// Starts all.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn start_all(&mut self) -> Result<()> {
        for id in self.ids() {
            self.start(id).await?;
        }
        Ok(())
    }

    /// Kills a node (`kill -9`).
    ///
    /// # Errors
    /// The system's.
    pub async fn kill(&mut self, id: u64) -> Result<()> {
        if let Some(mut member) = self.member(id)?.take() {
            member.kill().await?;
        }
        Ok(())
    }

    /// Kills all, one after the other.
    ///
    /// # Errors
    /// The system's.
    pub async fn kill_all(&mut self) -> Result<()> {
        for id in self.ids() {
            self.kill(id).await?;
        }
        Ok(())
    }

    /// Lets a node rest, without its knowing (SIGSTOP).
    ///
    /// # Errors
    /// When it does not run.
    #[cfg(unix)]
    pub fn pause(&mut self, id: u64) -> Result<()> {
        Ok(self.running(id)?.pause()?)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    #[cfg(unix)]
    pub fn resume(&mut self, id: u64) -> Result<()> {
        Ok(self.running(id)?.resume()?)
    }

    /// Numbers of all nodes.
    pub fn ids(&self) -> RangeInclusive<u64> {
        1..=self.members.len() as u64
    }

    /// Has each link, by who dials and who is dialled, let pass what is said here, if there are
    /// [links](Form::links).
    pub fn set_links(&self, passage: impl Fn(u64, u64) -> Passage) {
        if let Some(links) = &self.links {
            links.set(passage);
        }
    }

    /// Looks whether all run that nobody has killed.
    ///
    /// # Errors
    /// When one has ended.
    pub fn check(&mut self) -> Result<()> {
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
    ///
    /// # Errors
    /// The system's.
    pub async fn stop(self) -> Result<()> {
        for member in self.members.into_iter().flatten() {
            member.stop().await?;
        }
        Ok(())
    }

    #[cfg(unix)]
    fn running(&mut self, id: u64) -> Result<&mut Member> {
        self.member(id)?.as_mut().with_context(|| format!("node {id} does not run"))
    }

    fn linked_config(&self, id: u64) -> PathBuf {
        self.folder.join(format!("node-{id}.toml"))
    }

    fn member(&mut self, id: u64) -> Result<&mut Option<Member>> {
        let index = usize::try_from(id)?.wrapping_sub(1);
        self.members.get_mut(index).with_context(|| format!("there is no node {id}"))
    }
}

/// Variable of the environment by which tokio has the number of its worker threads.
const WORKERS: &str = "TOKIO_WORKER_THREADS";

/// Time in which a node listens. One that has not by then hangs, on its disk or a lock.
const START_WITHIN: Duration = Duration::from_secs(60);

/// The cluster file, in the folder.
const CONFIG: &str = "cluster.toml";

/// A number for a cluster that nobody else has.
fn rand_id() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};

    RandomState::new().hash_one("cluster") >> 2 | 1
}
