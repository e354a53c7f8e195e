//! Servers that come and go: a loop that asks DNS, a pool of which each call asks one, and a
//! resolver for nodes that are known by name alone.
//!
//! ```sh
//! cargo run --example discovery
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use convoke::transport::BoxError;
use convoke::{Context, Endpoint, Method, NodeId, OneOf, Service, Status};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const FIND: Method<String, String> = Method::new("shop.Catalogue/Find").read_only();

async fn find(what: String, context: Context) -> std::result::Result<String, Status> {
    Ok(format!("{what}, by {}", context.endpoint().node()))
}

async fn catalogue(node: u64) -> Result<Endpoint> {
    let service = Service::new().unary(FIND, find);
    let builder = convoke::endpoint().node(NodeId::new(node)).serve(service);
    Ok(builder.listen("tcp://127.0.0.1:0").start().await?)
}

/// The name of a server as DNS has it: in a cluster such as `catalogue-0.catalogue:7000`.
fn name_of(server: &Endpoint) -> String {
    server.addresses()[0].rest().replace("127.0.0.1", "localhost")
}

/// The servers found so far, and who serves where.
#[derive(Default)]
struct Discovery(BTreeMap<SocketAddr, NodeId>);

impl Discovery {
    /// One round. A program runs it every few seconds.
    async fn look(&mut self, endpoint: &Endpoint, names: &[String]) {
        let mut found = BTreeSet::new();
        for name in names {
            // A name that is not there at the moment has no address.
            found.extend(tokio::net::lookup_host(name).await.into_iter().flatten());
        }
        let before: BTreeSet<NodeId> = self.0.values().copied().collect();
        self.0.retain(|at, _| found.contains(at));
        for at in found {
            // Whoever listens there says which node it is. Who does not answer is tried next time.
            if !self.0.contains_key(&at)
                && let Ok(peer) = endpoint.connect(format!("tcp://{at}")).await
            {
                self.0.insert(at, peer.node());
            }
        }
        let now: BTreeSet<NodeId> = self.0.values().copied().collect();
        before.difference(&now).for_each(|gone| endpoint.forget(gone));
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result {
    let (one, two) = (catalogue(1).await?, catalogue(2).await?);
    let mut names = vec![name_of(&one), name_of(&two)];
    let client = convoke::endpoint().start().await?;
    let mut discovery = Discovery::default();
    discovery.look(&client, &names).await;
    let pool = OneOf::least_loaded(&client, discovery.0.values())?;
    println!("{}", client.call(FIND, "a heron".into()).to(pool.pick()).await?);

    // One more, and one less: calls go to who is there.
    let three = catalogue(3).await?;
    names = vec![name_of(&two), name_of(&three)];
    discovery.look(&client, &names).await;
    pool.replace(discovery.0.values())?;
    one.shutdown(Duration::from_secs(5)).await;
    for _ in 0..4 {
        let found = client.call(FIND, "a heron".into()).to(pool.pick()).await?;
        println!("{found}");
        assert!(!found.ends_with("n1"));
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
