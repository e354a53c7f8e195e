//! Identities of nodes over `grpcs://`, beyond what all transports with certificates keep to.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Endpoint;
use convoke_transport::conformance::Recorder;
use convoke_transport::id::NodeId;
use convoke_transport::{Address, Connection, DialError, ListenError, Transport};
use convoke_transport_grpc::{GrpcTransport, Identity};

use crate::certificates::Authority;
use crate::trust::identity_of;

/// Dials as `node`, with these certificates.
pub(crate) async fn dial(
    identity: Identity,
    address: &Address,
    node: u64,
) -> Result<Arc<dyn Connection>, DialError> {
    GrpcTransport::tls(identity).dial(address, None, Arc::new(Recorder::new(node))).await
}

#[tokio::test]
async fn a_plain_transport_proves_nothing_and_a_listener_serves_its_own_scheme() {
    let plain = GrpcTransport::new();
    assert!(!plain.proves_peers() && plain.schemes() == ["grpc"] && plain.nodes().is_empty());
    let transport = GrpcTransport::tls(identity_of(&Authority::new(), 1));
    let (address, sink) = ("grpc://127.0.0.1:0".parse().expect("an address"), Recorder::new(1));
    let refused = transport.listen(&address, Arc::new(sink)).await;
    assert_eq!(refused.err(), Some(ListenError::NoTransport { address }));
}

#[tokio::test]
async fn who_is_known_by_grpcs_is_not_taken_without_proof() {
    let authority = Authority::new();
    let tls = |node| GrpcTransport::tls(identity_of(&authority, node));
    let server = Endpoint::builder().transport(GrpcTransport::new()).transport(tls(1));
    let server = server.listen("grpcs://127.0.0.1:0").listen("grpc://127.0.0.1:0").start().await;
    let server = server.expect("loopback can be bound");
    let [secure, plain] = server.addresses() else { unreachable!("two are listened on") };
    let honest = Endpoint::builder().transport(tls(2)).start().await.expect("nothing is bound");
    let peer = honest.connect(secure).await.expect("its certificate is good");
    assert_eq!(peer.node(), NodeId::new(1));
    let liar = Endpoint::builder().transport(GrpcTransport::new()).node(NodeId::new(2));
    let liar = liar.start().await.expect("nothing is listened on");
    let refused = liar.connect(plain).await.expect_err("node 2 must prove itself").to_string();
    assert!(refused.contains("must prove itself"), "{refused}");
    for endpoint in [honest, liar, server] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
}
