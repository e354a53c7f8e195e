//! Nodes that come and go: resolvers, peers that are forgotten, and pools of which one is asked.

#![cfg(feature = "tcp")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke::transport::Address;
use convoke::{
    CallError, Cause, Context, Endpoint, EndpointBuilder, Finish, Limits, Method, NoPeers, NodeId,
    OneOf, Peer, PeerState, Service, Status, Task,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number of the node that answers.
const WHO: Method<(), u64> = Method::new("discovery.Test/Who");
const NEVER: Method<(), u64> = Method::new("discovery.Test/Never");
/// Hands the request on to the node of this number.
const PASS_ON: Method<u64, u64> = Method::new("discovery.Test/PassOn");

async fn who(_: (), context: Context) -> std::result::Result<u64, Status> {
    Ok(context.endpoint().node().get())
}

async fn pass_on(node: u64, task: Task<u64>) -> std::result::Result<Finish, Status> {
    Ok(task.tail(NodeId::new(node), WHO.request(())).await?)
}

fn builder() -> EndpointBuilder {
    // Short pauses, since some dials here must fail first.
    let mut limits = Limits::default();
    (limits.backoff_min, limits.backoff_max) = (Duration::from_millis(1), Duration::from_millis(4));
    let never = |(), _: Context| std::future::pending::<std::result::Result<u64, Status>>();
    let service = Service::new().unary(WHO, who).unary(NEVER, never).tree(PASS_ON, pass_on);
    convoke::endpoint().limits(limits).serve(service)
}

async fn server(node: u64) -> Result<Endpoint> {
    Ok(builder().node(NodeId::new(node)).listen("tcp://127.0.0.1:0").start().await?)
}

/// Addresses of nodes, as a registry has them.
#[derive(Clone, Default)]
struct Registry(Arc<Mutex<BTreeMap<NodeId, Vec<Address>>>>);

impl Registry {
    fn set(&self, node: NodeId, at: &Endpoint) {
        self.0.lock().unwrap().insert(node, at.addresses().to_vec());
    }

    async fn find(self, node: NodeId) -> std::result::Result<Vec<Address>, std::io::Error> {
        let found = self.0.lock().unwrap().get(&node).cloned();
        found.ok_or_else(|| std::io::Error::other("not registered"))
    }
}

async fn with_resolver(registry: &Registry) -> Result<Endpoint> {
    let registry = registry.clone();
    Ok(builder().resolver(move |node| registry.clone().find(node)).start().await?)
}

/// Calls until it is answered, as dials are repeated after a pause alone.
async fn ask(client: &Endpoint, node: NodeId) -> u64 {
    loop {
        match client.call(WHO, ()).to(node).await {
            Ok(who) => return who,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn a_node_is_called_by_its_name_and_found_again_where_it_has_moved() -> Result {
    let registry = Registry::default();
    let one = server(1).await?;
    registry.set(one.node(), &one);
    let client = with_resolver(&registry).await?;
    assert_eq!(client.call(WHO, ()).to(one.node()).await?, 1);

    // The address that the client has learnt leads nowhere now.
    let mut state = client.watch_peer(one.node());
    one.shutdown(Duration::ZERO).await;
    state.wait_for(|state| *state == PeerState::Down).await?;
    let again = server(1).await?;
    registry.set(again.node(), &again);
    assert_eq!(ask(&client, again.node()).await, 1);
    Ok(())
}

#[tokio::test]
async fn a_task_delegates_to_a_node_that_its_resolver_knows() -> Result {
    let registry = Registry::default();
    let (leaf, inner) = (server(1).await?, with_resolver(&registry).await?);
    registry.set(leaf.node(), &leaf);
    let call = inner.call(PASS_ON, 1).to(inner.me());
    assert_eq!(call.await?, 1);
    let refused = inner.call(PASS_ON, 9).to(inner.me()).await.expect_err("nobody is node 9");
    let CallError::Branch(failure) = refused else { panic!("{refused}") };
    assert_eq!((failure.node, failure.cause), (Some(NodeId::new(9)), Cause::Unreachable));
    Ok(())
}

#[tokio::test]
async fn a_resolver_that_names_another_node_is_not_believed() -> Result {
    let registry = Registry::default();
    let one = server(1).await?;
    registry.set(NodeId::new(2), &one);
    registry.set(one.node(), &one);
    let client = with_resolver(&registry).await?;
    let error = client.call(WHO, ()).to(NodeId::new(2)).await.expect_err("it is node 1");
    let text = error.to_string();
    assert!(text.contains("n1") && text.contains("not n2"), "{text}");
    assert!(error.is_safe_to_repeat());
    assert_eq!(client.call(WHO, ()).to(one.node()).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_forgotten_peer_is_disconnected_and_not_dialled_again() -> Result {
    let one = server(1).await?;
    let known = [(one.node(), one.addresses())];
    let client = builder().peers(known).keep_connected().start().await?;
    let mut state = client.watch_peer(one.node());
    state.wait_for(|state| *state == PeerState::Connected).await?;
    let waiting = client.call(NEVER, ()).to(one.node()).open()?;
    let load = client.load().connections;

    client.forget(one.node());
    assert_eq!(load, 1);
    let lost = waiting.first().await.expect_err("its connection is gone");
    let CallError::Branch(failure) = lost else { panic!("{lost}") };
    assert_eq!(failure.cause, Cause::NodeDown);
    state.wait_for(|state| *state == PeerState::Down).await?;
    let error = client.call(WHO, ()).to(one.node()).await.expect_err("nobody knows where it is");
    assert!(error.is_safe_to_repeat(), "{error}");
    assert!(!state.has_changed()?, "it is not dialled");

    // Given again, it is known again.
    client.peer(one.node(), one.addresses())?;
    assert_eq!(ask(&client, one.node()).await, 1);
    client.forget(client.me()); // which changes nothing
    assert_eq!(client.call(WHO, ()).to(client.me()).await?, client.node().get());
    Ok(())
}

/// Counts how often each of three servers is picked.
fn picks(pool: &OneOf, count: usize) -> BTreeMap<u64, usize> {
    let mut picked = BTreeMap::new();
    for _ in 0..count {
        *picked.entry(pool.pick().node().get()).or_default() += 1;
    }
    picked
}

async fn cluster(client: &Endpoint) -> Result<(Vec<Endpoint>, Vec<Peer>)> {
    let (mut servers, mut peers) = (Vec::new(), Vec::new());
    for node in 1..=3 {
        let server = server(node).await?;
        let peer = client.peer(server.node(), server.addresses())?;
        client.warm_up(peer).await?;
        servers.push(server);
        peers.push(peer);
    }
    Ok((servers, peers))
}

#[tokio::test]
async fn a_pool_takes_turns_and_leaves_out_who_is_down_until_it_is_back() -> Result {
    let client = builder().start().await?;
    let (mut servers, peers) = cluster(&client).await?;
    let pool = OneOf::round_robin(&client, &peers)?;
    assert_eq!(picks(&pool, 30), BTreeMap::from([(1, 10), (2, 10), (3, 10)]));

    let gone = servers.remove(0);
    let address = gone.addresses()[0].clone();
    let mut state = client.watch_peer(peers[0]);
    gone.shutdown(Duration::ZERO).await;
    state.wait_for(|state| *state != PeerState::Connected).await?;
    assert_eq!(picks(&pool, 30), BTreeMap::from([(2, 15), (3, 15)]));
    for _ in 0..10 {
        assert_ne!(client.call(WHO, ()).to(pool.pick()).await?, 1);
    }
    // The pool dials it without being told.
    let back = builder().node(NodeId::new(1)).listen(&address).start().await?;
    state.wait_for(|state| *state == PeerState::Connected).await?;
    assert_eq!(picks(&pool, 30)[&1], 10);

    pool.replace([&peers[1]])?;
    assert_eq!(picks(&pool, 5), BTreeMap::from([(2, 5)]));
    let nobody: [Peer; 0] = [];
    assert_eq!(pool.clone().replace(nobody), Err(NoPeers));
    assert_eq!(picks(&pool, 5), BTreeMap::from([(2, 5)]));
    assert_eq!(OneOf::round_robin(&client, nobody).err(), Some(NoPeers));

    // All are down: somebody is picked all the same, and the call says why it failed.
    servers.push(back);
    let mut down = client.watch_peer(peers[1]);
    for server in servers {
        server.shutdown(Duration::ZERO).await;
    }
    down.wait_for(|state| *state == PeerState::Down).await?;
    let error = client.call(WHO, ()).to(pool.pick()).await.expect_err("nobody is left");
    assert!(error.is_safe_to_repeat(), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_less_loaded_of_two_is_picked() -> Result {
    let client = builder().start().await?;
    let (_servers, peers) = cluster(&client).await?;
    let pool = OneOf::least_loaded(&client, &peers)?;
    let even = picks(&pool, 300);
    assert!(even.values().all(|picked| *picked > 50), "{even:?}");
    // Young calls and old ones are counted alike.
    let busy = client.call(NEVER, ()).to(peers[0]).open()?;
    assert_eq!(picks(&pool, 100).get(&1), None);
    let long =
        client.call(NEVER, ()).to_all(&peers[1..]).deadline(Duration::from_secs(60)).open()?;
    drop(busy);
    let picked = picks(&pool, 300);
    assert!(picked[&1] > 150, "{picked:?}");
    drop(long);
    // Without its endpoint it still names somebody.
    client.shutdown(Duration::ZERO).await;
    assert!(peers.contains(&pool.pick()));
    Ok(())
}
