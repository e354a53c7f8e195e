//! Identities: certificates and the node ids they prove.

use std::sync::Arc;

use convoke_transport::conformance::Recorder;
use convoke_transport::{ListenError, Transport};
use convoke_transport_tcp::{Identity, TcpTransport};

use crate::certificates::{Authority, DOMAIN, Issued, for_names, new_key, self_signed};
use crate::log::Log;
use crate::node::{HONEST, VICTIM, Victim, dial};
use crate::raw::{attack, hello, say, serve_once};
use crate::trust::{identity, identity_of, untrusted};

#[tokio::test]
async fn both_ends_know_what_the_other_proved() {
    let victim = Victim::new().await;
    let to_honest = victim.sink.opened(0).await;
    let principal = |node: u64| format!("spiffe://{DOMAIN}/node/{node}");
    let proven = [(&to_honest, HONEST), (&victim.to_victim, VICTIM)];
    for (connection, node) in proven {
        let link = connection.link();
        assert_eq!((link.peer.node.get(), link.scheme), (node, "tls"));
        let found = link.principal.as_ref().expect("TLS proves who it is");
        assert_eq!(found.as_str(), principal(node));
    }
    victim.lives_on().await;
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_refused_and_its_owner_told() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let refused: [(Issued, &str, &str); 3] = [
        (Authority::new().issue([7]), "UnknownIssuer", "UnknownCA"),
        (victim.authority.issue_expired([7]), "expired", "CertificateExpired"),
        (victim.authority.issue_for_later([7]), "not valid yet", "CertificateExpired"),
    ];
    for (issued, logged, told) in refused {
        let message = untrusted(victim.dial_with(&issued, 7).await);
        assert!(message.contains("does not accept this node's certificate"), "{message}");
        assert!(message.contains(told), "{message}");
        log.refused(logged).await;
    }
    victim.lives_on().await;
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let heard = attack(&victim.address(), None, |raw| say(raw, &hello(7))).await;
    assert!(heard.as_ref().is_err_and(|why| why.contains("CertificateRequired")), "{heard:?}");
    log.refused("it presented no certificate").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_peer_cannot_claim_the_id_of_another() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let issued = victim.authority.issue([7]);
    let claim = move |raw: &mut _| say(raw, &hello(HONEST));
    let heard = attack(&victim.address(), Some(issued), claim).await.expect("it is told in words");
    let text = String::from_utf8_lossy(&heard);
    assert!(text.contains("claims to be n2, but its certificate proves n7"), "{text}");
    log.refused("claims to be n2").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_name_of_another_domain_is_nobody() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let names = for_names(["spiffe://elsewhere.example/node/7".to_owned()]);
    let issued = victim.authority.issue_from(names, &new_key());
    let message = untrusted(victim.dial_with(&issued, 7).await);
    assert!(message.contains("names no node of the trust domain elsewhere.example"), "{message}");
    let heard = attack(&victim.address(), Some(issued), |raw| say(raw, &hello(7))).await;
    let heard = heard.expect("it is told in words");
    assert!(String::from_utf8_lossy(&heard).contains("names no node of the trust domain"));
    log.refused("names no node of the trust domain test.example").await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_not_talked_to() {
    let (log, victim) = (Log::start(), Victim::new().await);
    let elsewhere = Authority::new();
    let sink = Arc::new(Recorder::new(7));
    let dialled = dial(identity_of(&elsewhere, 7), &victim.address(), &sink).await;
    let message = untrusted(dialled);
    assert!(message.contains("its certificate is not accepted here: UnknownIssuer"), "{message}");
    log.refused("it does not accept this node's certificate").await;
    assert_eq!(sink.opened_count(), 0);
    victim.lives_on().await;
}

#[tokio::test]
async fn a_server_cannot_claim_the_id_of_another() {
    let authority = Authority::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let address = format!("tls://{}", listener.local_addr().expect("it is bound"));
    let server = serve_once(listener, authority.issue([7]), hello(9));
    let sink = Arc::new(Recorder::new(1));
    let address = address.parse().expect("it is an address");
    let message = untrusted(dial(identity_of(&authority, 1), &address, &sink).await);
    assert!(message.contains("claims to be n9, but its certificate proves n7"), "{message}");
    assert_eq!(sink.opened_count(), 0);
    server.await.expect("the server heard the end");
}

#[tokio::test]
async fn an_endpoint_must_have_an_id_that_its_certificate_proves() {
    let authority = Authority::new();
    let transport = TcpTransport::builder().tls(identity_of(&authority, 1));
    let transport = transport.build().expect("the settings are legal");
    let address = "tls://127.0.0.1:0".parse().expect("it is an address");
    let sink = Arc::new(Recorder::new(2));
    match transport.listen(&address, Arc::clone(&sink) as _).await {
        Err(ListenError::Identity { message, .. }) => {
            assert!(message.contains("is n2, but its certificate proves n1"), "{message}");
        }
        other => panic!("expected a refusal, not {other:?}"),
    }
    let address = "tls://127.0.0.1:9".parse().expect("it is an address");
    let message = untrusted(transport.dial(&address, None, sink).await);
    assert!(message.contains("is n2, but its certificate proves n1"), "{message}");
}

#[tokio::test]
async fn nodes_named_by_their_keys_know_each_other_without_an_authority() {
    let signed = [self_signed(&new_key()), self_signed(&new_key())];
    let trust = format!("{}{}", signed[0].certificate, signed[1].certificate);
    let [one, two] = signed.map(|issued| {
        Identity::from_pem(&issued.certificate, &issued.key, &trust).expect("it can be loaded")
    });
    let transport = TcpTransport::builder().tls(one.clone()).build().expect("legal");
    let sink = Arc::new(Recorder::new(one.node().get()));
    let address = "tls://127.0.0.1:0".parse().expect("it is an address");
    let listener = transport.listen(&address, Arc::clone(&sink) as _).await.expect("it binds");
    let dialler = Arc::new(Recorder::new(two.node().get()));
    let connection = dial(two.clone(), &listener.local_address(), &dialler).await;
    let connection = connection.expect("they trust each other");
    assert_eq!(connection.link().peer.node, one.node());
    let accepted = sink.opened(0).await;
    assert_eq!(accepted.link().peer.node, two.node());
    let principal = accepted.link().principal.clone().expect("its key is known");
    assert!(principal.as_str().starts_with("key-sha256:"), "{principal}");

    // A third is neither, though it says so.
    let third = self_signed(&new_key());
    let third = identity_of_self(&third, &trust);
    let sink = Arc::new(Recorder::new(third.node().get()));
    untrusted(dial(third, &listener.local_address(), &sink).await);
}

fn identity_of_self(issued: &Issued, trust: &str) -> Identity {
    Identity::from_pem(&issued.certificate, &issued.key, trust).expect("it can be loaded")
}

#[tokio::test]
async fn a_certificate_of_an_intermediate_leads_to_the_root() {
    let victim = Victim::new().await;
    let middle = victim.authority.below();
    let mut issued = middle.issue([7]);
    untrusted(victim.dial_with(&issued, 7).await);
    issued.certificate.push_str(&middle.pem());
    let connection = victim.dial_with(&issued, 7).await.expect("the chain is whole");
    connection.close(convoke_transport::CloseReason::Local);
    victim.sink.closed(connection.link().nonce).await;
    assert_eq!(identity(&issued, &victim.authority).node().get(), 7);
    victim.lives_on().await;
}
