//! The library on a simulated network, in virtual time.

use std::time::Duration;

use convoke::sim::transport::SimNetwork;
use convoke::{Cause, Code, Endpoint, IntoService, NodeId};
use first_service::proto::{Book, LibraryClient, LibraryServer, ShelfClient, ShelfServer, Word};
use first_service::{Books, Desk};
use tokio::time::Instant;

const DESK: NodeId = NodeId::new(1);
const SHELVES: [NodeId; 2] = [NodeId::new(2), NodeId::new(3)];
const ONE_WAY: Duration = Duration::from_millis(10);

fn address(node: NodeId) -> String {
    format!("sim://node{}", node.get())
}

/// A node of the network that knows all others.
async fn start(network: &SimNetwork, id: u64, service: impl IntoService) -> Endpoint {
    let node = NodeId::new(id);
    let peers = [DESK, SHELVES[0], SHELVES[1]].map(|peer| (peer, address(peer)));
    let builder = Endpoint::builder().transport(network.transport()).node(node).seed(id);
    let builder = builder.listen(address(node)).peers(peers).serve(service);
    builder.start().await.expect("nobody else has this address")
}

/// Two shelves, the desk and a reader, all connected.
async fn open(network: &SimNetwork) -> (Endpoint, Vec<Endpoint>) {
    let shelves = SHELVES.to_vec();
    let servers = vec![
        start(network, 2, ShelfServer::new(Books::new(&["The sea, the sea", "Emma"]))).await,
        start(network, 3, ShelfServer::new(Books::new(&["Atlas of the sea"]))).await,
        start(network, 1, LibraryServer::new(Desk { shelves })).await,
    ];
    let reader = start(network, 9, convoke::Service::new()).await;
    for (from, to) in [(&reader, DESK), (&reader, SHELVES[0]), (&reader, SHELVES[1])] {
        from.warm_up(to).await.expect("it listens");
    }
    for shelf in SHELVES {
        servers[2].warm_up(shelf).await.expect("it listens");
    }
    network.default_latency(ONE_WAY);
    (reader, servers)
}

#[tokio::test(start_paused = true)]
async fn a_search_takes_three_trips_and_finds_what_every_shelf_has() {
    let network = SimNetwork::new(1);
    let (reader, _servers) = open(&network).await;
    let begin = Instant::now();
    let search = LibraryClient::new(&reader).search(Word { text: "sea".into() }).to(DESK);
    let (found, end) = search.open().expect("it opens").collect().await.expect("they are books");
    let mut titles: Vec<_> = found.iter().map(|reply| reply.message().title.as_str()).collect();
    titles.sort_unstable();
    assert_eq!(titles, ["Atlas of the sea", "The sea, the sea"]);
    assert!(end.is_complete());
    // Reader, desk, shelf, reader. It is exact, and the same in every run.
    assert_eq!(begin.elapsed(), 3 * ONE_WAY);
}

#[tokio::test(start_paused = true)]
async fn a_shelf_that_is_gone_is_named_and_the_rest_is_found() {
    let network = SimNetwork::new(2);
    let (reader, _servers) = open(&network).await;
    network.crash(SHELVES[1]);
    tokio::time::sleep(2 * ONE_WAY).await;
    let search = LibraryClient::new(&reader).search(Word { text: "sea".into() }).to(DESK);
    let (found, end) = search.open().expect("it opens").collect().await.expect("they are books");
    assert_eq!(found.len(), 1);
    let [failure] = &end.failures[..] else { panic!("one shelf is gone: {end:?}") };
    assert_eq!((failure.node, failure.cause), (Some(SHELVES[1]), Cause::Unreachable));
    assert!(failure.is_safe_to_repeat());
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_lent_once() {
    let network = SimNetwork::new(3);
    let (reader, _servers) = open(&network).await;
    let shelf = ShelfClient::new(&reader);
    let lend = |title: &str| shelf.lend(Book { title: title.into() }).to(SHELVES[0]);
    assert_eq!(lend("Emma").await.expect("there are two").left, 1);
    assert_eq!(lend("Emma").await.expect("there is one").left, 0);
    for (title, code) in [("Emma", Code::FailedPrecondition), ("Ulysses", Code::NotFound)] {
        let refused = lend(title).await.expect_err("none is left");
        assert_eq!(refused.status().map(|status| status.code()), Some(code));
    }
}
