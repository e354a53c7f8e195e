//! Reads that wait for one round, more than one turn of the actor answers.

use std::error::Error;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::{Conditions, SimNetwork};
use convoke::{Endpoint, NodeId};
use convoke_sim::random::Random;
use node_kit::ledger::Ledger;
use paxos::core::Standing;
use paxos::node::{Node, Options};
use paxos::proto::{Get, PaxosClient, Request, request};
use tokio::task::JoinSet;

const CLUSTER: u64 = 7;
const READS: u64 = 5_000;
/// Of one turn, at most.
const TURN: u64 = 1_024;

fn address(node: NodeId) -> String {
    format!("sim://node{}", node.get())
}

/// All reads wait for one round of nodes that are far from each other. A word to the node is
/// answered between its turns, though thousands wait for theirs.
#[tokio::test(start_paused = true)]
async fn a_turn_answers_some_reads_of_a_round_and_others_go_on() -> Result<(), Box<dyn Error>> {
    for seed in 1..4 {
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
        let leads = |node: &&Node| matches!(*node.standing().borrow(), Standing::Leading(_));
        let leader = nodes.iter().find(leads).ok_or("nobody leads")?;

        let endpoint = Endpoint::builder().transport(network.transport()).seed(random.draw());
        let client = PaxosClient::new(&endpoint.peers(&members).start().await?);
        let mut reads = JoinSet::new();
        for _ in 0..READS {
            let action = Some(request::Action::Get(Get { key: "k".into() }));
            let request = Request { action, cluster: CLUSTER, ..Request::default() };
            let call = client.execute(request).to(leader.endpoint().node());
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
        members.nodes().for_each(|node| network.crash(node));
    }
    Ok(())
}
