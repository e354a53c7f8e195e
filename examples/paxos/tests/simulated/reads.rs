//! Reads that wait for one round, more than one turn of the actor answers.

use std::error::Error;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::{Conditions, SimNetwork};
use convoke::{Code, Endpoint, NodeId};
use convoke_sim::random::Random;
use node_kit::ledger::Ledger;
use paxos::core::Standing;
use paxos::node::{Node, Options};
use paxos::proto::{Get, PaxosClient, Request, request};
use tokio::task::JoinSet;

const CLUSTER: u64 = 7;
const READS: u64 = 5_000;
/// Requests of one who floods.
const FLOOD: usize = 12_000;
/// Of one turn, at most.
const TURN: u64 = 1_024;

fn address(node: NodeId) -> String {
    format!("sim://node{}", node.get())
}

/// Three nodes that are far from each other, one of which leads.
struct Cluster {
    network: SimNetwork,
    members: Configuration,
    nodes: Vec<Node>,
    random: Random,
}

impl Cluster {
    async fn start(seed: u64) -> Result<Self, Box<dyn Error>> {
        let mut random = Random::of(seed, 1);
        let network = SimNetwork::new(random.draw());
        let latency = Duration::from_millis(random.within(15..40));
        let members = (1..=3).map(NodeId::new).map(|node| (node, address(node)));
        let members = Configuration::new(members)?;
        let mut nodes = Vec::new();
        for node in members.nodes() {
            for other in members.nodes().filter(|other| *other != node) {
                network.conditions(node, other, Conditions { latency, ..Conditions::default() });
            }
            let builder = Endpoint::builder().transport(network.transport()).seed(random.draw());
            let options = Options::new(CLUSTER, node, members.clone(), node.get());
            let builder = builder.listen(address(node));
            nodes.push(Node::start(options, (Ledger::in_memory(), None), builder).await?);
        }
        for node in &nodes {
            let is_settled =
                |of: &Standing| matches!(of, Standing::Leading(_) | Standing::Following(_));
            node.standing().wait_for(is_settled).await?;
        }
        Ok(Self { network, members, nodes, random })
    }

    fn leader(&self) -> Result<&Node, Box<dyn Error>> {
        let leads = |node: &&Node| matches!(*node.standing().borrow(), Standing::Leading(_));
        Ok(self.nodes.iter().find(leads).ok_or("nobody leads")?)
    }

    async fn client(&mut self) -> Result<PaxosClient, Box<dyn Error>> {
        let builder = Endpoint::builder().transport(self.network.transport());
        let endpoint = builder.seed(self.random.draw()).peers(&self.members).start().await?;
        Ok(PaxosClient::new(&endpoint))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}

/// A read that waits for a round.
fn get() -> Request {
    let action = Some(request::Action::Get(Get { key: "k".into() }));
    Request { action, cluster: CLUSTER, ..Request::default() }
}

/// All reads wait for one round of nodes that are far from each other. A word to the node is
/// answered between its turns, though thousands wait for theirs.
#[tokio::test(start_paused = true)]
async fn a_turn_answers_some_reads_of_a_round_and_others_go_on() -> Result<(), Box<dyn Error>> {
    for seed in 1..4 {
        let mut cluster = Cluster::start(seed).await?;
        let client = cluster.client().await?;
        let leader = cluster.leader()?;
        let mut reads = JoinSet::new();
        for _ in 0..READS {
            let call = client.execute(get()).to(leader.endpoint().node());
            reads.spawn(async move { call.await.map(drop) });
        }
        let waiting = async || leader.inspect().await.map_or(0, |state| state.waiting);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let (mut before, mut between) = (waiting().await, 0);
        assert!(before > 3 * TURN, "seed {seed}: {before} wait");
        while let Some(read) = reads.join_next().await {
            read??;
            let now = waiting().await;
            let answered = before.saturating_sub(now);
            // Between two words of this test the node takes two turns at most.
            assert!(answered <= 2 * TURN, "seed {seed}: {answered} of {before} in one turn");
            between += u64::from(answered > 0 && now > 0);
            before = now;
        }
        assert!(between > 0, "seed {seed}: nobody was heard between");
    }
    Ok(())
}

/// One who asks for more than has places is refused what is beyond three quarters of them, also
/// where a follower hands his requests on. Who asks beside him is answered.
#[tokio::test(start_paused = true)]
async fn who_floods_leaves_places_for_another() -> Result<(), Box<dyn Error>> {
    for (seed, by_follower) in [(1, false), (2, true)] {
        let mut cluster = Cluster::start(seed).await?;
        let (flooding, honest) = (cluster.client().await?, cluster.client().await?);
        let leader = cluster.leader()?.endpoint().node();
        let follower = cluster.members.nodes().find(|node| *node != leader);
        let asked = follower.filter(|_| by_follower).unwrap_or(leader);
        let mut flood = JoinSet::new();
        for _ in 0..FLOOD {
            let call = flooding.execute(get()).to(asked);
            flood.spawn(async move { call.await.map(drop) });
        }
        while cluster.leader()?.inspect().await.map_or(0, |state| state.waiting) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        honest.execute(get()).to(asked).await?;
        let mut refused = 0;
        while let Some(read) = flood.join_next().await {
            match read?.map_err(|error| error.status().map(|status| status.code())) {
                Ok(()) => {}
                Err(Some(Code::ResourceExhausted)) => refused += 1,
                Err(code) => return Err(format!("{code:?}").into()),
            }
        }
        assert!(refused > 0, "seed {seed}: all had places");
    }
    Ok(())
}
