//! Members that prove who they are, as processes over TLS: two join under load whom the others know
//! from the log alone, the leader leaves, and whoever has other keys is refused.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::{Endpoint, NodeId};
use node_kit::cluster::{Authority, Cluster, Keys};
use node_kit::processes::{Member, Ports};
use node_kit::program::load::Load;
use paxos::client::{Client, Options};
use paxos::settings::{self, Settings};
use tokio::process::Command;
use tokio::time::sleep;

const CLUSTER: u64 = 480_231;
const PROGRAM: &str = env!("CARGO_BIN_EXE_paxos");

/// Numbers that prove a person and the clients of the load.
const OPERATOR: u64 = 90;
const CLIENTS: u64 = 91;

/// Files of a cluster whose first three nodes form it, and its processes.
struct Machine {
    folder: tempfile::TempDir,
    authority: Authority,
    ports: Ports,
    running: Vec<(u64, Member)>,
}

impl Machine {
    fn new() -> Result<Self> {
        let authority = Authority::new("accounts.example")?;
        let (folder, ports) = (tempfile::tempdir()?, Ports::reserve(5)?);
        let machine = Self { folder, authority, ports, running: Vec::new() };
        for id in 1..=5 {
            let place = format!("node-{id}");
            machine.issue(&machine.authority, id, &format!("{place}/keys"))?;
            machine.write_config(id, &place)?;
        }
        machine.issue(&machine.authority, OPERATOR, "operator")?;
        Ok(machine)
    }

    fn at(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    fn address(&self, id: u64) -> String {
        format!("tls://127.0.0.1:{}", self.ports[usize::try_from(id).unwrap_or(usize::MAX) - 1])
    }

    fn issue(&self, authority: &Authority, id: u64, place: &str) -> Result<Keys> {
        Ok(authority.issue(NodeId::new(id), &self.at(place))?)
    }

    /// The file of a node: the first three, whose file that is, and itself as a spare if it is
    /// another, with its keys and its ledger at a place.
    fn write_config(&self, id: u64, place: &str) -> Result<()> {
        let mut text = format!("[cluster]\nid = {CLUSTER}\nname = \"accounts\"\n");
        let mut write = |node: u64, place: &str, role: &str| {
            text += &format!(
                "\n[[node]]\nid = {node}\nfolder = \"{place}\"\nkeys = \"{place}/keys\"\n\
                 role = \"{role}\"\naddresses = [\"{}\"]\n",
                self.address(node)
            );
        };
        (1..=3).for_each(|node| write(node, &format!("node-{node}"), "voter"));
        if id > 3 {
            write(id, place, "spare");
        }
        Ok(std::fs::write(self.config(id), text)?)
    }

    fn config(&self, id: u64) -> PathBuf {
        self.at(&if id > 3 { format!("cluster-{id}.toml") } else { "cluster.toml".to_owned() })
    }

    /// Starts a node, and waits until it listens.
    async fn start(&mut self, id: u64) -> Result<()> {
        let mut command = Command::new(PROGRAM);
        command.args(["node", "--child", "--config"]).arg(self.config(id));
        command.args(["--id", &id.to_string()]).stderr(std::fs::File::create(self.log(id))?);
        let mut member = Member::spawn(command)?;
        let listening = member.line("an address").await;
        listening.with_context(|| std::fs::read_to_string(self.log(id)).unwrap_or_default())?;
        self.running.push((id, member));
        Ok(())
    }

    fn log(&self, id: u64) -> PathBuf {
        self.at(&format!("node-{id}.log"))
    }

    async fn kill(&mut self, id: u64) -> Result<()> {
        let at = self.running.iter().position(|(running, _)| *running == id);
        let (_, mut member) = self.running.remove(at.context("it runs")?);
        Ok(member.kill().await?)
    }

    /// Runs `paxos member` with the keys of a folder: what it printed, or else its complaint.
    async fn member(&self, keys: &str, seconds: u64, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(PROGRAM);
        command.args(["member", "--config"]).arg(self.config(1)).arg("--keys").arg(self.at(keys));
        command.args(["--name", &OPERATOR.to_string(), "--deadline", &seconds.to_string()]);
        command.args(arguments);
        let output = command.stdin(Stdio::null()).output().await.expect("it is built");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn cluster(&self) -> Result<Cluster<Settings>> {
        Ok(Cluster::read(self.config(1))?)
    }

    /// An endpoint for all clients of the load, by the keys of one number.
    async fn endpoint(&self) -> Result<Endpoint> {
        let keys = self.issue(&self.authority, CLIENTS, "clients")?;
        let builder = self.cluster()?.client(Some((NodeId::new(CLIENTS), &keys)))?;
        Ok(builder.start().await?)
    }
}

fn client(endpoint: &Endpoint, cluster: &Cluster<Settings>, seed: u64) -> Result<Client> {
    let mut options = Options::new(CLUSTER, seed);
    options.deadline = Duration::from_secs(30);
    Ok(Client::new(endpoint, &settings::members(cluster)?, options))
}

/// The node that says that it leads.
async fn leader(client: &Client, nodes: std::ops::RangeInclusive<u64>) -> u64 {
    loop {
        for node in nodes.clone().map(NodeId::new) {
            if let Ok(state) = client.inspect(node).await
                && state.standing == "leading"
            {
                return state.node;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn votes(members: &str) -> Vec<&str> {
    let voters = members.lines().filter(|line| line.contains("votes"));
    voters.filter_map(|line| line.split_whitespace().next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_join_and_the_leader_leaves_under_load() -> Result<()> {
    let mut machine = Machine::new()?;
    for id in 1..=3 {
        machine.start(id).await?;
    }
    let (endpoint, cluster) = (machine.endpoint().await?, machine.cluster()?);
    let first = client(&endpoint, &cluster, 1)?;
    leader(&first, 1..=3).await;
    let clients = (2..6).map(|seed| client(&endpoint, &cluster, seed));
    let load = Load::start(clients.collect::<Result<Vec<_>>>()?);
    load.progress().await?;
    for id in [4, 5] {
        machine.start(id).await?;
        let (id, address) = (id.to_string(), machine.address(id));
        let members = machine.member("operator", 60, &["add", &id, "--address", &address]).await;
        let members = members.map_err(anyhow::Error::msg)?;
        assert!(votes(&members).contains(&&*id) && members.contains(&address), "{members}");
        load.progress().await?;
    }
    let left = leader(&first, 1..=3).await;
    let members = machine.member("operator", 60, &["remove", &left.to_string()]).await;
    let members = members.map_err(anyhow::Error::msg)?;
    assert!(votes(&members).len() == 4 && !votes(&members).contains(&&*left.to_string()));
    machine.kill(left).await?;
    load.progress().await?;
    let verdict = load.end().await?.judge(&mut client(&endpoint, &cluster, 9)?).await?;
    assert!(verdict.is_good(), "{verdict}");
    for (_, member) in machine.running {
        member.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_has_other_keys_is_refused_in_words() -> Result<()> {
    let mut machine = Machine::new()?;
    for id in 1..=3 {
        machine.start(id).await?;
    }
    let address = machine.address(4);
    let add = ["add", "4", "--address", &address];
    let refused = async |machine: &Machine, keys, arguments: &[&str]| {
        machine.member(keys, 5, arguments).await.expect_err("it is refused")
    };

    // A node of another authority, which says of itself that it is node 4.
    let others = Authority::new("accounts.example")?;
    machine.issue(&others, 4, "foreign-4/keys")?;
    machine.write_config(4, "foreign-4")?;
    machine.start(4).await?;
    let words = refused(&machine, "operator", &add).await;
    assert!(words.contains("nothing was changed") && words.contains("trust each other"), "{words}");
    machine.kill(4).await?;

    // Keys of another node.
    machine.issue(&machine.authority, 7, "wrong-4/keys")?;
    machine.write_config(4, "wrong-4")?;
    let words = format!("{:?}", machine.start(4).await.expect_err("it has no keys of its own"));
    assert!(words.contains("proves [7], and not node 4"), "{words}");

    // An address at which nobody proves anything, and none at all.
    let plain = address.replace("tls", "tcp");
    let words = refused(&machine, "operator", &["add", "4", "--address", &plain]).await;
    assert!(words.contains("they speak tls://"), "{words}");
    let words = refused(&machine, "operator", &["add", "4"]).await;
    assert!(words.contains("give its address"), "{words}");

    // Another node answers there, with its own keys.
    let second = machine.address(2);
    let words = refused(&machine, "operator", &["add", "4", "--address", &second]).await;
    assert!(words.contains("nothing was changed"), "{words}");

    // An operator of another authority.
    machine.issue(&others, OPERATOR, "foreign-operator")?;
    let words = refused(&machine, "foreign-operator", &["remove", "3"]).await;
    assert!(words.contains("trust each other"), "{words}");

    let members = machine.member("operator", 60, &["list"]).await.map_err(anyhow::Error::msg)?;
    assert_eq!((votes(&members), members.lines().next()), (vec!["1", "2", "3"], Some("epoch 1")));
    for (_, member) in machine.running {
        member.stop().await?;
    }
    Ok(())
}
