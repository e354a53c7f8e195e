//! One node of a service: client and server at once.

mod reconnect;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::{Incarnation, MethodId, NodeId};
use convoke_proto::key::Secret;
use convoke_proto::limits::Limits;
use convoke_proto::mailbox::{Announce, CastsDropped, SpaceRefusal};
use convoke_proto::node::Identity;

use crate::carrier::{BodyCarrier, CarrierTaken};
use crate::driver::{Driver, Load, Parts};
use crate::error::{ConnectError, StartError};
use crate::health::Health;
use crate::packing::Packing;
use crate::peer::{Peer, ToPeers};
use crate::resolve::{Resolve, Resolver};
use crate::seam::EndpointSeam;
use crate::server::{Authorize, Caller, CastSpace, IntoService, MethodTable, Service};
use crate::telemetry::Telemetry;
use crate::transport::{
    Address, AddressError, Counters, ListenError, Sink, ToAddresses, Transport,
};

pub use reconnect::KeepConnected;

/// A node: serves its methods, makes calls, and keeps one connection to each peer for both.
///
/// Cheap to clone. When the last clone and the last call are gone, it stops listening and closes
/// its connections; [`Endpoint::shutdown`] does so in good order. Those that handlers have, by
/// [`Context::endpoint`](crate::Context::endpoint), do not count.
#[derive(Clone)]
pub struct Endpoint(Handle);

/// Hold on an endpoint, which keeps it open or does not.
#[derive(Clone)]
enum Handle {
    /// It stays open for as long.
    Open(Arc<Guard>),
    /// By its own handlers: it stays open as long as others hold it.
    Within(Arc<Driver>),
}

/// Closes the endpoint with its last holder.
struct Guard(Arc<Driver>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Sets up an [`Endpoint`]. Every default is good for a start.
#[derive(Debug, Default)]
pub struct EndpointBuilder {
    node: Option<NodeId>,
    transports: Vec<Arc<dyn Transport>>,
    listen: Vec<Result<Vec<Address>, AddressError>>,
    advertise: Option<Result<Vec<Address>, AddressError>>,
    services: Vec<Service>,
    limits: Limits,
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
    /// The stable name of this node. Default: the one that its transports prove, else random, which
    /// is right for a client and wrong for a server that others know by name.
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

    /// Listens at these addresses, such as `tcp://0.0.0.0:7000`; port 0 takes any. May be called
    /// several times. Default: none, an endpoint that only dials out.
    #[must_use]
    pub fn listen(mut self, addresses: impl ToAddresses) -> Self {
        self.listen.push(addresses.to_addresses());
        self
    }

    /// Tells peers to dial these addresses instead of those listened on.
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

    /// Adds the addresses of another node, as [`Endpoint::peer`] does once the endpoint runs. A
    /// service that is built before its endpoint names the node by its `NodeId`.
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
    pub async fn start(self) -> Result<Endpoint, StartError> {
        let identity = Identity {
            node: proven_node(self.node, &self.transports)?.unwrap_or_else(random_node),
            incarnation: Incarnation::of_random(self.seed.map_or_else(rand::random, spread)),
        };
        let (mut methods, mut voters) = (MethodTable::default(), Vec::new());
        let services = self.services.into_iter().chain(self.health.as_ref().map(Health::service));
        for mut service in services {
            service.check(identity.node)?;
            voters.append(&mut service.take_voters());
            methods.add(service)?;
        }
        methods.authorize_by(self.rule.0);
        let listen: Vec<Vec<Address>> = self.listen.into_iter().collect::<Result<_, _>>()?;
        let advertise = self.advertise.transpose()?;
        let peers: Vec<Addressed> = self.peers.into_iter().collect::<Result<_, _>>()?;
        let mut peers = peers.concat();
        peers.retain(|(node, _)| *node != identity.node);
        let others: Vec<NodeId> = peers.iter().map(|(node, _)| *node).collect();
        let seed = self.seed.unwrap_or_else(rand::random);
        let secret = self.seed.map_or_else(
            || Secret::new(rand::random(), rand::random()),
            |seed| Secret::new(seed, identity.node.get()),
        );
        let limits = self.limits;
        let telemetry = self.telemetry;
        #[cfg(feature = "metrics")]
        let telemetry = telemetry.with_meters(self.has_metrics, identity.node, &methods);
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
        };
        let driver = Driver::new(identity, limits, parts, (secret, seed))?;
        let guard = Guard(driver.clone());
        driver.with_node(|core, _| {
            core.raise_epoch(self.epoch);
            core.mailboxes_mut().know(voters);
        });
        // Whoever connects first is told all that is known by then.
        for (node, addresses) in peers {
            driver.with_node(|core, _| core.configure(node, addresses));
        }
        driver.advertise(advertise.clone().unwrap_or_default());
        let mut addresses = Vec::new();
        for address in listen.concat() {
            let transport = driver.transport(address.scheme());
            let transport =
                transport.ok_or_else(|| ListenError::NoTransport { address: address.clone() })?;
            let sink: Arc<dyn Sink> = driver.clone();
            let listener = transport.listen(&address, sink).await?;
            addresses.push(listener.local_address());
            driver.keep_listener(listener);
        }
        driver.advertise(advertise.unwrap_or_else(|| addresses.clone()));
        driver.listens_at(addresses);
        let endpoint = Endpoint(Handle::Open(Arc::new(guard)));
        if self.keeps_connected {
            endpoint.keep_all_connected(&others).await;
        }
        Ok(endpoint)
    }
}

/// The one node that was named and that transports prove, if any does.
fn proven_node(
    named: Option<NodeId>,
    transports: &[Arc<dyn Transport>],
) -> Result<Option<NodeId>, StartError> {
    let proven = transports.iter().filter_map(|transport| transport.node());
    named.into_iter().chain(proven).try_fold(None, |one, other| match one {
        Some(one) if one != other => Err(StartError::TwoNodes(one, other)),
        _ => Ok(Some(other)),
    })
}

/// The bits of a seed where they tell lives apart: a seed is likely small, and the low 8 bits of an
/// incarnation are no part of the life.
const fn spread(seed: u64) -> u64 {
    seed.rotate_left(8)
}

fn random_node() -> NodeId {
    loop {
        if let Ok(node) = NodeId::try_from(rand::random::<u64>()) {
            return node;
        }
    }
}

impl Endpoint {
    /// Sets up an endpoint without transports; `convoke::endpoint()` brings those of its features.
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder::default()
    }

    /// This node's stable name.
    pub fn node(&self) -> NodeId {
        self.driver().identity().node
    }

    /// The transports it was given, in that order.
    pub fn transports(&self) -> &[Arc<dyn Transport>] {
        &self.driver().transports
    }

    /// Addresses at which it listens, with the ports the system chose.
    pub fn addresses(&self) -> &[Address] {
        self.driver().addresses()
    }

    /// This node as a peer: asking it runs in process.
    pub fn me(&self) -> Peer {
        Peer::new(self.node())
    }

    /// Connects to whoever listens at one of these addresses, tried in order, unless there is a
    /// connection already.
    ///
    /// # Errors
    /// [`ConnectError`] when an address is not one, none is given, or nobody answers with this
    /// protocol at any; then it is that of the last one.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, a connection may stay open until it is used or closed by
    /// keep-alive.
    pub async fn connect(&self, addresses: impl ToAddresses) -> Result<Peer, ConnectError> {
        self.connect_in_turn(addresses.to_addresses()?).await
    }

    async fn connect_in_turn(&self, addresses: Vec<Address>) -> Result<Peer, ConnectError> {
        let connected =
            |address| self.driver().with_node(|core, _| core.links().connected_at(address));
        if let Some(node) = addresses.iter().find_map(connected) {
            return Ok(Peer::new(node));
        }
        let mut result = Err(ConnectError::NoAddress);
        for address in addresses {
            match self.driver().dial(&address, None).await {
                Ok(connection) => {
                    let node = connection.link().peer.node;
                    self.driver().with_node(|core, _| core.configure_also(node, address));
                    return Ok(Peer::new(node));
                }
                Err(error) => result = Err(error.into()),
            }
        }
        result
    }

    /// A node by its name and addresses. It is dialled when first needed, and again after a
    /// connection was lost.
    ///
    /// # Errors
    /// [`ConnectError::Address`] when an address is invalid.
    pub fn peer(&self, node: NodeId, addresses: impl ToAddresses) -> Result<Peer, ConnectError> {
        let addresses = addresses.to_addresses()?;
        if node != self.node() {
            self.driver().with_node(|core, _| core.configure(node, addresses));
        }
        Ok(Peer::new(node))
    }

    /// Forgets the addresses of a node, and closes the connections to it: branches that are open
    /// there fail as after any loss. It is dialled no more, unless it is given again with
    /// [`Self::peer`] or the [resolver](EndpointBuilder::resolver) knows it. A dial under way ends
    /// by itself, and what [`Self::keep_connected`] gave is to be dropped by its owner. The node
    /// may connect by itself, as any may.
    ///
    /// Discovery by DNS or of another kind is a loop of [`Self::peer`] for who has come and
    /// `forget` for who has gone.
    pub fn forget(&self, peer: impl Into<Peer>) {
        let node = peer.into().node();
        if node != self.node() {
            self.driver().forget(node);
        }
    }

    /// Makes sure there is a connection to `peer`, so that the first call need not wait for one.
    ///
    /// # Errors
    /// [`ConnectError::Dial`] when none of its addresses answers.
    pub async fn warm_up(&self, peer: impl Into<Peer>) -> Result<(), ConnectError> {
        let node = peer.into().node();
        if node == self.node() || self.driver().connection_to(node).is_some() {
            return Ok(());
        }
        let known = self.driver().with_node(|core, _| core.links().addresses(node));
        Ok(self.driver().dial_by_name(node, known).await?)
    }

    /// Refuses from now on what is sent to this node as a member of a configuration of an older
    /// epoch: its branches fail with [`Cause::StaleEpoch`](crate::Cause::StaleEpoch) and have not
    /// run, its casts are dropped. What has no epoch is taken, and what runs already goes on.
    /// Epochs do not go back: a lower one changes nothing.
    pub fn set_epoch(&self, epoch: u64) {
        self.driver().with_node(|core, _| core.raise_epoch(epoch));
    }

    /// The epoch of the configuration that this node was told of; 0 is none.
    pub fn epoch(&self) -> u64 {
        self.driver().with_node(|core, _| core.epoch())
    }

    /// Traffic of all connections together.
    pub fn counters(&self) -> Counters {
        let all = self.driver().connections();
        let each = all.iter().map(|connection| connection.counters());
        each.fold(Counters::default(), std::ops::Add::add)
    }

    /// Samples the metrics that are not counted as they happen: what is open, what connections
    /// carried. An endpoint with [`EndpointBuilder::metrics`] does so every second; a scrape that
    /// wants them fresh calls this before.
    #[cfg(feature = "metrics")]
    pub fn sample_metrics(&self) {
        crate::telemetry::publish(self.driver());
    }

    /// Counts of what this endpoint holds now. Takes the lock of the endpoint for a moment.
    pub fn load(&self) -> Load {
        self.driver().load()
    }

    /// Reads the tags of a space from now on; what came before waits in it. A member may begin
    /// `window` tags that nobody has opened here.
    ///
    /// # Errors
    /// [`SpaceRefusal`] while it is open at this endpoint.
    pub fn cast_space(
        &self,
        name: u64,
        window: usize,
        announce: Announce,
        members: Option<&[NodeId]>,
    ) -> Result<CastSpace, SpaceRefusal> {
        CastSpace::begin(self.driver(), name, window, announce, members)
    }

    /// Keeps the casts of these nodes from now on, also before a reader is there, as
    /// [`Service::hears`] does from the start.
    pub fn hear_casts_of(&self, voters: impl IntoIterator<Item = NodeId>) {
        let voters: Vec<NodeId> = voters.into_iter().collect();
        self.driver().with_node_quietly(|node| node.mailboxes_mut().know(voters));
    }

    /// Casts that this endpoint has not kept since it began, counted by reason.
    pub fn casts_dropped(&self) -> CastsDropped {
        self.driver().with_node_quietly(|node| node.mailboxes().dropped())
    }

    /// Stops in good order: accepts nothing new, lets running tasks and calls end for up to
    /// `grace`, then drops what still runs and closes every connection. Always returns; whether all
    /// ended by themselves.
    pub async fn shutdown(self, grace: Duration) -> bool {
        let driver = self.driver();
        driver.stop_listening();
        driver.health.iter().for_each(Health::stop);
        driver.begin_closing();
        let drained = async {
            loop {
                let mut changed = std::pin::pin!(driver.idle_changed());
                changed.as_mut().enable();
                if driver.is_idle() {
                    return;
                }
                changed.await;
            }
        };
        let is_drained = tokio::time::timeout(grace, drained).await.is_ok();
        driver.close();
        is_drained
    }

    /// The endpoint of a handler, which does not keep it open.
    pub(crate) fn within(driver: Arc<Driver>) -> Self {
        Self(Handle::Within(driver))
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        match &self.0 {
            Handle::Open(guard) => &guard.0,
            Handle::Within(driver) => driver,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.driver().limits
    }

    /// Time of a call that asks for no other.
    pub fn deadline_default(&self) -> Duration {
        self.limits().deadline_default
    }
}

impl EndpointSeam for Endpoint {
    fn carry_bodies(&self, carrier: Arc<dyn BodyCarrier>) -> Result<(), CarrierTaken> {
        if self.driver().set_carrier(carrier) { Ok(()) } else { Err(CarrierTaken) }
    }

    fn stop_carrying(&self) {
        // Outside its lock: what goes with it may use the endpoint.
        drop(self.driver().take_carrier());
    }

    fn served_method(&self, name: &str) -> Option<&'static str> {
        let entry = self.driver().methods.get(MethodId::of(name))?;
        (entry.name == name).then_some(entry.name)
    }

    fn takes_items(&self, name: &str) -> bool {
        let entry = self.driver().methods.get(MethodId::of(name));
        entry.is_some_and(|entry| entry.name == name && entry.takes_items)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("node", &self.node())
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}
