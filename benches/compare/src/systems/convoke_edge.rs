//! `convoke-edge`: a client that knows gRPC alone, that of `tonic`, calls a service of Convoke
//! through the edge.

use anyhow::Result;
use convoke::grpc::GrpcEdge;
use convoke::{Context, Endpoint, Method, Service, Status};

use crate::control::Control;
use crate::proto::Payload;

/// By the name that tonic's generated client gives it.
const ECHO: Method<Payload, Payload> = Method::new("compare.Rival/Unary");

/// Echoes. Server and edge are one process, so that calls pass as many sockets as those of `tonic`.
pub(crate) async fn serve(control: Control) -> Result<()> {
    let echo = |request, _: Context| async { Ok::<_, Status>(request) };
    let endpoint = Endpoint::builder().serve(Service::new().unary(ECHO, echo)).start().await?;
    let edge = GrpcEdge::builder(&endpoint).start("127.0.0.1:0").await?;
    control.listening(&edge.local_addr().to_string())?;
    std::future::pending().await
}
