//! An endpoint that serves `tcp://` beside `tls://` or `quic://`: whom it knows by a certificate
//! nobody else can claim to be.
#![cfg(feature = "tls")]

#[path = "../crates/transport/tests/support/certificates.rs"]
mod certificates;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use certificates::{Authority, Issued, new_key, self_signed};
use convoke::transport::{Identity, TcpTransport};
use convoke::{
    CallError, Context, Endpoint, EndpointBuilder, Method, NodeId, Peer, PeerState, Service, Status,
};
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

const ECHO: Method<String, String> = Method::new("test.Unproven/Echo");

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn identity(issued: &Issued, trust: &str) -> Identity {
    Identity::from_pem(&issued.certificate, &issued.key, trust).expect("it is good")
}

fn of_authority(authority: &Authority, node: u64) -> Identity {
    identity(&authority.issue([node]), &authority.pem())
}

/// Serves both ways.
fn server(identity: Identity) -> EndpointBuilder {
    let echo = |text: String, _: Context| async move { Ok::<_, Status>(text) };
    let tls = TcpTransport::builder().tls(identity.clone()).build().expect("legal");
    Endpoint::builder()
        .transport(TcpTransport::new())
        .transport(tls)
        .node(identity.node())
        .listen("tls://127.0.0.1:0")
        .listen("tcp://127.0.0.1:0")
        .serve(Service::new().unary(ECHO, echo))
}

async fn start(builder: EndpointBuilder) -> Endpoint {
    builder.start().await.expect("loopback can be bound")
}

/// One with a certificate, connected to the server.
async fn honest(identity: Identity, server: &Endpoint) -> (Endpoint, Peer) {
    let honest = start(Endpoint::builder().transport(TcpTransport::tls(identity))).await;
    let peer = honest.connect(server.addresses()).await;
    (honest, peer.expect("its certificate is good"))
}

/// One that only says who it is.
async fn liar(id: NodeId) -> Endpoint {
    start(Endpoint::builder().transport(TcpTransport::new()).node(id)).await
}

async fn connect_plain(liar: &Endpoint, server: &Endpoint) -> Result<Peer, String> {
    let connected = liar.connect(server.addresses()[1].as_str()).await;
    connected.map_err(|error| error.to_string())
}

async fn echo(from: &Endpoint, at: &Peer) -> Result<String, CallError> {
    from.call(ECHO, "hello".into()).to(at).await
}

fn assert_refused(connected: Result<Peer, String>, id: NodeId) {
    let error = connected.expect_err("it has no proof");
    assert!(error.contains(&format!("{id} must prove itself")), "{error}");
}

async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it becomes so");
}

#[tokio::test]
async fn nobody_claims_without_proof_to_be_who_is_connected_with_it() {
    let authority = Authority::new();
    let server = start(server(of_authority(&authority, 1))).await;
    let (honest, peer) = honest(of_authority(&authority, 2), &server).await;
    assert_refused(connect_plain(&liar(node(2)).await, &server).await, node(2));
    echo(&honest, &peer).await.expect("its connection is as before");
    assert_eq!(server.load().connections, 1);
    let stranger = liar(node(3)).await;
    let peer = connect_plain(&stranger, &server).await.expect("nobody has proven to be node 3");
    echo(&stranger, &peer).await.expect("it is served");
}

/// The kernel knows its user, and that is no proof of a node.
#[cfg(unix)]
#[tokio::test]
async fn nor_does_a_process_of_the_same_user() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = format!("unix://{}/a.sock", folder.path().display());
    let server = start(server(of_authority(&authority, 1)).listen(&path)).await;
    let (honest, peer) = honest(of_authority(&authority, 2), &server).await;
    let connected = liar(node(2)).await.connect(&path).await;
    assert_refused(connected.map_err(|error| error.to_string()), node(2));
    echo(&honest, &peer).await.expect("its connection is as before");
}

#[tokio::test]
async fn nor_who_was_connected_with_it_before() {
    let authority = Authority::new();
    let server = start(server(of_authority(&authority, 1))).await;
    let (honest, _) = honest(of_authority(&authority, 2), &server).await;
    honest.shutdown(Duration::from_secs(60)).await;
    until(|| server.load().connections == 0).await;
    assert_refused(connect_plain(&liar(node(2)).await, &server).await, node(2));
}

#[tokio::test]
async fn nor_whose_own_certificate_is_trusted() {
    let [at_server, at_other] = [self_signed(&new_key()), self_signed(&new_key())];
    let trust = [at_server.certificate.as_str(), &at_other.certificate].concat();
    let other = identity(&at_other, &trust);
    let server = start(server(identity(&at_server, &trust))).await;
    assert_refused(connect_plain(&liar(other.node()).await, &server).await, other.node());
    let (honest, peer) = honest(other, &server).await;
    echo(&honest, &peer).await.expect("it is who it says");
}

#[tokio::test]
async fn nor_who_is_known_at_addresses_that_demand_proof() {
    let authority = Authority::new();
    let at_server = |addresses: &'static [&'static str]| {
        start(server(of_authority(&authority, 1)).peer(node(2), addresses))
    };
    let server = at_server(&["tls://127.0.0.1:1"]).await;
    assert_refused(connect_plain(&liar(node(2)).await, &server).await, node(2));
    // Its owner takes it by either way.
    let server = at_server(&["tls://127.0.0.1:1", "tcp://127.0.0.1:1"]).await;
    connect_plain(&liar(node(2)).await, &server).await.expect("it may come without proof");
}

/// A subscriber that asks the endpoint whenever it takes a line.
struct Asks(Endpoint);

impl<S: tracing::Subscriber> Layer<S> for Asks {
    fn on_event(&self, _: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        self.0.load();
    }
}

#[tokio::test]
async fn whoever_claimed_it_before_gives_way_to_the_proof() {
    let authority = Authority::new();
    let server = start(server(of_authority(&authority, 1))).await;
    let layers = tracing_subscriber::registry().with(Asks(server.clone()));
    let _guard = tracing::subscriber::set_default(layers);
    let liar = liar(node(2)).await;
    let from_liar = connect_plain(&liar, &server).await.expect("nobody has proven it yet");
    let state = liar.watch_peer(from_liar);
    let (honest, peer) = honest(of_authority(&authority, 2), &server).await;
    until(|| *state.borrow() == PeerState::Down).await;
    until(|| server.load().connections == 1).await;
    echo(&honest, &peer).await.expect("the connection with proof is the one that is left");
    assert_refused(connect_plain(&liar, &server).await, node(2));
}

/// The log, as it was written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_says_who_was_refused_and_why() {
    let authority = Authority::new();
    let server = start(server(of_authority(&authority, 1))).await;
    let (_honest, _) = honest(of_authority(&authority, 77), &server).await;
    // Once without a log: where it is said for the first time, tracing asks whoever listens on that
    // thread whether it is wanted at all, and other tests say it on theirs.
    assert_refused(connect_plain(&liar(node(77)).await, &server).await, node(77));
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("no other test here listens");
    assert_refused(connect_plain(&liar(node(77)).await, &server).await, node(77));
    let logged = String::from_utf8(log.0.lock().expect("nobody panics with it").clone())
        .expect("it is text");
    let is_refusal = |line: &str| {
        ["connection refused", "peer=n77", "scheme=\"tcp\"", "reason=\"unproven\""]
            .iter()
            .all(|part| line.contains(part))
    };
    assert!(logged.lines().any(is_refusal), "{logged}");
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn refused_claims_and_connections_that_gave_way_are_counted_by_their_reason() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let authority = Authority::new();
    let server = start(server(of_authority(&authority, 1)).metrics()).await;
    let liar = liar(node(2)).await;
    connect_plain(&liar, &server).await.expect("nobody has proven it yet");
    let (_honest, _) = honest(of_authority(&authority, 2), &server).await;
    until(|| server.load().connections == 1).await;
    assert_refused(connect_plain(&liar, &server).await, node(2));
    let counted = snapshotter.snapshot().into_vec();
    for name in ["convoke_connections_refused_total", "convoke_connections_closed_total"] {
        let is_it = |key: &metrics::Key| {
            let labels: Vec<_> = key.labels().map(|l| (l.key(), l.value())).collect();
            let expected = [("node", "n1"), ("scheme", "tcp"), ("reason", "unproven")];
            key.name() == name && expected.iter().all(|label| labels.contains(label))
        };
        let found = counted.iter().find(|(key, ..)| is_it(key.key()));
        let value = found.map(|(.., value)| value);
        assert!(matches!(value, Some(DebugValue::Counter(1))), "{name}: {value:?}");
    }
}
