//! Handles that users hold: an overlay of the nodes of some endpoints.

mod builder;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::seam::EndpointSeam;
use convoke_core::transport::{Address, AddressError};
use convoke_core::{Endpoint, NodeId};

use crate::bodies::Body;
use crate::driver::{Driver, Forget, Offer};
use crate::event::{BroadcastError, Counters, FetchError, Fetched};
use crate::inbox::Delivery;
use crate::node::Load;
use crate::payload::Payload;
use crate::plan::Plan;
use crate::site::Site;
use crate::watch::Held;
use crate::wire::OpId;

pub use builder::{OverlayBuilder, StartError};

/// A site of an overlay. Cheap to clone; when the last clone is dropped it closes, or when the
/// runtime is that it was started on.
///
/// Once it is started, fan-outs of the endpoint to two other sites or more, with one message of at
/// least [`OverlayBuilder::body_bytes_min`], and casts of such values, travel by it: nothing else
/// changes for whoever calls or serves. [`Overlay::broadcast`] is for operations of one's own,
/// which are not requests.
///
/// ```no_run
/// # use convoke_core::{Endpoint, NodeId};
/// # use convoke_overlay::Overlay;
/// # type Result = std::result::Result<(), Box<dyn std::error::Error>>;
/// # async fn start(endpoint: &Endpoint, [a, b, c]: [NodeId; 3]) -> Result {
/// let overlay = Overlay::builder(endpoint)
///     .listen("tcp://10.0.0.1:7100")
///     .site(a, "tcp://10.0.0.1:7100")
///     .site(b, "tcp://10.1.0.1:7100")
///     .site(c, "tcp://10.2.0.1:7100")
///     .start()
///     .await?;
/// overlay.broadcast(vec![7; 100_000]).await?.acked_by(2).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Overlay {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<Driver>,
    endpoint: Endpoint,
    /// The endpoint gives it large messages.
    carries: AtomicBool,
    addresses: Vec<Address>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    fn close(&self) {
        // Once: the endpoint may have another from then on.
        if self.carries.swap(false, Ordering::Relaxed) {
            self.endpoint.stop_carrying();
        }
        self.driver.close();
    }
}

/// An address that was given for a site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntroduceError {
    /// The node is not one of the overlay's sites.
    #[error("{node} is none of the overlay's sites: all sites need the same list of nodes")]
    NotASite {
        /// The node.
        node: NodeId,
    },
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No transport of the endpoint has its scheme.
    #[error("the endpoint has no transport for {address}")]
    NoTransport {
        /// The address.
        address: Address,
    },
}

/// Reason why an operation was not got from others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// It cannot be asked for now, or is of no site.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It was delivered here before, and is not kept any more.
    #[error("the operation was delivered before, and is not kept any more")]
    Delivered,
    /// No site that could be asked has it.
    #[error("no site that could be asked has the operation any more")]
    Unavailable,
    /// The overlay is closed, or was while this waited.
    #[error("the overlay is closed")]
    Closed,
}

impl Overlay {
    /// Puts together a site for the node of this endpoint, by the endpoint's transports.
    pub fn builder(endpoint: &Endpoint) -> OverlayBuilder {
        OverlayBuilder::new(endpoint)
    }

    /// Sends an operation to all other sites, which [`Overlay::next`] gives them. Resolves when it
    /// is on its way; waits while too much is unacknowledged.
    ///
    /// # Errors
    /// [`BroadcastError::TooLarge`], and [`BroadcastError::Closed`] once the overlay is closed.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing was sent.
    pub async fn broadcast(&self, payload: impl Into<Bytes>) -> Result<Broadcast, BroadcastError> {
        let driver = &self.inner.driver;
        let mut offer = Offer::new(driver, payload.into());
        let op = poll_fn(|cx| offer.poll(cx)).await?;
        Ok(Broadcast { driver: driver.clone(), op })
    }

    /// The next operation of another site; `None` once the overlay is closed. Who does not read
    /// holds up those who send, at
    /// [`Limits::undelivered_bytes_max`](crate::Limits::undelivered_bytes_max), and after
    /// [`Limits::lag_max`](crate::Limits::lag_max) misses what they sent: a [`Delivery::Gap`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&self) -> Option<Delivery> {
        self.inner.driver.next().await
    }

    /// Gets an operation that this site was told of and has not received, from whoever has it: such
    /// as when its source died in the middle of it. Any sequence number of the operation names it.
    /// It is delivered by [`Overlay::next`], too, if it was not.
    ///
    /// # Errors
    /// [`PullError`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it may still be delivered.
    pub async fn fetch(&self, op: OpId) -> Result<Bytes, PullError> {
        let driver = &self.inner.driver;
        // Before what it waits by, so that it is dropped after that.
        let _forgotten = Forget { driver, op };
        let waiting = match driver.with_quietly(|state| state.bodies.take(op)) {
            Body::Here(body) => return Ok(body.into_bytes()),
            Body::Awaited(waiting) => waiting,
        };
        match driver.with(|state, now| state.node.fetch(now, op))? {
            Fetched::Held(payload) => Ok(payload.into_bytes()),
            Fetched::Delivered => Err(PullError::Delivered),
            Fetched::Asked => {
                waiting.await.map(Payload::into_bytes).map_err(|_| match driver.is_closed() {
                    true => PullError::Closed,
                    false => PullError::Unavailable,
                })
            }
        }
    }

    /// Own operations below this one, and those of the same life of another source, are needed by
    /// nobody any more, neither here nor elsewhere: they are not kept for repair.
    pub fn release(&self, below: OpId) {
        let OpId { source, life, seq } = below;
        self.inner.driver.with(|state, _| state.node.release(source, life, seq));
    }

    /// This node's site.
    pub fn site(&self) -> Site {
        self.inner.driver.me
    }

    /// The nodes, by site: in the order of their ids.
    pub fn nodes(&self) -> &[NodeId] {
        &self.inner.driver.nodes
    }

    /// Addresses that it listens at, with the ports the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.inner.addresses
    }

    /// Says where a site can be dialled, from now on.
    ///
    /// # Errors
    /// [`IntroduceError`] when the node is no site or the text no address that this endpoint can
    /// dial.
    pub fn introduce(&self, node: NodeId, address: &str) -> Result<(), IntroduceError> {
        let driver = &self.inner.driver;
        let site = driver.site_of(node).ok_or(IntroduceError::NotASite { node })?;
        let address: Address = address.parse()?;
        if driver.transport(&address).is_none() {
            return Err(IntroduceError::NoTransport { address });
        }
        driver.set_address(site, address);
        Ok(())
    }

    /// Resolves once every other site can be reached.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connected(&self) {
        self.inner.driver.connected().await;
    }

    /// The plan in use here.
    pub fn plan(&self) -> Arc<Plan> {
        self.inner.driver.plan()
    }

    /// Counters of the data plane.
    pub fn counters(&self) -> Counters {
        self.inner.driver.with_quietly(|state| state.node.counters())
    }

    /// Load of the data plane: what it holds now.
    pub fn load(&self) -> Load {
        self.inner.driver.with_quietly(|state| state.node.load())
    }

    /// Samples the metrics now: a scrape that wants them fresh calls this before. Does nothing
    /// without [`OverlayBuilder::metrics`].
    #[cfg(feature = "metrics")]
    pub fn sample_metrics(&self) {
        self.inner.driver.sample_metrics();
    }

    /// Leaves in order, in at most `grace`, and closes. Requests of this endpoint carry their own
    /// bodies again from now on. All others turn to the plan without this site; it forwards what
    /// they had sent it, and waits until all have what it has broadcast. Requests whose bodies do
    /// not come any more get them from their senders.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it is not closed, and goes on to leave: no others have it relay,
    /// and requests carry their own bodies, until it is called again.
    pub async fn shutdown(&self, grace: Duration) {
        let driver = &self.inner.driver;
        driver.leave();
        // A grace that runs out is a site that did not answer.
        let _ = driver.within(grace, driver.drained()).await;
        self.inner.close();
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("site", &self.site()).finish_non_exhaustive()
    }
}

/// An operation on its way. Dropped, it goes on.
pub struct Broadcast {
    driver: Arc<Driver>,
    op: OpId,
}

impl Broadcast {
    /// Its name, by which other sites may be told of it.
    pub fn op(&self) -> OpId {
        self.op
    }

    /// Resolves once `count` other sites have all of it, or nothing more comes of it: available at
    /// `count + 1`.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn acked_by(&self, count: usize) -> Held {
        self.driver.acked_by(self.op, count).await
    }

    /// Resolves once all other sites have it, but for those that it is not owed to any more.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn settled(&self) -> Held {
        self.acked_by(usize::MAX).await
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        self.driver.with_quietly(|state| state.watched.forget(self.op));
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broadcast").field(&self.op).finish()
    }
}
