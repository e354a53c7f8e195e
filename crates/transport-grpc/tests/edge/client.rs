//! A client of tonic, with the methods of the service by name.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::echo::Text;

#[derive(Clone)]
pub(crate) struct Client<T = Channel>(Grpc<T>);

/// HTTP/2 without anything around it: tonic's own channel ends calls at their deadline by itself.
#[derive(Clone)]
pub(crate) struct Bare(SendRequest<Body>);

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, hyper::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

impl Client<Bare> {
    pub(crate) async fn bare(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the edge listens");
        let io = TokioIo::new(stream);
        let (send, connection) =
            http2::handshake(TokioExecutor::new(), io).await.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let origin = format!("http://{address}").parse().expect("a URI");
        Self(Grpc::with_origin(Bare(send), origin))
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URI");
        Self(Grpc::new(endpoint.connect().await.expect("the edge listens")))
    }

    /// For generated clients.
    pub(crate) async fn channel(address: SocketAddr) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URI");
        endpoint.connect().await.expect("the edge listens")
    }
}

impl<T> Client<T>
where
    T: GrpcService<Body>,
    T::Error: std::fmt::Debug,
    T::ResponseBody: hyper::body::Body + Send + 'static,
    <T::ResponseBody as hyper::body::Body>::Error: Into<StdError>,
{
    pub(crate) async fn unary<Req>(
        &mut self,
        method: &str,
        message: Req,
    ) -> Result<Response<Text>, Status>
    where
        Req: prost::Message + 'static,
    {
        self.send(method, Request::new(message)).await
    }

    /// A unary call with headers.
    pub(crate) async fn send<Req>(
        &mut self,
        method: &str,
        request: Request<Req>,
    ) -> Result<Response<Text>, Status>
    where
        Req: prost::Message + 'static,
    {
        self.0.ready().await.map_err(|error| Status::unavailable(format!("{error:?}")))?;
        self.0.unary(request, path(method), ProstCodec::<Req, Text>::default()).await
    }

    /// A call whose messages follow, and one answer.
    pub(crate) async fn gather(
        &mut self,
        method: &str,
        messages: Messages,
    ) -> Result<Response<Text>, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(format!("{error:?}")))?;
        let codec = ProstCodec::<Text, Text>::default();
        self.0.client_streaming(Request::new(messages), path(method), codec).await
    }

    /// The same with as many answers.
    pub(crate) async fn talk(
        &mut self,
        method: &str,
        messages: Messages,
    ) -> Result<Streaming<Text>, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(format!("{error:?}")))?;
        let codec = ProstCodec::<Text, Text>::default();
        Ok(self.0.streaming(Request::new(messages), path(method), codec).await?.into_inner())
    }

    pub(crate) async fn stream<Req>(
        &mut self,
        method: &str,
        request: Req,
    ) -> Result<Streaming<Text>, Status>
    where
        Req: prost::Message + 'static,
    {
        Ok(self.streaming(method, request).await?.into_inner())
    }

    /// The same with the headers of the answer.
    pub(crate) async fn streaming<Req>(
        &mut self,
        method: &str,
        request: Req,
    ) -> Result<Response<Streaming<Text>>, Status>
    where
        Req: prost::Message + 'static,
    {
        self.0.ready().await.map_err(|error| Status::unavailable(format!("{error:?}")))?;
        let codec = ProstCodec::<Req, Text>::default();
        self.0.server_streaming(Request::new(request), path(method), codec).await
    }
}

/// Messages as a test gives them; they end when it drops the sender.
pub(crate) struct Messages(mpsc::Receiver<Text>);

pub(crate) fn messages() -> (mpsc::Sender<Text>, Messages) {
    let (given, taken) = mpsc::channel(1);
    (given, Messages(taken))
}

impl Stream for Messages {
    type Item = Text;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Text>> {
        self.0.poll_recv(cx)
    }
}

fn path(method: &str) -> PathAndQuery {
    format!("/edge.test.Echo/{method}").parse().expect("it is a path")
}

pub(crate) fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}
