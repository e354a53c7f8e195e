//! Addresses: what can be listened on, dialled and advertised.

use std::sync::Arc;

use convoke_transport::conformance::{Recorder, Setup};
use convoke_transport::{Address, DialError, ListenError, Transport};
use convoke_transport_tcp::TcpTransport;

fn address(text: &str) -> Address {
    text.parse().expect("it is an address")
}

fn setup(listen: &str) -> Setup {
    let transport = Arc::new(TcpTransport::new());
    Setup { listening: Arc::clone(&transport) as _, dialling: transport, listen: address(listen) }
}

#[tokio::test]
async fn every_interface_is_advertised_as_the_one_of_the_connection() {
    let advertised = ["tcp://0.0.0.0:7000", "tcp://shop.example:7001"].map(address);
    let a = Recorder::new(1).advertising(advertised.to_vec());
    let b = Recorder::new(2).advertising(advertised.to_vec());
    let pair = setup("tcp://127.0.0.1:0").connect_as(a, b).await;
    let expected = ["tcp://127.0.0.1:7000", "tcp://shop.example:7001"].map(address);
    assert_eq!(pair.to_a.link().peer.advertised, expected);
    assert_eq!(pair.to_b.link().peer.advertised, expected);
    pair.finish().await;
}

#[tokio::test]
async fn a_name_can_be_listened_on_and_dialled() {
    let pair = setup("tcp://localhost:0").connect().await;
    pair.finish().await;
}

#[tokio::test]
async fn ipv6_works_where_the_machine_has_it() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    }
    let a = Recorder::new(1).advertising(vec![address("tcp://[::]:7000")]);
    let pair = setup("tcp://[::1]:0").connect_as(a, Recorder::new(2)).await;
    assert!(pair.listener.local_address().as_str().starts_with("tcp://[::1]:"));
    assert_eq!(pair.to_a.link().peer.advertised, [address("tcp://[::1]:7000")]);
    pair.finish().await;
}

#[tokio::test]
async fn an_address_without_a_port_is_refused() {
    let (transport, sink) = (TcpTransport::new(), Arc::new(Recorder::new(1)));
    let portless = address("tcp://127.0.0.1");
    let listening = transport.listen(&portless, Arc::clone(&sink) as _).await;
    assert!(matches!(listening, Err(ListenError::Bind { .. })), "{listening:?}");
    let dialled = transport.dial(&portless, None, sink).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");
}

#[tokio::test]
async fn a_port_is_free_once_close_returned() {
    let (transport, sink) = (TcpTransport::new(), Arc::new(Recorder::new(1)));
    let first = transport.listen(&address("tcp://127.0.0.1:0"), Arc::clone(&sink) as _).await;
    let first = first.expect("it binds");
    first.close();
    let again = transport.listen(&first.local_address(), sink).await;
    assert!(again.is_ok(), "{again:?}");
}
