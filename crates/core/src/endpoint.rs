//! One node of a service: client and server at once.

mod bodies;
mod builder;
mod connections;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::{MethodId, NodeId};
use convoke_proto::limits::Limits;
use convoke_proto::mailbox::{Announce, CastsDropped, SpaceRefusal};
use tokio::runtime;
use tokio::sync::watch;

use crate::carrier::{BodyCarrier, CarrierTaken};
use crate::driver::{Driver, FlushScope, KeepConnected, Load, PeerState};
use crate::error::ConnectError;
use crate::health::Health;
use crate::peer::Peer;
use crate::server::{CastSpace, Context};
use crate::transport::{Address, Counters, DialError, ToAddresses, Transport};

pub use builder::EndpointBuilder;
pub use connections::OpenConnection;

/// A node: serves its methods, makes calls, and keeps one connection to each peer for both.
///
/// Cheap to clone. When the last clone and the last call are gone, or the runtime that it was
/// started on, it stops listening and closes its connections; [`Endpoint::shutdown`] does so in
/// good order. Clones that handlers have, by [`Context::endpoint`](crate::Context::endpoint), do
/// not count.
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

/// Closes the endpoint with its last holder, or at the end of a shutdown.
struct Guard(Arc<Driver>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close();
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
    /// connection already. Those who connect to the same at once share a dial.
    ///
    /// # Errors
    /// [`ConnectError`] when an address is not one, none is given, the endpoint is shut down, or
    /// nobody answers with this protocol at any; then it is that of the last one.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, a connection may stay open until it is used or closed by
    /// keep-alive.
    pub async fn connect(&self, addresses: impl ToAddresses) -> Result<Peer, ConnectError> {
        self.connect_in_turn(addresses.to_addresses()?).await
    }

    async fn connect_in_turn(&self, addresses: Vec<Address>) -> Result<Peer, ConnectError> {
        let connected =
            |address| self.driver().ask_any_node(|core| core.links().connected_at(address));
        if let Some(node) = addresses.iter().find_map(connected) {
            return Ok(Peer::new(node));
        }
        let mut result = Err(ConnectError::NoAddress);
        for address in addresses {
            match self.unless_stopped(self.driver().dial_address(&address)).await {
                Ok(node) => return Ok(Peer::new(node)),
                Err(error) => result = Err(error),
            }
        }
        if matches!(result, Err(ConnectError::Dial(_))) {
            self.driver().telemetry.on_dial_failed();
        }
        result
    }

    /// Result of a dial, unless the endpoint is shut down before: no connection is kept then.
    async fn unless_stopped<T>(
        &self,
        dial: impl Future<Output = Result<T, DialError>>,
    ) -> Result<T, ConnectError> {
        tokio::select! {
            biased;
            () = self.driver().until(Driver::is_closing) => Err(ConnectError::Stopped),
            dialled = dial => Ok(dialled?),
        }
    }

    /// A node by its name and addresses, in place of those it was given before. It is dialled when
    /// first needed, and again after a connection was lost.
    ///
    /// # Errors
    /// [`ConnectError::Address`] when an address is invalid.
    pub fn peer(&self, node: NodeId, addresses: impl ToAddresses) -> Result<Peer, ConnectError> {
        let addresses = addresses.to_addresses()?;
        if node != self.node() {
            self.driver().configure(node, &addresses);
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
    /// [`ConnectError::Dial`] when none of its addresses answers, [`ConnectError::Stopped`] when
    /// the endpoint is shut down first.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the dial goes on: what it gives is kept, and others may wait for
    /// it.
    pub async fn warm_up(&self, peer: impl Into<Peer>) -> Result<(), ConnectError> {
        let (driver, node) = (self.driver(), peer.into().node());
        // Also while it shuts down.
        if driver.is_met(node) {
            return Ok(());
        }
        self.unless_stopped(driver.dial_by_name(node)).await
    }

    /// Reachability of `peer`, as a value whose changes can be waited for. This node itself is
    /// always [`PeerState::Connected`].
    pub fn watch_peer(&self, peer: impl Into<Peer>) -> watch::Receiver<PeerState> {
        self.driver().watch_peer(peer.into().node())
    }

    /// Dials `peer` now, and again whenever its connection is lost, until what this returns is
    /// dropped or the endpoint stops. Between failed attempts it waits as `Limits::backoff_min` and
    /// `backoff_max` say, doubling, with jitter. Without it a peer is dialled when it is next
    /// needed.
    ///
    /// A peer is dialled once for all who ask for it, until the last of them has dropped what this
    /// returned. Who asks anew ends the wait, but for a second after the last attempt: to drop it
    /// and ask again, however often, has the peer dialled about once a second.
    pub fn keep_connected(&self, peer: impl Into<Peer>) -> KeepConnected {
        self.driver().keep_connected(peer.into().node())
    }

    /// Refuses from now on what is sent to this node as a member of a configuration of an older
    /// epoch: its branches fail with [`Cause::StaleEpoch`](crate::Cause::StaleEpoch) and have not
    /// run, its casts are dropped. What has no epoch is taken, and what runs already goes on.
    /// Epochs do not go back: a lower one changes nothing.
    pub fn set_epoch(&self, epoch: u64) {
        self.driver().with_each_node(|core, _| core.raise_epoch(epoch));
    }

    /// The epoch of the configuration that this node was told of; 0 is none.
    pub fn epoch(&self) -> u64 {
        self.driver().ask_any_node(|core| core.epoch())
    }

    /// Runs `act`, and lets what it sends leave together: each connection is written to once, when
    /// `act` is over. For an owner of many [`Deferred`](crate::Deferred) answers, who answers some
    /// of them or opens branches for them in one turn: otherwise each leaves in a write of its own.
    /// What a handler sends while it is polled leaves so anyway.
    ///
    /// A connection that has much to send is written to before that. `act` must not block: what it
    /// has sent waits meanwhile.
    /// ```
    /// # use convoke_core::{Deferred, Endpoint};
    /// fn round(endpoint: &Endpoint, queue: Vec<(String, Deferred<u64>)>) {
    ///     endpoint.together(|| {
    ///         for (number, (_entry, later)) in (0..).zip(queue) {
    ///             let _ = later.answer(&number); // an error: who asked has given up
    ///         }
    ///     });
    /// }
    /// ```
    pub fn together<T>(&self, act: impl FnOnce() -> T) -> T {
        let scope = FlushScope::enter();
        let result = act();
        self.driver().end_scope(scope);
        result
    }

    /// Traffic of all connections together, open and ended: it does not fall.
    pub fn counters(&self) -> Counters {
        self.driver().carried()
    }

    /// Samples the metrics that are not counted as they happen: what is open, what connections
    /// carried. An endpoint with [`EndpointBuilder::metrics`] does so every second; a scrape that
    /// wants them fresh calls this before.
    #[cfg(feature = "metrics")]
    pub fn sample_metrics(&self) {
        self.driver().sample_metrics();
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
    /// [`Service::hears`](crate::Service::hears) does from the start.
    pub fn hear_casts_of(&self, voters: impl IntoIterator<Item = NodeId>) {
        self.driver().know_voters(&voters.into_iter().collect());
    }

    /// Casts that this endpoint has not kept since it began, counted by reason.
    pub fn casts_dropped(&self) -> CastsDropped {
        let mut dropped = CastsDropped::default();
        self.driver().ask_each_node(|node| dropped = dropped + node.mailboxes().dropped());
        dropped
    }

    /// Stops in good order: accepts nothing new, lets running tasks and calls end for up to
    /// `grace`, then drops what still runs and closes every connection. Always returns; whether all
    /// ended by themselves.
    ///
    /// Its peers are told as it begins, and send it no request from then on: calls and branches for
    /// it fail there, and say that they did not run. They answer how many they had sent, and where
    /// the grace allows it closes once all of those have come and were refused, or a second is
    /// over: requests that are lost with a connection may have run, for all that their callers
    /// know. Then it waits until what was sent last has left, so that the program may end.
    ///
    /// It may be awaited anywhere. Where the runtime of the endpoint ends meanwhile, so does it.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the grace is over.
    pub async fn shutdown(self, grace: Duration) -> bool {
        let driver = self.driver();
        // Also where this future is dropped: other handles would keep it, neither serving nor
        // closed.
        let closes = Guard(driver.clone());
        driver.stop_listening();
        driver.health.iter().for_each(Health::stop);
        driver.begin_closing();
        let mut is_idle = false;
        let ended = async {
            driver.until(Driver::is_idle).await;
            is_idle = true;
            driver.until_parted().await;
            drop(closes);
            // Whoever ends the program now would take back what has not left yet.
            driver.until(Driver::is_disconnected).await;
        };
        // A peer that does not read costs the grace at most.
        let _ = driver.within(grace, ended).await;
        is_idle
    }

    /// The endpoint of a driver, which it does not keep open.
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

impl Context {
    /// The endpoint that serves the task. It does not keep that open: once it is shut down, calls
    /// by it fail as not run.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::within(self.driver().clone())
    }
}

/// Methods that an [`Endpoint`] serves, and the carrier of its large messages.
pub trait EndpointSeam {
    /// Gives large messages of fan-outs to `carrier` from now on, and takes from it those of
    /// others.
    ///
    /// # Errors
    /// [`CarrierTaken`] when it has one.
    fn carry_bodies(&self, carrier: Arc<dyn BodyCarrier>) -> Result<(), CarrierTaken>;

    /// Sends all messages within their requests again.
    fn stop_carrying(&self);

    /// The name of a method, `package.Service/Method`, if this endpoint serves it.
    fn served_method(&self, name: &str) -> Option<&'static str>;

    /// True when this endpoint serves a method of this name, and that takes a streamed request.
    fn takes_items(&self, name: &str) -> bool;

    /// The runtime that it was started on, for callers that have none.
    fn runtime(&self) -> &runtime::Handle;
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

    fn runtime(&self) -> &runtime::Handle {
        self.driver().runtime()
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
