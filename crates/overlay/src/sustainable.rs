//! Check that the sites can broadcast at the rates they want: the four conditions of ShallowForest,
//! section 4.2.

use std::fmt;

use crate::hose::{HoseModel, ModelError, sites};
use crate::site::Site;

/// A condition of sustainable rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// A site sends each bit of its own at least once.
    Uplink(Site),
    /// A site receives all that the others send.
    Downlink(Site),
    /// All that is sent goes through some uplink n-1 times.
    AggregateUplink,
    /// All that is sent goes through some downlink n-1 times. Implied by the downlinks together.
    AggregateDownlink,
}

/// A condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The condition.
    pub condition: Condition,
    /// Capacity that would be needed, kbit/s.
    pub needed: u64,
    /// Capacity that there is, kbit/s.
    pub available: u64,
}

/// The conditions that the demands violate: uplinks, downlinks, all uplinks, all downlinks, in this
/// order. The demands are sustainable if there are none, and then base overlays suffice to carry
/// them (theorem 4.3.1).
///
/// # Errors
/// If the model is not [valid](HoseModel::validate).
pub fn sustainable(model: &HoseModel) -> Result<Vec<Violation>, ModelError> {
    model.validate()?;
    let total: u64 = model.demand.iter().sum();
    let copies = total * (model.sites() as u64 - 1);
    let uplinks = sites(model.sites()).map(|site| {
        (Condition::Uplink(site), model.demand[site.index()], model.uplink[site.index()])
    });
    let downlinks = sites(model.sites()).map(|site| {
        let others = total - model.demand[site.index()];
        (Condition::Downlink(site), others, model.downlink[site.index()])
    });
    let aggregates = [
        (Condition::AggregateUplink, copies, model.uplink.iter().sum()),
        (Condition::AggregateDownlink, copies, model.downlink.iter().sum()),
    ];
    let all = uplinks.chain(downlinks).chain(aggregates);
    let violated = all.filter(|(_, needed, available)| needed > available);
    Ok(violated
        .map(|(condition, needed, available)| Violation { condition, needed, available })
        .collect())
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uplink(site) => write!(f, "uplink:{}", site.0),
            Self::Downlink(site) => write!(f, "downlink:{}", site.0),
            Self::AggregateUplink => f.write_str("aggregate_uplink"),
            Self::AggregateDownlink => f.write_str("aggregate_downlink"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, needed, available } = self;
        write!(f, "{condition} needs {needed} kbit/s of {available}")
    }
}
