//! Replicas and clients over a simulated network, in one process: where frames and delays have to
//! be exact. Under tokio's paused clock a write takes what its frames are under way, and nothing
//! else.

use anyhow::Result;
use convoke::quorum::Configuration;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, EndpointBuilder, NodeId};

use crate::client::Client;
use crate::replica::{Fate, Replica};

/// Connected replicas, served as those of a process are.
#[derive(Debug)]
pub struct Simulated {
    /// The network between them.
    pub network: SimNetwork,
    /// The replicas.
    pub members: Configuration,
    seed: u64,
    /// They serve as long as they are held; taken out when they crash.
    replicas: Vec<Option<Endpoint>>,
}

impl Simulated {
    /// Starts replicas 1 to `count`, connected to each other.
    ///
    /// # Errors
    /// [`convoke::StartError`] and the like, which would be a mistake of this module.
    pub async fn start(seed: u64, count: u64) -> Result<Self> {
        let members = Configuration::new((1..=count).map(NodeId::new))?;
        let (network, replicas) = (SimNetwork::new(seed), Vec::new());
        let mut world = Self { network, members, seed, replicas };
        for id in 1..=count {
            let service = Replica::new(Fate::Lives, CLUSTER, &world.members).service();
            let endpoint = world.endpoint(id).listen(address(id)).serve(service).start().await?;
            world.connect(&endpoint, 1..id).await?;
            world.replicas.push(Some(endpoint));
        }
        Ok(world)
    }

    fn endpoint(&self, id: u64) -> EndpointBuilder {
        let transport = self.network.transport();
        Endpoint::builder().transport(transport).node(NodeId::new(id)).seed(self.seed * 1_000 + id)
    }

    /// Another client, connected to all.
    ///
    /// # Errors
    /// A replica has crashed.
    pub async fn client(&self, id: u64) -> Result<Client> {
        let endpoint = self.endpoint(id).start().await?;
        self.connect(&endpoint, 1..=self.members.len() as u64).await?;
        Ok(Client::new(&endpoint, CLUSTER, self.members.clone()))
    }

    async fn connect(&self, endpoint: &Endpoint, to: impl IntoIterator<Item = u64>) -> Result<()> {
        for id in to {
            let peer = endpoint.peer(NodeId::new(id), [address(id)])?;
            endpoint.warm_up(&peer).await?;
        }
        Ok(())
    }

    /// Crashes this replica, if there is one.
    pub fn crash(&mut self, id: u64) {
        let index = id.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        if let Some(replica) = index.and_then(|index| self.replicas.get_mut(index)) {
            self.network.crash(NodeId::new(id));
            *replica = None;
        }
    }
}

impl Drop for Simulated {
    /// A replica and its endpoint hold each other: only the end of its connections lets go.
    fn drop(&mut self) {
        self.members.nodes().for_each(|node| self.network.crash(node));
    }
}

/// Any number.
const CLUSTER: u64 = 1;

fn address(id: u64) -> String {
    format!("sim://replica{id}")
}
