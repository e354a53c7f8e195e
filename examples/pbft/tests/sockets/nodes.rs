//! Replicas on real sockets. Among liars and strangers: what they send is dropped, counted by its
//! cause, and the service goes on in the same view. On disks: all comes back, out of snapshots,
//! too.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke::disk::HostDisk;
use convoke::quorum::Configuration;
use convoke::{CallError, Code, Endpoint, NodeId};
use node_kit::ledger::{self, Ledger, Recovered};
use node_kit::processes::Ports;
use pbft::client::{Client, ClientError, Options};
use pbft::core::{
    ClientId, Digest, Forgotten, Group, Keys, Message, Phase, Request, Scope, Sequence, Signed,
    Signer, View, Vote,
};
use pbft::kv::OPERATION_BYTES_MAX;
use pbft::node::{self, Node, NodeError};
use pbft::proto::{Asked, InspectRequest, PbftClient, Words, asked, words};
use pbft::wire;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };
const CLIENT: ClientId = ClientId(9);

fn signer(number: u64) -> Signer {
    Signer::ed25519([u8::try_from(number).expect("it is small"); 32])
}

fn keys() -> Keys {
    keys_with([CLIENT])
}

fn keys_with(clients: impl IntoIterator<Item = ClientId>) -> Keys {
    let members: Vec<NodeId> = (1..=4).map(NodeId::new).collect();
    let checkers = members.iter().map(|node| (*node, signer(node.get()).checker())).collect();
    let group = Group::new(members).expect("there are members");
    let clients = clients.into_iter().map(|client| (client, signer(9).checker()));
    Keys::new(SCOPE, group, checkers, clients.collect())
}

/// Four replicas, of whom some run.
struct Cluster {
    members: Configuration,
    nodes: Vec<Node>,
    client: Endpoint,
    _ports: Ports,
}

impl Cluster {
    /// Each that runs signs with its key, and has its ledger in memory.
    async fn start(running: &[(u64, Signer)]) -> Result<Self> {
        Self::start_at(running, None, false).await
    }

    /// Each that runs signs with its key, and has its ledger in this folder. Checkpoints and
    /// snapshots are frequent.
    async fn start_at(
        running: &[(u64, Signer)],
        folder: Option<&Path>,
        is_outlined: bool,
    ) -> Result<Self> {
        Self::start_with(running, folder, is_outlined, |_| keys()).await
    }

    async fn start_with(
        running: &[(u64, Signer)],
        folder: Option<&Path>,
        is_outlined: bool,
        keys: impl Fn(u64) -> Keys,
    ) -> Result<Self> {
        let ports = Ports::reserve(4)?;
        let address = |port: &u16| format!("tcp://127.0.0.1:{port}");
        let addresses: Vec<String> = ports.iter().map(address).collect();
        let members = (1..).map(NodeId::new).zip(addresses.iter().map(String::as_str));
        let members = Configuration::new(members)?;
        let mut nodes = Vec::new();
        for (id, signer) in running {
            let at = addresses[usize::try_from(*id)? - 1].as_str();
            let builder = convoke::endpoint().listen(at);
            let node = NodeId::new(*id);
            let mut options = node::Options::new(node, members.clone(), keys(*id), signer.clone());
            options.core.timeout = Duration::from_secs(600); // nobody is slow enough to be replaced
            (options.core.checkpoint_every, options.core.window) = (8, 16);
            options.core.is_outlined = is_outlined;
            options.snapshot_bytes = 8 << 10;
            let ledger = match folder {
                Some(folder) => open(&folder.join(id.to_string()), *id).await?,
                None => (Ledger::in_memory(), None),
            };
            nodes.push(Node::start(options, ledger, builder).await?);
        }
        let client = convoke::endpoint().peers(&members).keep_connected().start().await?;
        Ok(Self { members, nodes, client, _ports: ports })
    }

    fn client(&self, id: ClientId, signer: Signer) -> Client {
        let options = Options { deadline: Duration::from_secs(120), ..Options::default() };
        Client::new(&self.client, &self.members, Arc::new(keys()), (id, signer), options)
    }

    /// Waits until the first node has refused something for this cause.
    async fn refused(&self, cause: &str) -> Result {
        for _ in 0..6_000 {
            let state = self.nodes[0].inspect().await.ok_or("it has stopped")?;
            if state.refused.contains_key(cause) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(format!("nothing was refused as {cause}").into())
    }

    /// A write is done, and nobody has left the first view.
    async fn goes_on(&self, value: &'static str) -> Result {
        let mut client = self.client(CLIENT, signer(9));
        client.put("k", value).await?;
        assert_eq!(client.get("k").await?, Some(value.into()));
        for node in &self.nodes {
            assert_eq!(node.inspect().await.ok_or("it has stopped")?.view, 0);
        }
        Ok(())
    }

    async fn stop(self) -> Result {
        self.client.shutdown(Duration::from_secs(1)).await;
        for node in self.nodes {
            node.stop(Duration::from_secs(5)).await?;
        }
        Ok(())
    }
}

async fn open(folder: &Path, node: u64) -> Result<(Ledger, Option<Recovered>)> {
    std::fs::create_dir_all(folder)?;
    let identity = ledger::Identity { cluster: SCOPE.cluster, node };
    let settings = ledger::Settings::default();
    let (ledger, recovered) = Ledger::open(HostDisk::new(folder), identity, settings).await?;
    Ok((ledger, Some(recovered)))
}

/// A vote of a view in the future, signed so.
fn vote(scope: Scope, by: u64, with: u64) -> Signed<Message> {
    let (view, sequence, digest) = (View(3), Sequence(1), Digest([5; 32]));
    let vote = Vote { phase: Phase::Commit, view, sequence, digest };
    signer(with).sign(scope, NodeId::new(by), Message::Vote(vote))
}

/// Tells the first replica these bytes, from a node of this name.
async fn tell(endpoint: &Endpoint, cluster: &Cluster, bytes: Bytes) -> Result {
    let first = cluster.members.subset(|peer| peer.node() == NodeId::new(1));
    let words = Words { words: Some(words::Words::Said(bytes)) };
    PbftClient::new(endpoint).on(&first).tell(words).send().await?;
    Ok(())
}

async fn named(node: u64, cluster: &Cluster) -> Result<Endpoint> {
    let builder = convoke::endpoint().node(NodeId::new(node)).peers(&cluster.members);
    Ok(builder.start().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_comes_is_refused_by_its_cause_and_the_service_goes_on() -> Result {
    let cluster = Cluster::start(&[1, 2, 3].map(|id| (id, signer(id)))).await?;
    cluster.goes_on("a").await?;

    let stranger = named(99, &cluster).await?;
    tell(&stranger, &cluster, wire::encode(&vote(SCOPE, 4, 4))).await?;
    cluster.refused("no_member").await?;

    // The fourth member is this test: it lies with its own key, and sends what is none of its.
    let builder = convoke::endpoint().node(NodeId::new(4));
    let liar = builder.peers(&cluster.members.without([NodeId::new(4)])).start().await?;
    tell(&liar, &cluster, Bytes::from_static(b"\x02garbage")).await?;
    cluster.refused("malformed").await?;
    let elsewhere = Scope { cluster: 8, ..SCOPE };
    for forged in [vote(SCOPE, 3, 4), vote(elsewhere, 4, 4), vote(SCOPE, 4, 5)] {
        tell(&liar, &cluster, wire::encode(&forged)).await?;
    }
    cluster.refused("signature").await?;
    let told = wire::encode(&vote(SCOPE, 4, 4));
    for _ in 0..100 {
        tell(&liar, &cluster, told.clone()).await?; // of a later view, and replayed
    }
    cluster.goes_on("b").await?;

    let foreign = cluster.client(CLIENT, signer(8)).put("k", "c").await;
    assert!(matches!(foreign, Err(ClientError::Refused(_))), "{foreign:?}");
    cluster.refused("request").await?;
    let unknown = cluster.client(ClientId(8), signer(8)).put("k", "c").await;
    assert!(matches!(unknown, Err(ClientError::Refused(_))), "{unknown:?}");
    cluster.refused("stranger").await?;

    let operation = vec![0; OPERATION_BYTES_MAX + 1].into();
    let large = signer(9).sign_request(SCOPE, Request { client: CLIENT, number: 1, operation });
    let large = asked::Asked::RequestToAll(wire::encode(&large));
    let large = PbftClient::new(&liar).execute(Asked { asked: Some(large) });
    assert!(large.to(NodeId::new(1)).open()?.first().await.is_err());
    cluster.refused("too_large").await?;
    cluster.goes_on("d").await?;
    for endpoint in [stranger, liar] {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    cluster.stop().await
}

/// Somebody asks without a pause how a replica is: others are heard, and told, as before.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_all_the_time_keeps_nobody_else_from_being_heard() -> Result {
    let cluster = Cluster::start(&[1, 2, 3].map(|id| (id, signer(id)))).await?;
    let asking = named(99, &cluster).await?;
    let inspect = |endpoint: &Endpoint| {
        let asked = InspectRequest { with_state: false };
        PbftClient::new(endpoint).inspect(asked).to(NodeId::new(1)).open()
    };
    asking.warm_up(NodeId::new(1)).await?;
    let asked: Vec<_> =
        (0..2_000).map(|_| inspect(&asking)).collect::<std::result::Result<_, _>>()?;
    cluster.goes_on("a").await?;
    inspect(&cluster.client)?.first().await?;
    let mut refused = 0;
    for call in asked {
        let code = |error: CallError| error.status().map(|status| status.code());
        match call.first().await.map_err(code) {
            Ok(_) => {}
            Err(Some(Code::ResourceExhausted)) => refused += 1,
            Err(code) => return Err(format!("{code:?}").into()),
        }
    }
    assert!(refused > 0);
    asking.shutdown(Duration::from_secs(1)).await;
    cluster.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_the_key_of_another_is_not_heard() -> Result {
    let running = [(1, signer(1)), (2, signer(2)), (3, signer(3)), (4, signer(5))];
    let cluster = Cluster::start(&running).await?;
    cluster.goes_on("a").await?;
    cluster.refused("signature").await?;
    cluster.goes_on("b").await?;
    cluster.stop().await
}

/// Nobody leaves the first view for it: what others have not heard of they pull.
#[tokio::test(flavor = "multi_thread")]
async fn proposals_by_digests_serve_who_asks_all_and_who_asks_the_primary() -> Result {
    let running = [1, 2, 3, 4].map(|id| (id, signer(id)));
    let cluster = Cluster::start_at(&running, None, true).await?;
    for is_to_all in [true, false] {
        let options =
            Options { is_to_all, deadline: Duration::from_secs(120), ..Options::default() };
        let name = (CLIENT, signer(9));
        let keys = Arc::new(keys());
        let mut client = Client::new(&cluster.client, &cluster.members, keys, name, options);
        for number in 0..20 {
            client.put(format!("key {number}"), "v").await?;
        }
    }
    cluster.goes_on("a").await?;
    cluster.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_comes_back_out_of_snapshots_and_the_records_behind_them() -> Result {
    let folder = tempfile::tempdir()?;
    let running = [1, 2, 3, 4].map(|id| (id, signer(id)));
    let cluster = Cluster::start_at(&running, Some(folder.path()), false).await?;
    let mut client = cluster.client(CLIENT, signer(9));
    for number in 0..40 {
        client.put(format!("key {number:02}"), vec![b'v'; 500]).await?;
    }
    cluster.stop().await?;
    let snapshot = std::fs::read_dir(folder.path().join("1"))?
        .filter_map(|file| file.ok()?.file_name().into_string().ok());
    assert_eq!(snapshot.filter(|name| name.starts_with("snapshot-")).count(), 1);

    let cluster = Cluster::start_at(&running, Some(folder.path()), false).await?;
    let mut client = cluster.client(CLIENT, signer(9));
    let (pairs, _) = client.scan("", "key", 0).await?;
    assert_eq!(pairs.len(), 40);
    cluster.goes_on("b").await?;
    let (node, members) = (NodeId::new(1), cluster.members.clone());
    cluster.stop().await?;

    // Sessions are part of the state: a client that comes later would never be answered.
    let late = ClientId(10);
    let options = node::Options::new(node, members, keys_with([CLIENT, late]), signer(1));
    let ledger = open(&folder.path().join("1"), 1).await?;
    let refused = Node::start(options, ledger, convoke::endpoint()).await;
    let refused = refused.expect_err("a client is new");
    assert!(matches!(refused, NodeError::NewClient(client) if client == late), "{refused}");
    Ok(())
}

/// The proof is a checkpoint that it has signed. One that starts for the first time is let in.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_ledger_was_lost_takes_no_part() -> Result {
    let folder = tempfile::tempdir()?;
    let three = [1, 2, 3].map(|id| (id, signer(id))); // so many sign each checkpoint
    let cluster = Cluster::start_at(&three, Some(folder.path()), false).await?;
    let mut client = cluster.client(CLIENT, signer(9));
    for number in 0..10 {
        client.put(format!("key {number}"), "v").await?;
    }
    cluster.stop().await?;

    std::fs::remove_dir_all(folder.path().join("2"))?;
    let four = [1, 2, 3, 4].map(|id| (id, signer(id)));
    let mut cluster = Cluster::start_at(&four, Some(folder.path()), false).await?;
    let lost = cluster.nodes.remove(1).failed().await.expect_err("its signature is known");
    let of_eight = Forgotten::Checkpoint(Sequence(8));
    assert!(matches!(lost, NodeError::LostLedger(what) if what == of_eight), "{lost}");
    cluster.goes_on("b").await?;

    // Whoever starts it again is told the same, though others may have no proof any more.
    let options = node::Options::new(NodeId::new(2), cluster.members.clone(), keys(), signer(2));
    let ledger = open(&folder.path().join("2"), 2).await?;
    let again = Node::start(options, ledger, convoke::endpoint()).await;
    let again = again.expect_err("its first start has left a word in the ledger");
    assert!(matches!(again, NodeError::LostLedger(what) if what == of_eight), "{again}");
    cluster.stop().await
}

/// A replica whose state is another than that of a quorum takes theirs: else the next failure would
/// be one too many.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_another_state_takes_that_of_the_quorum() -> Result {
    let running = [1, 2, 3, 4].map(|id| (id, signer(id)));
    // Sessions are part of the state, and the last has begun with one more.
    let keys = |id| match id {
        4 => keys_with([CLIENT, ClientId(10)]),
        _ => keys(),
    };
    let mut cluster = Cluster::start_with(&running, None, false, keys).await?;
    let mut client = cluster.client(CLIENT, signer(9));
    for number in 0..20 {
        client.put(format!("key {number}"), "v").await?;
    }
    // The third goes, which is not the primary: each checkpoint from now on needs the fourth.
    cluster.nodes.remove(2).stop(Duration::from_secs(5)).await?;
    for number in 0..60 {
        client.put(format!("more {number}"), "v").await?;
    }
    cluster.stop().await
}
