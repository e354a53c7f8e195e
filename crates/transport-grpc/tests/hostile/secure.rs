//! Transport whose certificates are under test.

use std::sync::Arc;

use convoke_transport::{Address, Transport};
use convoke_transport_grpc::{GrpcTransport, Identity};
use tokio::net::TcpStream;

use crate::attack::{Attack, PATH, hello};
use crate::certificates::Issued;
use crate::credulous::client_config;
use crate::tls_client;

pub(crate) const SCHEME: &str = "grpcs";

pub(crate) fn transport(identity: Identity) -> Arc<dyn Transport> {
    Arc::new(GrpcTransport::tls(identity))
}

/// Claims to be `node`, with this certificate or none. The text of the refusal.
pub(crate) async fn claim(address: &Address, issued: Option<Issued>, node: u64) -> String {
    let stream = TcpStream::connect(address.rest()).await.expect("the victim listens");
    if issued.is_none() {
        return tls_client::refusal(stream, None).await;
    }
    let config = client_config(issued.as_ref(), Some(b"h2"));
    let stream = tls_client::handshake(config, stream).await.expect("TLS goes well");
    let refused = Attack::over(Box::new(stream), PATH, hello(1, node)).await;
    refused.err().expect("it is refused").message().to_owned()
}
