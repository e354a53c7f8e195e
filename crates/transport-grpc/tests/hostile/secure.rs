//! Transport whose certificates are under test.

use std::sync::Arc;

use convoke_transport::{Address, Transport};
use convoke_transport_grpc::{GrpcTransport, Identity};
use tokio::net::TcpStream;

use crate::certificates::Issued;
use crate::tls_client;
use crate::transport::refused_claim;

pub(crate) const SCHEME: &str = "grpcs";

pub(crate) fn transport(identity: Identity) -> Arc<dyn Transport> {
    Arc::new(GrpcTransport::tls(identity))
}

/// Claims to be `node`, with this certificate or none. The text of the refusal.
pub(crate) async fn claim(address: &Address, issued: Option<Issued>, node: u64) -> String {
    let to = address.rest().parse().expect("it is a socket address");
    if issued.is_none() {
        let stream = TcpStream::connect(to).await.expect("the victim listens");
        return tls_client::refusal(stream, None).await;
    }
    let channel = tls_client::channel(to, issued.as_ref()).await;
    refused_claim(channel, node).await.message().to_owned()
}
