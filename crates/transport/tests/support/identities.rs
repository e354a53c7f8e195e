//! Identities and whom they prove, as every transport with certificates keeps to it. The test that
//! includes this says in its module `secure` what is under test.

use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::conformance::{Recorder, Setup, Victim};
use convoke_transport::id::NodeId;
use convoke_transport::identity::Identity;
use convoke_transport::{
    Address, CloseReason, Connection, DialError, Lane, ListenError, Listener, Transport,
};

use crate::certificates::{Authority, DOMAIN, Issued, for_names, new_key, self_signed};
use crate::log::Log;
use crate::secure::{SCHEME, claim, transport};
use crate::trust::{identity, identity_of, untrusted};

/// A node of an authority, and the honest ones of the same.
struct Scene {
    authority: Authority,
    /// That of the victim.
    identity: Identity,
    victim: Victim,
}

impl Scene {
    async fn new() -> Self {
        let authority = Authority::new();
        let identity = identity_of(&authority, 1);
        let setup = Setup {
            listening: transport(identity.clone()),
            dialling: transport(self::identity(&authority.issue([2, 3]), &authority)),
            listen: any(),
        };
        Self { authority, identity, victim: Victim::new(setup).await }
    }

    /// Dials the victim as `node`, with a certificate that need not be good.
    async fn dial_with(
        &self,
        issued: &Issued,
        node: u64,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let shown = identity(issued, &self.authority);
        dial(shown, &self.victim.address(), &Arc::new(Recorder::new(node))).await
    }

    /// Asserts that the victim serves, and has taken nobody but the honest one.
    async fn lives_on(self) {
        assert_eq!(self.victim.sink.opened_count(), 1);
        self.victim.lives_on().await;
    }
}

fn any() -> Address {
    format!("{SCHEME}://127.0.0.1:0").parse().expect("it is an address")
}

async fn dial(
    identity: Identity,
    address: &Address,
    sink: &Arc<Recorder>,
) -> Result<Arc<dyn Connection>, DialError> {
    transport(identity).dial(address, None, Arc::clone(sink) as _).await
}

async fn listen(identity: Identity, sink: &Arc<Recorder>) -> Box<dyn Listener> {
    let listening = transport(identity).listen(&any(), Arc::clone(sink) as _).await;
    listening.expect("a loopback port is free")
}

#[tokio::test]
async fn a_transport_with_certificates_says_what_it_proves() {
    let authority = Authority::new();
    let of_one = transport(identity_of(&authority, 1));
    assert!(of_one.proves_peers() && of_one.schemes() == [SCHEME]);
    assert_eq!(of_one.nodes(), [NodeId::new(1)]);
    assert!(of_one.trusts_node(NodeId::new(1)) && !of_one.trusts_node(NodeId::new(2)));
}

#[tokio::test]
async fn both_ends_know_what_the_other_proved() {
    let scene = Scene::new().await;
    let accepted = scene.victim.sink.opened(0).await;
    for (connection, node) in [(&accepted, 2), (&scene.victim.to_victim, 1)] {
        let link = connection.link();
        assert_eq!((link.peer.node.get(), link.scheme), (node, SCHEME));
        let principal = link.principal.as_ref().expect("it is proven");
        assert_eq!(principal.as_str(), format!("spiffe://{DOMAIN}/node/{node}"));
    }
    scene.lives_on().await;
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_refused_and_its_owner_told() {
    let (log, scene) = (Log::start(), Scene::new().await);
    let refused: [(Issued, &str, &str); 3] = [
        (
            Authority::new().issue([7]),
            "UnknownIssuer, no authority of this node's trusted file has issued it",
            "UnknownCA, no authority of its trusted file has issued that",
        ),
        (scene.authority.issue_expired([7]), "expired", "CertificateExpired"),
        (scene.authority.issue_for_later([7]), "not valid yet", "CertificateExpired"),
    ];
    for (issued, logged, told) in refused {
        let message = untrusted(scene.dial_with(&issued, 7).await);
        assert!(message.contains("does not accept this node's certificate"), "{message}");
        assert!(message.contains(told), "{message}");
        log.refused(logged).await;
    }
    scene.lives_on().await;
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let (log, scene) = (Log::start(), Scene::new().await);
    let told = claim(&scene.victim.address(), None, 7).await;
    assert!(told.contains("CertificateRequired"), "{told}");
    log.refused("it presented no certificate").await;
    scene.lives_on().await;
}

#[tokio::test]
async fn a_peer_cannot_claim_the_id_of_another() {
    let (log, scene) = (Log::start(), Scene::new().await);
    let told = claim(&scene.victim.address(), Some(scene.authority.issue([7])), 2).await;
    assert!(told.contains("claims to be n2, but its certificate proves n7"), "{told}");
    log.refused("claims to be n2").await;
    scene.lives_on().await;
}

#[tokio::test]
async fn a_name_of_another_domain_is_nobody() {
    let (log, scene) = (Log::start(), Scene::new().await);
    let names = for_names(["spiffe://elsewhere.example/node/7".to_owned()]);
    let issued = scene.authority.issue_from(names, &new_key());
    let message = untrusted(scene.dial_with(&issued, 7).await);
    assert!(message.contains("names no node of the trust domain elsewhere.example"), "{message}");
    let told = claim(&scene.victim.address(), Some(issued), 7).await;
    assert!(told.contains("names no node of the trust domain"), "{told}");
    log.refused("names no node of the trust domain test.example").await;
    scene.lives_on().await;
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_not_talked_to() {
    let (log, scene) = (Log::start(), Scene::new().await);
    let (elsewhere, sink) = (Authority::new(), Arc::new(Recorder::new(7)));
    let dialled = dial(identity_of(&elsewhere, 7), &scene.victim.address(), &sink).await;
    let message = untrusted(dialled);
    let why = "its certificate is not accepted here: UnknownIssuer, no authority of this node's";
    assert!(message.contains(why), "{message}");
    log.refused("it does not accept this node's certificate").await;
    assert_eq!(sink.opened_count(), 0);
    scene.lives_on().await;
}

#[tokio::test]
async fn a_server_cannot_claim_the_id_of_another() {
    let authority = Authority::new();
    let liar = Arc::new(Recorder::new(1));
    let listener = listen(identity_of(&authority, 1), &liar).await;
    liar.say(|hello| hello.node = NodeId::new(9));
    let sink = Arc::new(Recorder::new(7));
    let dialled = dial(identity_of(&authority, 7), &listener.local_address(), &sink).await;
    let message = untrusted(dialled);
    assert!(message.contains("claims to be n9, but its certificate proves n1"), "{message}");
    assert_eq!(sink.opened_count(), 0);
}

#[tokio::test]
async fn another_node_than_expected_is_told_by_its_certificate() {
    let scene = Scene::new().await;
    let (dialler, expected) = (Arc::new(Recorder::new(7)), NodeId::new(3));
    let (address, shown) = (scene.victim.address(), identity_of(&scene.authority, 7));
    let dialled = transport(shown).dial(&address, Some(expected), dialler).await;
    let found = NodeId::new(1);
    assert_eq!(dialled.err(), Some(DialError::WrongNode { address, expected, found }));
}

#[tokio::test]
async fn an_endpoint_must_have_an_id_that_its_certificate_proves() {
    let transport = transport(identity_of(&Authority::new(), 1));
    match transport.listen(&any(), Arc::new(Recorder::new(2))).await {
        Err(ListenError::Identity { message, .. }) => {
            assert!(message.contains("is n2, but its certificate proves n1"), "{message}");
        }
        other => panic!("expected a refusal, not {other:?}"),
    }
    let address = format!("{SCHEME}://127.0.0.1:9").parse().expect("it is an address");
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
    let recorder = |identity: &Identity| Arc::new(Recorder::new(identity.node().get()));
    let (sink, dialler) = (recorder(&one), recorder(&two));
    let listener = listen(one.clone(), &sink).await;
    assert!(transport(one.clone()).trusts_node(two.node()), "by its own certificate");
    let connection = dial(two.clone(), &listener.local_address(), &dialler).await;
    let connection = connection.expect("they trust each other");
    assert_eq!(connection.link().peer.node, one.node());
    let accepted = sink.opened(0).await;
    assert_eq!(accepted.link().peer.node, two.node());
    let principal = accepted.link().principal.clone().expect("its key is known");
    let name = format!("key-sha256:{:016x}", two.node().get());
    assert!(principal.as_str().starts_with(&name), "{principal}");
    connection.close(CloseReason::Local);

    // A third is neither, though it says so.
    let third = load(&self_signed(&new_key()));
    let sink = recorder(&third);
    untrusted(dial(third, &listener.local_address(), &sink).await);
}

#[tokio::test]
async fn a_certificate_of_an_intermediate_leads_to_the_root() {
    let scene = Scene::new().await;
    let middle = scene.authority.below();
    let mut issued = middle.issue([7]);
    untrusted(scene.dial_with(&issued, 7).await);
    issued.certificate.push_str(&middle.pem());
    let connection = scene.dial_with(&issued, 7).await.expect("the chain is whole");
    connection.close(CloseReason::Local);
    scene.victim.sink.closed(connection.link().nonce).await;
    scene.victim.lives_on().await;
}

#[tokio::test]
async fn new_handshakes_use_the_new_certificates_and_open_connections_live_on() {
    let scene = Scene::new().await;
    let (renewed, old) = (Authority::new(), identity_of(&scene.authority, 2));
    let issued = renewed.issue([1]);
    let replaced = scene.identity.replace(&issued.certificate, &issued.key, renewed.pem());
    replaced.expect("it is the same node");

    // Whoever trusts the new authority, and is trusted by it, gets in.
    let (sink, address) = (Arc::new(Recorder::new(7)), scene.victim.address());
    let connection = dial(identity_of(&renewed, 7), &address, &sink).await;
    let connection = connection.expect("both have certificates of the new authority");
    // Whoever has certificates of the old one does not: not even one that was connected before.
    untrusted(dial(old, &address, &Arc::new(Recorder::new(2))).await);

    // Connections from before are open, in both directions.
    let Victim { sink: of_victim, honest, to_victim, .. } = scene.victim;
    let (nonce, to_honest) = (to_victim.link().nonce, of_victim.opened(0).await);
    for (from, to) in [(&to_victim, &of_victim), (&to_honest, &honest)] {
        from.append_bytes(Lane::Data, &[], Bytes::from_static(b"as before")).expect("it is open");
        from.flush();
        assert_eq!(to.frames(nonce, 1).await[0].1.as_ref(), b"as before");
    }
    for (sink, connection) in [(&sink, connection), (&honest, to_victim)] {
        connection.close(CloseReason::Local);
        sink.closed(connection.link().nonce).await;
        sink.check();
    }
    of_victim.check();
}

/// Of many refusals some are logged, with how many were not.
#[tokio::test]
async fn a_flood_of_refusals_is_logged_in_part() {
    const DIALS: u64 = 60;
    const LINES_PER_SECOND: u64 = 8;
    let (log, scene, begun) = (Log::start(), Scene::new().await, std::time::Instant::now());
    let stranger = Authority::new().issue([7]);
    for _ in 0..DIALS {
        untrusted(scene.dial_with(&stranger, 7).await);
    }
    let lines = log.count("connection refused");
    let seconds = begun.elapsed().as_secs() + 1;
    assert!((1..=seconds * LINES_PER_SECOND).contains(&lines), "{lines} in {seconds} s");
    scene.lives_on().await;
}
