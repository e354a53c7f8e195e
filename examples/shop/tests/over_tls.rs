//! The shop over real sockets: every server and the customer prove who they are.

use std::path::Path;

use anyhow::Result;
use convoke::transport::TcpTransport;
use convoke::{Endpoint, NodeId};
use shop::certificates::{Authority, folder_of, load};
use shop::cluster::{Cluster, Role, Server};
use shop::keeper::{self, KEEPER};
use shop::proto::{Item, Order, ShopClient, Word};

const CUSTOMER: NodeId = NodeId::new(101);

/// Starts the servers in turn, the front last: it alone has to know where the others are.
async fn open(folder: &Path) -> Result<(Cluster, Vec<Endpoint>)> {
    use Role::{Front, Replica, Shard};
    let roles = [Replica, Replica, Replica, Shard, Shard, Front];
    let server = |(id, role)| {
        let address = format!("tls://not-yet-{id}:1");
        Server { node: NodeId::new(id), role, address }
    };
    let mut servers: Vec<Server> = (1..).zip(roles).map(server).collect();
    let authority = Authority::new()?;
    authority.issue(CUSTOMER, folder)?;
    authority.issue(KEEPER, folder)?;
    let mut endpoints = Vec::new();
    for index in 0..servers.len() {
        "tls://127.0.0.1:0".clone_into(&mut servers[index].address);
        let (cluster, node) = (Cluster::new(servers.clone())?, servers[index].node);
        authority.issue(node, folder)?;
        let transport = TcpTransport::tls(load(node, folder)?);
        let disk = folder_of(node, folder).join("data");
        let endpoint = cluster.endpoint(node, transport, &disk)?.start().await?;
        servers[index].address = endpoint.addresses()[0].to_string();
        endpoints.push(endpoint);
    }
    Ok((Cluster::new(servers)?, endpoints))
}

async fn connect(who: NodeId, cluster: &Cluster, folder: &Path) -> Result<Endpoint> {
    let builder = Endpoint::builder().transport(TcpTransport::tls(load(who, folder)?));
    let peers = cluster.servers().iter().map(|server| (server.node, &server.address));
    Ok(builder.peers(peers).keep_connected().start().await?)
}

#[tokio::test]
async fn customers_search_and_buy() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (cluster, servers) = open(folder.path()).await?;
    let front = cluster.of(Role::Front).next().expect("there is one");
    let customer = connect(CUSTOMER, &cluster, folder.path()).await?;
    let shop = ShopClient::new(&customer);
    let search = shop.search(Word { text: "heron".to_owned() }).to(front);
    let (found, outcome) = search.open()?.collect().await?;
    assert!(found.len() == 3 && outcome.is_complete(), "{outcome:?}");
    let order = Order { id: "mine".to_owned(), item: 1, count: 2 };
    for _ in 0..2 {
        assert_eq!(shop.buy(order.clone()).to(front).await?.left, 3);
    }
    for server in servers {
        assert!(server.shutdown(std::time::Duration::from_secs(5)).await);
    }
    Ok(())
}

#[tokio::test]
async fn a_catalogue_is_loaded_by_the_keeper() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (cluster, _servers) = open(folder.path()).await?;
    let shards: Vec<NodeId> = cluster.of(Role::Shard).collect();
    // More than may be on its way at once.
    let name = |id| format!("gull {id}, {}", "cast in bronze ".repeat(10));
    let item = |id| Item { id, name: name(id), price_cents: 100, supply: 1 };
    let items: Vec<Item> = (1..=5_000).map(item).collect();
    let keeper = connect(KEEPER, &cluster, folder.path()).await?;
    assert_eq!(keeper::load(&keeper.client(), &shards, &items).await?, 5_000);

    let front = cluster.of(Role::Front).next().expect("there is one");
    let customer = connect(CUSTOMER, &cluster, folder.path()).await?;
    let search = ShopClient::new(&customer).search(Word { text: "gull 4999".to_owned() });
    assert_eq!(search.to(front).await?, items[4_998]);
    let denied = keeper::load(&customer.client(), &shards, &[]).await;
    assert!(denied.is_err_and(|error| format!("{error:#}").contains("PermissionDenied")));
    Ok(())
}

#[cfg(unix)]
#[test]
fn keys_are_their_owners_alone() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir()?;
    let node = convoke::NodeId::new(1);
    for _ in 0..2 {
        Authority::new()?.issue(node, folder.path())?;
        let key = folder_of(node, folder.path()).join("node.key");
        assert_eq!(std::fs::metadata(key)?.permissions().mode() & 0o077, 0);
        load(node, folder.path())?;
    }
    Ok(())
}

#[tokio::test]
async fn nobody_gets_in_by_another_authority() -> Result<()> {
    let (folder, elsewhere) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (cluster, _servers) = open(folder.path()).await?;
    // It even says that it is the front, whom the replicas obey.
    let front = cluster.of(Role::Front).next().expect("there is one");
    Authority::new()?.issue(front, elsewhere.path())?;
    let transport = TcpTransport::tls(load(front, elsewhere.path())?);
    let stranger = Endpoint::builder().transport(transport).start().await?;
    for server in cluster.servers() {
        assert!(stranger.connect(&server.address).await.is_err(), "{server:?}");
    }
    Ok(())
}
