//! The servers of the profile: they echo, take and give streams, and hand a call on.

use std::time::Duration;

use convoke::{
    Context, Endpoint, Finish, Items, Limits, Method, NodeId, Peer, Service, Status, Task,
};
use prost::bytes::Bytes;

use crate::wire::Ends;

/// A message of a hundred bytes, and the servers that it has yet to visit.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Body {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
    #[prost(uint32, tag = "2")]
    hops: u32,
}

impl Body {
    /// To be answered by the last of `hops` servers; 0: by the one that is asked.
    pub(crate) fn visiting(hops: u32) -> Self {
        Self { bytes: Bytes::from_static(&[7; 100]), hops }
    }
}

/// Answers with the message.
pub(crate) const ECHO: Method<Body, Body> = Method::new("bench.Profile/Echo");
/// Delegates to the next server, up to the last, which answers the client.
pub(crate) const HOP: Method<Body, Body> = Method::new("bench.Profile/Hop");
/// Asks all servers after it at once, which answer the client.
pub(crate) const FAN: Method<Body, Body> = Method::new("bench.Profile/Fan");
/// Reads all items and says how many.
pub(crate) const TAKE: Method<Items<Body>, u64> = Method::new("bench.Profile/Take");
/// Streams so many items.
pub(crate) const GIVE: Method<u64, Body> = Method::new("bench.Profile/Give");

/// Under a profiler a program is some fifty times slower, and its calls would grow old.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.worry_min, limits.worry_max) = (Duration::from_secs(9), Duration::from_secs(9));
    limits.ask_every *= 50;
    limits
}

/// So many servers, each connected to the one after it.
pub(crate) async fn serve(ends: Ends, count: u64) -> Vec<Endpoint> {
    let mut servers: Vec<Endpoint> = Vec::new();
    for id in (1..=count).rev() {
        servers.insert(0, server(ends, id, &servers).await);
    }
    servers
}

async fn server(ends: Ends, id: u64, after: &[Endpoint]) -> Endpoint {
    let peers: Vec<Peer> = after.iter().map(|server| Peer::from(server.node())).collect();
    let next = peers.first().copied();
    let service = Service::new()
        .unary(ECHO, |body, _: Context| async { Ok::<_, Status>(body) })
        .unary(TAKE, take)
        .tree(GIVE, give)
        .tree(HOP, move |body, task| hop(body, task, next))
        .tree(FAN, move |body: Body, task: Task<Body>| {
            task.fan_out(peers.iter().map(|peer| (peer, ECHO.request(body.clone()))))
        });
    let builder = ends.endpoint(Some(NodeId::new(id))).listen(ends.wire.listen());
    let server = builder.serve(service).start().await;
    let server = server.expect("loopback can be bound");
    if let Some(next) = after.first() {
        server.connect(&next.addresses()[0]).await.expect("it listens");
    }
    server
}

async fn take(mut items: Items<Body>, _: Context) -> Result<u64, Status> {
    let mut count = 0;
    while let Some(item) = items.next().await {
        item?;
        count += 1;
    }
    Ok(count)
}

async fn give(count: u64, task: Task<Body>) -> Result<Finish, Status> {
    let mut stream = task.stream()?;
    for _ in 0..count {
        stream.send(&Body::visiting(0)).await?;
    }
    drop(stream);
    Ok(task.finish())
}

async fn hop(body: Body, task: Task<Body>, next: Option<Peer>) -> Result<Finish, Status> {
    match next {
        Some(next) if body.hops > 1 => {
            let rest = Body { hops: body.hops - 1, ..body };
            Ok(task.tail(next, HOP.request(rest)).await?)
        }
        _ => task.answer(&body),
    }
}
