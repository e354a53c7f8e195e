//! Endpoints with certificates: who may call what, and who is who to a handler.
#![cfg(feature = "tls")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use convoke::transport::{Identity, TcpTransport, Transport};
use convoke::{
    CallError, Caller, Code, Context, Endpoint, Executed, Finish, Method, NodeId, Peer, Service,
    StartError, Status, Task,
};

use crate::certificates::{Authority, DOMAIN};

const WHO: Method<u64, String> = Method::new("test.Secure/Who");
/// Delegates to [`WHO`] at the node.
const PASS_ON: Method<u64, String> = Method::new("test.Secure/PassOn");

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn identity(authority: &Authority, node: u64) -> Identity {
    shared_identity(authority, [node])
}

/// Of a certificate that proves each of these nodes.
fn shared_identity(authority: &Authority, nodes: impl IntoIterator<Item = u64>) -> Identity {
    let issued = authority.issue(nodes);
    Identity::from_pem(issued.certificate, issued.key, authority.pem()).expect("it is good")
}

/// Answers with the caller's principal, and counts how often it ran.
fn service(runs: Arc<AtomicU32>) -> Service {
    let who = move |_, context: Context| {
        runs.fetch_add(1, Ordering::Relaxed);
        let caller = context.caller();
        assert_eq!(caller.node(), context.parent());
        let principal = caller.principal().map(ToString::to_string);
        async move { Ok::<_, Status>(principal.unwrap_or_else(|| "nobody".into())) }
    };
    Service::new().unary(WHO, who).tree(PASS_ON, pass_on)
}

async fn pass_on(to: u64, task: Task<String>) -> Result<Finish, Status> {
    Ok(task.tail(&Peer::from(node(to)), WHO.request(to)).await?)
}

async fn ask(
    from: &Endpoint,
    at: &Peer,
    method: Method<u64, String>,
    to: u64,
) -> Result<String, CallError> {
    from.call(method, to).to(at).await
}

fn assert_denied(answer: Result<String, CallError>, text: &str) {
    let error = answer.expect_err("it is denied");
    let status = error.status().expect("the service's side refused");
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, text));
    assert_eq!(error.failure().map(|failure| failure.executed), Some(Executed::No));
}

#[tokio::test]
async fn a_rule_decides_by_who_asks_and_for_what_and_what_it_denies_does_not_run() {
    let (authority, runs) = (Authority::new(), Arc::new(AtomicU32::new(0)));
    let rule = |caller: &Caller, method: &str| match method {
        "test.Secure/Who" => caller.is_authenticated() && caller.node() != node(3),
        _ => panic!("a rule that panics denies"),
    };
    let server = Endpoint::builder()
        .transport(TcpTransport::tls(identity(&authority, 1)))
        .listen("tls://127.0.0.1:0")
        .serve(service(runs.clone()))
        .authorize(rule);
    let server = server.start().await.expect("loopback can be bound");
    let address = server.addresses()[0].to_string();
    let mut clients = Vec::new();
    for id in [2, 3] {
        let client = Endpoint::builder()
            .transport(TcpTransport::tls(identity(&authority, id)))
            .start()
            .await;
        let client = client.expect("nothing is listened on");
        let peer = client.connect(&address).await.expect("its certificate is good");
        clients.push((client, peer));
    }
    let [(two, from_two), (three, from_three)] = &clients[..] else { unreachable!("two") };
    let answer = ask(two, from_two, WHO, 0).await.expect("node 2 may");
    assert_eq!(answer, format!("spiffe://{DOMAIN}/node/2"));
    assert_denied(ask(three, from_three, WHO, 0).await, "n3 may not call test.Secure/Who");
    assert_denied(ask(two, from_two, PASS_ON, 1).await, "n2 may not call test.Secure/PassOn");
    assert_eq!(ask(&server, &server.me(), WHO, 0).await.expect("it is itself"), "nobody");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    let unknown: Method<u64, String> = Method::new("test.Secure/Unknown");
    let error = ask(two, from_two, unknown, 0).await.expect_err("nobody serves it");
    assert!(error.status().is_none(), "{error}");
}

#[tokio::test]
async fn who_delegates_is_the_caller() {
    let authority = Authority::new();
    let start = |id: u64, rule: fn(&Caller, &str) -> bool| {
        let builder = Endpoint::builder().transport(TcpTransport::tls(identity(&authority, id)));
        let builder = builder.listen("tls://127.0.0.1:0").serve(service(Arc::default()));
        async move { builder.authorize(rule).start().await.expect("loopback can be bound") }
    };
    // The last node takes work from node 1 alone, whoever the initiator is.
    let last = start(2, |caller, _| caller.node() == node(1)).await;
    let middle = start(1, |_, _| true).await;
    middle.peer(node(2), last.addresses()).expect("an address");
    let client = start(3, |_, _| false).await;
    let to_middle = client.connect(middle.addresses()).await.expect("it listens");
    let answer = ask(&client, &to_middle, PASS_ON, 2).await.expect("node 1 may delegate");
    assert_eq!(answer, format!("spiffe://{DOMAIN}/node/1"));
    let to_last = client.connect(last.addresses()).await.expect("it listens");
    assert_denied(ask(&client, &to_last, WHO, 0).await, "n3 may not call test.Secure/Who");
}

#[tokio::test]
async fn a_connection_without_proof_borrows_no_principal() {
    let (authority, runs) = (Authority::new(), Arc::new(AtomicU32::new(0)));
    let tls = TcpTransport::builder().tls(identity(&authority, 1)).build().expect("legal");
    let server = convoke::endpoint()
        .transport(tls)
        .node(node(1))
        .listen("tls://127.0.0.1:0")
        .listen("tcp://127.0.0.1:0")
        .serve(service(runs))
        .authorize(|caller, _| caller.is_authenticated());
    let server = server.start().await.expect("loopback can be bound");
    let [secure, plain] = server.addresses() else { unreachable!("two are listened on") };
    let honest =
        Endpoint::builder().transport(TcpTransport::tls(identity(&authority, 2))).start().await;
    let honest = honest.expect("nothing is listened on");
    let to_server = honest.connect(secure.as_str()).await.expect("its certificate is good");
    ask(&honest, &to_server, WHO, 0).await.expect("it has proof");
    // Somebody says that it is node 3, where nobody asks for proof.
    let liar = convoke::endpoint().node(node(3)).start().await.expect("nothing is listened on");
    let from_liar = liar.connect(plain.as_str()).await.expect("nobody has proven to be node 3");
    assert_denied(ask(&liar, &from_liar, WHO, 0).await, "n3 may not call test.Secure/Who");
}

#[tokio::test]
async fn endpoints_may_share_a_certificate_that_proves_each_of_them() {
    let identity = shared_identity(&Authority::new(), [1, 2]);
    let tls: Arc<dyn Transport> = Arc::new(TcpTransport::tls(identity.clone()));
    let transports = [
        ("tls://127.0.0.1:0", tls),
        #[cfg(feature = "quic")]
        ("quic://127.0.0.1:0", Arc::new(convoke::transport::QuicTransport::new(identity))),
    ];
    for (listen, transport) in transports {
        let builder =
            || Endpoint::builder().transport(transport.clone()).serve(service(Arc::default()));
        let first = builder().listen(listen).start().await.expect("loopback can be bound");
        assert_eq!(first.node(), node(1), "the first that it proves");
        let second = builder().listen(listen).node(node(2)).start().await.expect("it is proven");
        for (one, other) in [(&first, &second), (&second, &first)] {
            let to_other = one.connect(other.addresses()).await.expect("it listens");
            assert_eq!(to_other.node(), other.node());
            let answer = ask(one, &to_other, WHO, 0).await.expect("everybody may");
            assert_eq!(answer, format!("spiffe://{DOMAIN}/node/{}", one.node().get()));
        }
        let refused = builder().node(node(3)).start().await.expect_err("it is not proven");
        let StartError::TwoNodes(named, proven) = refused else { panic!("{refused}") };
        assert_eq!((named, proven), (node(3), node(1)));
    }
}

#[tokio::test]
async fn an_endpoint_is_the_first_node_that_all_its_transports_prove() {
    let authority = Authority::new();
    let tls = |nodes: &[u64]| TcpTransport::tls(shared_identity(&authority, nodes.to_vec()));
    let builder = || Endpoint::builder().transport(TcpTransport::new()).transport(tls(&[1, 2, 3]));
    let endpoint = builder().transport(tls(&[3, 2])).start().await.expect("nothing to bind");
    assert_eq!(endpoint.node(), node(2));
    let refused = builder().transport(tls(&[4])).start().await.expect_err("no node is proven");
    let StartError::TwoNodes(one, other) = refused else { panic!("{refused}") };
    assert_eq!((one, other), (node(1), node(4)));
}
