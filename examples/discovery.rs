//! Servers that come and go: a loop that asks DNS, a pool of which each call asks one, and a
//! resolver for nodes that are known by name alone.
//!
//! ```sh
//! cargo run --example discovery
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use convoke::transport::BoxError;
use convoke::{Context, Endpoint, Method, NoPeers, NodeId, OneOf, Service, Status};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const FIND: Method<String, String> = Method::new("shop.Catalogue/Find").read_only();

async fn find(what: String, context: Context) -> std::result::Result<String, Status> {
    Ok(format!("{what}, by {}", context.endpoint().node()))
}

async fn catalogue(node: u64, at: &str) -> Result<Endpoint> {
    let service = Service::new().unary(FIND, find);
    let builder = convoke::endpoint().node(NodeId::new(node)).serve(service);
    Ok(builder.listen(at).start().await?)
}

/// The name of a server as DNS has it: in a cluster such as `catalogue-0.catalogue:7000`.
fn name_of(server: &Endpoint) -> String {
    server.addresses()[0].rest().replace("127.0.0.1", "localhost")
}

/// Servers found so far.
#[derive(Default)]
struct Discovery {
    /// Addresses of each name, as it was resolved last.
    addresses: BTreeMap<String, Vec<SocketAddr>>,
    /// Node that was met last at each of them.
    nodes: BTreeMap<SocketAddr, NodeId>,
}

impl Discovery {
    /// One round. A program runs it every few seconds.
    async fn look(&mut self, endpoint: &Endpoint, names: &[String]) {
        self.addresses.retain(|name, _| names.contains(name));
        for name in names {
            // A resolver that fails says nothing about the servers: their addresses stay.
            if let Ok(found) = tokio::net::lookup_host(name).await {
                self.addresses.insert(name.clone(), found.collect());
            }
        }
        let mut now = BTreeMap::new();
        for &at in self.addresses.values().flatten() {
            // At once while there is a connection. Otherwise whoever listens there says which node
            // it is, after a restart maybe another. One that does not answer may be back soon.
            let there = endpoint.connect(format!("tcp://{at}")).await.map(|peer| peer.node());
            now.extend(there.ok().or(self.nodes.get(&at).copied()).map(|node| (at, node)));
        }
        let before = std::mem::replace(&mut self.nodes, now);
        let is_gone = |node: &&NodeId| !self.nodes.values().any(|there| there == *node);
        before.values().filter(is_gone).for_each(|node| endpoint.forget(node));
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result {
    let anywhere = "tcp://127.0.0.1:0";
    let (one, two) = (catalogue(1, anywhere).await?, catalogue(2, anywhere).await?);
    let mut names = vec![name_of(&one), name_of(&two)];
    let client = convoke::endpoint().start().await?;
    let mut discovery = Discovery::default();
    discovery.look(&client, &names).await;
    let pool = OneOf::least_loaded(&client, discovery.nodes.values())?;
    println!("{}", client.call(FIND, "a heron".into()).to(pool.pick()).await?);

    // One more, one less, and one that starts again as another node: calls go to who is there.
    let three = catalogue(3, anywhere).await?;
    names = vec![name_of(&one), name_of(&three)];
    let place = one.addresses()[0].to_string();
    one.shutdown(Duration::from_secs(5)).await;
    let four = catalogue(4, &place).await?;
    while !discovery.nodes.values().any(|node| *node == four.node()) {
        discovery.look(&client, &names).await;
    }
    // Should nobody be found, the pool keeps those it has.
    pool.replace(discovery.nodes.values()).unwrap_or_else(|NoPeers| println!("nobody is there"));
    for _ in 0..4 {
        let found = client.call(FIND, "a heron".into()).to(pool.pick()).await?;
        println!("{found}");
        assert!(found.ends_with("n3") || found.ends_with("n4"));
    }

    // Without a loop: whoever is called by name is looked up when there is no connection.
    let names = BTreeMap::from([(NodeId::new(3), name_of(&three))]);
    let look_up = move |node| {
        let name = names.get(&node).cloned();
        async move {
            let at = tokio::net::lookup_host(name.ok_or("no such node")?).await?;
            Ok::<_, BoxError>(at.map(|at| format!("tcp://{at}")).collect::<Vec<_>>())
        }
    };
    let client = convoke::endpoint().resolver(look_up).start().await?;
    println!("{}", client.call(FIND, "a wren".into()).to(NodeId::new(3)).await?);
    let lost = client.call(FIND, "a wren".into()).to(NodeId::new(4)).await.expect_err("not there");
    println!("{lost}");
    assert!(lost.is_safe_to_repeat() && lost.to_string().contains("no such node"));
    Ok(())
}
