//! One-way delays of a put in both shapes, exactly, in virtual time.

use std::error::Error;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::{Conditions, SimNetwork};
use convoke::{CallError, Code, Endpoint, Executed, NodeId};
use node_kit::ledger::Ledger;
use paxos::client::{self, Client, ClientError, Shape, votes};
use paxos::core::Standing;
use paxos::node::{Node, Options};
use paxos::proto::{
    Command, Entry, Pair, PaxosClient, Reply, Request, SessionName, command, entry, reply, request,
};
use tokio::time::{Instant, sleep};

const CLUSTER: u64 = 7;
const WAY: Duration = Duration::from_millis(20);
const WITHIN: Duration = Duration::from_secs(5);

fn write(entry: Entry, counts_votes: bool) -> Request {
    let action = Some(request::Action::Write(entry));
    Request { action, cluster: CLUSTER, counts_votes, ..Request::default() }
}

fn put(session: SessionName, number: u64) -> Entry {
    let action = Some(command::Action::Put(Pair { key: "k".into(), value: "v".into() }));
    Command { session: Some(session), number, action }.into()
}

fn address(node: NodeId) -> String {
    format!("sim://node{}", node.get())
}

async fn nodes(network: &SimNetwork, members: &Configuration) -> Result<Vec<Node>, Box<dyn Error>> {
    let mut nodes = Vec::new();
    for node in members.nodes() {
        let builder = Endpoint::builder().transport(network.transport()).seed(node.get());
        let builder = builder.listen(address(node));
        let options = Options::new(CLUSTER, node, members.clone(), node.get());
        nodes.push(Node::start(options, (Ledger::in_memory(), None), builder).await?);
    }
    Ok(nodes)
}

/// The leader, once all follow it.
async fn leader(nodes: &[Node]) -> NodeId {
    for node in nodes {
        let mut standing = node.standing();
        let is_settled =
            |of: &Standing| matches!(of, Standing::Leading(_) | Standing::Following(_));
        standing.wait_for(is_settled).await.expect("it runs");
    }
    let leads = |node: &&Node| matches!(*node.standing().borrow(), Standing::Leading(_));
    nodes.iter().find(leads).expect("the others follow one").endpoint().node()
}

/// Three nodes a way apart, and an endpoint that is connected to all of them.
struct World {
    network: SimNetwork,
    members: Configuration,
    nodes: Vec<Node>,
    endpoint: Endpoint,
}

impl World {
    async fn new() -> Result<Self, Box<dyn Error>> {
        let network = SimNetwork::new(7);
        network.default_conditions(Conditions { latency: WAY, ..Conditions::default() });
        let members = (1..=3).map(NodeId::new).map(|node| (node, address(node)));
        let members = Configuration::new(members)?;
        let nodes = nodes(&network, &members).await?;
        let endpoint = Endpoint::builder().transport(network.transport()).seed(9);
        let endpoint = endpoint.peers(&members).keep_connected().start().await?;
        for peer in members.members() {
            endpoint.warm_up(peer).await?;
        }
        Ok(Self { network, members, nodes, endpoint })
    }

    /// A node and its endpoint hold each other: only the end of its connections lets go.
    fn end(&self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}

#[tokio::test(start_paused = true)]
async fn direct_takes_three_ways_gather_four_and_a_follower_one_more() -> Result<(), Box<dyn Error>>
{
    let world = World::new().await?;
    let World { members, nodes, endpoint, .. } = &world;
    let leader = leader(nodes).await;
    let follower = members.nodes().find(|node| *node != leader).expect("there are three");
    let client = PaxosClient::new(endpoint);

    let open = write(Entry { what: Some(entry::What::Open(5)) }, false);
    let opened: Reply = client.execute(open).to(leader).await?;
    let Some(reply::Result::Opened(session)) = opened.result else { panic!("{opened:?}") };
    let mut number = 0;
    let mut gather = async |node| {
        number += 1;
        let begun = Instant::now();
        client.execute(write(put(session, number), false)).to(node).deadline(WITHIN).await?;
        Ok::<_, CallError>(begun.elapsed())
    };
    assert_eq!((gather(leader).await?, gather(follower).await?), (4 * WAY, 5 * WAY));
    let mut direct = async |node| {
        number += 1;
        let begun = Instant::now();
        let call = client.execute(write(put(session, number), true)).to(node);
        let counted = votes::count(call, members, WITHIN).await?;
        assert!(counted.by_votes, "{counted:?}");
        Ok::<_, CallError>(begun.elapsed())
    };
    assert_eq!((direct(leader).await?, direct(follower).await?), (3 * WAY, 4 * WAY));

    let mut options = client::Options::new(CLUSTER, 3);
    options.at = Some(follower);
    let mut client = Client::new(endpoint, members, options);
    client.put("k", "opens its session").await?;
    for _ in 0..2 {
        let begun = Instant::now();
        client.put("k", "v").await?;
        assert_eq!(begun.elapsed(), 5 * WAY, "it stays at its node, though another leads");
    }
    world.end();
    Ok(())
}

/// The median time of puts.
async fn median(client: &mut Client) -> Result<Duration, ClientError> {
    let mut times = Vec::new();
    for _ in 0..21 {
        let begun = Instant::now();
        client.put("k", "v").await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[tokio::test(start_paused = true)]
async fn a_lost_follower_does_not_change_the_median() -> Result<(), Box<dyn Error>> {
    for (shape, ways) in [(Shape::Gather, 4), (Shape::Direct, 3)] {
        let world = World::new().await?;
        let leader = leader(&world.nodes).await;
        let options = client::Options { shape, ..client::Options::new(CLUSTER, 3) };
        let mut client = Client::new(&world.endpoint, &world.members, options);
        client.put("k", "opens its session").await?;
        assert_eq!(median(&mut client).await?, ways * WAY, "{shape}");
        let follower = world.members.nodes().find(|node| *node != leader);
        world.network.crash(follower.expect("there are three"));
        assert_eq!(median(&mut client).await?, ways * WAY, "{shape}, without a follower");
        world.end();
    }
    Ok(())
}

/// Clients whose first requests go to each of the nodes: from the next put on each takes four ways.
async fn clients_move_to_the_leader(world: &World) -> Result<(), String> {
    for seed in 0..12 {
        let mut client =
            Client::new(&world.endpoint, &world.members, client::Options::new(CLUSTER, seed));
        for number in 0..2 {
            let begun = Instant::now();
            client.put("k", "v").await.map_err(|error| error.to_string())?;
            // With the first it opens its session.
            if number > 0 && begun.elapsed() != 4 * WAY {
                return Err(format!("seed {seed}: {:?}", begun.elapsed()));
            }
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asked_a_follower_asks_the_leader_from_then_on() -> Result<(), Box<dyn Error>>
{
    use paxos::mutant::{Mutant, set};

    let world = World::new().await?;
    leader(&world.nodes).await;
    clients_move_to_the_leader(&world).await?;
    set(Some(Mutant::StaysAtFollower));
    let found = clients_move_to_the_leader(&world).await;
    set(None);
    assert!(found.is_err(), "the mutant is not found");
    world.end();
    Ok(())
}

/// Of five requests, one after the other, four are proposed when the node ends, and one waits.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_when_the_time_to_stop_is_over_are_told_what_is_known()
-> Result<(), Box<dyn Error>> {
    let mut world = World::new().await?;
    let leader = leader(&world.nodes).await;
    let client = PaxosClient::new(&world.endpoint);
    let mut calls = Vec::new();
    for number in 0..5 {
        let open = write(Entry { what: Some(entry::What::Open(number)) }, false);
        calls.push(client.execute(open).to(leader).open()?);
        sleep(WAY / 20).await;
    }
    sleep(WAY).await; // all have come, and no vote has
    let leads = |node: &Node| node.endpoint().node() == leader;
    let place = world.nodes.iter().position(leads).expect("it is one of them");
    world.nodes.remove(place).stop(Duration::ZERO).await?;
    let mut told = Vec::new();
    for call in calls {
        let failure = call.first().await.err().and_then(|error| error.failure().cloned());
        told.push(failure.map(|failure| (Code::from_number(failure.code), failure.executed)));
    }
    let mut wanted = [Some((Code::Aborted, Executed::Yes)); 5];
    wanted[4] = Some((Code::Unavailable, Executed::No));
    assert_eq!(told, wanted);
    world.end();
    Ok(())
}
