//! An overlay being put together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use convoke_core::carrier::CarrierTaken;
use convoke_core::id::Incarnation;
use convoke_core::seam::EndpointSeam;
use convoke_core::time::Timestamp;
use convoke_core::transport::{
    Address, AddressError, Hello, ListenError, Sink, ToAddresses, Transport,
};
use convoke_core::{Endpoint, NodeId};

use crate::bodies::{Bodies, BodyLimits};
use crate::carrier::OverlayCarrier;
use crate::control::{Control, ControlConfig};
use crate::driver::{Driver, FLOWS_MAX, FRAME_BYTES_MAX, Parts, site_of};
use crate::estimate::{Bounds, Estimator, EstimatorConfig};
use crate::event::{Order, PlanRefused, SetupError};
use crate::hose::{HoseModel, ModelError};
use crate::limits::Limits;
#[cfg(feature = "metrics")]
use crate::meters::Meters;
use crate::node::{NodeConfig, OverlayNode};
use crate::plan::{Plan, PlanOptions};

use super::{Inner, Overlay};

/// Smallest message that travels by the overlay, unless another is set: below it a copy for each
/// costs less than what is said about it.
const BODY_BYTES_MIN: usize = 4 << 10;

/// An overlay being put together. All sites need the same nodes, and should have the same settings.
#[must_use = "nothing happens until it is started"]
pub struct OverlayBuilder {
    endpoint: Endpoint,
    transports: Vec<Arc<dyn Transport>>,
    listen: Vec<Given>,
    /// With no addresses where they come later.
    sites: Vec<(NodeId, Option<Given>)>,
    planning: Planning,
    estimator: EstimatorConfig,
    control: ControlConfig,
    order: Order,
    limits: Limits,
    flows_per_site: usize,
    body_bytes_min: usize,
    carries: bool,
    bodies: BodyLimits,
    incarnation: Option<u64>,
    #[cfg(feature = "metrics")]
    has_metrics: bool,
}

/// Addresses as they were given.
type Given = Result<Vec<Address>, AddressError>;

/// Source of plans.
enum Planning {
    /// Estimates that the sites make.
    Live,
    /// One model for all time.
    Model(HoseModel),
    /// One plan for all time.
    Plan(Plan),
}

/// Reason why an overlay does not start. Nothing of it is left.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The endpoint's own node is not one of the sites.
    #[error("{node}, the endpoint's node, is none of the overlay's sites: add it with `site`")]
    NotASite {
        /// The node.
        node: NodeId,
    },
    /// A node was given twice.
    #[error("{node} is a site twice")]
    SiteTwice {
        /// The node.
        node: NodeId,
    },
    /// Something of the sites or the limits.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The model is invalid, or not of these sites.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model is of another number of sites.
    #[error("the model is of {found} sites, and there are {expected}")]
    ModelSites {
        /// Of the overlay.
        expected: usize,
        /// Of the model.
        found: usize,
    },
    /// The plan is not of these sites.
    #[error(transparent)]
    Plan(#[from] PlanRefused),
    /// The number of flows.
    #[error("flows per site are 1 to {FLOWS_MAX}, not {found}")]
    Flows {
        /// Number of flows that was given.
        found: usize,
    },
    /// A text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A site has one address, and another number was given.
    #[error("{node} was given {count} addresses: a site has one, or `site_without_address`")]
    SiteAddresses {
        /// The node.
        node: NodeId,
        /// Number of addresses.
        count: usize,
    },
    /// The transports have no scheme like that.
    #[error("{}", ListenError::NoTransport { address: address.clone() })]
    NoTransport {
        /// The address.
        address: Address,
    },
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The endpoint has another overlay.
    #[error(transparent)]
    Carrier(#[from] CarrierTaken),
}

/// The same text: a `main` that returns the error prints this.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl OverlayBuilder {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self {
            endpoint: endpoint.clone(),
            transports: endpoint.transports().to_vec(),
            listen: Vec::new(),
            sites: Vec::new(),
            planning: Planning::Live,
            estimator: EstimatorConfig::default(),
            control: ControlConfig::default(),
            order: Order::default(),
            limits: Limits::default(),
            flows_per_site: 1,
            body_bytes_min: BODY_BYTES_MIN,
            carries: true,
            bodies: BodyLimits::default(),
            incarnation: None,
            #[cfg(feature = "metrics")]
            has_metrics: false,
        }
    }

    /// Also listens at these addresses, such as `tcp://0.0.0.0:7100`: others than the endpoint's,
    /// for its flows carry bulk and nothing else. Of two sites the lower one dials, so the last
    /// site must listen, and any may.
    pub fn listen(mut self, addresses: impl ToAddresses) -> Self {
        self.listen.push(addresses.to_addresses());
        self
    }

    /// Adds a site that listens at this one address. The endpoint's own node is a site, too.
    pub fn site(mut self, node: NodeId, address: impl ToAddresses) -> Self {
        self.sites.push((node, Some(address.to_addresses())));
        self
    }

    /// Adds a site of which [`Overlay::introduce`] will say where it listens.
    pub fn site_without_address(mut self, node: NodeId) -> Self {
        self.sites.push((node, None));
        self
    }

    /// Plans from this model for all time, in which sites are in the order of their nodes' ids.
    /// Sites are paced at what its demands get, so let these be a tenth more than what is sent:
    /// else a backlog never goes. Default: plans from what the sites find out while they run.
    pub fn model(mut self, model: HoseModel) -> Self {
        self.planning = Planning::Model(model);
        self
    }

    /// Uses this plan for all time, made by hand or before. Default: see [`Self::model`].
    pub fn plan(mut self, plan: Plan) -> Self {
        self.planning = Planning::Plan(plan);
        self
    }

    /// Sets what is known of this site's uplink. Default: [`Bounds::default`], estimated.
    pub fn uplink(mut self, bounds: Bounds) -> Self {
        self.estimator.uplink = bounds;
        self
    }

    /// Sets what is known of this site's downlink. Default: [`Bounds::default`], estimated.
    pub fn downlink(mut self, bounds: Bounds) -> Self {
        self.estimator.downlink = bounds;
        self
    }

    /// Sets how to estimate; keeps the bounds that were set. Default: [`EstimatorConfig::default`].
    pub fn estimator(mut self, config: EstimatorConfig) -> Self {
        let (uplink, downlink) = (self.estimator.uplink, self.estimator.downlink);
        self.estimator = EstimatorConfig { uplink, downlink, ..config };
        self
    }

    /// When to report and to plan again. Default: [`ControlConfig::default`].
    pub fn control(mut self, config: ControlConfig) -> Self {
        self.control = config;
        self
    }

    /// Sets the options of plans: headroom, cost, family. Default: [`PlanOptions::default`].
    pub fn plan_options(mut self, options: PlanOptions) -> Self {
        self.control = self.control.options(options);
        self
    }

    /// The order of delivery. Default: none.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Bounds and times of the data plane. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Number of connections to open to each site, 1 to 64: some networks cap each. Default 1.
    pub fn flows_per_site(mut self, flows: usize) -> Self {
        self.flows_per_site = flows;
        self
    }

    /// Smallest message of a fan-out, in bytes, that travels by the overlay. Default 4 KiB.
    pub fn body_bytes_min(mut self, bytes: usize) -> Self {
        self.body_bytes_min = bytes;
        self
    }

    /// Bytes of arrived messages that are kept for their requests, and the time for which each is
    /// kept. Default 64 MiB, 10 s.
    pub fn bodies_kept(mut self, bytes_max: usize, kept_for: Duration) -> Self {
        self.bodies = BodyLimits { bytes_max, kept_for };
        self
    }

    /// Leaves the endpoint's fan-outs and casts alone: only [`Overlay::broadcast`] uses the
    /// overlay.
    pub fn without_requests(mut self) -> Self {
        self.carries = false;
        self
    }

    /// Other transports than the endpoint's, such as with other settings.
    pub fn transports(mut self, transports: impl IntoIterator<Item = Arc<dyn Transport>>) -> Self {
        self.transports = transports.into_iter().collect();
        self
    }

    /// Names this life of the site instead of drawing a name: for simulations that are to be
    /// repeated.
    pub fn incarnation(mut self, incarnation: u64) -> Self {
        self.incarnation = Some(incarnation);
        self
    }

    /// Counts what this site does, with the recorder of the `metrics` facade that is installed when
    /// it starts; sampled every second, and by [`Overlay::sample_metrics`]. Default: nothing is
    /// counted.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self) -> Self {
        self.has_metrics = true;
        self
    }

    /// Starts the site on the current tokio runtime. It connects to the others by itself, for as
    /// long as it lives.
    ///
    /// # Errors
    /// [`StartError`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing of it is left: what listened is closed, and the endpoint
    /// may have another overlay.
    pub async fn start(mut self) -> Result<Overlay, StartError> {
        let (endpoint, carries) = (self.endpoint.clone(), self.carries);
        let listen: Vec<Vec<Address>> =
            std::mem::take(&mut self.listen).into_iter().collect::<Result<_, _>>()?;
        let body_bytes_min = self.body_bytes_min;
        let driver = Driver::start(self.parts()?);
        let (addresses, none_yet) = (Vec::new(), AtomicBool::new(false));
        let mut inner = Inner { driver, endpoint, carries: none_yet, addresses };
        // From here on dropping `inner` undoes what was done. Whoever reaches this site may send it
        // references.
        if carries {
            let driver = inner.driver.clone();
            inner.endpoint.carry_bodies(Arc::new(OverlayCarrier { driver, body_bytes_min }))?;
            *inner.carries.get_mut() = true;
        }
        for address in listen.concat() {
            let transport = inner.driver.transport(&address).cloned();
            let transport =
                transport.ok_or(StartError::NoTransport { address: address.clone() })?;
            let sink: Arc<dyn Sink> = inner.driver.clone();
            let listener = transport.listen(&address, sink).await?;
            inner.addresses.push(listener.local_address());
            inner.driver.listens(listener);
        }
        Ok(Overlay { inner: Arc::new(inner) })
    }

    fn parts(self) -> Result<Parts, StartError> {
        let (nodes, addresses) = self.places()?;
        let own = self.endpoint.node();
        let me = nodes.binary_search(&own).map_err(|_| StartError::NotASite { node: own })?;
        let me = site_of(me);
        if !(1..=FLOWS_MAX).contains(&self.flows_per_site) {
            return Err(StartError::Flows { found: self.flows_per_site });
        }
        let incarnation = Incarnation(self.incarnation.unwrap_or_else(rand::random));
        let (sites, now) = (nodes.len(), Timestamp::ZERO);
        let config = NodeConfig { me, sites, incarnation, order: self.order, limits: self.limits };
        let mut node = OverlayNode::new(now, config)?;
        let mut plan = Arc::new(Plan::direct(sites, 0));
        let (control, estimator) = match self.planning {
            Planning::Live => {
                let estimator = Estimator::new(self.estimator, me, sites, now);
                (Some(Control::new(self.control, me, sites, incarnation, now)), Some(estimator))
            }
            Planning::Model(model) => {
                model.validate()?;
                if model.sites() != sites {
                    return Err(StartError::ModelSites { expected: sites, found: model.sites() });
                }
                let config = self.control.fixed(model);
                (Some(Control::new(config, me, sites, incarnation, now)), None)
            }
            Planning::Plan(given) => {
                node.set_plan(now, given.clone())?;
                plan = Arc::new(given);
                (None, None)
            }
        };
        #[cfg(feature = "metrics")]
        let meters = self.has_metrics.then(|| {
            let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
            Meters::new(me, &names)
        });
        let hello = Hello {
            node: own,
            incarnation,
            advertised: Vec::new(),
            frame_bytes_max: FRAME_BYTES_MAX,
        };
        Ok(Parts {
            me,
            nodes,
            hello,
            transports: self.transports,
            flows_per_site: self.flows_per_site,
            addresses,
            node,
            bodies: Bodies::new(self.bodies),
            control,
            estimator,
            plan,
            #[cfg(feature = "metrics")]
            meters,
        })
    }

    /// The nodes in the order of their ids, so that all sites count them alike, and where they
    /// listen.
    fn places(&self) -> Result<(Vec<NodeId>, Vec<Option<Address>>), StartError> {
        let mut places = BTreeMap::new();
        for (node, addresses) in &self.sites {
            let addresses = addresses.clone().transpose()?;
            let address = addresses.map(|addresses| self.only(*node, addresses)).transpose()?;
            if places.insert(*node, address).is_some() {
                return Err(StartError::SiteTwice { node: *node });
            }
        }
        Ok(places.into_iter().unzip())
    }

    /// The one address of a site, which a transport can dial.
    fn only(&self, node: NodeId, addresses: Vec<Address>) -> Result<Address, StartError> {
        let [address] = <[Address; 1]>::try_from(addresses)
            .map_err(|all| StartError::SiteAddresses { node, count: all.len() })?;
        match self.transports.iter().any(|one| one.schemes().contains(&address.scheme())) {
            true => Ok(address),
            false => Err(StartError::NoTransport { address }),
        }
    }
}

impl fmt::Debug for OverlayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayBuilder").field("sites", &self.sites).finish_non_exhaustive()
    }
}
