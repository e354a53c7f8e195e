//! Replicas over TLS where connections prove names: whoever speaks in another's name is refused, a
//! primary cannot invent requests, and requests that few replicas heard from their client are
//! executed by all, or by none.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::{Endpoint, EndpointBuilder, NodeId};
use node_kit::cluster::{Authority, Keys as Certificate};
use node_kit::ledger::Ledger;
use node_kit::processes::Ports;
use pbft::client::{Client, ClientError, Options};
use pbft::core::{
    Batch, Checker, ClientId, Digest, Group, Keys, Message, Phase, Request, Scope, Sequence,
    Signature, Signed, SignedRequest, Signer, Trust, View, Vote, Vouch,
};
use pbft::kv::Operation;
use pbft::node::{self, Node, NodeError};
use pbft::proto::{Answer, Asked, PbftClient, Words, asked, words};
use pbft::wire;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };

/// The client, and the node that its certificate proves.
const CLIENT: ClientId = ClientId(1_001);
const CLIENT_NODE: NodeId = NodeId::new(9);

fn signer(number: u64) -> Signer {
    Signer::ed25519([u8::try_from(number).expect("it is small"); 32])
}

fn keys() -> Keys {
    let members: Vec<NodeId> = (1..=4).map(NodeId::new).collect();
    let checkers = members.iter().map(|node| (*node, signer(node.get()).checker())).collect();
    let group = Group::new(members).expect("there are members");
    let client = (CLIENT, Checker::Connection(CLIENT_NODE));
    Keys::new(SCOPE, group, checkers, [client].into()).trusting(Trust::Channels)
}

/// A request to write, as its client makes it.
fn put(number: u64, key: &'static str) -> SignedRequest {
    let operation = wire::encode(&Operation::Put(key.into(), "v".into()));
    let request = Request { client: CLIENT, number, operation };
    SignedRequest { request, signature: Signature::NONE }
}

/// Four replicas, of whom some run.
struct Cluster {
    members: Configuration,
    nodes: Vec<Node>,
    authority: Authority,
    folder: tempfile::TempDir,
    client: Endpoint,
    _ports: Ports,
}

impl Cluster {
    /// Those that run end a view in which a request has waited for so long.
    async fn start(running: &[u64], timeout: Duration) -> Result<Self> {
        let ports = Ports::reserve(4)?;
        let address = |port: &u16| format!("tls://127.0.0.1:{port}");
        let addresses: Vec<String> = ports.iter().map(address).collect();
        let members = (1..).map(NodeId::new).zip(addresses.iter().map(String::as_str));
        let members = Configuration::new(members)?;
        let (authority, folder) = (Authority::new("local.example")?, tempfile::tempdir()?);
        let mut cluster = Self {
            client: Endpoint::builder().start().await?,
            members,
            nodes: Vec::new(),
            authority,
            folder,
            _ports: ports,
        };
        cluster.client = cluster.named(CLIENT_NODE)?.keep_connected().start().await?;
        for id in running {
            let node = NodeId::new(*id);
            let mut options =
                node::Options::new(node, cluster.members.clone(), keys(), signer(*id));
            options.core.timeout = timeout;
            let at = addresses[usize::try_from(*id)? - 1].as_str();
            let builder = cluster.proven(node)?.listen(at);
            let ledger = (Ledger::in_memory(), None);
            cluster.nodes.push(Node::start(options, ledger, builder).await?);
        }
        Ok(cluster)
    }

    /// An endpoint with the certificate of this node.
    fn proven(&self, node: NodeId) -> Result<EndpointBuilder> {
        let folder = self.folder.path().join(node.get().to_string());
        let certificate = match folder.exists() {
            true => Certificate::in_folder(folder),
            false => self.authority.issue(node, &folder)?,
        };
        let tls = convoke::transport::TcpTransport::tls(certificate.identity(node)?);
        Ok(Endpoint::builder().transport(tls))
    }

    /// The same, in this node's name, which knows all replicas.
    fn named(&self, node: NodeId) -> Result<EndpointBuilder> {
        Ok(self.proven(node)?.node(node).peers(&self.members.without([node])))
    }

    fn client(&self, endpoint: &Endpoint) -> Client {
        let options = Options { deadline: Duration::from_secs(120), ..Options::default() };
        let signer = (CLIENT, Signer::Unsigned);
        Client::new(endpoint, &self.members, Arc::new(keys()), signer, options)
    }

    /// Waits until one of those that run has refused something for this cause.
    async fn refused(&self, cause: &str) -> Result {
        for _ in 0..6_000 {
            for node in &self.nodes {
                let state = node.inspect().await.ok_or("it has stopped")?;
                if state.refused.contains_key(cause) {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(format!("nothing was refused as {cause}").into())
    }

    async fn views(&self) -> Result<Vec<u64>> {
        let mut views = Vec::new();
        for node in &self.nodes {
            views.push(node.inspect().await.ok_or("it has stopped")?.view);
        }
        Ok(views)
    }

    async fn stop(self, others: Vec<Endpoint>) -> Result {
        for endpoint in others.into_iter().chain([self.client]) {
            endpoint.shutdown(Duration::from_secs(1)).await;
        }
        for node in self.nodes {
            node.stop(Duration::from_secs(5)).await?;
        }
        Ok(())
    }
}

/// Tells a replica these words, from whoever the endpoint proves.
async fn tell(endpoint: &Endpoint, cluster: &Cluster, to: u64, words: words::Words) -> Result {
    let to = cluster.members.subset(|peer| peer.node() == NodeId::new(to));
    PbftClient::new(endpoint).on(&to).tell(Words { words: Some(words) }).send().await?;
    Ok(())
}

fn said(words: &Signed<Message>) -> words::Words {
    words::Words::Said(wire::encode(words))
}

fn bare(by: u64, body: Message) -> Signed<Message> {
    Signed { epoch: SCOPE.epoch, by: NodeId::new(by), body, signature: Signature::NONE }
}

fn commit() -> Message {
    let (view, sequence, digest) = (View(0), Sequence(1), Digest([5; 32]));
    Message::Vote(Vote { phase: Phase::Commit, view, sequence, digest })
}

/// Asks one replica, and waits for its answer.
async fn ask(endpoint: &Endpoint, to: u64, asked: asked::Asked) -> Result<Answer> {
    let call = PbftClient::new(endpoint).execute(Asked { asked: Some(asked) });
    Ok(call.to(NodeId::new(to)).open()?.first().await?.into_inner())
}

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn whoever_speaks_in_the_name_of_another_is_refused_and_the_service_goes_on() -> Result {
    let cluster = Cluster::start(&[1, 2, 3], NEVER).await?;
    let mut client = cluster.client(&cluster.client);
    client.put("k", "a").await?;

    // Another node with a certificate of the same authority asks as the client.
    let other = cluster.named(NodeId::new(10))?.start().await?;
    let claimed = cluster.client(&other).put("k", "c").await;
    assert!(matches!(claimed, Err(ClientError::Refused(_))), "{claimed:?}");
    cluster.refused("connection").await?;
    tell(&other, &cluster, 1, said(&bare(3, commit()))).await?;
    cluster.refused("no_member").await?;
    // To the primary alone, which the others would not believe.
    assert!(ask(&other, 1, asked::Asked::Request(wire::encode(&put(1, "x")))).await.is_err());
    cluster.refused("not_to_all").await?;

    // The fourth member is this test.
    let liar = cluster.named(NodeId::new(4))?.start().await?;
    let before = cluster.nodes[1].inspect().await.ok_or("it has stopped")?.refused;
    assert!(!before.contains_key("connection") || before["connection"] <= 1, "{before:?}");
    tell(&liar, &cluster, 2, said(&bare(3, commit()))).await?;
    tell(&liar, &cluster, 2, words::Words::Request(wire::encode(&put(2, "x")))).await?;
    let of_second = async |count: u64| -> Result {
        for _ in 0..6_000 {
            let refused = cluster.nodes[1].inspect().await.ok_or("it has stopped")?.refused;
            let known = before.get("connection").copied().unwrap_or(0);
            if refused.get("connection").is_some_and(|now| *now >= known + count) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("words in another's name were taken".into())
    };
    of_second(2).await?;
    tell(&liar, &cluster, 2, said(&signer(4).sign(SCOPE, NodeId::new(4), commit()))).await?;
    cluster.refused("signature").await?;
    // The word of one member about a request is worth nothing.
    for words in [Message::Vouch(vec![Vouch::of(&put(3, "x").request)]), {
        Message::Pass(vec![put(3, "x")])
    }] {
        for to in 1..=3 {
            tell(&liar, &cluster, to, said(&bare(4, words.clone()))).await?;
        }
    }
    client.put("k", "b").await?;
    assert_eq!(client.get("x").await?, None);
    assert_eq!(cluster.views().await?, [0, 0, 0]);
    cluster.stop(vec![other, liar]).await
}

/// The primary is this test: it proposes what no client has asked for, and is replaced once a
/// client does ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_cannot_invent_a_request() -> Result {
    let cluster = Cluster::start(&[2, 3, 4], Duration::from_millis(500)).await?;
    let liar = cluster.named(NodeId::new(1))?.start().await?;
    let batch = Batch::new([put(1, "invented")]);
    let vote = Vote {
        phase: Phase::Propose,
        view: View(0),
        sequence: Sequence(1),
        digest: batch.digest(),
    };
    let proposal = signer(1).sign(SCOPE, NodeId::new(1), Message::Propose(vote, Some(batch)));
    let commit = Message::Vote(Vote { phase: Phase::Commit, ..vote });
    for to in 2..=4 {
        for words in [
            proposal.clone(),
            bare(1, Message::Pass(vec![put(1, "invented")])),
            bare(1, commit.clone()),
        ] {
            tell(&liar, &cluster, to, said(&words)).await?;
        }
    }
    let mut client = cluster.client(&cluster.client);
    client.put("k", "a").await?;
    assert_eq!(client.get("invented").await?, None);
    assert_eq!(client.get("k").await?, Some("a".into()));
    assert!(cluster.views().await?.iter().all(|view| *view > 0));
    cluster.stop(vec![liar]).await
}

/// The client reaches two backups of four. They vouch for it, which convinces the primary, and it
/// proposes; the last one believes because others vote.
#[tokio::test(flavor = "multi_thread")]
async fn what_two_of_four_have_heard_is_executed_by_all() -> Result {
    let cluster = Cluster::start(&[1, 2, 3, 4], NEVER).await?;
    let request = || asked::Asked::RequestToAll(wire::encode(&put(1, "k")));
    let (two, three) =
        tokio::join!(ask(&cluster.client, 2, request()), ask(&cluster.client, 3, request()));
    for answer in [two?, three?] {
        assert!(!answer.reply.is_empty());
    }
    assert_eq!(cluster.client(&cluster.client).get("k").await?, Some("v".into()));
    assert_eq!(cluster.views().await?, [0, 0, 0, 0]);
    cluster.stop(Vec::new()).await
}

#[tokio::test]
async fn a_node_whose_peers_prove_nothing_does_not_start() -> Result {
    let addresses: Vec<String> = (1..=4).map(|port| format!("tcp://127.0.0.1:{port}")).collect();
    let members = (1..).map(NodeId::new).zip(addresses.iter().map(String::as_str));
    let members = Configuration::new(members)?;
    let options = node::Options::new(NodeId::new(1), members, keys(), signer(1));
    let builder = Endpoint::builder();
    let refused = Node::start(options, (Ledger::in_memory(), None), builder).await;
    let Err(error @ NodeError::Unproven(_)) = refused else {
        return Err("it has started".into());
    };
    assert!(error.to_string().contains("take tls:// or quic://"), "{error}");
    Ok(())
}

/// A name that the certificate does not prove cannot be taken.
#[tokio::test]
async fn an_endpoint_has_no_name_but_that_of_its_certificate() -> Result {
    let cluster = Cluster::start(&[], NEVER).await?;
    let claimed = cluster.proven(NodeId::new(4))?.node(NodeId::new(3));
    let error = claimed.start().await.err().ok_or("it has another's name")?;
    assert!(error.to_string().contains("cannot be n3 and n4"), "{error}");
    cluster.stop(Vec::new()).await
}
