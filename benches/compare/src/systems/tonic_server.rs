//! The gRPC server of all tonic systems.

use std::pin::Pin;

use anyhow::Result;
use futures_util::Stream;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::control::Control;
use crate::proto::Payload;
use crate::proto::rival_server::{Rival, RivalServer};

#[derive(Debug)]
struct Node;

type Payloads = Pin<Box<dyn Stream<Item = Result<Payload, Status>> + Send>>;

#[tonic::async_trait]
impl Rival for Node {
    type BidiStream = Payloads;
    type ItemsStream = Payloads;

    async fn unary(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
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
        Ok(Response::new(request.into_inner()))
    }

    async fn fanout(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// Serves all benches.
pub(crate) async fn serve(mut control: Control) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    control.listening(&listener.local_addr()?.to_string())?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let _ = control.peers().await;
    control.joined()?;
    Server::builder().add_service(RivalServer::new(Node)).serve_with_incoming(incoming).await?;
    Ok(())
}
