//! Handlers over a simulated network, before an actor that takes nothing.

use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::SimNetwork;
use convoke::{Call, CallError, Endpoint, EndpointBuilder, Executed};
use node_kit::simulation::in_virtual_time;
use tokio::time::timeout;

use super::*;
use crate::core::Ballot;
use crate::proto::{Get, PaxosClient, PaxosServer};

const CLUSTER: u64 = 7;
const LEADER: NodeId = NodeId::new(1);
const FOLLOWER: NodeId = NodeId::new(2);
const GATEWAY: NodeId = NodeId::new(8);
const CLIENT: NodeId = NodeId::new(9);
const BALLOT: Ballot = Ballot { round: 1, node: 1 };
/// Places of requests: of one who asks three at most.
const PLACES: usize = 4;
const WITHIN: Duration = Duration::from_secs(1);

/// Inputs that were put before the actor.
struct Taken {
    inputs: mpsc::Receiver<Input>,
    asked: mpsc::Receiver<Input>,
}

fn front(node: NodeId, standing: Standing) -> (Front, Taken) {
    let (inputs, words) = mpsc::channel(16);
    let (asked, requests) = mpsc::channel(16);
    let others = [LEADER, FOLLOWER].into_iter().filter(|of| *of != node).collect();
    let front = Front {
        node,
        cluster: CLUSTER,
        known: Known::new(RwLock::new(others)),
        inputs,
        asked,
        standing: watch::channel(standing).1,
        places: Places::new(PLACES, 1 << 20),
        asks: Places::new(PLACES, 1 << 20),
        asks_of_others: Places::with_each_max(1, PLACES, 1 << 20),
        polls: Places::new(PLACES, 0),
        questions: Places::new(PLACES, 0),
        ledger: Ledger::in_memory(),
        served: Served::default(),
    };
    (front, Taken { inputs: words, asked: requests })
}

/// A node of somebody else that has another do what it is asked: so these requests name who has
/// called it as their initiator.
struct Gateway(NodeId);

impl Paxos for Gateway {
    async fn execute(&self, request: Request, task: Task<Reply>) -> Result<Finish, Status> {
        let handed_on = task.tail(self.0, paxos::EXECUTE.request(request)).await;
        handed_on.map_err(|error| invalid(&error.to_string()))
    }

    async fn ask(&self, _: Question, _: Task<Answer>) -> Result<Finish, Status> {
        unreachable!("nobody asks it")
    }

    async fn vote(&self, _: proto::Poll, _: Task<Reply>) -> Result<Finish, Status> {
        unreachable!("nobody asks it")
    }

    async fn fetch(&self, _: FetchRequest, _: Context) -> Result<FetchedPart, Status> {
        unreachable!("nobody asks it")
    }

    async fn inspect(&self, _: InspectRequest, _: Context) -> Result<Inspection, Status> {
        unreachable!("nobody asks it")
    }
}

fn builder(network: &SimNetwork, node: NodeId) -> EndpointBuilder {
    let address = |node: NodeId| format!("sim://node{}", node.get());
    let nodes = [LEADER, FOLLOWER, GATEWAY, CLIENT].map(|node| (node, address(node)));
    let nodes = Configuration::new(nodes).expect("there are nodes");
    let builder = Endpoint::builder().transport(network.transport());
    builder.node(node).listen(address(node)).peers(&nodes)
}

async fn serve<T: Paxos>(network: &SimNetwork, node: NodeId, service: T) -> Endpoint {
    let endpoint = builder(network, node).serve(PaxosServer::new(service)).start().await;
    endpoint.expect("it starts")
}

fn get() -> Request {
    let action = Some(request::Action::Get(Get { key: "k".into() }));
    Request { action, cluster: CLUSTER, ..Request::default() }
}

fn canvass() -> Question {
    Question::new(CLUSTER, 1, &Ask::Canvass { ballot: BALLOT })
}

async fn next(taken: &mut mpsc::Receiver<Input>) -> Option<Input> {
    timeout(WITHIN, taken.recv()).await.ok().flatten()
}

/// The code of a refusal, and whether the request ran.
fn refusal(error: Option<CallError>) -> Option<(Code, Executed)> {
    let failure = error?.failure()?.clone();
    Some((Code::from_number(failure.code), failure.executed))
}

/// A node between a client and the cluster asks in the client's name, at the leader or a follower.
#[test]
fn a_request_takes_a_place_of_who_is_at_the_other_end_of_its_connection() {
    in_virtual_time(async {
        for at in [LEADER, FOLLOWER] {
            let network = SimNetwork::new(7);
            let (leading, mut taken) = front(LEADER, Standing::Leading(BALLOT));
            let (following, _taken) = front(FOLLOWER, Standing::Following(LEADER));
            let client = builder(&network, CLIENT).start().await.expect("it starts");
            let nodes = [
                serve(&network, LEADER, leading).await,
                serve(&network, FOLLOWER, following).await,
                serve(&network, GATEWAY, Gateway(at)).await,
            ];
            let asking = PaxosClient::new(&client);
            let ask = |node| asking.execute(get()).to(node).open().expect("it can be asked");
            let (mut calls, mut waiting) = (Vec::<Call<Reply>>::new(), Vec::new());
            for _ in 1..PLACES {
                calls.push(ask(GATEWAY));
                waiting.push(next(&mut taken.asked).await.expect("there is a place"));
            }
            let code = ask(GATEWAY).first().await.err().and_then(|error| error.status());
            let code = code.map(|status| status.code());
            assert_eq!(code, Some(Code::ResourceExhausted), "by way of {at}: it has its share");
            calls.push(ask(at));
            let own = next(&mut taken.asked).await;
            assert!(own.is_some(), "by way of {at}: another has taken the place of the client");
            for endpoint in nodes.into_iter().chain([client]) {
                endpoint.shutdown(Duration::ZERO).await;
            }
        }
    });
}

/// Its actor has ended, and its endpoint not yet.
#[test]
fn a_node_that_has_stopped_says_that_nothing_was_done_but_of_a_vote() {
    in_virtual_time(async {
        let network = SimNetwork::new(7);
        let (leading, taken) = front(LEADER, Standing::Leading(BALLOT));
        let leader = serve(&network, LEADER, leading).await;
        let member = builder(&network, FOLLOWER).start().await.expect("it starts");
        drop(taken);
        let asking = PaxosClient::new(&member);
        let poll = proto::Poll { cluster: CLUSTER, ..proto::Poll::default() };
        let told = [
            refusal(asking.execute(get()).to(LEADER).await.err()),
            refusal(asking.ask(canvass()).to(LEADER).await.err()),
            refusal(asking.vote(poll).to(LEADER).await.err()),
        ];
        let (undone, proposed) =
            ((Code::Unavailable, Executed::No), (Code::Aborted, Executed::Yes));
        assert_eq!(told, [Some(undone), Some(undone), Some(proposed)]);
        for endpoint in [leader, member] {
            endpoint.shutdown(Duration::ZERO).await;
        }
    });
}

#[test]
fn questions_have_places_and_those_of_members_have_their_own() {
    in_virtual_time(async {
        let network = SimNetwork::new(7);
        let (front, mut taken) = front(LEADER, Standing::Leaderless);
        let node = serve(&network, LEADER, front).await;
        let member = builder(&network, FOLLOWER).start().await.expect("it starts");
        let stranger = builder(&network, CLIENT).start().await.expect("it starts");
        let (mut calls, mut waiting) = (Vec::new(), Vec::new());
        for (who, places) in [(&stranger, 1), (&member, PLACES - 1)] {
            let asking = PaxosClient::new(who);
            let ask = || asking.ask(canvass()).to(LEADER).open().expect("it can be asked");
            for _ in 0..places {
                calls.push(ask());
                waiting.push(next(&mut taken.inputs).await.expect("there is a place"));
            }
            let told = refusal(ask().first().await.err());
            let refused = Some((Code::ResourceExhausted, Executed::No));
            assert_eq!(told, refused, "{} has {places} places", who.node());
        }
        drop(waiting);
        calls.push(PaxosClient::new(&member).ask(canvass()).to(LEADER).open().expect("again"));
        assert!(next(&mut taken.inputs).await.is_some(), "its places are free again");
        for endpoint in [node, member, stranger] {
            endpoint.shutdown(Duration::ZERO).await;
        }
    });
}
