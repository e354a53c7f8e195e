//! The linear programs as the paper has them, solved by a general solver: what the planner must
//! agree with.

use convoke_overlay::{Cost, HoseModel, Tree};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use crate::network::sites;

/// Optimum of 5.1-5.5, with rates that are not negative.
pub(crate) fn largest_total(model: &HoseModel) -> f64 {
    let n = model.sites();
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let bounds = model.demand.iter().zip(&model.uplink).map(|(demand, up)| *demand.min(up));
    let rates: Vec<Variable> =
        bounds.map(|bound| problem.add_var(1.0, (0.0, bound as f64))).collect();
    for site in 0..n {
        let others = (0..n).filter(|other| *other != site).map(|other| (rates[other], 1.0));
        let others: Vec<(Variable, f64)> = others.collect();
        if !others.is_empty() {
            problem.add_constraint(others, ComparisonOp::Le, model.downlink[site] as f64);
        }
    }
    let all: Vec<(Variable, f64)> = rates.iter().map(|rate| (*rate, n as f64 - 1.0)).collect();
    if n > 1 {
        let uplinks: u64 = model.uplink.iter().sum();
        problem.add_constraint(all, ComparisonOp::Le, uplinks as f64);
    }
    objective(&problem).expect("no rates at all are feasible")
}

/// Optimum of 5.6-5.11, latencies in milliseconds; none if there is no solution.
pub(crate) fn least_latency(model: &HoseModel) -> Option<f64> {
    let n = model.sites();
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let mut rates = Vec::new();
    for root in sites(n) {
        for relay in sites(n) {
            let tree =
                if root == relay { Tree::direct(0) } else { Tree::relayed(n, root, relay, 0) };
            let weight = Cost::Sum.of_tree(model, root, &tree) as f64 / 1e3;
            rates.push(problem.add_var(weight, (0.0, f64::INFINITY)));
        }
    }
    let rate = |root: usize, relay: usize| rates[root * n + relay];
    for site in 0..n {
        let row: Vec<_> = (0..n).map(|relay| (rate(site, relay), 1.0)).collect();
        problem.add_constraint(row, ComparisonOp::Eq, model.demand[site] as f64);
        let mut sent = vec![(rate(site, site), n as f64 - 1.0)];
        for other in (0..n).filter(|other| *other != site) {
            sent.push((rate(site, other), 1.0));
            if n > 2 {
                sent.push((rate(other, site), n as f64 - 2.0));
            }
        }
        problem.add_constraint(sent, ComparisonOp::Le, model.uplink[site] as f64);
    }
    objective(&problem)
}

fn objective(problem: &Problem) -> Option<f64> {
    match problem.solve() {
        Ok(outcome) => Some(outcome.into_solution().expect("no limit is set").objective()),
        Err(microlp::Error::Infeasible) => None,
        Err(error) => panic!("the oracle fails: {error}"),
    }
}
