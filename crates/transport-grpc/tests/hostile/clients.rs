//! Clients of an edge over TLS: what their certificates prove, and what they never do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Caller, Context, Endpoint, Finish, Method, Peer, Service, Status, Task};
use convoke_transport::id::NodeId;
use convoke_transport_grpc::{
    ClientCertificates, EdgeError, GrpcEdge, GrpcEdgeBuilder, GrpcTransport, Identity,
};
use http::uri::PathAndQuery;
use rcgen::CertificateParams;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use crate::certificates::{Authority, DOMAIN, Issued, for_names, for_nodes, new_key, self_signed};
use crate::credulous::client_config;
use crate::http2::PREFACE;
use crate::log::Log;
use crate::trust::identity;
use crate::{in_time, tls_client};

const WHO: Method<String, String> = Method::new("edge.test.Who/Who");
const PASS_ON: Method<String, String> = Method::new("edge.test.Who/PassOn");

/// A caller in words.
fn describe(caller: &Caller) -> String {
    let node = caller.node();
    let Some(client) = caller.client() else {
        return format!("{node} itself, proven: {}", caller.is_authenticated());
    };
    assert!(!caller.is_authenticated() && !caller.is_local() && caller.principal().is_none());
    let principal = client.principal().map_or("nobody".into(), ToString::to_string);
    format!("{principal} at {node}, proven: {}", client.is_authenticated())
}

/// Two nodes with certificates of one authority, and an edge of the first, whose clients have
/// those of another.
struct Stage {
    edge: GrpcEdge,
    near: Endpoint,
    far: Endpoint,
    clients: Authority,
    shown: Identity,
}

impl Stage {
    async fn with(change: impl FnOnce(GrpcEdgeBuilder, Peer) -> GrpcEdgeBuilder) -> Self {
        let (nodes, clients) = (Authority::new(), Authority::new());
        let far = node(&nodes, 2, None).await;
        let near = node(&nodes, 1, Some(Peer::from(far.node()))).await;
        let to_far = near.connect(far.addresses()).await.expect("the far node listens");
        // A certificate of a host, as clients expect it, which no node has.
        let shown = identity(&clients.issue_from(of_host("localhost"), &new_key()), &clients);
        let builder = change(GrpcEdge::builder(&near), to_far).tls(shown.clone());
        let edge = builder.start("127.0.0.1:0").await.expect("loopback can be bound");
        Self { edge, near, far, clients, shown }
    }

    async fn new() -> Self {
        Self::with(|builder, _| builder).await
    }

    fn address(&self) -> SocketAddr {
        self.edge.local_addr()
    }

    /// A client's certificate with this name.
    fn named(&self, path: &str) -> Issued {
        let name = format!("spiffe://{DOMAIN}/{path}");
        self.clients.issue_from(for_names([name]), &new_key())
    }

    async fn who(&self, issued: Option<&Issued>) -> String {
        ask(tls_client::channel(self.address(), issued).await, WHO).await.expect("it may ask")
    }

    async fn stop(self) {
        self.edge.shutdown(Duration::from_secs(5)).await;
        self.near.shutdown(Duration::from_secs(5)).await;
        self.far.shutdown(Duration::from_secs(5)).await;
    }
}

fn of_host(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).expect("it is a name")
}

async fn node(authority: &Authority, id: u64, next: Option<Peer>) -> Endpoint {
    let who =
        |_: String, context: Context| async move { Ok::<_, Status>(describe(&context.caller())) };
    let pass_on = move |text: String, task: Task<String>| async move {
        let next = next.ok_or_else(|| Status::new(convoke_core::Code::NotFound, "no next node"))?;
        Ok::<Finish, Status>(task.tail(next, WHO.request(text)).await?)
    };
    let transport = GrpcTransport::tls(identity(&authority.issue([id]), authority));
    let builder = Endpoint::builder().transport(transport).listen("grpcs://127.0.0.1:0");
    let service = Service::new().unary(WHO, who).tree(PASS_ON, pass_on);
    // Nobody without a name may pass anything on.
    let rule = |caller: &Caller, method: &str| {
        let is_named = |caller: &Caller| {
            let client = caller.client().and_then(|client| client.principal());
            client.is_some_and(|principal| principal.as_str().ends_with("/billing"))
        };
        method == WHO.name() || is_named(caller)
    };
    builder.serve(service).authorize(rule).start().await.expect("loopback can be bound")
}

async fn ask(channel: Channel, method: Method<String, String>) -> Result<String, tonic::Status> {
    let mut grpc = Grpc::new(channel);
    in_time(grpc.ready())
        .await
        .map_err(|error| tonic::Status::unavailable(format!("{error:?}")))?;
    let path: PathAndQuery = format!("/{}", method.name()).parse().expect("it is a path");
    let mut request = tonic::Request::new(String::new());
    // Whatever a client says of itself.
    for key in ["principal", "client", "convoke-client", "x-forwarded-client-cert"] {
        let value = "spiffe://test.example/node/1".parse().expect("it is ASCII");
        request.metadata_mut().insert(key, value);
    }
    let codec = ProstCodec::<String, String>::default();
    Ok(in_time(grpc.unary(request, path, codec)).await?.into_inner())
}

#[tokio::test]
async fn a_client_is_what_its_certificate_says_or_nobody() {
    let stage = Stage::new().await;
    let billing = stage.who(Some(&stage.named("billing"))).await;
    assert_eq!(billing, format!("spiffe://{DOMAIN}/billing at n1, proven: true"));
    assert_eq!(stage.who(None).await, "nobody at n1, proven: false");
    let nameless = stage.clients.issue_from(of_host("till.example"), &new_key());
    let by_key = stage.who(Some(&nameless)).await;
    assert!(by_key.starts_with("key-sha256:") && by_key.ends_with("proven: true"), "{by_key}");
    stage.stop().await;
}

#[tokio::test]
async fn a_client_with_the_certificate_of_a_node_is_no_node() {
    let stage = Stage::new().await;
    for path in ["node/1", "node/2"] {
        let text = stage.who(Some(&stage.named(path))).await;
        // The assertions of `describe` say what it is not.
        assert_eq!(text, format!("spiffe://{DOMAIN}/{path} at n1, proven: true"));
    }
    stage.stop().await;
}

#[tokio::test]
async fn the_node_that_is_asked_through_another_sees_the_client_and_a_delegation_does_not_show_it()
{
    let stage = Stage::with(|builder, far| {
        builder.route(
            move |method| if method == WHO.name() { far } else { Peer::from(NodeId::new(1)) },
        )
    })
    .await;
    let billing = stage.named("billing");
    let text = stage.who(Some(&billing)).await;
    assert_eq!(text, format!("spiffe://{DOMAIN}/billing at n1, proven: true"));
    assert_eq!(stage.who(None).await, "nobody at n1, proven: false");
    let channel = tls_client::channel(stage.address(), Some(&billing)).await;
    let delegated = ask(channel, PASS_ON).await.expect("billing may");
    assert_eq!(delegated, "n1 itself, proven: true");
    stage.stop().await;
}

#[tokio::test]
async fn a_rule_tells_clients_apart_and_what_it_denies_says_who_was_denied() {
    let stage = Stage::new().await;
    let billing = tls_client::channel(stage.address(), Some(&stage.named("billing"))).await;
    assert_eq!(ask(billing, PASS_ON).await.expect("billing may"), "n1 itself, proven: true");
    let till = stage.named("till");
    let cases = [
        (None, "a client of n1 without a certificate may not call edge.test.Who/PassOn".to_owned()),
        (
            Some(&till),
            format!("spiffe://{DOMAIN}/till, a client of n1, may not call edge.test.Who/PassOn"),
        ),
    ];
    for (issued, text) in cases {
        let denied = ask(tls_client::channel(stage.address(), issued).await, PASS_ON).await;
        let denied = denied.expect_err("only billing may");
        assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, &*text));
    }
    stage.stop().await;
}

/// Fate of a client whose certificate, or want of one, is the matter.
async fn refusal(address: SocketAddr, issued: Option<&Issued>) -> String {
    tls_client::refusal(TcpStream::connect(address).await.expect("the edge listens"), issued).await
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_refused_with_an_alert() {
    let stage = Stage::new().await;
    let several = for_names(["billing", "till"].map(|path| format!("spiffe://{DOMAIN}/{path}")));
    let refused = [
        (Authority::new().issue_from(for_nodes([1]), &new_key()), "UnknownCA"),
        (self_signed(&new_key()), "UnknownCA"),
        (stage.clients.issue_expired([7]), "CertificateExpired"),
        (stage.clients.issue_for_later([7]), "CertificateExpired"),
        (stage.clients.issue_from(several, &new_key()), "CertificateUnknown"),
    ];
    for (issued, alert) in refused {
        let told = refusal(stage.address(), Some(&issued)).await;
        assert!(told.contains(alert), "{told}");
    }
    assert_eq!(stage.who(None).await, "nobody at n1, proven: false");
    stage.stop().await;
}

#[tokio::test]
async fn refusals_are_counted_and_logged_in_part() {
    let log = Log::start();
    let stage = Stage::new().await;
    let stranger = Authority::new().issue([7]);
    let begun = std::time::Instant::now();
    for _ in 0..50 {
        refusal(stage.address(), Some(&stranger)).await;
    }
    let seconds = begun.elapsed().as_secs() + 1;
    let lines = log.count("UnknownIssuer");
    assert!((1..=8 * seconds).contains(&lines), "{lines} lines in {seconds} s");
    stage.stop().await;
}

#[tokio::test]
async fn certificates_can_be_required_or_not_asked_for() {
    let required = ClientCertificates::Required;
    let stage = Stage::with(|builder, _| builder.client_certificates(required)).await;
    let told = refusal(stage.address(), None).await;
    assert!(told.contains("CertificateRequired"), "{told}");
    let text = stage.who(Some(&stage.named("billing"))).await;
    assert!(text.contains("/billing at n1"), "{text}");
    stage.stop().await;

    let not_asked = ClientCertificates::NotAsked;
    let stage = Stage::with(|builder, _| builder.client_certificates(not_asked)).await;
    let stranger = Authority::new().issue([7]);
    for issued in [None, Some(&stranger), Some(&stage.named("billing"))] {
        assert_eq!(stage.who(issued).await, "nobody at n1, proven: false");
    }
    stage.stop().await;
}

#[tokio::test]
async fn asking_for_certificates_without_tls_is_an_error() {
    let endpoint = Endpoint::builder().start().await.expect("nothing is listened on");
    let builder = GrpcEdge::builder(&endpoint).client_certificates(ClientCertificates::Required);
    let error = builder.start("127.0.0.1:0").await.expect_err("there is no TLS");
    let message = "client_certificates is set, but not tls";
    assert_eq!(error, EdgeError::Settings { message });
    // A server of one's own has TLS of its own: the edge would have dropped this one.
    let builder = GrpcEdge::builder(&endpoint).client_certificates(ClientCertificates::Required);
    let error = builder.into_service().map(drop).expect_err("it cannot ask for them");
    assert!(error.to_string().contains("TLS is of the server"), "{error}");
    endpoint.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_ordinary_client_verifies_the_host_name_of_the_edge() {
    let stage = Stage::new().await;
    let mut roots = RootCertStore::empty();
    let authority = stage.clients.pem();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).expect("it is PEM");
    roots.add(root).expect("it is an authority");
    let mut config = client_config(None, Some(b"h2"));
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::new(rustls::crypto::ring::default_provider()),
    );
    config.dangerous().set_certificate_verifier(verifier.build().expect("there is a root"));
    for (name, is_right) in [("localhost", true), ("elsewhere.example", false)] {
        let stream = TcpStream::connect(stage.address()).await.expect("the edge listens");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config.clone()));
        let name = name.try_into().expect("it is a name");
        let connected = in_time(connector.connect(name, stream)).await;
        assert_eq!(connected.is_ok(), is_right, "{connected:?}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn renewed_certificates_count_for_new_connections_and_open_ones_live_on() {
    let stage = Stage::new().await;
    let billing = stage.named("billing");
    let before = tls_client::channel(stage.address(), Some(&billing)).await;
    // The edge judges a certificate after its client believes to be done.
    ask(before.clone(), WHO).await.expect("it is trusted");
    let renewed = Authority::new();
    // With another key, as authorities of the web renew: no node uses the identity.
    let shown = renewed.issue_from(of_host("localhost"), &new_key());
    stage.shown.replace(shown.certificate, shown.key, renewed.pem()).expect("it is good");
    let told = refusal(stage.address(), Some(&billing)).await;
    assert!(told.contains("UnknownCA"), "{told}");
    let name = format!("spiffe://{DOMAIN}/billing");
    let after = renewed.issue_from(for_names([name]), &new_key());
    assert!(stage.who(Some(&after)).await.contains("/billing at n1"));
    let text = ask(before, WHO).await.expect("it is open");
    assert!(text.contains("/billing at n1"), "{text}");
    stage.stop().await;
}

#[tokio::test]
async fn clients_with_certificates_have_shares_of_their_own() {
    let stage = Stage::with(|builder, _| builder.connections_max(4)).await;
    let mut anonymous = Vec::new();
    // One address has as many as are free: two of four.
    for _ in 0..2 {
        let channel = tls_client::channel(stage.address(), None).await;
        ask(channel.clone(), WHO).await.expect("there is room");
        anonymous.push(channel);
    }
    let third = tls_client::channel(stage.address(), None).await;
    ask(third, WHO).await.expect_err("its share is used up");
    let billing = tls_client::channel(stage.address(), Some(&stage.named("billing"))).await;
    let text = ask(billing, WHO).await.expect("it has a share of its own");
    assert!(text.contains("/billing at n1"), "{text}");
    stage.stop().await;
}

#[tokio::test]
async fn plain_clients_and_those_of_other_protocols_are_told() {
    let stage = Stage::new().await;
    for said in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], PREFACE] {
        let mut socket = TcpStream::connect(stage.address()).await.expect("the edge listens");
        let mut answer = Vec::new();
        let _ = in_time(socket.write_all(said)).await;
        let _ = in_time(socket.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("TLS"), "{answer}");
    }
    assert_eq!(stage.who(None).await, "nobody at n1, proven: false");
    stage.stop().await;
}

#[tokio::test]
async fn a_stalled_handshake_does_not_hold_up_a_shutdown() {
    let forever = Duration::from_secs(3_600);
    let stage = Stage::with(|builder, _| builder.handshake_timeout(forever)).await;
    let mut stalled = Vec::new();
    for said in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut socket = TcpStream::connect(stage.address()).await.expect("the edge listens");
        socket.write_all(said).await.expect("the edge reads");
        stalled.push(socket);
    }
    // They were accepted before this one.
    stage.who(None).await;
    in_time(stage.stop()).await;
    for mut socket in stalled {
        let ended = in_time(socket.read(&mut [0; 64])).await;
        assert_eq!(ended.unwrap_or(0), 0);
    }
}
