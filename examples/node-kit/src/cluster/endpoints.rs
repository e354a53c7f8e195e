//! Endpoints of the nodes of a cluster file and of its clients, over whatever its addresses name.

use std::path::Path;

use convoke::grpc::GrpcTransport;
use convoke::transport::{Address, Identity, QuicTransport, TcpTransport};
use convoke::{Endpoint, EndpointBuilder, NodeId};

use super::{Cluster, ClusterError, Keys, KeysError, Node, Protocol, rdma};

impl<R> Node<R> {
    /// Its certificate and key, checked. `None` where the file has no `keys` for it.
    ///
    /// # Errors
    /// [`KeysError`]: others can read the key, a file is missing or malformed, or they prove
    /// another node.
    pub fn identity(&self) -> Result<Option<Identity>, KeysError> {
        let keys = self.keys.as_ref().map(Keys::in_folder);
        keys.map(|keys| keys.identity(self.id)).transpose()
    }
}

impl<P: Protocol> Cluster<P> {
    /// An endpoint for a node: named, listening, with its certificate, and told of the others. The
    /// identity beside it is that certificate, where the file has `keys`: a program that runs for
    /// longer than it [watches](Identity::watch) its files.
    ///
    /// It speaks `tcp`, `unix`, `tls`, `quic`, `grpc`, `grpcs` and, with the feature of that name,
    /// `rdma`, as far as the addresses need them; the program gives it other transports, and
    /// serves.
    ///
    /// # Errors
    /// [`ClusterError::NoNode`], [`ClusterError::Keys`] where its keys cannot be used, and
    /// [`ClusterError::Rdma`] where its device cannot.
    pub fn endpoint(&self, id: u64) -> Result<(EndpointBuilder, Option<Identity>), ClusterError> {
        let node = self.node(id)?;
        let identity = node.identity()?;
        let builder = self.speaking(identity.as_ref(), &node.listen)?;
        let builder = builder.node(node.id).listen(&node.listen);
        let builder = if node.listen == node.addresses {
            builder
        } else {
            builder.advertise(&node.addresses)
        };
        let builder = builder.peers(self.peers().filter(|(other, _)| *other != node.id));
        Ok((builder, identity))
    }

    /// An endpoint for a client, told of all nodes. Where [nodes prove](Self::is_secure) who they
    /// are, so must the client: its keys name a node that is none of the cluster.
    ///
    /// # Errors
    /// [`ClusterError::Keys`] where keys are missing or cannot be used, [`ClusterError::Rdma`]
    /// where there is no device.
    pub fn client(&self, keys: Option<(NodeId, &Keys)>) -> Result<EndpointBuilder, ClusterError> {
        let identity = match keys {
            Some((id, keys)) => Some(keys.identity(id)?),
            None if self.is_secure() => return Err(KeysError::Needed.into()),
            None => None,
        };
        Ok(self.speaking(identity.as_ref(), &[])?.peers(self.peers()))
    }

    fn speaking(
        &self,
        identity: Option<&Identity>,
        listen: &[Address],
    ) -> Result<EndpointBuilder, ClusterError> {
        let schemes = self.schemes();
        let is_used = |scheme: &str| schemes.contains(scheme);
        let mut builder = Endpoint::builder();
        if is_used("tcp") || is_used("unix") {
            builder = builder.transport(TcpTransport::new());
        }
        if is_used("grpc") {
            builder = builder.transport(GrpcTransport::new());
        }
        if is_used(rdma::SCHEME) {
            builder = rdma::speaking(builder, self.rdma, listen)?;
        }
        let Some(identity) = identity else { return Ok(builder) };
        if is_used("tls") {
            builder = builder.transport(TcpTransport::tls(identity.clone()));
        }
        if is_used("quic") {
            builder = builder.transport(QuicTransport::new(identity.clone()));
        }
        if is_used("grpcs") {
            builder = builder.transport(GrpcTransport::tls(identity.clone()));
        }
        Ok(builder)
    }
}

/// The command `check-config`: reads a cluster file and, for the node of this host, its keys, and
/// looks for its device where it has addresses of `rdma://`. Says what it found, a line a node.
///
/// # Errors
/// [`ClusterError`].
pub fn check<P: Protocol>(path: &Path, id: Option<u64>) -> Result<String, ClusterError> {
    let cluster = Cluster::<P>::read(path)?;
    let mut words = format!("cluster {} {:?}\n", cluster.id, cluster.name);
    for node in &cluster.nodes {
        words += &format!("  node {}: {:?}, {:?}\n", node.id.get(), node.role, node.addresses);
    }
    if let Some(id) = id {
        let node = cluster.node(id)?;
        drop(cluster.endpoint(id)?);
        match node.identity()? {
            Some(_) => words += &format!("the keys of node {id} prove it\n"),
            None => words += &format!("node {id} needs no keys\n"),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
