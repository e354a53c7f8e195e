//! The gRPC server of all tonic systems.

use std::pin::Pin;

use anyhow::Result;
use futures_util::Stream;
use futures_util::future::try_join_all;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};

use super::tonic::connect;
use crate::control::Control;
use crate::proto::rival_client::RivalClient;
use crate::proto::rival_server::{Rival, RivalServer};
use crate::proto::{NEVER, NOT_FOUND, Payload};

/// The servers after this one.
#[derive(Debug)]
struct Node(Vec<RivalClient<Channel>>);

impl Node {
    fn first(&self, count: usize) -> Result<&[RivalClient<Channel>], Status> {
        let few = || Status::unavailable("there are not that many servers after this one");
        self.0.get(..count).ok_or_else(few)
    }
}

type Payloads = Pin<Box<dyn Stream<Item = Result<Payload, Status>> + Send>>;

#[tonic::async_trait]
impl Rival for Node {
    type BidiStream = Payloads;
    type ItemsStream = Payloads;

    async fn unary(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        match request.get_ref().count {
            NOT_FOUND => Err(Status::not_found("nothing here")),
            NEVER => std::future::pending().await,
            _ => Ok(Response::new(request.into_inner())),
        }
    }

    async fn bidi(
        &self,
        request: Request<Streaming<Payload>>,
    ) -> Result<Response<Payloads>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }

    async fn items(&self, request: Request<Payload>) -> Result<Response<Payloads>, Status> {
        let request = request.into_inner();
        let (count, item) = (request.count as usize, Payload { count: 0, ..request });
        let items = futures_util::stream::iter(std::iter::repeat_n(item, count));
        Ok(Response::new(Box::pin(items.map(Ok))))
    }

    async fn hops(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let request = request.into_inner();
        if request.count <= 1 {
            return Ok(Response::new(Payload { count: 0, ..request }));
        }
        let mut next = self.first(1)?[0].clone();
        next.hops(Payload { count: request.count - 1, ..request }).await
    }

    async fn fanout(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let Payload { body, count, .. } = request.into_inner();
        let calls = self.first(count as usize)?.iter().map(|leaf| {
            let (mut leaf, body) = (leaf.clone(), body.clone());
            async move { leaf.unary(Payload { body, ..Payload::default() }).await }
        });
        let replies = try_join_all(calls).await?;
        let bodies: Vec<_> = replies.iter().map(|reply| &reply.get_ref().body[..]).collect();
        Ok(Response::new(Payload { body: bodies.concat().into(), ..Payload::default() }))
    }
}

/// Serves all benches.
pub(crate) async fn serve(mut control: Control) -> Result<()> {
    let listener = TcpListener::bind(control.listen()).await?;
    control.listening(&listener.local_addr()?.to_string())?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let mut others = Vec::new();
    for address in control.peers().await {
        others.push(connect(&address).await?);
    }
    control.joined()?;
    let service = RivalServer::new(Node(others));
    Server::builder().add_service(service).serve_with_incoming(incoming).await?;
    Ok(())
}
