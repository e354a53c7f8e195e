//! A small service and ways to start it, shared by the tests of endpoints over real sockets.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use convoke::cast::{CastBody, Digest};
use convoke::transport::TcpTransport;
use convoke::{
    Code, Context, Endpoint, EndpointBuilder, Finish, Method, NodeId, Peer, Service, Status, Task,
};

/// A request of the test service: what to do, and on which nodes after this one.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ask {
    /// Text to give back, or what to do.
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    /// A number to do it with.
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
    /// Nodes to go on to.
    #[prost(message, repeated, tag = "3")]
    pub(crate) route: Vec<Stop>,
}

/// A node on a route.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Stop {
    /// Its name.
    #[prost(uint64, tag = "1")]
    pub(crate) node: u64,
    /// Address at which it listens.
    #[prost(string, tag = "2")]
    pub(crate) address: String,
}

/// A reply of the test service.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answer {
    /// Text.
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    /// The node that answered.
    #[prost(uint64, tag = "2")]
    pub(crate) node: u64,
    /// Bytes to fill it up.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) filling: Vec<u8>,
}

/// Gives the text back, or the metadata when it asks for `metadata`.
pub(crate) const ECHO: Method<Ask, Answer> = Method::new("test.Test/Echo");
/// Goes along the route by tail transfers; the last node answers, or streams `number` items.
pub(crate) const HOPS: Method<Ask, Answer> = Method::new("test.Test/Hops");
/// Asks all nodes of the route at once and answers itself, too.
pub(crate) const SPREAD: Method<Ask, Answer> = Method::new("test.Test/Spread");
/// Streams `number` items of 1,000 bytes.
pub(crate) const STREAM: Method<Ask, Answer> = Method::new("test.Test/Stream");
/// Answers with `number` bytes.
pub(crate) const LARGE: Method<Ask, Answer> = Method::new("test.Test/Large");
/// Notes when it begins and ends, one at a time for each peer; with `release` as text it lets the
/// next one begin early.
pub(crate) const ORDERED: Method<Ask, Answer> = Method::new("test.Test/Ordered").ordered();
/// Casts to all nodes of the route, and answers once it has as many casts.
pub(crate) const ECHO_PHASE: Method<Ask, Answer> = Method::new("test.Test/EchoPhase");
/// Opens `number` branches of itself at this node, each of which does the same, and never replies.
pub(crate) const NEST: Method<Ask, Answer> = Method::new("test.Test/Nest");
/// Fails as `text` says: status, panic, never.
pub(crate) const FAIL: Method<Ask, Answer> = Method::new("test.Test/Fail");

/// Starts an endpoint that listens on loopback and serves the test service.
pub(crate) async fn server(node: u64) -> Endpoint {
    start(builder(node).listen("tcp://127.0.0.1:0")).await
}

/// Starts an endpoint that only dials out.
pub(crate) async fn client() -> Endpoint {
    start(Endpoint::builder().transport(TcpTransport::new())).await
}

/// An endpoint with a name and the test service.
pub(crate) fn builder(node: u64) -> EndpointBuilder {
    let builder = Endpoint::builder().transport(TcpTransport::new());
    builder.node(NodeId::new(node))
}

/// Starts it, with the test service.
pub(crate) async fn start(builder: EndpointBuilder) -> Endpoint {
    // The service needs its own endpoint to make peers of addresses.
    let cell = std::sync::Arc::new(std::sync::OnceLock::new());
    let endpoint =
        builder.serve(service(cell.clone())).start().await.expect("loopback can be bound");
    cell.set(endpoint.clone()).expect("it is set once");
    endpoint
}

/// Address of an endpoint, as a part of a route.
pub(crate) fn stop(endpoint: &Endpoint) -> Stop {
    let address = endpoint.addresses().first().map(ToString::to_string).unwrap_or_default();
    Stop { node: endpoint.node().get(), address }
}

/// A peer of `at` for the node of another endpoint.
pub(crate) fn peer(at: &Endpoint, other: &Endpoint) -> Peer {
    let addresses = other.addresses();
    at.peer(other.node(), addresses).expect("its addresses are addresses")
}

/// A request with a text.
pub(crate) fn ask(text: &str) -> Ask {
    Ask { text: text.to_owned(), ..Ask::default() }
}

type Cell = std::sync::Arc<std::sync::OnceLock<Endpoint>>;

fn service(cell: Cell) -> Service {
    let answer = |endpoint: &Endpoint, text: &str| Answer {
        text: text.to_owned(),
        node: endpoint.node().get(),
        filling: Vec::new(),
    };
    let (echo, hops, spread, large) = (cell.clone(), cell.clone(), cell.clone(), cell.clone());
    let (stream, phase, nest_at) = (cell.clone(), cell.clone(), cell);
    let log: Log = Log::default();
    Service::new()
        .unary(ECHO, move |ask, context: Context| {
            let pairs =
                context.metadata().iter().map(|(key, value)| format!("{key}={}", value.len()));
            let text = if ask.text == "metadata" { pairs.collect() } else { ask.text };
            let reply = answer(&own(&echo), &text);
            async move { Ok(reply) }
        })
        .tree(HOPS, move |ask, task| hop(own(&hops), ask, task))
        .tree(SPREAD, move |ask, task| spread_out(own(&spread), ask, task))
        .tree(STREAM, move |ask, task| stream_items(own(&stream), ask, task))
        .unary(LARGE, move |ask: Ask, _| {
            let mut reply = answer(&own(&large), &ask.text);
            reply.filling = vec![7; usize::try_from(ask.number).expect("it is small")];
            async move { Ok(reply) }
        })
        .unary(ORDERED, move |ask, context| ordered(log.clone(), ask, context))
        .unary(ECHO_PHASE, move |ask, context| echo_phase(own(&phase), ask, context))
        .tree(NEST, move |ask, task| nest(own(&nest_at), ask, task))
        .unary(FAIL, fail)
}

async fn nest(endpoint: Endpoint, ask: Ask, task: Task<Answer>) -> Result<Finish, Status> {
    for _ in 0..ask.number {
        task.delegate(&endpoint.me(), NEST.request(Ask { number: 1, ..ask.clone() })).await?;
    }
    // A reply keeps each delegation from being a mere tail, which would not deepen the path.
    task.answer(&Answer::default())
}

type Log = std::sync::Arc<std::sync::Mutex<String>>;

/// Answers with what has begun (`+n`) and ended (`-n`) until its own end.
async fn ordered(log: Log, ask: Ask, context: Context) -> Result<Answer, Status> {
    let note = |sign: char| {
        let mut log = log.lock().expect("nobody panics with it");
        log.push_str(&format!("{sign}{}", ask.number));
        log.clone()
    };
    note('+');
    if ask.text == "release" {
        context.release();
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    Ok(Answer { text: note('-'), ..Answer::default() })
}

async fn echo_phase(endpoint: Endpoint, ask: Ask, context: Context) -> Result<Answer, Status> {
    let port = context.casts().expect("one round per call");
    let to = ask.route.iter().map(|stop| to_peer(&endpoint, stop).node());
    let mut digest = Digest::ZERO;
    digest.0[..8].copy_from_slice(&endpoint.node().get().to_le_bytes());
    let payload = ask.text.clone().into();
    port.send(to, CastBody { phase: 0, sender: 0, epoch: 0, digest, payload });
    let all_wait =
        |cx: &mut std::task::Context<'_>| match port.poll_waiting(cx, ask.route.len()).is_ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
    poll_fn(all_wait).await;
    let (mut text, mut casts) = (String::new(), Vec::new());
    port.take(&mut casts);
    for cast in casts {
        assert_eq!(cast.body.digest.0[..8], cast.from.get().to_le_bytes());
        text += std::str::from_utf8(&cast.body.payload).expect("it was text");
    }
    Ok(Answer { text, node: endpoint.node().get(), filling: Vec::new() })
}

fn own(cell: &Cell) -> Endpoint {
    cell.get().expect("requests come after the start").clone()
}

async fn hop(endpoint: Endpoint, mut ask: Ask, task: Task<Answer>) -> Result<Finish, Status> {
    if ask.route.is_empty() && ask.number > 0 {
        return stream_items(endpoint, ask, task).await;
    }
    if ask.route.is_empty() {
        let answer = Answer { text: ask.text, node: endpoint.node().get(), filling: Vec::new() };
        return task.answer(&answer);
    }
    let next = to_peer(&endpoint, &ask.route.remove(0));
    Ok(task.tail(&next, HOPS.request(ask)).await?)
}

async fn spread_out(endpoint: Endpoint, ask: Ask, task: Task<Answer>) -> Result<Finish, Status> {
    let node = endpoint.node().get();
    task.reply(&Answer { text: ask.text.clone(), node, filling: Vec::new() })?;
    let route = ask.route.iter();
    task.fan_out(route.map(|stop| (to_peer(&endpoint, stop), ECHO.request(self::ask(&ask.text)))))
        .await
}

async fn stream_items(endpoint: Endpoint, ask: Ask, task: Task<Answer>) -> Result<Finish, Status> {
    let mut stream = task.stream()?;
    for item in 0..ask.number {
        let node = endpoint.node().get();
        stream.send(&Answer { text: item.to_string(), node, filling: vec![0; 1000] }).await?;
    }
    drop(stream);
    Ok(task.finish())
}

async fn fail(ask: Ask, _: Context) -> Result<Answer, Status> {
    match ask.text.as_str() {
        "status" => Err(Status::new(Code::NotFound, "nothing here").with_details(&b"why"[..])),
        "panic" => panic!("on purpose"),
        "late" => {
            tokio::time::sleep(Duration::from_millis(30)).await;
            panic!("on purpose, late")
        }
        _ => std::future::pending().await,
    }
}

fn to_peer(endpoint: &Endpoint, stop: &Stop) -> Peer {
    if stop.node == endpoint.node().get() {
        return endpoint.me();
    }
    let node = NodeId::new(stop.node);
    endpoint.peer(node, [&stop.address]).expect("it is an address")
}
