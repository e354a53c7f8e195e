//! Under virtual time a query takes exactly its hops times the one-way delay, in every form; and
//! the frames are exactly the requests, the replies, and one for each task that stays silent.

use std::num::NonZeroUsize;
use std::time::Duration;

use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, Limits, Peer};
use graph::choose::{Sample, samples};
use graph::cluster::shard_node;
use graph::forms::{Client, Form};
use graph::generate::{Recipe, generate};
use graph::node::Node;
use graph::proto::GraphServer;
use graph::query::Query;
use graph::reference;
use graph::store::{Graph, Part, Sharding};
use tokio::time::Instant;

const ONE_WAY: Duration = Duration::from_millis(2);
const SHARDS: usize = 4;

struct World {
    graph: Graph,
    network: SimNetwork,
    sharding: Sharding,
    client: Client,
    /// They serve as long as they are held.
    _shards: Vec<Endpoint>,
}

impl World {
    async fn start() -> Self {
        let graph = generate(Recipe::default());
        let sharding = Sharding::over(NonZeroUsize::new(SHARDS).expect("not zero"));
        let network = SimNetwork::new(1);
        // Frames are counted: nobody asks now and then which calls are settled.
        let mut limits = Limits::default();
        limits.ask_min = usize::MAX;
        let mut shards = Vec::new();
        for part in Part::all(sharding) {
            let node = Node::new(graph.shard(part));
            let endpoint = Endpoint::builder()
                .transport(network.transport())
                .node(shard_node(part.index()))
                .seed(part.index() as u64 + 1)
                .limits(limits.clone())
                .listen(address(part.index()))
                .serve(GraphServer::new(node))
                .start()
                .await
                .expect("a simulated address can be listened on");
            shards.push(endpoint);
        }
        let endpoint = Endpoint::builder().transport(network.transport()).seed(99);
        let endpoint = endpoint.start().await.expect("nothing can go wrong");
        for shard in &shards {
            connect(shard).await;
        }
        let peers = connect(&endpoint).await;
        let client = Client::new(&endpoint, peers, sharding);
        network.default_latency(ONE_WAY);
        Self { graph, network, sharding, client, _shards: shards }
    }

    /// The time and the frames of one query, whose answer is right.
    async fn ask(&self, form: Form, query: Query, id: i64) -> (Duration, u64, u32) {
        let (start, before) = (Instant::now(), self.network.total_traffic().frames());
        let answered = self.client.ask(form, query, id).await.expect("nobody fails");
        let elapsed = start.elapsed();
        assert_eq!(answered.answer, reference::answer(&self.graph, query, id));
        assert!(answered.failures.is_empty());
        (elapsed, self.network.total_traffic().frames() - before, answered.depth)
    }
}

fn address(index: usize) -> String {
    format!("sim://shard{index}")
}

async fn connect(endpoint: &Endpoint) -> Vec<Peer> {
    let mut peers = Vec::new();
    for index in 0..SHARDS {
        let peer = endpoint.peer(shard_node(index), [address(index)]).expect("it is an address");
        endpoint.warm_up(&peer).await.expect("it listens");
        peers.push(peer);
    }
    peers
}

#[tokio::test(start_paused = true)]
async fn every_form_takes_exactly_its_hops() {
    let world = World::start().await;
    for Sample { query, name, ids } in samples(&world.graph, world.sharding) {
        for id in ids {
            let mut hops = Vec::new();
            for form in Form::ALL {
                let (elapsed, _, depth) = world.ask(form, query, id).await;
                let expected = ONE_WAY * form.hops(depth);
                assert_eq!(elapsed, expected, "{query} {name} of {id} as {form}");
                hops.push(form.hops(depth));
            }
            let ratio = f64::from(hops[0]) / f64::from(hops[1]);
            let predicted = match (query, name) {
                (_, "any") => continue,
                (Query::Is1 | Query::Is4, _) => 1.0,
                (Query::Is3 | Query::Is5, _) => 0.75,
                (Query::Is2, _) | (Query::Is6, "comment") => 0.625,
                (Query::Is6 | Query::Is7, _) => 4.0 / 6.0,
            };
            assert!((ratio - predicted).abs() < 1e-9, "{query} {name}: {ratio}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_costs_one_frame_a_hop_and_no_manifest() {
    let world = World::start().await;
    let all = samples(&world.graph, world.sharding);
    let creators = all.iter().find(|sample| sample.query == Query::Is5 && sample.name.is_empty());
    for id in &creators.expect("there are such messages").ids {
        let (_, tree, _) = world.ask(Form::Tree, Query::Is5, *id).await;
        let (_, client, _) = world.ask(Form::Client, Query::Is5, *id).await;
        assert_eq!((tree, client), (3, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tree_never_costs_more_frames_than_its_requests_and_replies_and_silent_tasks() {
    let world = World::start().await;
    for sample in samples(&world.graph, world.sharding) {
        for id in sample.ids {
            let before = world.network.total_traffic().frames();
            let mut call = world.client.open(sample.query, id, true).expect("it opens");
            while call.next().await.is_some() {}
            let frames = world.network.total_traffic().frames() - before;
            let tree = graph::trace::tree(&call.trace());
            let requests: u64 = tree.values().map(|branch| 1 + u64::from(branch.tails)).sum();
            let replies: u64 = tree.values().map(|branch| branch.replies.len() as u64).sum();
            let alone = tree.values().filter(|branch| {
                matches!(branch.manifest, Some((_, convoke::telemetry::EntryBy::Manifest)))
            });
            let silent = alone.count() as u64;
            assert_eq!(frames, requests + replies + silent, "{} of {id}", sample.query);
        }
    }
}
