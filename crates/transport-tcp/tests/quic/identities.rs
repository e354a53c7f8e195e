//! Admission of peers: whoever a trusted certificate proves may connect, as that node and no other.

use std::sync::Arc;

use convoke_transport::conformance::Recorder;
use convoke_transport::id::NodeId;
use convoke_transport::{DialError, ListenError, Transport};
use convoke_transport_tcp::{Identity, QuicTransport};

use crate::certificates::Issued;
use crate::{Cluster, any, assert_serves, dial, listen};

fn transport(issued: &Issued, trusting: &Cluster) -> QuicTransport {
    QuicTransport::new(trusting.identity(issued))
}

async fn refusal(cluster: &Cluster, dialling: &QuicTransport, node: u64) -> String {
    let sink = Arc::new(Recorder::new(2));
    let listener = listen(&cluster.node(2), &sink).await;
    let dialled = dial(dialling, &*listener, &Arc::new(Recorder::new(node))).await;
    let message = match dialled {
        Err(DialError::Untrusted { message, .. } | DialError::Handshake { message, .. }) => message,
        other => panic!("expected a refusal, not {other:?}"),
    };
    assert_eq!(sink.opened_count(), 0);
    assert_serves(cluster, 1, &*listener, &sink).await;
    sink.check();
    message
}

#[tokio::test]
async fn both_ends_know_whom_the_other_proved_to_be() {
    let pair = Cluster::new().setup().connect().await;
    let principal = |link: &convoke_transport::Link| link.principal.clone().expect("proven");
    assert_eq!(principal(pair.to_b.link()).as_str(), "spiffe://test.example/node/2");
    assert_eq!(principal(pair.to_a.link()).as_str(), "spiffe://test.example/node/1");
    pair.finish().await;
}

#[tokio::test]
async fn a_dialler_of_another_authority_is_refused() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    // It trusts the listener, but the listener does not trust it.
    let dialling = transport(&other.issue(1), &cluster);
    let message = refusal(&cluster, &dialling, 1).await;
    assert!(message.contains("certificate") || message.contains("ca"), "{message}");
}

#[tokio::test]
async fn a_listener_of_another_authority_is_not_trusted() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let dialling = transport(&cluster.issue(1), &other);
    let message = refusal(&cluster, &dialling, 1).await;
    assert!(message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let cluster = Cluster::new();
    let dialling = transport(&cluster.authority.issue_expired([1]), &cluster);
    let message = refusal(&cluster, &dialling, 1).await;
    assert!(message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn a_node_cannot_claim_an_id_its_own_certificate_does_not_prove() {
    let cluster = Cluster::new();
    let sink = Arc::new(Recorder::new(7));
    let listening = cluster.node(2).listen(&any(), sink).await;
    let Err(ListenError::Identity { message, .. }) = listening else {
        panic!("expected the mismatch, not {listening:?}")
    };
    assert!(message.contains("n7") && message.contains("n2"), "{message}");
    let message = refusal(&cluster, &cluster.node(1), 3).await;
    assert!(message.contains("n3") && message.contains("n1"), "{message}");
}

#[tokio::test]
async fn a_peer_of_another_trust_domain_is_refused() {
    let cluster = Cluster::new();
    let names = ["spiffe://elsewhere.example/node/1".to_owned()];
    let params = crate::certificates::for_names(names);
    let issued = cluster.authority.issue_from(params, &crate::certificates::new_key());
    // It believes that node 2 is of its own domain, or it would refuse first.
    let message = refusal(&cluster, &transport(&issued, &cluster), 1).await;
    assert!(message.contains("elsewhere.example") || message.contains("test.example"), "{message}");
}

#[tokio::test]
async fn nodes_named_by_their_keys_connect_without_an_authority() {
    use crate::certificates::{new_key, self_signed};
    let (one, two) = (self_signed(&new_key()), self_signed(&new_key()));
    let identity = |own: &Issued, other: &Issued| {
        Identity::from_pem(&own.certificate, &own.key, &other.certificate).expect("it is good")
    };
    let (of_one, of_two) = (identity(&one, &two), identity(&two, &one));
    let sink = Arc::new(Recorder::new(of_two.node().get()));
    let listener = listen(&QuicTransport::new(of_two.clone()), &sink).await;
    let dialler = Arc::new(Recorder::new(of_one.node().get()));
    let connection = dial(&QuicTransport::new(of_one), &*listener, &dialler).await;
    let connection = connection.expect("each trusts the other's certificate");
    assert_eq!(connection.link().peer.node, of_two.node());
}

#[tokio::test]
async fn certificates_reloaded_are_used_by_the_next_handshake() {
    let (cluster, later) = (Cluster::new(), Cluster::new());
    let (identity, sink) = (cluster.identity(&cluster.issue(2)), Arc::new(Recorder::new(2)));
    let listener = listen(&QuicTransport::new(identity.clone()), &sink).await;
    assert_serves(&cluster, 1, &*listener, &sink).await;
    let renewed = later.issue(2);
    identity
        .replace(&renewed.certificate, &renewed.key, later.authority.pem())
        .expect("it proves the same node");
    assert_serves(&later, 1, &*listener, &sink).await;
    let refused = dial(&cluster.node(1), &*listener, &Arc::new(Recorder::new(1))).await;
    assert!(matches!(refused, Err(DialError::Untrusted { .. })), "{refused:?}");
}

#[tokio::test]
async fn another_node_than_expected_is_told_by_its_certificate() {
    let cluster = Cluster::new();
    let sink = Arc::new(Recorder::new(2));
    let listener = listen(&cluster.node(2), &sink).await;
    let (dialler, expected) = (Arc::new(Recorder::new(1)), NodeId::new(3));
    let address = listener.local_address();
    let dialled = cluster.node(1).dial(&address, Some(expected), dialler).await;
    let found = NodeId::new(2);
    assert_eq!(dialled.err(), Some(DialError::WrongNode { address, expected, found }));
}
