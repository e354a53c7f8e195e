//! The services every gRPC server is expected to have: health and reflection.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_transport::parts::Seat;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_health::pb::health_server::HealthServer;

use super::EdgeError;
use super::health::EdgeHealth;
use crate::serve::Unread;

type Answer = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;
type Answering = Arc<dyn Fn(http::Request<Body>) -> Answer + Send + Sync>;

/// The standard services, by the prefixes of their paths.
#[derive(Clone)]
pub(super) struct Standard {
    services: Arc<[(&'static str, Answering)]>,
    health: EdgeHealth,
}

impl Standard {
    /// Health, and reflection where there are descriptors.
    pub(super) fn new(
        descriptor_set: Option<&[u8]>,
        health: EdgeHealth,
    ) -> Result<Self, EdgeError> {
        let answers = answering(HealthServer::new(health.clone()));
        let mut services = vec![("/grpc.health.v1.Health/", answers)];
        if let Some(set) = descriptor_set {
            let builder = || {
                tonic_reflection::server::Builder::configure()
                    .register_encoded_file_descriptor_set(set)
                    .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            };
            let bad = |error: tonic_reflection::server::Error| EdgeError::DescriptorSet {
                message: error.to_string(),
            };
            let (v1, v1alpha) =
                (builder().build_v1().map_err(bad)?, builder().build_v1alpha().map_err(bad)?);
            services.push(("/grpc.reflection.v1.ServerReflection/", answering(v1)));
            services.push(("/grpc.reflection.v1alpha.ServerReflection/", answering(v1alpha)));
        }
        Ok(Self { services: services.into(), health })
    }

    /// The one that serves this path, if any.
    pub(super) fn find(&self, path: &str) -> Option<&Answering> {
        let found = self.services.iter().find(|(prefix, _)| path.starts_with(prefix));
        found.map(|(_, service)| service)
    }

    /// The health service.
    pub(super) fn health(&self) -> &EdgeHealth {
        &self.health
    }
}

/// Has an answer keep its place until it has ended and its client has taken all of it.
pub(super) fn placed(response: http::Response<Body>, place: Arc<Seat>) -> http::Response<Body> {
    // No watch is read by a certain time; each piece has its time from when it leaves.
    let unread = Unread { read_by: Instant::now(), place: Arc::clone(&place) as _ };
    let mut response = response.map(|body| Body::new(Placed { body, _place: place }));
    response.extensions_mut().insert(unread);
    response
}

/// The body of an answer with its place.
struct Placed {
    body: Body,
    _place: Arc<Seat>,
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|(prefix, _)| prefix)).finish()
    }
}

/// Forgets the type of a service.
fn answering<S>(service: S) -> Answering
where
    S: Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = std::convert::Infallible,
        > + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    Arc::new(move |request| {
        // These are ready at any time.
        let answer = service.clone().call(request);
        Box::pin(async move {
            match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}
