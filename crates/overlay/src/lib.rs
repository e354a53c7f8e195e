//! Two-level broadcast overlays: all-to-all traffic of large payloads over a WAN, limited by the
//! sum of all uplinks instead of the busiest one.
//!
//! Each site splits what it broadcasts over trees with one relay at most. A pure planner says
//! which, and how much over each: every site makes the same plan from the same [`HoseModel`], so no
//! controller is needed.
//!
//! ```text
//!   HoseModel ─ sustainable? ─ admit ─▶ rates ─ transportation problem ─▶ Plan
//!   uplinks, downlinks,        cut what         cheapest trees that       trees of each root,
//!   latencies, demands         does not fit     carry these rates         rate of each link
//! ```
//!
//! ```
//! use convoke_overlay::{HoseModel, PlanOptions, Site, plan};
//!
//! // The first of three sites wants to send 400 Mbit/s to both others, through an uplink of 600.
//! let model = HoseModel {
//!     uplink: vec![600_000; 3],
//!     downlink: vec![600_000; 3],
//!     latency_us: vec![0, 40_000, 70_000, 40_000, 0, 50_000, 70_000, 50_000, 0],
//!     demand: vec![400_000, 50_000, 0],
//!     epoch: 1,
//! };
//! let plan = plan(&model, &PlanOptions::new())?;
//! assert_eq!(plan.rate(Site(0)), 400_000);
//! // Within the default headroom, 92 % of 600, it serves both itself at 152 and has 248 passed on.
//! assert_eq!(plan.uplink_use(Site(0)), 552_000);
//! let [direct, relayed] = plan.trees(Site(0)) else { panic!("two trees") };
//! assert_eq!((direct.rate, relayed.rate), (152_000, 248_000));
//! assert_eq!(relayed.relay, Some(Site(1)));
//! # Ok::<(), convoke_overlay::PlanError>(())
//! ```
//!
//! # Modules
//! [`HoseModel`] is what is known, [`sustainable`] and [`admit`] say which rates fit, [`plan()`]
//! and [`contingency`] make a [`Plan`], [`greedy`] is the algorithm of the ShallowForest thesis to
//! compare it with.
//!
//! # Features
//! `lp`: one-relay trees, `Family::OneRelay`. `metrics`: what a site counts, through the `metrics`
//! facade.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod ack_time;
mod admit;
mod bodies;
mod bounds;
mod carrier;
mod control;
mod driver;
mod drr;
mod estimate;
mod event;
mod greedy;
mod hose;
mod inbox;
mod limits;
#[cfg(feature = "metrics")]
mod meters;
mod node;
mod overlay;
mod pace;
mod payload;
mod pick;
mod plan;
mod proof;
mod ratio;
mod reach;
mod receive;
mod relay;
mod repair;
mod routes;
mod send;
mod site;
mod sustainable;
mod tally;
mod trust;
mod uplink;
mod waiting;
mod watch;
mod wire;

pub use admit::{Fairness, Rates, WEIGHT_MAX, admit, largest_scale, largest_total};
pub use control::{
    Control, ControlConfig, ControlEvent, ControlFault, ControlMessage, ControlTransmit,
    ReportVersion, SiteReport, Snapshot,
};
pub use estimate::{Bounds, Estimate, Estimator, EstimatorConfig, HeldBy, LATENCY_UNKNOWN};
pub use event::{
    BroadcastError, Counters, Event, Evidence, Fault, FetchError, Fetched, LinkEvent, Order,
    PlanRefused, SetupError, Transmit, TransmitKind,
};
pub use greedy::greedy;
pub use hose::{HoseModel, ModelError, RATE_MAX_KBIT};
pub use inbox::Delivery;
pub use limits::{Limits, LimitsError};
pub use node::{Backlog, Load, NodeConfig, OverlayNode, Traffic};
pub use overlay::{Broadcast, IntroduceError, Overlay, OverlayBuilder, PullError, StartError};
pub use pace::Bucket;
pub use payload::Payload;
pub use pick::TreePicker;
pub use plan::{
    Cost, Family, Plan, PlanError, PlanFault, PlanOptions, RATE_UNLIMITED, Substreams, Tree,
    contingency, plan,
};
pub use ratio::Ratio;
pub use site::{SITES_MAX, Site, SiteSet};
pub use sustainable::{Condition, Violation, sustainable};
pub use watch::Held;
pub use wire::{
    Ack, CHUNK_BYTES, CHUNKS_MAX, ChunkDigest, Data, Fetch, Flaw, Floor, Forward, Frame, Life,
    Missed, Notice, OpId, Passed, View, WHOLE_BYTES_MAX, WINDOW, WireError,
};
