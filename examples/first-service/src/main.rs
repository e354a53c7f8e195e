//! Runs the library on this machine, and asks it.
//!
//! ```sh
//! cargo run -p first-service
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{Endpoint, IntoService, NodeId};
use first_service::proto::{Book, LibraryClient, LibraryServer, ShelfClient, ShelfServer, Word};
use first_service::{Books, Desk};

const DESK: NodeId = NodeId::new(1);
const NOVELS: NodeId = NodeId::new(2);
const ATLASES: NodeId = NodeId::new(3);

/// A server. Port 0 is any free one; in earnest it would be tcp://0.0.0.0:7000.
async fn serve(
    node: NodeId,
    service: impl IntoService,
    peers: &[&Endpoint],
) -> Result<Endpoint, Box<dyn Error>> {
    let peers = peers.iter().map(|peer| (peer.node(), peer.addresses()));
    let builder = convoke::endpoint().node(node).listen("tcp://127.0.0.1:0").peers(peers);
    Ok(builder.serve(service).start().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let novels = Books::new(&["The sea, the sea", "Emma"]);
    let novels = serve(NOVELS, ShelfServer::new(novels), &[]).await?;
    let atlases = Books::new(&["Atlas of the sea", "Atlas of the sky"]);
    let atlases = serve(ATLASES, ShelfServer::new(atlases), &[]).await?;
    let desk = Desk { shelves: vec![NOVELS, ATLASES] };
    let desk = serve(DESK, LibraryServer::new(desk), &[&novels, &atlases]).await?;

    // A reader knows all three, so that replies come straight from the shelves.
    let servers = [&desk, &novels, &atlases].map(|server| (server.node(), server.addresses()));
    let reader = convoke::endpoint().peers(servers).keep_connected().start().await?;

    let library = LibraryClient::new(&reader);
    let mut found = library.search(Word { text: "sea".into() }).to(DESK).open()?;
    while let Some(reply) = found.next().await {
        match reply {
            Ok(reply) => println!("{} has {:?}", reply.from(), reply.message().title),
            Err(missing) => println!("not all was searched: {missing}"),
        }
    }

    let shelf = ShelfClient::new(reader.client().deadline(Duration::from_secs(2)));
    let book = || Book { title: "Emma".into() };
    println!("{} left", shelf.lend(book()).to(NOVELS).await?.left);
    println!("{} left", shelf.lend(book()).to(NOVELS).await?.left);
    if let Err(refused) = shelf.lend(book()).to(NOVELS).await {
        println!("{refused}");
    }

    for server in [reader, desk, novels, atlases] {
        server.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}
