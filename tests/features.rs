//! Features add names and never behaviour: whatever another crate of the build turns on, an
//! endpoint does the same. The lanes run this with the default features, and with all.

#![cfg(feature = "tcp")]

use convoke::transport::{TcpTransport, Transport};
use convoke::{Context, Method, Service, StartError, Status};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ECHO: Method<String, String> = Method::new("features.Test/Echo");

fn service() -> Service {
    Service::new().unary(ECHO, |text, _: Context| async move { Ok::<_, Status>(text) })
}

#[tokio::test]
async fn an_endpoint_speaks_tcp_alone_until_it_is_given_more() -> Result {
    let endpoint = convoke::endpoint().start().await?;
    let transports = endpoint.transports().iter();
    let schemes: Vec<&str> = transports.flat_map(|one| one.schemes()).copied().collect();
    assert_eq!(schemes, TcpTransport::new().schemes());
    // Each other is refused with the line that adds it.
    let missing = [
        ("tls://127.0.0.1:0", "TcpTransport::tls(identity)", "`tls`"),
        ("quic://127.0.0.1:0", "QuicTransport::new(identity)", "`quic`"),
        ("grpc://127.0.0.1:0", "GrpcTransport::new()", "`grpc`"),
        ("grpcs://127.0.0.1:0", "GrpcTransport::tls(identity)", "`grpc` with `tls`"),
        ("rdma://127.0.0.1:0", "RdmaTransport", "`rdma`"),
        ("sim://a", ".transport(network.transport())", "`sim`"),
        ("carrier-pigeon://a", "add one with this scheme", "EndpointBuilder::transport"),
    ];
    for (address, line, feature) in missing {
        let Err(StartError::Listen(error)) = convoke::endpoint().listen(address).start().await
        else {
            panic!("{address} needs a transport");
        };
        let text = error.to_string();
        assert!(text.contains(line) && text.contains(feature), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn an_exchange_has_the_same_frames_and_nothing_that_a_feature_adds() -> Result {
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(service()).start().await?;
    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;
    let hello = client.counters();
    let text = "compressible ".repeat(1_000);
    assert_eq!(client.call(ECHO, text.clone()).to(peer).await?, text);
    let all = client.counters();
    assert_eq!((all.frames_sent, all.frames_received), (1, 1));
    // Neither compressed nor traced: the text, and a header at most.
    let sent = all.bytes_sent - hello.bytes_sent;
    let range = text.len() as u64..text.len() as u64 + 200;
    assert!(range.contains(&sent), "{sent} bytes");
    Ok(())
}

#[cfg(feature = "overlay-lp")]
#[test]
fn one_relay_trees_are_within_reach() {
    use convoke::overlay::{Family, PlanOptions};

    let options = PlanOptions::new().family(Family::OneRelay);
    assert!(format!("{options:?}").contains("OneRelay"));
}
