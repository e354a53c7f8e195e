//! Under virtual time a query takes exactly its hops times the one-way delay, in every form; and
//! the frames are exactly the requests, the replies, and one for each task that stays silent.

use std::num::NonZeroUsize;
use std::time::Duration;

use charts::Kind;
use convoke::sim::transport::SimNetwork;
use convoke::{CallError, Code, Context, End, Endpoint, Finish, Limits, Status, Task};
use graph::choose::{Sample, deepest, samples};
use graph::cluster::shard_node;
use graph::forms::{AskError, Client, Form};
use graph::generate::{Recipe, generate};
use graph::node::Node;
use graph::proto::{self, Facts, GraphServer, Next, Sight, Step, UsageReport, UsageRequest};
use graph::query::Query;
use graph::simulated::{CLUSTER, DATA, Simulated};
use graph::store::{Graph, Part, Sharding};
use graph::{lanes, reference};
use tokio::time::Instant;

const ONE_WAY: Duration = Duration::from_millis(2);
const SHARDS: usize = 4;

struct World {
    graph: Graph,
    sharding: Sharding,
    shards: Simulated,
}

impl World {
    async fn start() -> Self {
        let graph = generate(Recipe::default());
        let sharding = Sharding::over(NonZeroUsize::new(SHARDS).expect("not zero"));
        let shards = Simulated::start(&graph, sharding, ONE_WAY).await.expect("nothing fails");
        Self { graph, sharding, shards }
    }

    /// The time and the frames of one query, whose answer is right.
    async fn ask(&self, form: Form, query: Query, id: i64) -> (Duration, u64, u32) {
        let (start, before) = (Instant::now(), self.shards.network.total_traffic().frames());
        let answered = self.shards.client.ask(form, query, id).await.expect("nobody fails");
        let elapsed = start.elapsed();
        assert_eq!(answered.answer, reference::answer(&self.graph, query, id));
        assert!(answered.failures.is_empty());
        (elapsed, self.shards.network.total_traffic().frames() - before, answered.depth)
    }
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
            let before = world.shards.network.total_traffic().frames();
            let mut call = world.shards.client.open(sample.query, id, true).expect("it opens");
            while call.next().await.is_some() {}
            let frames = world.shards.network.total_traffic().frames() - before;
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

/// The picture shows what happens: each request and reply once, one way long, and the last
/// reply when the query is over.
#[tokio::test(start_paused = true)]
async fn lanes_have_each_frame_where_it_was() {
    let World { graph, sharding, .. } = World::start().await;
    let id = deepest(&graph, sharding, Query::Is6).expect("there are messages");
    // Of a tree two shards have something for the client.
    let all = [(Form::Nested, 8, 8), (Form::Tree, 5, 4 + 2), (Form::Client, 8, 8)];
    for (form, hops, frames) in all {
        let panel = lanes::record(&graph, sharding, (Query::Is6, id), form, ONE_WAY).await;
        let panel = panel.expect("nobody fails");
        assert_eq!(panel.end, f64::from(2 * hops), "{form}");
        assert_eq!(panel.messages.len(), frames, "{form}");
        assert!(panel.messages.iter().all(|one| one.came.1 - one.left.1 == 2.0));
        let last = panel.messages.iter().rfind(|one| one.kind == Kind::Reply);
        assert_eq!(last.map(|one| one.came), Some((0, panel.end)));
        // In a tree nobody waits; of nested calls the first waits for all others.
        let waits = panel.busy[1..].iter().map(|(_, from, to)| to - from).fold(0.0, f64::max);
        assert_eq!(waits, if form == Form::Nested { 12.0 } else { 0.0 }, "{form}");
    }
}

/// As with a cluster file that has lost two of its shards, or got two more: half of the ids
/// would be looked for where they are not.
#[tokio::test(start_paused = true)]
async fn who_counts_other_shards_is_refused_and_told_so() {
    let World { shards, .. } = World::start().await;
    let peers = shards.client.peers();
    for (peers, asked) in [(peers[..2].to_vec(), 2), ([peers, &peers[..2]].concat(), 6)] {
        let sharding = Sharding::over(NonZeroUsize::new(asked).expect("not zero"));
        let client = Client::new(shards.client.endpoint(), CLUSTER, peers, sharding);
        for (id, form) in (0..20).zip(Form::ALL.into_iter().cycle()) {
            let told = match client.ask(form, Query::Is3, id).await {
                Ok(answered) => answered.failures[0].to_string(),
                Err(error) => error.to_string(),
            };
            let why =
                format!("is one of 4, and was asked as one of {asked}: take the cluster file");
            assert!(told.contains(&why), "{form} of {id}: {told}");
        }
    }
}

/// A call that outgrows the bounds of its client ends without a branch that has failed.
#[tokio::test(start_paused = true)]
async fn what_outgrew_the_bounds_of_its_client_is_no_answer() {
    let World { graph, sharding, shards } = World::start().await;
    let mut limits = Limits::default();
    limits.branches_max = 2;
    let endpoint = Endpoint::builder().transport(shards.network.transport()).limits(limits);
    let endpoint = endpoint.start().await.expect("nothing fails");
    let peer = |index| endpoint.peer(shard_node(index), [format!("sim://shard{index}")]);
    let peers = (0..SHARDS).map(|index| peer(index).expect("it is an address")).collect();
    let client = Client::new(&endpoint, CLUSTER, peers, sharding);
    let mut ended = 0;
    for id in graph.whole().persons().map(|record| record.person.id.0) {
        match client.ask(Form::Tree, Query::Is3, id).await {
            Ok(answered) => {
                assert_eq!(answered.answer, reference::answer(&graph, Query::Is3, id), "of {id}");
            }
            Err(error) => {
                assert!(
                    matches!(error, AskError::Call(CallError::Ended(End::Exhausted))),
                    "{error}"
                );
                ended += 1;
            }
        }
    }
    assert!(ended > 0, "all persons have friends at two shards at most");
}

#[tokio::test(start_paused = true)]
async fn who_asks_a_shard_for_too_much_is_refused_and_others_are_not() {
    let graph = generate(Recipe { persons: 2_000, seed: 3 });
    let sharding = Sharding::over(NonZeroUsize::MIN);
    let contents = graph.whole().messages().map(|record| record.message.id.0).collect();
    let shards = Simulated::start(&graph, sharding, ONE_WAY).await.expect("nothing fails");
    let (peer, asker) =
        (shards.client.peers()[0], proto::GraphClient::new(shards.client.endpoint()));
    let step = Step { depth: 1, shards: 1, cluster: CLUSTER, contents, ..Step::default() };
    let told = asker.look(step.clone()).to(peer).await.expect_err("it is too much").to_string();
    assert!(told.contains("ResourceExhausted: it finds more than 2097152 bytes"), "{told}");
    let told = asker.gather(step.clone()).to(peer).await.expect_err("it is too much").to_string();
    assert!(told.contains("ResourceExhausted"), "{told}");
    let few = Step { friends_of: vec![1; 400_000], contents: Vec::new(), ..step };
    let facts = asker.gather(few).to(peer).await.expect("it is one person");
    assert!(facts.friends.len() < 2_000);
}

/// A shard whose every step leads the client on to this shard.
struct Astray(u32);

impl proto::Graph for Astray {
    async fn walk(&self, _: Step, _: Task<Facts>) -> Result<Finish, Status> {
        Err(Status::new(Code::Unimplemented, "it is asked to look"))
    }

    async fn look(&self, step: Step, _: Context) -> Result<Sight, Status> {
        Ok(Sight { facts: None, next: vec![Next { shard: self.0, step: Some(step) }] })
    }

    async fn gather(&self, _: Step, _: Context) -> Result<Facts, Status> {
        Err(Status::new(Code::Unimplemented, "it is asked to look"))
    }

    async fn usage(&self, _: UsageRequest, _: Context) -> Result<UsageReport, Status> {
        Err(Status::new(Code::Unimplemented, "it is asked to look"))
    }
}

/// A query, asked step by step of one shard that leads on to this one. One-way delays are
/// [`ONE_WAY`].
async fn asked_astray(to: u32, deadline: Duration) -> AskError {
    let network = SimNetwork::new(1);
    let shard = Endpoint::builder()
        .transport(network.transport())
        .node(shard_node(0))
        .listen("sim://shard0");
    let _shard = shard.serve(GraphServer::new(Astray(to))).start().await.expect("nothing fails");
    let endpoint = Endpoint::builder().transport(network.transport());
    let endpoint = endpoint.start().await.expect("nothing fails");
    let peers = vec![endpoint.peer(shard_node(0), ["sim://shard0"]).expect("it is an address")];
    endpoint.warm_up(&peers[0]).await.expect("it listens");
    network.default_latency(ONE_WAY);
    let client = Client::new(&endpoint, CLUSTER, peers, Sharding::over(NonZeroUsize::MIN));
    let client = client.deadline(deadline);
    client.ask(Form::Client, Query::Is4, 1).await.expect_err("there is no answer")
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_leads_on_and_on_is_followed_until_the_deadline() {
    let begun = Instant::now();
    // Not at the end of a step.
    let deadline = 40 * ONE_WAY + ONE_WAY / 2;
    let told = asked_astray(0, deadline).await;
    assert!(told.to_string().contains("the deadline passed"), "{told}");
    assert_eq!(begun.elapsed(), deadline);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_leads_astray_is_named() {
    let told = asked_astray(7, Duration::from_secs(10)).await;
    assert!(told.to_string().contains("n1 cannot be decoded: it leads to shard 7"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_step_fails_with_the_code_of_the_one_it_waits_for() {
    let sharding = Sharding::over(NonZeroUsize::new(2).expect("not zero"));
    let shard = generate(Recipe::default()).shard(Part::all(sharding).next().expect("of two"));
    let ids: Vec<i64> = shard.persons().map(|person| person.person.id.0).collect();
    let network = SimNetwork::new(1);
    let there = [(shard_node(0), "sim://shard0"), (shard_node(1), "sim://shard1")];
    let [zero, one, asker] = [there[0].0, there[1].0, shard_node(2)]
        .map(|node| Endpoint::builder().transport(network.transport()).node(node).peers(there));
    let zero = zero.listen(there[0].1).serve(GraphServer::new(Node::new(shard, CLUSTER, DATA)));
    let one = one.listen(there[1].1).serve(GraphServer::new(Astray(7)));
    let _shards = [zero.start().await, one.start().await].map(|shard| shard.expect("it starts"));
    let asker = asker.start().await.expect("it starts");
    let client =
        Client::new(&asker, CLUSTER, there.map(|(node, _)| node.into()).to_vec(), sharding);
    let mut failures = 0;
    for id in ids {
        // Of friends that are all at the first shard the second one is not asked.
        let Err(AskError::Call(error)) = client.ask(Form::Nested, Query::Is3, id).await else {
            continue;
        };
        let status = error.status().expect("it is the service's own error");
        assert_eq!(status.code(), Code::Unimplemented, "{error}");
        failures += 1;
    }
    assert!(failures > 0);
}
