//! `tonic`: gRPC as most people use it, a call for each request.

use anyhow::Result;
use tonic::transport::{Channel, Endpoint};

use crate::proto::rival_client::RivalClient;

/// A connection of its own to a server.
pub(crate) async fn connect(address: &str) -> Result<RivalClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    Ok(RivalClient::new(endpoint.connect().await?))
}
