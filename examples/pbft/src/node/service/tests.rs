//! Handlers before an actor that takes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke::quorum::{Configuration, QuorumExt as _};
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, EndpointBuilder, Executed};
use node_kit::simulation::in_virtual_time;
use parking_lot::RwLock;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::*;
use crate::core::{
    Checker, Digest, Group, Keys, Phase, Request, Scope, Sequence, Signature, Signer, View, Vote,
};
use crate::node::{Options, Part};
use crate::proto::{PbftClient, PbftServer};

const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };
const PRIMARY: NodeId = NodeId::new(1);
const BACKUP: NodeId = NodeId::new(2);
const GATEWAY: NodeId = NodeId::new(8);
const CLIENT: NodeId = NodeId::new(9);
/// Replies that a member may await for others: for one of them three.
const PLACES: usize = 4;
const WITHIN: Duration = Duration::from_secs(1);

/// Inputs that were put before the actor.
struct Taken {
    _inputs: mpsc::Receiver<Input>,
    asked: mpsc::Receiver<Input>,
}

fn members() -> Configuration {
    let members = [PRIMARY, BACKUP].map(|node| (node, format!("sim://node{}", node.get())));
    Configuration::new(members).expect("there are some")
}

/// That of a replica that takes so many words of each member.
fn front(member_inputs_max: usize) -> (Front, Taken) {
    let checkers = members().nodes().map(|node| (node, Checker::Unsigned)).collect();
    let clients = BTreeMap::from([(ClientId(9), Checker::Unsigned)]);
    let group = Group::new(members().nodes()).expect("there are members");
    let keys = Keys::new(SCOPE, group, checkers, clients);
    let options = Options::new(PRIMARY, members(), keys.clone(), Signer::Unsigned);
    let options = Options { member_inputs_max, ..options };
    let (inputs, words) = mpsc::channel(16);
    let (asked, requests) = mpsc::channel(16);
    let standing = Standing { view: View(0), has_begun: true, primary: PRIMARY, part: Part::Whole };
    let front = Front {
        epoch: Arc::new(RwLock::new(Arc::new(Epoch::of(&options, keys)))),
        words: Gate::of_words(),
        requests: Gate::of_requests(),
        questions: Places::new(PLACES, 0),
        places: Places::new(64, 1 << 20),
        inputs,
        asked,
        counts: Arc::default(),
        standing: watch::channel(standing).1,
    };
    (front, Taken { _inputs: words, asked: requests })
}

/// A node of somebody else that has the primary do what it is asked: so these requests name who has
/// called it as their initiator.
struct Gateway;

impl Pbft for Gateway {
    async fn execute(&self, asked: Asked, task: Task<Answer>) -> Result<Finish, Status> {
        let handed_on = task.tail(PRIMARY, pbft::EXECUTE.request(asked)).await;
        handed_on.map_err(|error| Status::new(Code::Unavailable, error.to_string()))
    }

    async fn hand_over(&self, _: Since, _: Context) -> Result<Handovers, Status> {
        unreachable!("nobody asks it")
    }

    async fn tell(&self, _: Words, _: Context) -> Result<(), Status> {
        unreachable!("nobody tells it")
    }

    async fn inspect(&self, _: InspectRequest, _: Context) -> Result<Inspection, Status> {
        unreachable!("nobody asks it")
    }
}

fn builder(network: &SimNetwork, node: NodeId) -> EndpointBuilder {
    let builder = Endpoint::builder().transport(network.transport()).node(node).peers(&members());
    let address = |node: NodeId| format!("sim://node{}", node.get());
    builder.peer(GATEWAY, address(GATEWAY)).listen(address(node))
}

async fn serve<T: Pbft>(network: &SimNetwork, node: NodeId, service: T) -> Endpoint {
    let endpoint = builder(network, node).serve(PbftServer::new(service)).keep_connected();
    endpoint.start().await.expect("it starts")
}

async fn next(taken: &mut mpsc::Receiver<Input>) -> Option<Input> {
    timeout(WITHIN, taken.recv()).await.ok().flatten()
}

/// A node between a client and the primary asks in the client's name.
#[test]
fn a_reply_is_awaited_for_who_is_at_the_other_end_of_the_connection() {
    in_virtual_time(async {
        let network = SimNetwork::new(7);
        let ((primary, _taken), (backup, mut taken)) = (front(PLACES), front(PLACES));
        let nodes = [
            serve(&network, PRIMARY, primary).await,
            serve(&network, BACKUP, backup).await,
            serve(&network, GATEWAY, Gateway).await,
        ];
        let client = builder(&network, CLIENT).start().await.expect("it starts");
        let asking = PbftClient::new(&client);
        let request = Request { client: ClientId(9), number: 1, operation: "x".into() };
        let signed = SignedRequest { request, signature: Signature::NONE };
        let asked = Asked { asked: Some(asked::Asked::Request(wire::encode(&signed))) };
        let ask = |node| asking.execute(asked.clone()).to(node).open().expect("it can be asked");
        let (mut calls, mut waiting) = (Vec::new(), Vec::new());
        for _ in 1..PLACES {
            calls.push(ask(GATEWAY));
            waiting.push(next(&mut taken.asked).await.expect("there is a place"));
        }
        calls.push(ask(GATEWAY));
        assert!(next(&mut taken.asked).await.is_none(), "it has its share");
        calls.push(ask(PRIMARY));
        let own = next(&mut taken.asked).await;
        assert!(own.is_some(), "another has taken the place of the client");
        for endpoint in nodes.into_iter().chain([client]) {
            endpoint.shutdown(Duration::ZERO).await;
        }
    });
}

/// Its actor has ended, and its endpoint not yet.
#[test]
fn a_node_that_has_stopped_says_that_nothing_was_done() {
    in_virtual_time(async {
        let network = SimNetwork::new(7);
        let (front, taken) = front(PLACES);
        let node = serve(&network, PRIMARY, front).await;
        let member = builder(&network, BACKUP).start().await.expect("it starts");
        drop(taken);
        let request = Request { client: ClientId(9), number: 1, operation: "x".into() };
        let signed = SignedRequest { request, signature: Signature::NONE };
        let awaited = Awaited { client: 9, number: 1, asker: CLIENT.get() };
        let (undone, ordered) = ((Code::Unavailable, Executed::No), (Code::Aborted, Executed::Yes));
        for (asked, expected) in [
            (asked::Asked::RequestToAll(wire::encode(&signed)), undone),
            (asked::Asked::Awaited(awaited), ordered),
        ] {
            let asked = Asked { asked: Some(asked) };
            let alone = Configuration::new([PRIMARY]).expect("there is one");
            let call = PbftClient::new(&member).execute(asked).to_all(&alone).quorum_call();
            let mut call = call.deadline(WITHIN).open().expect("it can be asked");
            let (_, told) = call.next().await.expect("it is told");
            let failure = told.expect_err("nobody answers").failure().cloned();
            let told = failure.map(|failure| (Code::from_number(failure.code), failure.executed));
            assert_eq!(told, Some(expected));
        }
        for endpoint in [node, member] {
            endpoint.shutdown(Duration::ZERO).await;
        }
    });
}

/// All threads for what takes its time are busy when large words come, and are given up.
#[test]
fn large_words_that_are_given_up_keep_their_place_while_they_are_there() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().max_blocking_threads(1).build().expect("it starts");
    runtime.block_on(async {
        let (front, _taken) = front(1);
        let (busy, until) = std::sync::mpsc::channel::<()>();
        let busy_thread = spawn_blocking(move || until.recv());
        let (sequence, digest) = (Sequence(1), Digest([0; 32]));
        let vote = Vote { phase: Phase::Commit, view: View(0), sequence, digest };
        let words = Signer::Unsigned.sign(SCOPE, BACKUP, Message::Vote(vote));
        let place = front.place_of_words(BACKUP, 1).expect("there is one");
        let opening = front.open(BACKUP, (EXAMINED_HERE_BYTES + 1, words), place);
        assert!(timeout(Duration::ZERO, opening).await.is_err(), "no thread is free");
        assert!(front.place_of_words(BACKUP, 1).is_err(), "more are kept than have places");
        drop(busy);
        let _ = busy_thread.await.expect("it ends"); // nobody has sent anything
        spawn_blocking(|| ()).await.expect("it comes behind the words");
        assert!(front.place_of_words(BACKUP, 1).is_ok(), "its place is free again");
    });
}
