//! Figures about a plan.

use convoke_overlay::{Cost, HoseModel, Plan, PlanError, Site, Tree, largest_scale, plan};

use crate::input::Network;

/// A network and its plan.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) network: &'a Network,
    pub(crate) plan: Plan,
    /// Part of each uplink that the plan may use, kbit/s.
    pub(crate) usable: Vec<u64>,
    /// Rate that everybody wants, kbit/s.
    pub(crate) demand: u64,
    /// Rate that the plan carries of it, kbit/s.
    pub(crate) planned: u64,
    /// Rate that would be carried if everybody sent directly within the same part of its uplink,
    /// kbit/s.
    pub(crate) direct: u64,
    /// Factor by which the load could grow before somebody is cut.
    pub(crate) scale: Option<f64>,
    /// Mean delivery without queues, and if all were direct, milliseconds.
    pub(crate) mean_ms: Option<[f64; 2]>,
}

impl<'a> Report<'a> {
    /// # Errors
    /// If there is no plan.
    pub(crate) fn new(network: &'a Network) -> Result<Self, PlanError> {
        let model = &network.model;
        let made = plan(model, &network.options)?;
        let permille = u64::from(network.headroom_permille);
        let usable: Vec<u64> = model.uplink.iter().map(|up| up * permille / 1000).collect();
        let receivers = (model.sites() as u64).saturating_sub(1).max(1);
        let direct =
            model.demand.iter().zip(&usable).map(|(rate, up)| *rate.min(&(up / receivers)));
        let direct = direct.sum::<u64>();
        let within = HoseModel { uplink: usable.clone(), ..model.clone() };
        let scale = largest_scale(&within)?.map(convoke_overlay::Ratio::to_f64);
        Ok(Self {
            demand: model.demand.iter().sum(),
            planned: sites(model.sites()).map(|site| made.rate(site)).sum(),
            direct: if model.sites() > 1 { direct } else { 0 },
            mean_ms: mean_ms(model, &made),
            usable,
            scale,
            plan: made,
            network,
        })
    }

    pub(crate) fn sites(&self) -> impl DoubleEndedIterator<Item = Site> + Clone + use<> {
        sites(self.plan.sites())
    }

    pub(crate) fn name(&self, site: Site) -> &str {
        &self.network.names[site.index()]
    }

    pub(crate) fn model(&self) -> &HoseModel {
        &self.network.model
    }

    /// True when not even one kbit/s more could be relayed through a site.
    pub(crate) fn is_full(&self, site: Site) -> bool {
        let left = self.usable[site.index()].saturating_sub(self.plan.uplink_use(site));
        left < (self.plan.sites() as u64).saturating_sub(2).max(1)
    }

    /// Rates that a relay sends on for each root that it serves, as the rate of the stream and that
    /// times receivers.
    pub(crate) fn relayed(&self, relay: Site) -> Vec<Relayed> {
        let through = |root: Site| {
            let trees = self.plan.trees(root).iter().filter(|tree| tree.relay == Some(relay));
            let relayed = Relayed { root, rate: 0, sent: 0 };
            trees.fold(relayed, |sum, tree| Relayed {
                rate: sum.rate + tree.rate,
                sent: sum.sent + tree.rate * tree.forward.len() as u64,
                ..sum
            })
        };
        self.sites().map(through).filter(|relayed| relayed.rate > 0).collect()
    }
}

/// Work of a relay for a root, kbit/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relayed {
    pub(crate) root: Site,
    /// Rate of what comes from the root.
    pub(crate) rate: u64,
    /// Rate of what goes to all receivers.
    pub(crate) sent: u64,
}

fn mean_ms(model: &HoseModel, made: &Plan) -> Option<[f64; 2]> {
    let planned = made.mean_delivery_us(model)?;
    let rates = sites(model.sites()).map(|site| vec![Tree::direct(made.rate(site))]);
    let direct = Plan::fixed(0, rates.collect()).ok()?;
    let direct = direct.objective(model, Cost::Sum) as f64;
    let deliveries = sites(model.sites()).map(|site| made.rate(site)).sum::<u64>() as f64
        * (model.sites() as f64 - 1.0);
    Some([planned / 1e3, direct / deliveries / 1e3])
}

fn sites(count: usize) -> impl DoubleEndedIterator<Item = Site> + Clone {
    (0..u16::try_from(count).unwrap_or(u16::MAX)).map(Site)
}
