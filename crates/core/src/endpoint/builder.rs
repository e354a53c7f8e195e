//! Setup of an endpoint.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use convoke_proto::id::{Incarnation, NodeId};
use convoke_proto::key::Secret;
use convoke_proto::limits::Limits;
use convoke_proto::node::Identity;
use convoke_transport::parts::random;
use tokio::runtime;

use crate::caller::{Authorize, Caller};
use crate::driver::{Driver, MethodTable, Parts};
use crate::error::StartError;
use crate::health::Health;
use crate::packing::Packing;
use crate::peer::ToPeers;
use crate::resolve::{Resolve, Resolver};
use crate::server::{IntoService, Service};
use crate::telemetry::Telemetry;
use crate::transport::{Address, AddressError, ListenError, Sink, ToAddresses, Transport};

use super::{Endpoint, Guard, Handle, bodies};

/// Sets up an [`Endpoint`]. Every default is good for a start.
#[derive(Debug, Default)]
pub struct EndpointBuilder {
    node: Option<NodeId>,
    transports: Vec<Arc<dyn Transport>>,
    listen: Vec<Result<Vec<Address>, AddressError>>,
    advertise: Option<Result<Vec<Address>, AddressError>>,
    services: Vec<Service>,
    limits: Limits,
    cores: Option<u8>,
    seed: Option<u64>,
    epoch: u64,
    peers: Vec<Result<Addressed, AddressError>>,
    keeps_connected: bool,
    resolver: Option<Resolver>,
    rule: Rule,
    telemetry: Telemetry,
    health: Option<Health>,
    #[cfg(feature = "zstd")]
    compression: Option<crate::packing::Compression>,
    #[cfg(feature = "metrics")]
    has_metrics: bool,
}

/// Nodes and where they can be dialled.
type Addressed = Vec<(NodeId, Vec<Address>)>;

/// Rule of who may call what; everybody everything by default.
#[derive(Default)]
struct Rule(Option<Authorize>);

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Rule" } else { "Everybody" })
    }
}

impl EndpointBuilder {
    /// The stable name of this node, which the certificates of its transports must prove. Default:
    /// the first that they all prove, else random, which is right for a client and wrong for a
    /// server that others know by name.
    #[must_use]
    pub fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Adds a transport, or an `Arc` of one that others share. One that has a certificate says
    /// which node this is, unless [`Self::node`] does.
    #[must_use]
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transports.push(Arc::new(transport));
        self
    }

    /// Listens at these addresses, such as `tcp://0.0.0.0:7000` or `unix:///run/a.sock`; port 0
    /// takes any. May be called several times. Default: none, an endpoint that only dials out.
    #[must_use]
    pub fn listen(mut self, addresses: impl ToAddresses) -> Self {
        self.listen.push(addresses.to_addresses());
        self
    }

    /// Tells peers to dial these addresses instead of those listened on. Nobody is told of a
    /// `unix://` address, and of `mem://` only who is in this process.
    #[must_use]
    pub fn advertise(mut self, addresses: impl ToAddresses) -> Self {
        self.advertise = Some(addresses.to_addresses());
        self
    }

    /// Serves these methods, too.
    #[must_use]
    pub fn serve(mut self, service: impl IntoService) -> Self {
        self.services.push(service.into_service());
        self
    }

    /// Adds addresses of another node to those it was given here before; they are what
    /// [`Endpoint::peer`] sets once the endpoint runs. A service that is built before its endpoint
    /// names the node by its `NodeId`.
    #[must_use]
    pub fn peer(mut self, node: NodeId, addresses: impl ToAddresses) -> Self {
        self.peers.push(addresses.to_addresses().map(|addresses| vec![(node, addresses)]));
        self
    }

    /// Adds the addresses of several nodes, as [`Self::peer`] each: of pairs of a node and its
    /// addresses, or of the members of a configuration. This node may be among them.
    #[must_use]
    pub fn peers(mut self, peers: impl ToPeers) -> Self {
        self.peers.push(peers.to_peers());
        self
    }

    /// Stays connected to all peers it was given, as [`Endpoint::keep_connected`]. [`Self::start`]
    /// waits, for a second at most, until each of them was dialled once.
    ///
    /// A reply goes straight to an initiator that its sender is connected with, and through other
    /// nodes of the tree otherwise: so a client that stays connected to all gets all replies
    /// straight. Default: a peer is dialled when it is first needed.
    #[must_use]
    pub fn keep_connected(mut self) -> Self {
        self.keeps_connected = true;
        self
    }

    /// Asks `resolver` for the addresses of a node that is called and has none here, or whose
    /// addresses all failed. Default: such a node cannot be reached. A later resolver replaces an
    /// earlier one; see [`Resolve`].
    #[must_use]
    pub fn resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Some(Resolver::new(resolver));
        self
    }

    /// Lets a caller run a method, given by its full name, only where `rule` says so. It is asked
    /// for every request before the handler starts, by whoever brought the request: it must not
    /// block. A denied branch fails with [`Code::PermissionDenied`](crate::Code::PermissionDenied)
    /// and has not run; a rule that panics denies. Default: everybody may call everything. A later
    /// rule replaces an earlier one.
    #[must_use]
    pub fn authorize(
        mut self,
        rule: impl Fn(&Caller, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.rule = Rule(Some(Arc::new(rule)));
        self
    }

    /// Compresses large messages for peers that are told to, too, and takes what they compress.
    /// Default: no message is compressed, and none that is compressed is taken.
    #[cfg(feature = "zstd")]
    #[must_use]
    pub fn compression(mut self, compression: crate::packing::Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Answers questions after the health of this node and its services; see
    /// [`health`](crate::health). Default: they are not served.
    #[must_use]
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// The epoch of the configuration that this node starts in, as [`Endpoint::set_epoch`]. Default
    /// 0: no request is stale.
    #[must_use]
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// Bounds and times. Default: [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Spreads the endpoint's calls and tasks over so many cores, each behind a lock of its own, so
    /// that the workers of a runtime wait less for one another: a power of two, else the next one,
    /// 64 at most. Default: two for each worker of the runtime, 16 at most, and 1 where it has a
    /// single worker. Each core keeps what is known of every connection, some hundred bytes.
    #[must_use]
    pub fn cores(mut self, cores: u8) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Seeds the incarnation, the keys of calls and the jitter, for simulations that replay: who
    /// knows the seed can speak for every branch. Default: random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Ties the spans of this endpoint to a tracing system with ids of its own. Default: each span
    /// gets a random id.
    #[cfg(feature = "tracing-spans")]
    #[must_use]
    pub fn propagator(mut self, propagator: impl crate::telemetry::Propagator) -> Self {
        self.telemetry.propagation.0 = Some(Arc::new(propagator));
        self
    }

    /// Counts what this endpoint does, with the recorder of the `metrics` facade that is installed
    /// when it starts. Default: nothing is counted.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(mut self) -> Self {
        self.has_metrics = true;
        self
    }

    /// Starts the endpoint on the current tokio runtime.
    ///
    /// # Errors
    /// [`StartError`] when an address is invalid or cannot be listened on, limits contradict each
    /// other, two methods have the same name, or a service does not fit the node.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing of the endpoint is left: what listened is closed.
    pub async fn start(self) -> Result<Endpoint, StartError> {
        let identity = Identity {
            node: proven_node(self.node, &self.transports)?.unwrap_or_else(random_node),
            incarnation: Incarnation::of_random(self.seed.map_or_else(random, spread)),
        };
        let (mut methods, mut voters) = (MethodTable::default(), Vec::new());
        let services = self.services.into_iter().chain(self.health.as_ref().map(Health::service));
        let services = services.chain([bodies::service()]);
        for mut service in services {
            service.check(identity.node)?;
            voters.append(&mut service.take_voters());
            for (id, entry) in service.into_methods() {
                methods.add(id, entry)?;
            }
        }
        methods.authorize_by(self.rule.0);
        let listen: Vec<Vec<Address>> = self.listen.into_iter().collect::<Result<_, _>>()?;
        let advertise = self.advertise.transpose()?;
        let peers: Vec<Addressed> = self.peers.into_iter().collect::<Result<_, _>>()?;
        let mut others = BTreeMap::<NodeId, Vec<Address>>::new();
        for (node, addresses) in peers.into_iter().flatten() {
            if node != identity.node {
                let known = others.entry(node).or_default();
                for address in addresses {
                    if !known.contains(&address) {
                        known.push(address);
                    }
                }
            }
        }
        let seed = self.seed.unwrap_or_else(random);
        let secret = self.seed.map_or_else(
            || Secret::new(random(), random()),
            |seed| Secret::new(seed, identity.node.get()),
        );
        let limits = self.limits;
        let telemetry = self.telemetry;
        #[cfg(feature = "metrics")]
        let telemetry = telemetry.with_meters(self.has_metrics, identity.node, methods.names());
        #[cfg(feature = "zstd")]
        let packing = Packing::new(self.compression, limits.message_bytes_max);
        #[cfg(not(feature = "zstd"))]
        let packing = Packing::default();
        let parts = Parts {
            transports: self.transports,
            resolver: self.resolver,
            methods,
            telemetry,
            packing,
            health: self.health,
            pull: bodies::pull,
            cores: self.cores.unwrap_or_else(cores_default),
        };
        let driver = Driver::new(identity, limits, parts, (secret, seed))?;
        let endpoint = Endpoint(Handle::Open(Arc::new(Guard(driver.clone()))));
        driver.with_each_node(|core, _| core.raise_epoch(self.epoch));
        driver.know_voters(&voters.into_iter().collect());
        // Whoever connects first is told all that is known by then.
        for (node, addresses) in &others {
            driver.configure(*node, addresses);
        }
        driver.advertise(advertise.clone().unwrap_or_default());
        let mut addresses: Vec<Address> = Vec::new();
        for address in listen.concat() {
            let transport = driver.transport(address.scheme());
            let transport =
                transport.ok_or_else(|| ListenError::NoTransport { address: address.clone() })?;
            let sink: Arc<dyn Sink> = driver.clone();
            let listener = transport.listen(&address, sink).await?;
            addresses.push(listener.local_address());
            driver.keep_listener(listener);
        }
        if !addresses.is_empty() {
            let texts: Vec<_> = addresses.iter().map(Address::to_string).collect();
            tracing::info!(node = %identity.node, addresses = texts.join(", "), "listening");
        }
        driver.advertise(advertise.unwrap_or_else(|| addresses.clone()));
        driver.listens_at(addresses);
        if self.keeps_connected {
            driver.keep_all_connected(others.into_keys()).await;
        }
        Ok(endpoint)
    }
}

/// The node that was named, else the first that all transports prove which prove any.
fn proven_node(
    named: Option<NodeId>,
    transports: &[Arc<dyn Transport>],
) -> Result<Option<NodeId>, StartError> {
    let mut proven = transports.iter().map(|transport| transport.nodes());
    let named: Vec<NodeId> = named.into_iter().collect();
    let shared = proven.try_fold(named, |shared, proven| {
        let (Some(one), Some(other)) = (shared.first(), proven.first()) else {
            return Ok(if shared.is_empty() { proven } else { shared });
        };
        let mismatch = StartError::TwoNodes(*one, *other);
        let both: Vec<NodeId> = shared.into_iter().filter(|node| proven.contains(node)).collect();
        if both.is_empty() { Err(mismatch) } else { Ok(both) }
    })?;
    Ok(shared.first().copied())
}

/// The bits of a seed where they tell lives apart: a seed is likely small, and the low 8 bits of an
/// incarnation are no part of the life.
const fn spread(seed: u64) -> u64 {
    seed.rotate_left(8)
}

/// Cores of an endpoint that nobody gave a number: so many that two workers seldom want the same.
fn cores_default() -> u8 {
    match runtime::Handle::current().metrics().num_workers() {
        0 | 1 => 1,
        workers => u8::try_from(workers * 2).unwrap_or(u8::MAX).min(CORES_DEFAULT_MAX),
    }
}

/// Most cores of an endpoint that nobody gave a number: each knows of every connection.
const CORES_DEFAULT_MAX: u8 = 16;

fn random_node() -> NodeId {
    loop {
        if let Ok(node) = NodeId::try_from(random()) {
            return node;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_a_node_that_is_given_twice_are_joined() {
        let (node, own) = (NodeId::new(2), NodeId::new(1));
        let builder = EndpointBuilder::default().node(own).peer(node, "mem://a");
        let builder = builder.peer(own, "mem://c").peer(node, ["mem://b", "mem://a"]);
        let endpoint = builder.start().await.expect("nothing to bind");
        let given = [node, own].map(|of| endpoint.driver().configured_addresses(of));
        let texts: Vec<_> = given.iter().flatten().map(Address::to_string).collect();
        assert_eq!(texts, ["mem://a", "mem://b"]);
    }
}
