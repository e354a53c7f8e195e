//! Runs one replica.

use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::Endpoint;
use convoke::quorum::{Configuration, Membership};

use crate::cluster::{self, Cluster, ReplicaNode};
use crate::replica::{Fate, Replica};

/// A running replica.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Starts one of these members at its address, empty, in the cluster of this number. It needs
    /// not know where the others are before it joins them.
    ///
    /// In the life of a cluster that may be once for each member: one that starts again has
    /// forgotten what it had acknowledged.
    ///
    /// # Errors
    /// When it cannot listen there, or is none of the members.
    pub async fn start(
        at: &ReplicaNode,
        cluster: u64,
        members: &Configuration,
        fate: Fate,
    ) -> Result<Self> {
        let service = Replica::new(fate, cluster, members).service();
        let builder = convoke::endpoint().node(at.id).listen(&at.listen).serve(service);
        let builder =
            if at.listen == at.addresses { builder } else { builder.advertise(&at.addresses) };
        let endpoint = builder.start().await.with_context(|| format!("replica {}", at.id.get()))?;
        Ok(Self { endpoint })
    }

    /// Address at which it listens.
    pub fn address(&self) -> &convoke::transport::Address {
        &self.endpoint.addresses()[0]
    }

    /// Tells it where the others are, and connects to them, now and again after a connection was
    /// lost, for as long as what it returns lives.
    ///
    /// # Errors
    /// When an address is invalid.
    pub fn join(&self, cluster: &Cluster) -> Result<Membership> {
        let members = cluster::members(cluster)?;
        members.introduce(&self.endpoint)?;
        Ok(Membership::keep_connected(&self.endpoint, &members))
    }

    /// Lets running writes end for up to a second, then stops.
    pub async fn stop(self) {
        self.endpoint.shutdown(Duration::from_secs(1)).await;
    }
}
