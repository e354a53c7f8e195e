//! One-way delays of a write, and messages of a batch, exactly, in virtual time.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use convoke::prost::Message as _;
use convoke::quorum::{
    Configuration, QuorumBuilder, QuorumExt as _, QuorumFunction as _, matching_by,
};
use convoke::sim::transport::{Action, Conditions, SimFrame, SimNetwork};
use convoke::{Code, Endpoint, NodeId};
use convoke_proto::wire::{Frame, Message as FrameMessage};
use node_kit::ledger::Ledger;
use pbft::core::{
    ClientId, Group, Keys, Message, Phase, Request, Scope, Signed, SignedReply, Signer,
};
use pbft::kv::Operation;
use pbft::node::{Node, Options, Part};
use pbft::proto::{Answer, Asked, PbftClient, Words, asked, words};
use pbft::wire;
use tokio::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };
const CLIENT: ClientId = ClientId(100);
const CLIENT_NODE: NodeId = NodeId::new(100);
const FLOODER: ClientId = ClientId(101);
/// Of a signature that takes its way through the gate, as those of simulations do not.
const FLOODER_KEY: [u8; 32] = [101; 32];
const WAY: Duration = Duration::from_millis(20);
const WITHIN: Duration = Duration::from_secs(5);
/// Replicas report once, before a case begins: nothing is lost here.
const REPEAT: Duration = Duration::from_secs(60);
/// Requests that have places.
const REQUESTS_MAX: usize = 64;
/// Requests of one who floods.
const FLOOD: usize = 5_000;

fn signer(of: u64) -> Signer {
    Signer::stand_in([u8::try_from(of).expect("it is small"); 32])
}

fn put() -> Bytes {
    wire::encode(&Operation::Put("key".into(), "value".into()))
}

/// Replicas that say everything once, and a client that knows them, all connected.
struct Cluster {
    network: SimNetwork,
    members: Configuration,
    _nodes: Vec<Node>,
    client: PbftClient,
    next: u64,
}

impl Cluster {
    async fn start(count: u64, is_outlined: bool) -> Result<Self> {
        let network = SimNetwork::new(7);
        network.default_conditions(Conditions { latency: WAY, ..Conditions::default() });
        let address = |node: NodeId| format!("sim://node{}", node.get());
        let members = (1..=count).map(NodeId::new).map(|node| (node, address(node)));
        let members = Configuration::new(members)?;
        let checkers = members.nodes().map(|node| (node, signer(node.get()).checker()));
        let flooder = Signer::ed25519(FLOODER_KEY).checker();
        let clients = [(CLIENT, signer(CLIENT.0).checker()), (FLOODER, flooder)].into();
        let keys = Keys::new(SCOPE, Group::new(members.nodes())?, checkers.collect(), clients);
        let mut nodes = Vec::new();
        for node in members.nodes() {
            let builder = Endpoint::builder().transport(network.transport()).seed(node.get());
            let own = signer(node.get());
            let mut options = Options::new(node, members.clone(), keys.clone(), own);
            options.core.is_outlined = is_outlined;
            options.core.repeat = REPEAT;
            options.requests_max = REQUESTS_MAX;
            let builder = builder.listen(address(node));
            nodes.push(Node::start(options, (Ledger::in_memory(), None), builder).await?);
        }
        for endpoint in nodes.iter().map(Node::endpoint) {
            for peer in members.members().iter().filter(|peer| peer.node() != endpoint.node()) {
                endpoint.warm_up(peer).await?;
            }
        }
        let client = client(&network, &members, CLIENT_NODE).await?;
        for node in &nodes {
            node.standing().wait_for(|standing| standing.part == Part::Whole).await?;
        }
        tokio::time::sleep(REPEAT / 2).await; // all have reported, and do not again so soon
        Ok(Self { network, members, _nodes: nodes, client, next: 0 })
    }

    /// A signed write.
    fn request(&mut self) -> Bytes {
        self.next += 1;
        let request = Request { client: CLIENT, number: self.next, operation: put() };
        wire::encode(&signer(CLIENT.0).sign_request(SCOPE, request))
    }

    /// The time of a write of which one replica is asked.
    async fn ask(&mut self, node: u64) -> Result<Duration> {
        let asked = Asked { asked: Some(asked::Asked::Request(self.request())) };
        let call = self.client.execute(asked).to(NodeId::new(node)).among(&self.members);
        answered(call, self.members.nodes().count()).await
    }

    /// The time of a write of which all are asked.
    async fn ask_all(&mut self) -> Result<Duration> {
        let asked = Asked { asked: Some(asked::Asked::RequestToAll(self.request())) };
        let call = self.client.execute(asked).to_all(&self.members).quorum_call();
        answered(call, self.members.nodes().count()).await
    }
}

/// A client of this node, connected to all.
async fn client(network: &SimNetwork, members: &Configuration, node: NodeId) -> Result<PbftClient> {
    let endpoint = Endpoint::builder().transport(network.transport()).node(node);
    let endpoint = endpoint.peers(members).keep_connected().start().await?;
    for peer in members.members() {
        endpoint.warm_up(peer).await?;
    }
    Ok(PbftClient::new(&endpoint))
}

/// The time until f + 1 of them have said the same.
async fn answered(call: QuorumBuilder<Answer>, members: usize) -> Result<Duration> {
    let outcome = |answer: &Answer| {
        let said: SignedReply = wire::decode(answer.reply.clone()).expect("it is a reply");
        said.reply.outcome
    };
    let alike = matching_by(members.div_ceil(3), |one, other| one == other).map(outcome);
    let begun = Instant::now();
    call.deadline(WITHIN).quorum(alike).await?;
    Ok(begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_write_takes_five_ways_and_six_by_way_of_a_backup() -> Result {
    let mut cluster = Cluster::start(4, false).await?;
    for _ in 0..3 {
        assert_eq!(cluster.ask(1).await?, 5 * WAY, "the primary is asked");
        assert_eq!(cluster.ask(2).await?, 6 * WAY, "a backup is asked, and asks the primary");
        assert_eq!(cluster.ask_all().await?, 5 * WAY, "all are asked");
    }
    cluster.members.nodes().for_each(|node| cluster.network.crash(node));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_write_by_digests_takes_five_ways_and_two_more_for_who_has_not_heard_of_it() -> Result {
    let mut cluster = Cluster::start(4, true).await?;
    for _ in 0..3 {
        assert_eq!(cluster.ask_all().await?, 5 * WAY, "all are asked");
        assert_eq!(cluster.ask(1).await?, 7 * WAY, "the primary is asked, and the others pull");
    }
    cluster.members.nodes().for_each(|node| cluster.network.crash(node));
    Ok(())
}

/// Frames by kind.
type Counts = Arc<Mutex<BTreeMap<&'static str, usize>>>;

/// The kind of a frame: words of replicas, each of which the call protocol acknowledges; requests
/// and branches; replies.
fn kind(frame: &SimFrame<'_>) -> Option<&'static str> {
    let Frame { message, .. } = frame.decode().ok()?;
    match message {
        FrameMessage::Reply(_) if frame.to() == CLIENT_NODE => Some("reply"),
        FrameMessage::Reply(_) => Some("acknowledgement"),
        FrameMessage::Request(_) if frame.is_request_of("pbft.Pbft/Execute") => Some("branch"),
        FrameMessage::Request(request) if frame.is_request_of("pbft.Pbft/Tell") => {
            let Words { words } = Words::decode(request.payload).ok()?;
            let Some(words::Words::Said(bytes)) = words else { return Some("request") };
            match wire::decode::<Signed<Message>>(bytes).ok()?.body {
                Message::Propose(..) | Message::Outline(..) => Some("propose"),
                Message::Vote(vote) if vote.phase == Phase::Prepare => Some("prepare"),
                Message::Vote(_) => Some("commit"),
                _ => Some("other words"),
            }
        }
        _ => None,
    }
}

/// The client's request and a branch to each other replica, or a request to each.
#[tokio::test(start_paused = true)]
async fn a_batch_takes_as_many_messages_as_its_phases_have_pairs() -> Result {
    const BATCHES: usize = 5;
    for (n, is_to_all) in [(4, false), (7, false), (4, true), (7, true)] {
        let mut cluster = Cluster::start(n as u64, is_to_all).await?;
        cluster.ask_all().await?;
        tokio::time::sleep(10 * WAY).await; // in virtual time: all votes have arrived
        let counts = Counts::default();
        let seen = Arc::clone(&counts);
        let hook = cluster.network.hook_all(move |frame| {
            if let Some(kind) = kind(frame) {
                *seen.lock().unwrap().entry(kind).or_default() += 1;
            }
            Action::Pass
        });
        for _ in 0..BATCHES {
            match is_to_all {
                true => cluster.ask_all().await?,
                false => cluster.ask(1).await?,
            };
        }
        tokio::time::sleep(10 * WAY).await;
        drop(hook);
        let found: BTreeMap<_, _> = counts.lock().unwrap().clone();
        let words = (n - 1) + (n - 1) * (n - 1) + n * (n - 1);
        let wanted = [
            ("acknowledgement", words),
            ("branch", n),
            ("commit", n * (n - 1)),
            ("prepare", (n - 1) * (n - 1)),
            ("propose", n - 1),
            ("reply", n),
        ];
        let wanted = wanted.map(|(kind, count)| (kind, count * BATCHES));
        assert_eq!(found, wanted.into(), "{n} replicas, all asked: {is_to_all}");
        cluster.members.nodes().for_each(|node| cluster.network.crash(node));
    }
    Ok(())
}

/// One who asks without a pause, for what is signed wrongly or for the same again, is refused what
/// is beyond his places. A write of another takes as long as without him.
#[tokio::test(start_paused = true)]
async fn a_write_takes_as_many_ways_beside_a_client_that_floods() -> Result {
    for is_signed in [false, true] {
        let mut cluster = Cluster::start(4, false).await?;
        let flooding = client(&cluster.network, &cluster.members, NodeId::new(101)).await?;
        let signer = Signer::ed25519(if is_signed { FLOODER_KEY } else { [1; 32] });
        let request = Request { client: FLOODER, number: 1, operation: put() };
        let request = wire::encode(&signer.sign_request(SCOPE, request));
        let asked = Asked { asked: Some(asked::Asked::Request(request)) };
        let flood = (0..FLOOD).map(|_| flooding.execute(asked.clone()).to(NodeId::new(1)).open());
        let flood = flood.collect::<std::result::Result<Vec<_>, _>>()?;
        for _ in 0..3 {
            assert_eq!(cluster.ask(1).await?, 5 * WAY, "the primary is asked, signed: {is_signed}");
        }
        let mut refused = 0;
        for call in flood {
            let status = call.first().await.err().and_then(|error| error.status());
            let code = status.map(|status| status.code());
            refused += usize::from(code == Some(Code::ResourceExhausted));
        }
        assert!(refused > 0, "all had places, signed: {is_signed}");
        cluster.members.nodes().for_each(|node| cluster.network.crash(node));
    }
    Ok(())
}
