//! From a model to a plan.

use super::base::{Base, Substreams};
use super::fit::{Fit, permille};
use super::options::{Family, PlanOptions};
use super::{Plan, PlanFault};
use crate::admit::admit;
use crate::hose::{HoseModel, ModelError};
use crate::site::Site;
use crate::sustainable::{Violation, sustainable};

/// Reason why there is no plan. [`Plan::direct`] always works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The model is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An option is not in thousandths.
    #[error("{option} is {found}: give 1 to 1000")]
    Permille {
        /// Name of the option.
        option: &'static str,
        /// Value that was given.
        found: u32,
    },
    /// The demands are not sustainable within the headroom, and [`PlanOptions::admit`] says to cut
    /// nobody.
    #[error("the demands are not sustainable: {}", list(.0))]
    Unsustainable(Vec<Violation>),
    /// The demands are sustainable, but not with so few relays, so small shares of them or in whole
    /// kbit/s, and [`PlanOptions::admit`] says to cut nobody.
    #[error("the demands do not fit with the relays that are left and what each may carry")]
    NoRoom,
    /// The planner made a wrong plan, which is a mistake in it.
    #[error("the planner made a wrong plan: {0}")]
    Wrong(PlanFault),
}

/// Makes the plan of the least cost that carries the demands within the headroom, or as much of
/// them as is sustainable. A pure function: every site that has the same model and options makes
/// the same plan.
///
/// Sites without demand, or that can send nothing, get no trees. With one site there is nothing to
/// send, with two all is direct. Rates are whole kbit/s: where a plan fills all uplinks to the last
/// bit, up to n-1 kbit/s of all demands together can be cut for that.
///
/// # Errors
/// If the model or an option is wrong, or the demands do not fit and nobody may be cut.
pub fn plan(model: &HoseModel, options: &PlanOptions) -> Result<Plan, PlanError> {
    model.validate()?;
    options.check()?;
    let usable = options.usable(model);
    let fit = Fit {
        usable: &usable.uplink,
        excluded: options.excluded,
        share_permille: options.max_relay_share_permille,
    };
    let rates = rates(&usable, &fit, options)?;
    let plan = match options.family {
        Family::Base => base(model, &fit, &rates, options),
        #[cfg(feature = "lp")]
        Family::OneRelay => super::one_relay::best(model, &fit, &rates, options),
    };
    // Cheap next to the planning, and what a wrong plan does to a network is not.
    plan.verify(&usable).map_err(PlanError::Wrong)?;
    Ok(plan)
}

/// The plan without a relay that was lost or is suspected: everybody can make it beforehand, and
/// change to it without asking. The site itself still sends its own stream and receives all others.
///
/// # Errors
/// As [`plan`].
pub fn contingency(
    model: &HoseModel,
    options: &PlanOptions,
    lost: Site,
) -> Result<Plan, PlanError> {
    let excluded = options.excluded.with(lost);
    plan(model, &options.clone().excluded(excluded))
}

/// Rates at which the sites may send.
fn rates(usable: &HoseModel, fit: &Fit<'_>, options: &PlanOptions) -> Result<Vec<u64>, PlanError> {
    if usable.sites() == 1 {
        return Ok(vec![0]);
    }
    if let Some(fairness) = &options.admit {
        let sustainable = admit(usable, fairness)?.whole();
        return Ok(fit.cut(sustainable, fairness));
    }
    let violations = sustainable(usable)?;
    if !violations.is_empty() {
        return Err(PlanError::Unsustainable(violations));
    }
    if fit.fits(&usable.demand) { Ok(usable.demand.clone()) } else { Err(PlanError::NoRoom) }
}

/// The cheapest plan of base overlays. The rates fit.
pub(super) fn base(model: &HoseModel, fit: &Fit<'_>, rates: &[u64], options: &PlanOptions) -> Plan {
    let base = Base {
        rates,
        room: &fit.room(rates),
        cost: &options.cost.of_base(model),
        share: &fit.share(rates),
        excluded: options.excluded,
    };
    Substreams::new(model.sites(), base.solve().flow).plan(model.epoch)
}

impl PlanOptions {
    fn check(&self) -> Result<(), PlanError> {
        let permille = [
            ("headroom_permille", self.headroom_permille),
            ("max_relay_share_permille", self.max_relay_share_permille),
        ];
        let wrong = permille.into_iter().find(|(_, found)| !(1..=1000).contains(found));
        wrong.map_or(Ok(()), |(option, found)| Err(PlanError::Permille { option, found }))
    }

    /// The model with what the plan may use of the uplinks.
    pub(super) fn usable(&self, model: &HoseModel) -> HoseModel {
        let uplink = model.uplink.iter().map(|uplink| permille(*uplink, self.headroom_permille));
        HoseModel { uplink: uplink.collect(), ..model.clone() }
    }
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(Violation::to_string).collect::<Vec<_>>().join(", ")
}
