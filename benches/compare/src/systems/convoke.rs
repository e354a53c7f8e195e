//! Convoke over any of its transports: the servers of all benches, and their client.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use convoke::quorum::{QuorumExt as _, Threshold};
use convoke::sim::delay::DelayLine;
use convoke::transport::Identity;
use convoke::transport::Transport;
use convoke::{
    CallBuilder, Code, Context, Endpoint, EndpointBuilder, Finish, Method, Peer, Request, Service,
    ServiceOf, Status, Task,
};

use crate::authority::Certificate;
use crate::bench::{Bench, Form, ITEMS, QUORUM};
use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::{Client, Work, refused};
use crate::proto::{NOT_FOUND, Payload, counted, expect_bytes};

/// The differences of one transport from another.
pub(crate) struct Wire {
    /// Address at which servers listen: loopback, a port the system chooses.
    pub(crate) listen: &'static str,
    /// How an endpoint gets its transport.
    pub(crate) transport: Make,
}

/// A transport with its defaults.
#[derive(Clone, Copy)]
pub(crate) enum Make {
    /// That believes what nodes say they are.
    Plain(fn() -> Arc<dyn Transport>),
    /// That wants a certificate of both ends.
    Secure(fn(Identity) -> Arc<dyn Transport>),
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wire").field(&self.listen).finish()
    }
}

impl Wire {
    /// With this certificate, if the transport wants one.
    fn endpoint(&self, given: Option<Certificate>, delay: Duration) -> Result<EndpointBuilder> {
        let builder = Endpoint::builder();
        let (builder, prompt) = match self.transport {
            Make::Plain(make) => (builder, make()),
            Make::Secure(make) => {
                let identity = given.context("it was given no certificate")?.identity()?;
                (builder.node(identity.node()), make(identity))
            }
        };
        let transport = if delay.is_zero() { prompt } else { DelayLine::wrap(prompt, delay) };
        Ok(builder.transport(transport))
    }
}

const ECHO: Method<Payload, Payload> = Method::new("compare.Bench/Echo");
const ITEM_STREAM: Method<Payload, Payload> = Method::new("compare.Bench/Items");
/// `count` servers, the last of which answers the client.
const HOPS: Method<Payload, Payload> = Method::new("compare.Bench/Hops");
/// The same, each of which answers whoever asked it.
const HOPS_NESTED: Method<Payload, Payload> = Method::new("compare.Bench/HopsNested");
/// `count` leaves, each of which answers the client.
const FANOUT: Method<Payload, Payload> = Method::new("compare.Bench/Fanout");
/// The same, whose answers are collected here.
const FANOUT_NESTED: Method<Payload, Payload> = Method::new("compare.Bench/FanoutNested");

/// A server: the nodes after it, once it knows them.
#[derive(Clone, Debug, Default)]
struct Node(Arc<OnceLock<Vec<Peer>>>);

impl Node {
    fn others(&self) -> Result<&[Peer], Status> {
        let unknown = || Status::new(Code::Unavailable, "the other servers are not known yet");
        self.0.get().map(Vec::as_slice).ok_or_else(unknown)
    }

    fn next(&self) -> Result<&Peer, Status> {
        let last = || Status::new(Code::Unavailable, "there is no server after this one");
        self.others()?.first().ok_or_else(last)
    }

    fn leaves(&self, count: u32) -> Result<&[Peer], Status> {
        let few = || Status::new(Code::Unavailable, "there are not that many servers");
        self.others()?.get(..count as usize).ok_or_else(few)
    }

    async fn hops(&self, request: Payload, task: Task<Payload>) -> Result<Finish, Status> {
        if request.count <= 1 {
            return task.answer(&Payload { count: 0, ..request });
        }
        Ok(task.tail(self.next()?, HOPS.request(one_less(request))).await?)
    }

    async fn hops_nested(&self, request: Payload, context: Context) -> Result<Payload, Status> {
        if request.count <= 1 {
            return Ok(Payload { count: 0, ..request });
        }
        Ok(context.call(HOPS_NESTED, one_less(request)).to(self.next()?).await?)
    }

    async fn fanout(&self, request: Payload, task: Task<Payload>) -> Result<Finish, Status> {
        let leaves = self.leaves(request.count)?;
        task.fan_out(leaves.iter().map(|leaf| (leaf, ECHO.request(plain(&request))))).await
    }

    async fn fanout_nested(&self, request: Payload, context: Context) -> Result<Payload, Status> {
        let leaves = self.leaves(request.count)?;
        let call = context.call(ECHO, plain(&request)).to_all(leaves).open()?;
        let (replies, outcome) = call.collect().await?;
        if let Some(failure) = outcome.failures.first() {
            return Err(Status::new(Code::Unavailable, failure.to_string()));
        }
        let bodies: Vec<_> = replies.iter().map(|reply| &reply.message().body[..]).collect();
        Ok(Payload { body: bodies.concat().into(), ..Payload::default() })
    }
}

fn echo(request: Payload) -> Result<Payload, Status> {
    match request.count {
        NOT_FOUND => Err(Status::new(Code::NotFound, "nothing here")),
        _ => Ok(request),
    }
}

fn one_less(request: Payload) -> Payload {
    Payload { count: request.count - 1, ..request }
}

fn plain(request: &Payload) -> Payload {
    Payload { count: 0, ..request.clone() }
}

async fn items(request: Payload, task: Task<Payload>) -> Result<Finish, Status> {
    let mut stream = task.stream()?;
    let item = plain(&request);
    for _ in 0..request.count {
        stream.send(&item).await?;
    }
    drop(stream);
    Ok(task.finish())
}

fn service(node: Node) -> ServiceOf<Node> {
    Service::with(node)
        .tree(HOPS, Node::hops)
        .unary(HOPS_NESTED, Node::hops_nested)
        .tree(FANOUT, Node::fanout)
        .unary(FANOUT_NESTED, Node::fanout_nested)
        .and(|service| {
            service
                .unary(ECHO, |request, _: Context| async { echo(request) })
                .tree(ITEM_STREAM, items)
        })
}

/// Serves all benches.
pub(crate) async fn serve(wire: &Wire, mut control: Control, delay: Duration) -> Result<()> {
    let node = Node::default();
    let builder = wire.endpoint(Certificate::given()?, delay)?;
    let endpoint = builder.listen(wire.listen).serve(service(node.clone())).start().await?;
    control.listening(&endpoint.addresses()[0].to_string())?;
    let mut peers = Vec::new();
    for address in control.peers().await {
        peers.push(endpoint.connect(&address).await?);
    }
    if node.0.set(peers).is_err() {
        bail!("it knows its peers already");
    }
    control.joined()?;
    std::future::pending().await
}

/// Connects to all servers, and keeps its callers busy.
pub(crate) async fn measure(wire: &Wire, bencher: Bencher<'_>, delay: Duration) -> Result<Sample> {
    let endpoint = wire.endpoint(bencher.servers.certificate()?, delay)?.start().await?;
    let mut peers = Vec::new();
    for address in bencher.servers.addresses() {
        peers.push(endpoint.connect(&address).await?);
    }
    let caller = Caller { endpoint: endpoint.clone(), peers: peers.into() };
    let sample = bencher.closed_loop(caller).await;
    endpoint.shutdown(Duration::from_secs(1)).await;
    sample
}

#[derive(Clone, Debug)]
struct Caller {
    endpoint: Endpoint,
    peers: Arc<[Peer]>,
}

impl Client for Caller {
    async fn operate(&self, work: &Work) -> Result<()> {
        match (work.bench, work.form) {
            (Bench::StreamItems, _) => {
                let call = self.ask(ITEM_STREAM.request(counted(work, ITEMS as usize)));
                self.replies(call, work, ITEMS as usize).await
            }
            (Bench::Hops { servers, .. }, Form::Client) => {
                for peer in &self.peers[..servers] {
                    self.echo(peer, work).await?;
                }
                Ok(())
            }
            (Bench::Hops { servers, .. }, Form::Tree) => {
                let call = self.ask(HOPS.request(counted(work, servers)));
                self.replies(call, work, 1).await
            }
            (Bench::Hops { servers, .. }, Form::Nested) => {
                let reply = self.ask(HOPS_NESTED.request(counted(work, servers))).await?;
                expect_bytes(&reply, work.payload.len())
            }
            (Bench::Fanout { leaves }, Form::Client) => {
                self.echo(&self.peers[0], work).await?;
                let request = ECHO.request(counted(work, 0));
                let call = self.endpoint.invoke(request).to_all(&self.peers[1..]);
                self.replies(call, work, leaves).await
            }
            (Bench::Fanout { leaves }, Form::Tree) => {
                let call = self.ask(FANOUT.request(counted(work, leaves)));
                self.replies(call, work, leaves).await
            }
            (Bench::Fanout { leaves }, Form::Nested) => {
                let reply = self.ask(FANOUT_NESTED.request(counted(work, leaves))).await?;
                expect_bytes(&reply, leaves * work.payload.len())
            }
            (Bench::Quorum, _) => self.quorum(work).await,
            _ if work.is_refused => self.not_found(&self.peers[0], work).await,
            _ => self.echo(&self.peers[0], work).await,
        }
    }
}

impl Caller {
    async fn echo(&self, peer: &Peer, work: &Work) -> Result<()> {
        let request = ECHO.request(counted(work, 0));
        let reply = self.endpoint.invoke(request).to(peer).await?;
        expect_bytes(&reply, work.payload.len())
    }

    async fn not_found(&self, peer: &Peer, work: &Work) -> Result<()> {
        let request = ECHO.request(Payload { count: NOT_FOUND, ..counted(work, 0) });
        refused(self.endpoint.invoke(request).to(peer).await, |error| {
            error.status().is_some_and(|status| status.code() == Code::NotFound)
        })
    }

    fn ask(&self, request: Request<Payload>) -> CallBuilder<Payload> {
        self.endpoint.invoke(request).to(self.peers[0])
    }

    async fn replies(&self, call: CallBuilder<Payload>, work: &Work, count: usize) -> Result<()> {
        let (mut call, mut came) = (call.open()?, 0);
        while let Some(reply) = call.next().await {
            expect_bytes(reply?.message(), work.payload.len())?;
            came += 1;
        }
        ensure!(came == count, "{came} replies instead of {count}");
        Ok(())
    }

    async fn quorum(&self, work: &Work) -> Result<()> {
        let request = ECHO.request(counted(work, 0));
        let call = self.endpoint.invoke(request).to_all(&self.peers[..]);
        let replies = call.quorum(Threshold(QUORUM)).await?;
        replies.iter().try_for_each(|(_, reply)| expect_bytes(reply, work.payload.len()))
    }
}
