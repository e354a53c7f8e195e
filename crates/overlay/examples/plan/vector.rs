//! One vector: what a planner is given, and what it must come to.
//!
//! The planner works in whole numbers and the expected results are fractions, so each instance is
//! planned with all rates and capacities times what makes the results whole.

use anyhow::{Context as _, bail, ensure};
use convoke_overlay::{
    Cost, Fairness, HoseModel, Plan, PlanOptions, Ratio, Site, Tree, admit, greedy, largest_scale,
    largest_total, plan, sustainable,
};
use serde::Deserialize;

/// How an instance was met.
pub(crate) struct Outcome {
    pub(crate) id: String,
    /// Differences, in words.
    pub(crate) misses: Vec<String>,
}

#[derive(Deserialize)]
struct List {
    cases: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Instance {
    n: usize,
    uplink: Vec<u64>,
    downlink: Vec<u64>,
    rates: Vec<u64>,
    latency: Vec<Vec<u32>>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Expected {
    sustainable: bool,
    violations: Vec<String>,
    phase1: Phase1,
    phase2: Phase2,
    algorithm1: Algorithm1,
    #[cfg(feature = "lp")]
    one_relay_trees: Option<OneRelayTrees>,
}

#[derive(Deserialize)]
struct Phase1 {
    max_total: String,
    fair_rates: Vec<String>,
    proportional_scale: String,
}

#[derive(Deserialize)]
struct Phase2 {
    latency_weights: Vec<Vec<u64>>,
    objective: String,
    objective_f64: f64,
    mean_delivery_latency_f64: Option<f64>,
    direct_only_feasible: bool,
    direct_only_objective: String,
}

#[derive(Deserialize)]
struct Algorithm1 {
    substreams: Vec<Vec<String>>,
    objective: String,
}

#[derive(Deserialize)]
#[cfg(feature = "lp")]
struct OneRelayTrees {
    objective_f64: f64,
}

/// Checks every instance of a file.
///
/// # Errors
/// If the file is no JSON or of an unknown schema.
pub(crate) fn check_text(text: &str) -> anyhow::Result<Vec<Outcome>> {
    let file: serde_json::Value = serde_json::from_str(text).context("it is no JSON")?;
    match file["schema"].as_str() {
        Some("overlay-vector/1") => Ok(vec![check_value(file)]),
        Some("overlay-vector-list/1") => {
            let List { cases } = serde_json::from_value(file).context("it is no list")?;
            Ok(cases.into_iter().map(check_value).collect())
        }
        // Results of published loads, without what they were computed from.
        Some("overlay-thesis-tables/1") => Ok(Vec::new()),
        Some(other) => bail!("its schema {other} is unknown"),
        None => bail!("it has no schema"),
    }
}

fn check_value(value: serde_json::Value) -> Outcome {
    let id = value["id"].as_str().unwrap_or("no id").to_owned();
    let mut misses = Vec::new();
    let checked = serde_json::from_value::<Instance>(value)
        .map_err(Into::into)
        .and_then(|instance| Check::new(&instance)?.all(&mut misses));
    misses.extend(checked.err().map(|error| format!("{error:#}")));
    Outcome { id, misses }
}

struct Check<'a> {
    instance: &'a Instance,
    model: HoseModel,
}

impl<'a> Check<'a> {
    fn new(instance: &'a Instance) -> anyhow::Result<Self> {
        let n = instance.n;
        ensure!(instance.uplink.len() == n, "uplink has not n entries");
        ensure!(instance.latency.len() == n, "latency has not n rows");
        ensure!(instance.latency.iter().all(|row| row.len() == n), "a row of latency has not n");
        let model = HoseModel {
            uplink: instance.uplink.clone(),
            downlink: instance.downlink.clone(),
            latency_us: instance.latency.concat(),
            demand: instance.rates.clone(),
            epoch: 1,
        };
        model.validate()?;
        Ok(Self { instance, model })
    }

    fn all(&self, misses: &mut Vec<String>) -> anyhow::Result<()> {
        self.phase1(misses)?;
        let (scaled, scale) = self.scaled()?;
        self.phase2(&scaled, scale, misses)?;
        self.algorithm1(&scaled, scale, misses)?;
        #[cfg(feature = "lp")]
        self.one_relay_trees(misses)?;
        Ok(())
    }

    fn phase1(&self, misses: &mut Vec<String>) -> anyhow::Result<()> {
        let Expected { sustainable: is_sustainable, violations, phase1, .. } =
            &self.instance.expected;
        let found = sustainable(&self.model)?;
        let found: Vec<String> = found.iter().map(|found| found.condition.to_string()).collect();
        same("sustainable", &found.is_empty(), is_sustainable, misses);
        same("violations", &found, violations, misses);
        let total = largest_total(&self.model)?;
        same("phase1.max_total", &total, &ratio(&phase1.max_total)?, misses);
        let fair = admit(&self.model, &Fairness::MaxMin)?;
        same("phase1.fair_rates", fair.exact(), &ratios(&phase1.fair_rates)?[..], misses);
        let scale = largest_scale(&self.model)?.map_or(Ratio::ONE, |scale| scale.min(Ratio::ONE));
        let expected = ratio(&phase1.proportional_scale)?;
        same("phase1.proportional_scale", &scale, &expected, misses);
        Ok(())
    }

    /// The instance with the rates that phase 2 is about, times what makes everything whole.
    fn scaled(&self) -> anyhow::Result<(HoseModel, u64)> {
        let rates = admit(&self.model, &Fairness::MaxMin)?;
        let mut scale = (self.instance.n as u64).saturating_sub(2).max(1);
        for rate in rates.exact() {
            let denominator = u64::try_from(rate.denominator())?;
            scale *= denominator / gcd(scale, denominator);
        }
        let mut scaled = times(&self.model, scale)?;
        scaled.demand = rates
            .exact()
            .iter()
            .map(|rate| u64::try_from(rate.numerator() * u128::from(scale) / rate.denominator()))
            .collect::<Result<_, _>>()?;
        Ok((scaled, scale))
    }

    fn phase2(
        &self,
        scaled: &HoseModel,
        scale: u64,
        misses: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let expected = &self.instance.expected.phase2;
        self.weights(misses);
        let best = exact_plan(scaled)?;
        // A site alone sends nothing, whatever it has.
        let senders = if self.instance.n == 1 { &[] } else { &scaled.demand[..] };
        for (index, demand) in senders.iter().enumerate() {
            let carried = best.rate(Site(u16::try_from(index)?));
            same("phase2: a sum of sub-streams", &carried, demand, misses);
        }
        let objective = Ratio::new(best.objective(scaled, Cost::Sum), scale.into());
        same("phase2.objective", &objective, &ratio(&expected.objective)?, misses);
        near("phase2.objective_f64", objective.to_f64(), expected.objective_f64, 1e-9, misses);
        let mean = best.mean_delivery_us(scaled);
        let expected_mean = expected.mean_delivery_latency_f64;
        same("phase2: has a mean", &mean.is_some(), &expected_mean.is_some(), misses);
        if let (Some(mean), Some(expected)) = (mean, expected_mean) {
            near("phase2.mean_delivery_latency_f64", mean, expected, 1e-9, misses);
        }
        let copies = self.instance.n as u64 - 1;
        let rates = || scaled.demand.iter().zip(&scaled.uplink);
        let is_feasible = rates().all(|(rate, uplink)| rate * copies <= *uplink);
        same("phase2.direct_only_feasible", &is_feasible, &expected.direct_only_feasible, misses);
        let direct = scaled.demand.iter().map(|rate| vec![Tree::direct(*rate)]).collect();
        let direct = Plan::fixed(1, direct)?.objective(scaled, Cost::Sum);
        let expected = ratio(&expected.direct_only_objective)?;
        same("phase2.direct_only_objective", &Ratio::new(direct, scale.into()), &expected, misses);
        Ok(())
    }

    fn weights(&self, misses: &mut Vec<String>) {
        let sites = || (0..self.instance.n).filter_map(|site| u16::try_from(site).ok()).map(Site);
        let weight = |root: Site, relay: Site| {
            let tree = match root == relay || self.instance.n == 2 {
                true => Tree::direct(1),
                false => Tree::relayed(self.instance.n, root, relay, 1),
            };
            Cost::Sum.of_tree(&self.model, root, &tree)
        };
        let row = |root| sites().map(|relay| weight(root, relay)).collect();
        let found: Vec<Vec<u64>> = sites().map(row).collect();
        let expected = &self.instance.expected.phase2.latency_weights;
        same("phase2.latency_weights", &found, expected, misses);
    }

    fn algorithm1(
        &self,
        scaled: &HoseModel,
        scale: u64,
        misses: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let expected = &self.instance.expected.algorithm1;
        let found = greedy(scaled)?;
        let sites = || (0..self.instance.n).filter_map(|site| u16::try_from(site).ok()).map(Site);
        let rate = |root, relay| Ratio::new(found.rate(root, relay).into(), scale.into());
        let row = |root| sites().map(|relay| rate(root, relay)).collect();
        let rates: Vec<Vec<Ratio>> = sites().map(row).collect();
        let substreams = expected.substreams.iter().map(|row| ratios(row));
        let substreams = substreams.collect::<anyhow::Result<Vec<_>>>()?;
        same("algorithm1.substreams", &rates, &substreams, misses);
        let objective = found.plan(1).objective(scaled, Cost::Sum);
        let objective = Ratio::new(objective, scale.into());
        same("algorithm1.objective", &objective, &ratio(&expected.objective)?, misses);
        Ok(())
    }

    /// The solver is one of floating point and the plan rounded, so the numbers are made large.
    #[cfg(feature = "lp")]
    fn one_relay_trees(&self, misses: &mut Vec<String>) -> anyhow::Result<()> {
        let Some(expected) = &self.instance.expected.one_relay_trees else {
            return Ok(());
        };
        let (model, scale) = self.scaled()?;
        let largest = model.uplink.iter().chain(&model.demand).max().copied().unwrap_or(0).max(1);
        let more = ((1 << 44) / largest).max(1);
        let model = times(&model, more)?;
        let options = PlanOptions::new().headroom_permille(1000).admit(None);
        let best = plan(&model, &options.family(convoke_overlay::Family::OneRelay))?;
        best.verify(&model)?;
        let objective = best.objective(&model, Cost::Sum) as f64 / (scale as f64 * more as f64);
        near("one_relay_trees.objective_f64", objective, expected.objective_f64, 1e-6, misses);
        Ok(())
    }
}

/// The plan that uses every bit of the uplinks.
fn exact_plan(model: &HoseModel) -> anyhow::Result<Plan> {
    let found = plan(model, &PlanOptions::new().headroom_permille(1000).admit(None))?;
    found.verify(model)?;
    Ok(found)
}

fn times(model: &HoseModel, factor: u64) -> anyhow::Result<HoseModel> {
    let times = |rates: &[u64]| -> anyhow::Result<Vec<u64>> {
        let scaled = rates.iter().map(|rate| rate.checked_mul(factor)).collect::<Option<_>>();
        scaled.context("its numbers are too large to be checked exactly")
    };
    // A downlink that takes more than everything need not be larger.
    let enough: u64 = model.uplink.iter().chain(&model.demand).sum();
    let downlink: Vec<u64> = model.downlink.iter().map(|downlink| *downlink.min(&enough)).collect();
    let scaled = HoseModel {
        uplink: times(&model.uplink)?,
        downlink: times(&downlink)?,
        demand: times(&model.demand)?,
        ..model.clone()
    };
    scaled.validate().context("its numbers are too large to be checked exactly")?;
    Ok(scaled)
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    expected: &T,
    misses: &mut Vec<String>,
) {
    if found != expected {
        misses.push(format!("{what} is {found:?}, expected {expected:?}"));
    }
}

fn near(what: &str, found: f64, expected: f64, relative: f64, misses: &mut Vec<String>) {
    // Not a number is near to nothing.
    let is_near = (found - expected).abs() <= relative * expected.abs().max(1e-9);
    if !is_near {
        misses.push(format!("{what} is {found}, expected {expected}"));
    }
}

fn ratios(texts: &[String]) -> anyhow::Result<Vec<Ratio>> {
    texts.iter().map(|text| ratio(text)).collect()
}

/// `a` or `a/b`.
fn ratio(text: &str) -> anyhow::Result<Ratio> {
    let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
    let cannot = || format!("{text:?} is no fraction");
    let numerator = numerator.trim().parse().with_context(cannot)?;
    let denominator: u128 = denominator.trim().parse().with_context(cannot)?;
    ensure!(denominator > 0, "{text:?} is no fraction");
    Ok(Ratio::new(numerator, denominator))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
