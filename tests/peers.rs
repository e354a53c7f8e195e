//! Peers that an endpoint is given at its start, and addresses in every form.

#![cfg(feature = "tcp")]

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke::transport::{Address, ToAddresses};
use convoke::{
    ConnectError, Context, Endpoint, Finish, Method, NodeId, Peer, PeerState, Service, StartError,
    Status, Task, Way,
};
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ECHO: Method<String, String> = Method::new("peers.Test/Echo");
/// Hands the request on to node 1.
const PASS_ON: Method<String, String> = Method::new("peers.Test/PassOn");

async fn pass_on(text: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    Ok(task.tail(NodeId::new(1), ECHO.request(text)).await?)
}

fn service() -> Service {
    let echo = |text, _: Context| async move { Ok::<_, Status>(text) };
    Service::new().unary(ECHO, echo).tree(PASS_ON, pass_on)
}

async fn server(node: u64, others: &[&Endpoint]) -> Result<Endpoint> {
    let others = others.iter().map(|other| (other.node(), other.addresses()));
    let builder = convoke::endpoint().node(NodeId::new(node)).peers(others);
    Ok(builder.listen("tcp://127.0.0.1:0").serve(service()).start().await?)
}

/// Texts of events, as a subscriber gets them.
#[derive(Clone, Default)]
struct Texts(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Texts {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let mut text = String::new();
        event.record(&mut |_: &Field, value: &dyn fmt::Debug| text += &format!("{value:?} "));
        self.0.lock().unwrap().push(text);
    }
}

/// The way of a reply that is passed on from node 2 to node 1.
async fn way(client: &Endpoint, to: impl Into<Peer>) -> Result<Way> {
    Ok(client.call(PASS_ON, "a".into()).to(to).open()?.first().await?.way())
}

#[tokio::test]
async fn who_stays_connected_to_all_gets_replies_straight() -> Result {
    let one = server(1, &[]).await?;
    let two = server(2, &[&one]).await?;
    let known = [&one, &two].map(|server| (server.node(), server.addresses()));
    // Dialled only when it is needed, node 1 has no connection with the client, and cannot dial
    // one.
    let stranger = convoke::endpoint().peers(known).start().await?;
    let texts = Texts::default();
    let logs = tracing::subscriber::set_default(Registry::default().with(texts.clone()));
    for _ in 0..2 {
        assert_eq!(way(&stranger, two.node()).await?, Way::Relayed);
    }
    drop(logs);
    let texts = texts.0.lock().unwrap().clone();
    let relayed = texts.iter().filter(|text| text.contains("came through another node"));
    assert_eq!(relayed.count(), 1, "it is said once: {texts:?}");
    let known = [&one, &two].map(|server| (server.node(), server.addresses()));
    let client = convoke::endpoint().peers(known).keep_connected().start().await?;
    for server in [&one, &two] {
        assert_eq!(*client.watch_peer(server.node()).borrow(), PeerState::Connected);
    }
    assert_eq!(way(&client, two.node()).await?, Way::Direct);
    assert_eq!(two.call(ECHO, "a".into()).to(two.me()).open()?.first().await?.way(), Way::Local);
    // What is kept up goes with the endpoint.
    assert!(client.shutdown(Duration::from_secs(5)).await);
    Ok(())
}

#[tokio::test]
async fn an_endpoint_starts_without_those_it_cannot_reach() -> Result {
    let one = server(1, &[]).await?;
    let (address, node) = (one.addresses()[0].clone(), one.node());
    one.shutdown(Duration::from_secs(5)).await;
    let client = convoke::endpoint().peer(node, &address).keep_connected().start().await?;
    assert_ne!(*client.watch_peer(node).borrow(), PeerState::Connected);
    // It comes back, and is dialled without being needed.
    let again = convoke::endpoint().node(node).listen(&address).serve(service()).start().await?;
    let mut state = client.watch_peer(node);
    state.wait_for(|state| *state == PeerState::Connected).await?;
    assert_eq!(client.call(ECHO, "a".into()).to(again.node()).await?, "a");
    Ok(())
}

#[test]
fn addresses_have_every_form() -> Result {
    fn of(addresses: impl ToAddresses) -> std::result::Result<Vec<String>, String> {
        let addresses = addresses.to_addresses().map_err(|error| error.to_string())?;
        Ok(addresses.iter().map(ToString::to_string).collect())
    }
    let (a, b) = ("tcp://a:1", "tcp://b:2");
    let address: Address = a.parse()?;
    let owned = a.to_owned();
    for one in [of(a), of(&owned), of(owned.clone()), of(&address), of(address.clone())] {
        assert_eq!(one?, [a]);
    }
    let texts = [a.to_owned(), b.to_owned()];
    let several = [of([a, b]), of(vec![a, b]), of(&[a, b][..]), of(&texts), of(texts.to_vec())];
    for several in several {
        assert_eq!(several?, [a, b]);
    }
    assert!(of("127.0.0.1:7000").is_err() && of([a, "b"]).is_err());
    assert_eq!(of([""; 0])?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn addresses_are_tried_in_order() -> Result {
    let one = server(1, &[]).await?;
    let gone = server(2, &[]).await?;
    let closed = gone.addresses()[0].clone();
    gone.shutdown(Duration::from_secs(5)).await;
    let client = convoke::endpoint().start().await?;
    assert_eq!(client.connect([&closed, &one.addresses()[0]]).await?, one.node().into());
    assert!(matches!(client.connect(&closed).await, Err(ConnectError::Dial(_))));
    assert!(matches!(client.connect([""; 0]).await, Err(ConnectError::NoAddress)));
    assert!(matches!(client.connect("nowhere").await, Err(ConnectError::Address(_))));
    let error = client.connect("quic://127.0.0.1:1").await.expect_err("it speaks TCP alone");
    let text = error.to_string();
    assert!(text.contains("add `.transport(QuicTransport::new(identity))`"), "{text}");
    assert!(text.contains("feature `quic`"), "{text}");
    let start = convoke::endpoint().listen("nowhere").start().await;
    assert!(matches!(start, Err(StartError::Address(_))));
    Ok(())
}
