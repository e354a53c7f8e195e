//! Members that change under load: of real processes, and of nodes in one.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::Ledger;
use node_kit::processes::Ports;
use paxos::client::{Client, ClientError, Options};
use paxos::core::{Membership, Part};
use paxos::node::{self, Lacking, Node};
use paxos::proto::{Get, PaxosClient, Request, request};
use tokio::time::sleep;

#[test]
fn nothing_is_lost_while_three_become_five_and_three_again() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_paxos"));
    let demo = demo.args(["demo", "--members", "--seconds", "0.5", "--clients", "4"]);
    let output = demo.stderr(Stdio::inherit()).output().expect("it is built");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let last = text.lines().next_back().unwrap_or_default();
    assert!(output.status.success() && last.starts_with("verified: "), "{text}");
    for words in ["joined: 4 vote", "joined: 5 vote", "left: 4 vote", "left: 3 vote"] {
        assert!(text.contains(words), "{text}");
    }
}

const CLUSTER: u64 = 7;

/// Nodes of one process, with ledgers in memory.
struct Nodes {
    members: Configuration,
    endpoint: Endpoint,
    client: Client,
    starts: u64,
    _ports: Ports,
}

impl Nodes {
    async fn new(count: u64) -> Result<Self, Box<dyn Error>> {
        let ports = Ports::reserve(usize::try_from(count)?)?;
        let addresses = ports.iter().map(|port| format!("tcp://127.0.0.1:{port}"));
        let members = Configuration::new((1..).map(NodeId::new).zip(addresses))?;
        let endpoint = convoke::endpoint().peers(&members).start().await?;
        let mut options = Options::new(CLUSTER, 3);
        options.deadline = Duration::from_secs(60);
        let client = Client::new(&endpoint, &members, options);
        Ok(Self { members, endpoint, client, starts: 0, _ports: ports })
    }

    /// Starts a node of three that form the cluster, with a ledger that has nothing in it.
    async fn start(&mut self, id: u64) -> Result<Node, Box<dyn Error>> {
        let room = node::Options::new(CLUSTER, NodeId::new(id), self.members.clone(), 0);
        self.start_with_room(id, room.requests_max).await
    }

    /// Starts one in which so many requests may wait.
    async fn start_with_room(
        &mut self,
        id: u64,
        requests_max: usize,
    ) -> Result<Node, Box<dyn Error>> {
        self.starts += 1;
        let node = NodeId::new(id);
        let mut options = node::Options::new(CLUSTER, node, self.members.clone(), self.starts);
        options.requests_max = requests_max;
        options.core.voters = (1..=3).map(NodeId::new).collect();
        let builder = convoke::endpoint().listen(self.members.addresses_of(node));
        Ok(Node::start(options, (Ledger::in_memory(), None), builder).await?)
    }

    /// Waits until a leader says that this is the part of a node, and a majority knows.
    async fn until(&self, id: u64, is_so: impl Fn(Option<Part>) -> bool) {
        loop {
            for node in self.members.nodes() {
                let state = self.client.inspect(node).await.ok();
                let state = state.filter(|state| state.is_settled);
                let members = state.and_then(|state| state.membership);
                let members = members.and_then(|of| Membership::try_from(of).ok());
                if members.is_some_and(|members| is_so(members.now.part(NodeId::new(id)))) {
                    return;
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Of three voters one loses its ledger, which was memory: it learns, joins again as another, and
/// then the cluster can do without one of those that have lost nothing.
#[tokio::test]
async fn a_node_that_lost_its_ledger_learns_and_joins_again() -> Result<(), Box<dyn Error>> {
    let mut nodes = Nodes::new(3).await?;
    let (first, second) = (nodes.start(1).await?, nodes.start(2).await?);
    let third = nodes.start(3).await?;
    nodes.client.put("k", "a").await?;
    third.stop(Duration::from_secs(5)).await?;
    nodes.client.put("k", "b").await?;
    let third = nodes.start(3).await?;
    let mut lacking = third.lacking();
    lacking.wait_for(|lacking| *lacking == Some(Lacking::Ledger)).await?;
    nodes.client.join(NodeId::new(3), Vec::new(), false).await?;
    nodes.until(3, |part| part == Some(Part::Voter(4))).await; // its fourth start of all
    lacking.wait_for(Option::is_none).await?;
    drop(first);
    nodes.client.put("k", "c").await?;
    assert_eq!(nodes.client.get("k").await?, Some("c".into()));
    drop((second, third));
    Ok(())
}

/// A learner is told all, answers reads by itself where that is wanted, and is not needed.
#[tokio::test]
async fn a_learner_has_what_was_written_and_no_vote() -> Result<(), Box<dyn Error>> {
    let mut nodes = Nodes::new(4).await?;
    let voters = [nodes.start(1).await?, nodes.start(2).await?, nodes.start(3).await?];
    let learner = nodes.start(4).await?;
    nodes.client.put("k", "a").await?;
    nodes.client.join(NodeId::new(4), Vec::new(), true).await?;
    nodes.until(4, |part| part == Some(Part::Learner)).await;
    let mut options = Options::new(CLUSTER, 4);
    options.stale = Some(NodeId::new(4));
    let mut reader = Client::new(&nodes.endpoint, &nodes.members, options);
    while reader.get("k").await? != Some("a".into()) {
        sleep(Duration::from_millis(10)).await;
    }
    let [first, second, third] = voters;
    drop(third);
    nodes.client.put("k", "b").await?; // one of three is missed, and the learner is none of them
    drop(learner);
    nodes.client.put("k", "c").await?;
    nodes.client.leave(NodeId::new(4)).await?;
    nodes.until(4, |part| part.is_none()).await;
    drop((first, second));
    Ok(())
}

/// Each node is asked: all but the leader hand the request on, and the reply says to whom.
#[tokio::test]
async fn a_reply_names_the_leader_if_another_was_asked() -> Result<(), Box<dyn Error>> {
    let mut nodes = Nodes::new(3).await?;
    let running = [nodes.start(1).await?, nodes.start(2).await?, nodes.start(3).await?];
    nodes.client.put("k", "a").await?;
    let get = request::Action::Get(Get { key: "k".into() });
    let request = Request { action: Some(get), cluster: CLUSTER, ..Request::default() };
    let client = PaxosClient::new(&nodes.endpoint);
    let mut named = Vec::new();
    for _ in 0..500 {
        named.clear();
        for node in nodes.members.nodes() {
            // A follower that has not heard of its leader yet refuses.
            if let Ok(reply) = client.execute(request.clone()).to(node).await {
                named.push((node.get(), reply.leader));
            }
        }
        let leader = named.iter().map(|(_, leader)| *leader).max().unwrap_or_default();
        let of = |node| (node, if node == leader { 0 } else { leader });
        if leader > 0 && named.iter().copied().eq((1..=3).map(of)) {
            drop(running);
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(format!("(who was asked, who it says leads): {named:?}").into())
}

/// A follower hands the request on, and the leader refuses it: who has asked is told why, and that
/// nothing ran.
#[tokio::test]
async fn a_refusal_of_what_was_handed_on_says_that_nothing_ran() -> Result<(), Box<dyn Error>> {
    let why = "n4 is in no cluster file of the others: give its address".to_owned();
    let refused = ask_a_follower_to_join(1_024).await?;
    assert_eq!(refused, Err(ClientError::Refused(why)));
    let refused = ask_a_follower_to_join(0).await?;
    let no_room = |text: &str| text.starts_with("too many requests wait here: ask again");
    assert!(
        matches!(&refused, Err(ClientError::Unavailable(text)) if no_room(text)),
        "{refused:?}"
    );
    Ok(())
}

/// The answer to a node without an address, where so many requests may wait at the leader.
async fn ask_a_follower_to_join(
    requests_max: usize,
) -> Result<Result<(), ClientError>, Box<dyn Error>> {
    let mut nodes = Nodes::new(3).await?;
    let mut running = Vec::new();
    for id in 1..=3 {
        running.push(nodes.start_with_room(id, requests_max).await?);
    }
    let follower = loop {
        let state = nodes.client.inspect(NodeId::new(1)).await?;
        match &*state.standing {
            "following" => break NodeId::new(1),
            "leading" => break NodeId::new(2),
            _ => sleep(Duration::from_millis(10)).await,
        }
    };
    let mut options = Options::new(CLUSTER, 5);
    (options.at, options.deadline) = (Some(follower), Duration::from_secs(3));
    let mut client = Client::new(&nodes.endpoint, &nodes.members, options);
    Ok(client.join(NodeId::new(4), Vec::new(), false).await)
}
