//! One-relay trees: the root serves some receivers and one relay the rest, at the least cost.
//!
//! For a root, a relay and how many the relay serves, the best to serve are those for which the way
//! through it is the smallest detour. So a column for each such triple suffices, n³ instead of
//! n²·2ⁿ, with a row for each root (its rate) and each uplink (its capacity).
//!
//! The linear program is solved in floating point. What comes of it is rounded down to whole
//! kbit/s, and the few kbit/s that are then missing go over base overlays, exactly.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::fit::{Fit, permille};
use super::make::base;
use super::options::PlanOptions;
use super::{Plan, Tree};
use crate::admit::Fairness;
use crate::hose::{HoseModel, sites};
use crate::site::{Site, SiteSet};

/// More sites than this are planned with base overlays: the program has a column for every three.
pub(super) const ONE_RELAY_SITES_MAX: usize = 32;

/// The best plan of one-relay trees, or of base overlays where those are not beaten, or where the
/// linear program is not solved. The rates fit.
pub(super) fn best(model: &HoseModel, fit: &Fit<'_>, rates: &[u64], options: &PlanOptions) -> Plan {
    let base = base(model, fit, rates, options);
    let n = model.sites();
    if !(3..=ONE_RELAY_SITES_MAX).contains(&n) || rates.iter().all(|rate| *rate == 0) {
        return base;
    }
    let program = Program { model, fit, rates, options };
    let plan = program.solve().map(|solution| program.round(solution));
    plan.filter(|plan| program.is_better(plan, &base)).unwrap_or(base)
}

struct Program<'a> {
    model: &'a HoseModel,
    fit: &'a Fit<'a>,
    rates: &'a [u64],
    options: &'a PlanOptions,
}

/// A tree of some root that could carry something.
struct Column {
    root: Site,
    tree: Tree,
}

/// The solver works to an absolute 1e-7: numbers of this size make it a relative 1e-11.
const SIZE: f64 = 1e4;
/// Margin taken off the solution, so that it is within the capacities whatever the last digits are.
const MARGIN: f64 = 1e-9;

impl Program<'_> {
    /// True when the plan costs less than base overlays and carries nearly all. Where uplinks are
    /// full, some kbit/s do not fit once the rates are whole. With tiny rates that can be more than
    /// is won.
    fn is_better(&self, plan: &Plan, base: &Plan) -> bool {
        let cost = |plan: &Plan| plan.objective(self.model, self.options.cost);
        let total: u64 = self.rates.iter().sum();
        let carried: u64 = sites(self.model.sites()).map(|root| plan.rate(root)).sum();
        (total - carried) <= total / 1000 && cost(plan) < cost(base)
    }

    /// The trees with their rates, as near as floating point gets.
    fn solve(&self) -> Option<Vec<(Column, f64)>> {
        let columns = self.columns();
        let cost = |column: &Column| {
            self.options.cost.of_tree(self.model, column.root, &column.tree) as f64
        };
        let costs: Vec<f64> = columns.iter().map(cost).collect();
        let largest = costs.iter().copied().fold(1.0, f64::max);
        let unit = self.unit();
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let variable = |cost: &f64| problem.add_var(cost / largest * SIZE, (0.0, f64::INFINITY));
        let variables: Vec<Variable> = costs.iter().map(variable).collect();
        for site in sites(self.model.sites()) {
            let rate = self.rates[site.index()] as f64 / unit;
            let own = pick(&columns, &variables, |column| f64::from(u8::from(column.root == site)));
            problem.add_constraint(own, ComparisonOp::Eq, rate);
            let copies = |column: &Column| self.copies(column, site) as f64;
            let usable = self.fit.usable[site.index()] as f64 / unit;
            let through = pick(&columns, &variables, copies);
            problem.add_constraint(through, ComparisonOp::Le, usable);
        }
        self.cap_shares(&mut problem, &columns, &variables, unit);
        let solution = problem.solve().ok()?.into_solution().ok()?;
        let rates = variables.iter().map(|variable| solution.var_value(*variable) * unit);
        Some(columns.into_iter().zip(rates.collect::<Vec<f64>>()).collect())
    }

    /// So many kbit/s are one in the linear program.
    fn unit(&self) -> f64 {
        let largest = self.fit.usable.iter().chain(self.rates).copied().max().unwrap_or(1);
        largest.max(1) as f64 / SIZE
    }

    fn columns(&self) -> Vec<Column> {
        let n = self.model.sites();
        let with_load = sites(n).filter(|root| self.rates[root.index()] > 0);
        let mut columns = Vec::new();
        for root in with_load {
            columns.push(Column { root, tree: Tree::direct(0) });
            let relays = sites(n).filter(|relay| {
                *relay != root
                    && !self.options.excluded.contains(*relay)
                    && self.fit.usable[relay.index()] > self.rates[relay.index()]
            });
            for relay in relays {
                columns.extend(self.through(root, relay));
            }
        }
        columns
    }

    /// The trees of a root with this relay: it serves one receiver, or two, and so on.
    fn through(&self, root: Site, relay: Site) -> Vec<Column> {
        let latency = |from, to| i64::from(self.model.latency(from, to));
        let mut receivers: Vec<Site> =
            sites(self.model.sites()).filter(|site| *site != root && *site != relay).collect();
        receivers.sort_by_key(|to| (latency(relay, *to) - latency(root, *to), *to));
        let mut forward = SiteSet::EMPTY;
        let served = receivers.into_iter().map(|receiver| {
            forward.insert(receiver);
            Column { root, tree: Tree { relay: Some(relay), forward, rate: 0 } }
        });
        served.collect()
    }

    /// Number of times that a site sends what goes over a tree.
    fn copies(&self, column: &Column, site: Site) -> usize {
        if column.root == site {
            self.model.sites() - 1 - column.tree.forward.len()
        } else if column.tree.relay == Some(site) {
            column.tree.forward.len()
        } else {
            0
        }
    }

    fn cap_shares(
        &self,
        problem: &mut Problem,
        columns: &[Column],
        variables: &[Variable],
        unit: f64,
    ) {
        if self.fit.share_permille >= 1000 {
            return;
        }
        let n = self.model.sites();
        let shares = self.fit.share(self.rates).into_iter().zip(self.rates);
        for (root, (share, rate)) in sites(n).zip(shares) {
            // Rounding takes at most one kbit/s off each tree, and the margin: a relay can get it
            // back.
            let share = share.saturating_sub(2 * n as u64 + rate / 100_000_000);
            for relay in sites(n) {
                let through = pick(columns, variables, |column| {
                    let is_through = column.root == root && column.tree.relay == Some(relay);
                    f64::from(u8::from(is_through))
                });
                if !through.is_empty() {
                    problem.add_constraint(through, ComparisonOp::Le, share as f64 / unit);
                }
            }
        }
    }

    /// The trees in whole kbit/s, and the rest over base overlays.
    fn round(&self, solution: Vec<(Column, f64)>) -> Plan {
        let mut plan =
            Plan { epoch: self.model.epoch, trees: vec![Vec::new(); self.model.sites()] };
        let mut exact = vec![Vec::new(); self.model.sites()];
        for (Column { root, tree }, rate) in solution {
            let down = whole((rate * (1.0 - MARGIN)).floor());
            if down > 0 {
                plan.trees[root.index()].push(Tree { rate: down, ..tree });
                exact[root.index()].push(rate);
            }
        }
        // First those that are whole but for the last digits, and then up.
        for up in [f64::round, f64::ceil] {
            for (root, exact) in sites(self.model.sites()).zip(&exact) {
                let most: Vec<u64> = exact.iter().map(|rate| whole(up(*rate))).collect();
                self.top_up(&mut plan, root, &most);
            }
        }
        let rest = self.rest(&plan);
        plan.merge(&rest);
        plan
    }

    /// Gives the trees of a root back what rounding took, where that leaves every site what its own
    /// missing kbit/s take at least: then those fit over base overlays.
    fn top_up(&self, plan: &mut Plan, root: Site, most: &[u64]) {
        let share = permille(self.rates[root.index()], self.fit.share_permille);
        for (index, most) in most.iter().enumerate() {
            let Tree { relay, forward, rate } = plan.trees(root)[index];
            let served = forward.len() as u64;
            // One copy to somebody is kept free for each missing unit of the root itself.
            let own = self.model.sites() as u64 - 2 - served;
            let mut more = self.missing(plan, root).min(most.saturating_sub(rate));
            more = self.free(plan, root).checked_div(own).map_or(more, |fits| more.min(fits));
            if let Some(relay) = relay {
                let through = plan.trees(root).iter().filter(|tree| tree.relay == Some(relay));
                let through: u64 = through.map(|tree| tree.rate).sum();
                more = more.min(self.free(plan, relay) / served).min(share.saturating_sub(through));
            }
            plan.trees[root.index()][index].rate += more;
        }
    }

    fn missing(&self, plan: &Plan, root: Site) -> u64 {
        self.rates[root.index()].saturating_sub(plan.rate(root))
    }

    fn left(&self, plan: &Plan, site: Site) -> u64 {
        self.fit.usable[site.index()].saturating_sub(plan.uplink_use(site))
    }

    /// Capacity that a site has left besides one copy of what it lacks itself.
    fn free(&self, plan: &Plan, site: Site) -> u64 {
        self.left(plan, site).saturating_sub(self.missing(plan, site))
    }

    /// Base overlays for what a plan lacks, in what it leaves.
    fn rest(&self, plan: &Plan) -> Plan {
        let all = || sites(self.model.sites());
        let left: Vec<u64> = all().map(|site| self.left(plan, site)).collect();
        let fit = Fit { usable: &left, share_permille: 1000, ..*self.fit };
        let missing: Vec<u64> = all().map(|root| self.missing(plan, root)).collect();
        let missing = fit.cut(missing, &Fairness::MaxMin);
        base(self.model, &fit, &missing, self.options)
    }
}

impl Plan {
    /// Adds the trees of another plan.
    fn merge(&mut self, other: &Self) {
        for (trees, more) in self.trees.iter_mut().zip(&other.trees) {
            for tree in more {
                let same = trees
                    .iter_mut()
                    .find(|have| (have.relay, have.forward) == (tree.relay, tree.forward));
                match same {
                    Some(have) => have.rate += tree.rate,
                    None => trees.push(*tree),
                }
            }
            trees.sort_by_key(|tree| (tree.relay, tree.forward.len()));
        }
    }
}

/// As a cast does it: what is below zero to zero.
#[expect(clippy::cast_possible_truncation, reason = "a rate is below 2^49")]
fn whole(rate: f64) -> u64 {
    rate as u64
}

/// The variables of a row, without those that do not occur in it.
fn pick(
    columns: &[Column],
    variables: &[Variable],
    factor: impl Fn(&Column) -> f64,
) -> Vec<(Variable, f64)> {
    let all = columns.iter().zip(variables);
    let all = all.map(|(column, variable)| (*variable, factor(column)));
    all.filter(|(_, factor)| *factor > 0.0).collect()
}
