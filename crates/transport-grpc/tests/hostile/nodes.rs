//! Identities of nodes over `grpcs://`: certificates and the node ids they prove.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::Endpoint;
use convoke_transport::conformance::Recorder;
use convoke_transport::id::NodeId;
use convoke_transport::{
    Address, CloseReason, Connection, DialError, Lane, ListenError, Transport,
};
use convoke_transport_grpc::{GrpcTransport, Identity};
use tonic::Code;

use crate::certificates::{Authority, DOMAIN, Issued, for_names, new_key, self_signed};
use crate::log::Log;
use crate::over::{ATTACKER, Over};
use crate::tls_client;
use crate::transport::refused_claim;
use crate::trust::{identity, untrusted};
use crate::victim::Victim;

/// Dials as `node`, with these certificates.
pub(crate) async fn dial(
    identity: Identity,
    address: &Address,
    node: u64,
) -> Result<Arc<dyn Connection>, DialError> {
    GrpcTransport::tls(identity).dial(address, None, Arc::new(Recorder::new(node))).await
}

async fn victim() -> (Arc<Authority>, Victim) {
    let authority = Arc::new(Authority::new());
    let over = Over::Tls(Arc::clone(&authority));
    (authority, Victim::new(over, GrpcTransport::builder()).await)
}

#[tokio::test]
async fn both_ends_know_what_the_other_proved() {
    let (_, victim) = victim().await;
    let accepted = victim.sink.opened(0).await;
    for (connection, node) in [(&accepted, 2), (&victim.to_victim, 1)] {
        let link = connection.link();
        assert_eq!((link.peer.node.get(), link.scheme), (node, "grpcs"));
        let principal = link.principal.as_ref().expect("TLS proves who it is");
        assert_eq!(principal.as_str(), format!("spiffe://{DOMAIN}/node/{node}"));
    }
    victim.lives_on().await;
}

#[tokio::test]
async fn a_transport_with_certificates_says_what_it_proves() {
    let authority = Authority::new();
    let transport = GrpcTransport::tls(identity(&authority.issue([1]), &authority));
    assert!(transport.proves_peers() && transport.schemes() == ["grpcs"]);
    assert_eq!(transport.node(), Some(NodeId::new(1)));
    assert!(transport.trusts_node(NodeId::new(1)) && !transport.trusts_node(NodeId::new(2)));
    let plain = GrpcTransport::new();
    assert!(!plain.proves_peers() && plain.schemes() == ["grpc"] && plain.node().is_none());
    let (address, sink) = ("grpc://127.0.0.1:0".parse().expect("an address"), Recorder::new(1));
    let refused = transport.listen(&address, Arc::new(sink)).await;
    assert_eq!(refused.err(), Some(ListenError::NoTransport { address }));
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_refused_and_its_owner_told() {
    let refused = [
        ("UnknownIssuer", "UnknownCA"),
        ("expired", "CertificateExpired"),
        ("not valid yet", "CertificateExpired"),
    ];
    for (logged, told) in refused {
        let (log, (authority, victim)) = (Log::start(), victim().await);
        let issued = match logged {
            "expired" => authority.issue_expired([7]),
            "not valid yet" => authority.issue_for_later([7]),
            _ => Authority::new().issue([7]),
        };
        let shown = identity(&issued, &authority);
        let message = untrusted(dial(shown, &victim.listener.local_address(), 7).await);
        assert!(message.contains("does not accept this node's certificate"), "{message}");
        assert!(message.contains(told), "{message}");
        log.refused(logged).await;
        victim.lives_on().await;
    }
}

#[tokio::test]
async fn a_peer_cannot_claim_the_id_of_another() {
    let (log, (_, victim)) = (Log::start(), victim().await);
    let channel = victim.over.channel(victim.address(), |to| to).await;
    let status = refused_claim(channel, 2).await;
    assert_eq!(status.code(), Code::PermissionDenied);
    let text = format!("it claims to be n2, but its certificate proves n{ATTACKER}");
    assert!(status.message().contains(&text), "{status}");
    log.refused("claims to be n2").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_name_of_another_domain_is_nobody() {
    let (log, (authority, victim)) = (Log::start(), victim().await);
    let names = for_names(["spiffe://elsewhere.example/node/7".to_owned()]);
    let issued = authority.issue_from(names, &new_key());
    let shown = identity(&issued, &authority);
    let message = untrusted(dial(shown, &victim.listener.local_address(), 7).await);
    assert!(message.contains("names no node of the trust domain elsewhere.example"), "{message}");
    let channel = tls_client::channel(victim.address(), Some(&issued)).await;
    let status = refused_claim(channel, 7).await;
    assert!(status.message().contains("names no node of the trust domain"), "{status}");
    log.refused("names no node of the trust domain test.example").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_not_talked_to() {
    let (_, victim) = victim().await;
    let elsewhere = Authority::new();
    let shown = identity(&elsewhere.issue([7]), &elsewhere);
    let message = untrusted(dial(shown, &victim.listener.local_address(), 7).await);
    assert!(message.contains("its certificate is not accepted here: UnknownIssuer"), "{message}");
    victim.lives_on().await;
}

#[tokio::test]
async fn a_server_cannot_claim_the_id_of_another() {
    let authority = Authority::new();
    let liar = Arc::new(Recorder::new(1));
    let transport = GrpcTransport::tls(identity(&authority.issue([1]), &authority));
    let any = "grpcs://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&any, Arc::clone(&liar) as _).await.expect("it binds");
    liar.say(|hello| hello.node = NodeId::new(9));
    let sink = Arc::new(Recorder::new(7));
    let dialling = GrpcTransport::tls(identity(&authority.issue([7]), &authority));
    let dialled = dialling.dial(&listener.local_address(), None, Arc::clone(&sink) as _).await;
    let message = untrusted(dialled);
    assert!(message.contains("it claims to be n9, but its certificate proves n1"), "{message}");
    assert_eq!(sink.opened_count(), 0);
}

#[tokio::test]
async fn an_endpoint_must_have_an_id_that_its_certificate_proves() {
    let authority = Authority::new();
    let transport = GrpcTransport::tls(identity(&authority.issue([1]), &authority));
    let address = "grpcs://127.0.0.1:0".parse().expect("it is an address");
    match transport.listen(&address, Arc::new(Recorder::new(2))).await {
        Err(ListenError::Identity { message, .. }) => {
            assert!(message.contains("is n2, but its certificate proves n1"), "{message}");
        }
        other => panic!("expected a refusal, not {other:?}"),
    }
    let address = "grpcs://127.0.0.1:9".parse().expect("it is an address");
    let message = untrusted(transport.dial(&address, None, Arc::new(Recorder::new(2))).await);
    assert!(message.contains("is n2, but its certificate proves n1"), "{message}");
}

#[tokio::test]
async fn nodes_named_by_their_keys_know_each_other_without_an_authority() {
    let signed = [self_signed(&new_key()), self_signed(&new_key())];
    let trust = format!("{}{}", signed[0].certificate, signed[1].certificate);
    let load = |issued: &Issued| {
        Identity::from_pem(&issued.certificate, &issued.key, &trust).expect("it can be loaded")
    };
    let [one, two] = [load(&signed[0]), load(&signed[1])];
    let (sink, node) = (Arc::new(Recorder::new(one.node().get())), two.node().get());
    let transport = GrpcTransport::tls(one);
    let any = "grpcs://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&any, Arc::clone(&sink) as _).await.expect("it binds");
    let connection = dial(two, &listener.local_address(), node).await.expect("it is trusted");
    let principal = sink.opened(0).await.link().principal.clone().expect("its key is known");
    assert!(principal.as_str().starts_with(&format!("key-sha256:{node:016x}")), "{principal}");
    connection.close(CloseReason::Local);
    let third = load(&self_signed(&new_key()));
    let node = third.node().get();
    untrusted(dial(third, &listener.local_address(), node).await);
}

#[tokio::test]
async fn new_handshakes_use_the_new_certificates_and_open_connections_live_on() {
    let [old, new] = [Authority::new(), Authority::new()];
    let current = identity(&old.issue([1]), &old);
    let sink = Arc::new(Recorder::new(1));
    let transport = GrpcTransport::tls(current.clone());
    let any = "grpcs://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&any, Arc::clone(&sink) as _).await.expect("it binds");
    let address = listener.local_address();
    let before = dial(identity(&old.issue([2]), &old), &address, 2).await.expect("it is trusted");

    let issued = new.issue([1]);
    current.replace(&issued.certificate, &issued.key, new.pem()).expect("it is the same node");
    let after = dial(identity(&new.issue([3]), &new), &address, 3).await.expect("it is trusted");
    untrusted(dial(identity(&old.issue([2]), &old), &address, 2).await);

    before.append_bytes(Lane::Data, &[], Bytes::from_static(b"as before")).expect("it is open");
    before.flush();
    let nonce = before.link().nonce;
    assert_eq!(sink.frames(nonce, 1).await[0].1.as_ref(), b"as before");
    for connection in [before, after] {
        connection.close(CloseReason::Local);
        sink.closed(connection.link().nonce).await;
    }
    sink.check();
}

#[tokio::test]
async fn who_is_known_by_grpcs_is_not_taken_without_proof() {
    let authority = Authority::new();
    let tls = |node| GrpcTransport::tls(identity(&authority.issue([node]), &authority));
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
