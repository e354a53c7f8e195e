//! A simulated cluster, its replicas served as those of a process are.

use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, EndpointBuilder, NodeId};
use storage::client::Client;
use storage::replica::{Fate, Replica};

pub(crate) struct World {
    pub(crate) network: SimNetwork,
    pub(crate) members: Configuration,
    seed: u64,
    /// They serve as long as they are held; taken out when they crash.
    replicas: Vec<Option<Endpoint>>,
}

pub(crate) fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

impl World {
    /// Replicas 1 to `count`, connected to each other.
    pub(crate) async fn start(seed: u64, count: u64) -> Self {
        let members = Configuration::new((1..=count).map(node)).expect("they differ");
        let (network, replicas) = (SimNetwork::new(seed), Vec::new());
        let mut world = Self { network, members, seed, replicas };
        for id in 1..=count {
            let service = Replica::new(Fate::Lives, &world.members).service();
            let builder = world.endpoint(id).listen(address(id)).serve(service);
            let endpoint = builder.start().await.expect("the name is free");
            world.connect(&endpoint, 1..id).await;
            world.replicas.push(Some(endpoint));
        }
        world
    }

    fn endpoint(&self, id: u64) -> EndpointBuilder {
        let transport = self.network.transport();
        Endpoint::builder().transport(transport).node(node(id)).seed(self.seed * 1_000 + id)
    }

    /// Another client, connected to all.
    pub(crate) async fn client(&self, id: u64) -> Client {
        let endpoint = self.endpoint(id).start().await.expect("nothing to bind");
        self.connect(&endpoint, 1..=self.members.len() as u64).await;
        Client::new(&endpoint, self.members.clone())
    }

    async fn connect(&self, endpoint: &Endpoint, to: impl IntoIterator<Item = u64>) {
        for id in to {
            let peer = endpoint.peer(node(id), [address(id)]).expect("it is an address");
            endpoint.warm_up(&peer).await.expect("it listens");
        }
    }

    pub(crate) fn crash(&mut self, id: u64) {
        self.network.crash(node(id));
        let index = usize::try_from(id - 1).expect("a small number");
        self.replicas[index] = None;
    }
}

impl Drop for World {
    /// A replica and its endpoint hold each other: only the end of its connections lets go.
    fn drop(&mut self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}

fn address(id: u64) -> String {
    format!("sim://replica{id}")
}

/// Lets everything that is on its way arrive.
pub(crate) async fn settle(delay: Duration) {
    tokio::time::sleep(100 * delay).await;
}
