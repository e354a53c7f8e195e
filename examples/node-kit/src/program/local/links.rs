//! Links between all nodes of a cluster, one for each that dials and each that is dialled.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::transport::Address;
use serde::Serialize;

use crate::cluster::{Cluster, Protocol};
use crate::processes::{Link, Passage, Ports};

/// Links by who dials and who is dialled.
#[derive(Debug)]
pub(super) struct Links {
    links: BTreeMap<(u64, u64), Link>,
    /// Where nobody listens: addresses that nodes tell of themselves, since another that answers
    /// would lead past the links.
    nowhere: Ports,
}

impl Links {
    /// Links that take so long.
    pub(super) async fn of<P: Protocol>(cluster: &Cluster<P>, delay: Duration) -> Result<Self> {
        let mut links = BTreeMap::new();
        for dialled in cluster.nodes() {
            let target: SocketAddr = dialled.listen[0].rest().parse().context("no TCP address")?;
            for dialler in cluster.nodes().iter().filter(|dialler| dialler.id != dialled.id) {
                let link = Link::slow(target, delay).await?;
                links.insert((dialler.id.get(), dialled.id.get()), link);
            }
        }
        Ok(Self { links, nowhere: Ports::reserve(cluster.nodes().len())? })
    }

    /// The cluster file as a node has it: it dials others by its links.
    pub(super) fn file_of<P>(&self, id: u64, cluster: &Cluster<P>) -> Result<String>
    where
        P: Protocol<Role: Serialize> + Serialize + Clone,
    {
        let mut nodes = cluster.nodes().to_vec();
        for (node, nowhere) in nodes.iter_mut().zip(self.nowhere.iter()) {
            let scheme = node.listen[0].scheme();
            let address: Address = match self.links.get(&(id, node.id.get())) {
                Some(link) => format!("{scheme}://{}", link.address()).parse()?,
                None => format!("{scheme}://127.0.0.1:{nowhere}").parse()?,
            };
            node.addresses = vec![address];
        }
        let protocol = cluster.protocol().clone();
        Ok(Cluster::new(cluster.id(), cluster.name(), nodes, protocol)?.to_text())
    }

    pub(super) fn set(&self, passage: impl Fn(u64, u64) -> Passage) {
        for ((dialler, dialled), link) in &self.links {
            link.set(passage(*dialler, *dialled));
        }
    }
}
