//! Addresses of nodes that only others have named: which core has heard of them, and what they make
//! an endpoint do. Under a paused clock.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::transport::{DialError, DialFuture, DialLimit, ListenFuture};
use convoke_core::{
    Call, Context, Endpoint, EndpointBuilder, Limits, Method, NodeId, ReplyDial, Service, Status,
    Task, Way,
};
use convoke_proto::address::Address;
use convoke_proto::id::{CallId, MethodId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{Frame, Header, Message, ReplyRoute, Request};
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::Recorder;
use convoke_transport::parts::Mutex;
use convoke_transport::{Lane, Sink, Transport};

const ANSWER: Method<(), u64> = Method::new("test.Heard/Answer");
const PASS_ON: Method<(), u64> = Method::new("test.Heard/PassOn");

/// Time that a dial of an address takes where nobody answers.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// A transport of the network that notes what is dialled. At addresses that begin with `sim://hole`
/// nobody answers.
#[derive(Debug)]
struct Noting {
    inner: Arc<dyn Transport>,
    dialled: Mutex<Vec<String>>,
}

impl Noting {
    fn new(network: &SimNetwork) -> Arc<Self> {
        Arc::new(Self { inner: network.transport(), dialled: Mutex::default() })
    }

    fn dialled(&self) -> Vec<String> {
        self.dialled.lock().clone()
    }
}

impl Transport for Noting {
    fn schemes(&self) -> &'static [&'static str] {
        self.inner.schemes()
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        self.inner.listen(address, sink)
    }

    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        self.dialled.lock().push(address.to_string());
        if !address.to_string().starts_with("sim://hole") {
            return self.inner.dial(address, expected, sink);
        }
        let limit = DialLimit::Connect(DIAL_TIMEOUT);
        let error = DialError::Timeout { address: address.clone(), limit };
        Box::pin(async {
            tokio::time::sleep(DIAL_TIMEOUT).await;
            Err(error)
        })
    }
}

fn service() -> Service {
    Service::new().unary(ANSWER, |(), _: Context| ready(Ok::<_, Status>(7)))
}

fn node(transport: impl Transport + 'static, number: u64) -> EndpointBuilder {
    let builder = Endpoint::builder().node(NodeId::new(number)).transport(transport);
    builder.listen(format!("sim://n{number}")).serve(service())
}

fn dialling_anybody() -> Limits {
    let mut limits = Limits::default();
    limits.reply_dial = ReplyDial::Anybody;
    limits
}

/// A resolver that finds every node here, and the number of times that it was asked.
fn resolver(
    builder: EndpointBuilder,
    address: &'static str,
) -> (EndpointBuilder, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let builder = builder.resolver(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        ready(Ok::<_, std::io::Error>(address))
    });
    (builder, asked)
}

/// A stranger's request for [`ANSWER`] in the name of a node that it says is at these addresses.
async fn name(network: &SimNetwork, server: &Endpoint, number: u64, addresses: &[String]) {
    let stranger = Arc::new(Recorder::new(2));
    let dialled = network.transport().dial(&server.addresses()[0], None, stranger).await;
    let connection = dialled.expect("the server listens");
    let addresses = addresses.iter().map(|one| one.parse().expect("it is an address")).collect();
    let request = Request {
        key: Key(1),
        budget_us: 1_000_000,
        outlasted_us: 0,
        floor: 1,
        method: MethodId::of(ANSWER.name()),
        reply_route: ReplyRoute::Node { node: NodeId::new(number), addresses },
        inherited: Vec::new(),
        extensions: Vec::new(),
        payload: Bytes::new(),
    };
    let task = TaskKey { path: Path::from_indices(&[0, 0]).expect("it is short"), hop: 0 };
    let call = CallId { origin: Recorder::new(number).hello().incarnation, seq: 1 };
    let message = Message::Request(request);
    let frame = Frame { header: Header { call, task }, relayed: None, key: None, message };
    connection.append_bytes(Lane::Data, &[], frame.to_bytes()).expect("there is room");
    connection.flush();
    tokio::time::sleep(Duration::from_millis(100)).await;
    connection.close(convoke_transport::CloseReason::Local);
}

#[tokio::test(start_paused = true)]
async fn every_core_has_whom_it_has_heard_of_dialled_to_reply() {
    let network = SimNetwork::new(1);
    let server = node(network.transport(), 1).limits(dialling_anybody()).cores(4);
    let server = server.start().await.expect("it starts");
    let relay = Endpoint::builder().node(NodeId::new(2)).transport(network.transport());
    let pass_on = |(), task: Task<u64>| async move {
        Ok(task.tail(NodeId::new(1), ANSWER.request(())).await?)
    };
    let relay = relay.listen("sim://n2").serve(Service::new().tree(PASS_ON, pass_on));
    let relay = relay.start().await.expect("it starts");
    relay.connect(server.addresses()).await.expect("it listens");
    // The life of an initiator says which core of the server has its calls.
    for number in 10..26 {
        let initiator = node(network.transport(), number).start().await.expect("it starts");
        let peer = initiator.connect(relay.addresses()).await.expect("it listens");
        let call: Call<u64> = initiator.call(PASS_ON, ()).to(peer).open().expect("it is connected");
        let reply = call.first().await.expect("it is answered");
        assert_eq!((reply.way(), *reply.message()), (Way::Direct, 7), "node {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_word_of_a_stranger_has_the_resolver_asked() {
    let (network, nobody) = (SimNetwork::new(2), ["sim://nobody".to_owned()]);
    let transport = Noting::new(&network);
    let builder = node(transport.clone(), 1).limits(dialling_anybody());
    let (builder, asked) = resolver(builder, "sim://n9");
    let server = builder.start().await.expect("it starts");
    let known = server.peer(NodeId::new(8), "sim://away").expect("it is an address");
    name(&network, &server, 9, &nobody).await;
    assert_eq!(transport.dialled(), ["sim://nobody"], "to reply");
    name(&network, &server, 8, &[]).await;
    assert_eq!(transport.dialled(), ["sim://nobody", "sim://away"], "to reply");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // A call of its own does.
    let failed = server.call(ANSWER, ()).to(NodeId::new(9)).await;
    assert!(failed.is_err(), "nobody is there");
    assert!(server.warm_up(known).await.is_err(), "node 9 is not node 8, and is not there");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn who_calls_a_node_asks_the_resolver_before_it_dials_where_others_say() {
    let (network, holes) = (SimNetwork::new(3), [1, 2, 3, 4, 5, 6, 7, 8]);
    let transport = Noting::new(&network);
    let (builder, asked) = resolver(node(transport.clone(), 1), "sim://n9");
    let server = builder.start().await.expect("it starts");
    let _wanted = node(network.transport(), 9).start().await.expect("it starts");
    name(&network, &server, 9, &holes.map(|number| format!("sim://hole{number}"))).await;
    let answer = server.call(ANSWER, ()).to(NodeId::new(9)).await;
    assert_eq!(answer.expect("it is found in time"), 7);
    assert_eq!((transport.dialled(), asked.load(Ordering::Relaxed)), (vec!["sim://n9".into()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_while_a_reply_is_dialled_has_the_resolver_asked_after_one_address() {
    let (network, holes) = (SimNetwork::new(4), ["sim://hole1", "sim://hole2"].map(str::to_owned));
    let transport = Noting::new(&network);
    let builder = node(transport.clone(), 1).limits(dialling_anybody());
    let (builder, asked) = resolver(builder, "sim://n9");
    let server = builder.start().await.expect("it starts");
    let _wanted = node(network.transport(), 9).start().await.expect("it starts");
    name(&network, &server, 9, &holes).await;
    assert_eq!(transport.dialled(), ["sim://hole1"], "it takes its time");
    let answer = server.call(ANSWER, ()).to(NodeId::new(9)).await;
    assert_eq!(answer.expect("it is found in time"), 7);
    assert_eq!(transport.dialled(), ["sim://hole1", "sim://n9"]);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// The pause after a dial that was for a reply alone is none for the resolver, which was not asked.
#[tokio::test(start_paused = true)]
async fn no_word_of_a_stranger_keeps_the_resolver_from_being_asked() {
    let network = SimNetwork::new(5);
    let mut limits = dialling_anybody();
    (limits.backoff_min, limits.backoff_max) = (Duration::from_secs(60), Duration::from_secs(60));
    let transport = Noting::new(&network);
    let (builder, asked) = resolver(node(transport.clone(), 1).limits(limits), "sim://n9");
    let server = builder.start().await.expect("it starts");
    let _wanted = node(network.transport(), 9).start().await.expect("it starts");
    name(&network, &server, 9, &["sim://nobody".to_owned()]).await;
    assert_eq!(transport.dialled(), ["sim://nobody"], "in vain, to reply");
    let answer = server.call(ANSWER, ()).to(NodeId::new(9)).await;
    assert_eq!(answer.expect("the resolver knows it"), 7);
    assert_eq!((transport.dialled().len(), asked.load(Ordering::Relaxed)), (2, 1));
}
