//! Mistakes that everybody makes once: each message names the remedy. Those that the compiler finds
//! are in `tests/ui`.

#![cfg(feature = "tcp")]

use std::time::Duration;

use convoke::{
    Cause, Context, Endpoint, Executed, IntoService, Limits, Method, NodeId, Service, Status, Task,
};

const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello");
const HOUR: Duration = Duration::from_secs(3_600);

async fn hello(name: String, _: Context) -> Result<String, Status> {
    Ok(name)
}

fn greeter() -> Service {
    Service::new().unary(HELLO, hello).into_service()
}

/// Messages about an address: when it is listened at, and when it is dialled.
async fn said_of(address: &str) -> [String; 2] {
    let listening = convoke::endpoint().listen(address).serve(greeter()).start().await;
    let client = convoke::endpoint().start().await.expect("it binds nothing");
    let dialled = client.connect(address).await.expect_err(address);
    let listening = listening.expect_err(address);
    // As a `main` prints them that returns them.
    [format!("{listening:?}"), format!("{dialled:?}")]
}

#[tokio::test]
async fn an_address_that_is_none_is_told_how_one_looks() {
    let cases = [
        ("127.0.0.1:7000", "such as tcp://127.0.0.1:7000"),
        ("localhost", "such as tcp://127.0.0.1:7000"),
        ("tcp:127.0.0.1:7000", "such as tcp://127.0.0.1:7000"),
        ("", "such as tcp://127.0.0.1:7000"),
        ("tcp://127.0.0.1", "a host and a port up to 65535 are expected, such as 127.0.0.1:7000"),
        ("tcp://127.0.0.1:99999", "a port up to 65535"),
        ("tcp://[::1]", "a host and a port"),
        ("unix://run/a.sock", "unix:///run/a.sock"),
        ("tcp://:7000", "the host is missing"),
        (" tcp://127.0.0.1:7000", "it begins with a blank"),
        ("TCP://127.0.0.1:7000", "a scheme is in lower case"),
    ];
    for (address, remedy) in cases {
        for said in said_of(address).await {
            assert!(said.contains(remedy), "{address:?}: {said}");
            assert!(said.contains(address), "{address:?}: {said}");
        }
    }
}

#[tokio::test]
async fn a_scheme_without_transport_is_told_what_to_add() {
    let cases = [
        ("tls://127.0.0.1:0", "`.transport(TcpTransport::tls(identity))`", "`tls`"),
        ("quic://127.0.0.1:0", "`.transport(QuicTransport::new(identity))`", "`quic`"),
        ("grpc://127.0.0.1:0", "`.transport(GrpcTransport::new())`", "`grpc`"),
        ("sim://here", "`.transport(network.transport())`", "`sim`"),
        ("http://127.0.0.1:7000", "tcp://127.0.0.1:7000", "`ForeignServer`"),
    ];
    for (address, line, name) in cases {
        for said in said_of(address).await {
            assert!(said.contains(line) && said.contains(name), "{address:?}: {said}");
        }
    }
}

#[tokio::test]
async fn a_port_in_use_is_told_what_to_do() {
    let first = convoke::endpoint().listen("tcp://127.0.0.1:0").start().await.expect("it is free");
    let second = convoke::endpoint().listen(first.addresses()).start().await;
    let said = second.expect_err("it is not free").to_string();
    assert!(said.contains(&first.addresses()[0].to_string()), "{said}");
    assert!(said.contains("another socket has this port: end its program"), "{said}");
    assert!(said.contains("port 0 is any free one"), "{said}");
}

#[tokio::test]
async fn an_address_of_another_host_is_told_what_to_listen_at() {
    // Of the block that is for documents alone: no host has it.
    let listening = convoke::endpoint().listen("tcp://192.0.2.1:0").start().await;
    let said = listening.expect_err("no interface has it").to_string();
    assert!(said.contains("at 0.0.0.0 for all of them, and advertise"), "{said}");
}

#[tokio::test]
async fn a_method_that_is_not_served_did_not_run() {
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").start().await.expect("it is free");
    let client: Endpoint = convoke::endpoint().start().await.expect("it binds nothing");
    let peer = client.connect(server.addresses()).await.expect("it listens");
    let error = client.call(HELLO, "Ada".into()).to(peer).await.expect_err("nothing is served");
    let said = "the server has no such method: greeter.Greeter/Hello (it did not run)";
    assert!(error.to_string().ends_with(said), "{error}");
    assert!(error.is_safe_to_repeat());
}

#[tokio::test]
async fn a_service_that_is_served_twice_is_named_once() {
    let twice = convoke::endpoint().serve(greeter()).serve(greeter()).start().await;
    let said = twice.expect_err("it has the methods already").to_string();
    assert_eq!(said, "greeter.Greeter/Hello is served twice: serve each service and method once");
}

/// The failure is that of the node which delegates, for it ran: only the text can say where it
/// could not go on.
#[tokio::test]
async fn a_handler_that_cannot_delegate_says_to_whom_and_what_the_dial_said() {
    const ON: Method<bool, String> = Method::new("greeter.Greeter/On");
    let away = NodeId::new(9);
    let service = Service::new().tree(ON, move |is_tail: bool, task: Task<String>| async move {
        if is_tail {
            return Ok::<_, Status>(task.tail(away, HELLO.request("Ada".into())).await?);
        }
        task.delegate(away, HELLO.request("Ada".into())).await?;
        Ok(task.finish())
    });
    let mut limits = Limits::default();
    // The pause after a failed dial is as long as the test.
    (limits.backoff_min, limits.backoff_max) = (HOUR, HOUR);
    let server = convoke::endpoint().limits(limits).listen("tcp://127.0.0.1:0").serve(service);
    let server = server.peers([(away, "tcp://127.0.0.1:1")]).start().await.expect("it is free");
    let client = convoke::endpoint().start().await.expect("it binds nothing");
    let peer = client.connect(server.addresses()).await.expect("it listens");
    let asked = server.call(HELLO, "Ada".into()).to(away).await;
    asked.expect_err("nobody is there, and the pause begins");
    for is_tail in [false, true] {
        let error = client.call(ON, is_tail).to(peer).await.expect_err("nobody is there");
        let failure = error.failure().expect("the branch failed");
        assert_eq!((failure.cause, failure.executed), (Cause::Unreachable, Executed::Yes));
        assert_eq!(failure.node, Some(server.node()));
        let said = "n9 cannot be reached at the moment: cannot reach tcp://127.0.0.1:1: ";
        assert!(failure.text.starts_with(said), "{failure}");
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::path::Path;

    use convoke::transport::{Identity, TcpTransport};
    use convoke::{Endpoint, EndpointBuilder, NodeId};
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    };

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        CertifiedIssuer::self_signed(params, key).expect("it signs itself")
    }

    fn of(authority: &Authority, node: u64) -> EndpointBuilder {
        let mut params = CertificateParams::default();
        let name = format!("spiffe://mistakes.example/node/{node}");
        params.subject_alt_names.push(SanType::URI(name.try_into().expect("it is ASCII")));
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.signed_by(&key, authority).expect("it signs").pem();
        let identity = Identity::from_pem(certificate, key.serialize_pem(), authority.pem());
        Endpoint::builder().transport(TcpTransport::tls(identity.expect("it is whole")))
    }

    #[tokio::test]
    async fn a_certificate_of_another_authority_is_told_whom_to_ask() {
        let ours = authority("ours");
        let server = of(&ours, 1).listen("tls://127.0.0.1:0").start().await.expect("it is free");
        // Its authority may even have the name of the other one.
        for name in ["theirs", "ours"] {
            let stranger = of(&authority(name), 2).start().await.expect("it binds nothing");
            let peer = stranger.peer(NodeId::new(1), server.addresses()).expect("an address");
            let said = stranger.warm_up(peer).await.expect_err("they trust others").to_string();
            let reason = "no authority of this node's trusted file has issued it";
            assert!(said.contains(reason), "{name}: {said}");
            assert!(said.contains("add its authority to that file"), "{name}: {said}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_the_folder() {
        let said = |path: &Path| {
            let identity = Identity::from_pem_files(path, path, path);
            identity.expect_err("it is no certificate").to_string()
        };
        let here = std::env::current_dir().expect("there is one");
        let missing = said(Path::new("keys/node.pem"));
        assert!(missing.contains("cannot read keys/node.pem"), "{missing}");
        assert!(missing.contains(&format!("looked for from {}", here.display())), "{missing}");
        let absolute = said(Path::new("/nowhere/node.pem"));
        assert!(!absolute.contains("looked for"), "{absolute}");
        let manifest = said(Path::new("Cargo.toml"));
        assert!(manifest.contains("Cargo.toml: there is no certificate in it"), "{manifest}");
    }
}
