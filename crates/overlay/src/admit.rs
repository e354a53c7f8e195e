//! Choice of the rates to let in when the sites want more than is sustainable. (ShallowForest,
//! section 5.1)
//!
//! Departs from the paper, which solves a linear program whose vertices starve some sites: the
//! largest total has a closed form, and among the vectors that reach it the fair one is found by
//! filling up to a common level.

use crate::hose::{HoseModel, ModelError, sites};
use crate::ratio::Ratio;

/// Rule for which sites have to take less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fairness {
    /// The largest total, and as even as that allows: nobody could get more without someone getting
    /// less who has no more. The default.
    #[default]
    MaxMin,
    /// Everybody the same fraction of its demand, the largest that is sustainable. The total may be
    /// less than possible: one site that can receive little slows all down.
    Proportional,
    /// As [`MaxMin`](Self::MaxMin), where a site of weight 2 counts as two. One weight for each
    /// site, 1 to [`WEIGHT_MAX`].
    Weighted(Vec<u32>),
}

/// Largest weight of [`Fairness::Weighted`].
pub const WEIGHT_MAX: u32 = 1 << 20;

/// Rates that are sustainable, and none more than its demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    exact: Vec<Ratio>,
}

impl Rates {
    /// One for each site, kbit/s.
    pub fn exact(&self) -> &[Ratio] {
        &self.exact
    }

    /// In whole kbit/s, rounded down, so that they are sustainable, too.
    pub fn whole(&self) -> Vec<u64> {
        self.exact.iter().map(|rate| rate.floor()).collect()
    }
}

/// Cuts the demands to rates that are sustainable. Demands that already are stay as they are.
///
/// # Errors
/// If the model is not [valid](HoseModel::validate), or weights are missing, zero or too large.
pub fn admit(model: &HoseModel, fairness: &Fairness) -> Result<Rates, ModelError> {
    model.validate()?;
    match fairness {
        Fairness::MaxMin => Ok(fill(model, &vec![1; model.sites()])),
        Fairness::Weighted(weights) => {
            check_weights(model.sites(), weights)?;
            Ok(fill(model, weights))
        }
        Fairness::Proportional => {
            let scale = largest_scale(model)?.map_or(Ratio::ONE, |scale| scale.min(Ratio::ONE));
            Ok(Rates { exact: model.demand.iter().map(|demand| scale.of(*demand)).collect() })
        }
    }
}

/// The largest factor by which all demands can be multiplied and be sustainable; none without
/// demand. What is above one says how much the load can grow, as it is spread now, before some site
/// has to be cut.
///
/// # Errors
/// If the model is not [valid](HoseModel::validate).
pub fn largest_scale(model: &HoseModel) -> Result<Option<Ratio>, ModelError> {
    model.validate()?;
    let total = sum(&model.demand);
    let copies = total * (model.sites() as u128 - 1);
    let uplinks = model.uplink.iter().zip(&model.demand);
    let uplinks = uplinks.map(|(&uplink, &demand)| (uplink.into(), demand.into()));
    let downlinks = model.downlink.iter().zip(&model.demand);
    let downlinks =
        downlinks.map(|(&downlink, &demand)| (downlink.into(), total - u128::from(demand)));
    let all = uplinks.chain(downlinks).chain([(sum(&model.uplink), copies)]);
    Ok(all.filter(|(_, needed)| *needed > 0).map(|(has, needed)| Ratio::new(has, needed)).min())
}

/// The largest sum of rates that are sustainable and not above the demands: the optimum of linear
/// program 5.1-5.5 with rates that are not negative.
///
/// # Errors
/// If the model is not [valid](HoseModel::validate).
pub fn largest_total(model: &HoseModel) -> Result<Ratio, ModelError> {
    model.validate()?;
    Ok(total(model))
}

fn total(model: &HoseModel) -> Ratio {
    let wanted = upper(model);
    let mut largest = Ratio::new(sum(&wanted), 1);
    if model.sites() > 1 {
        largest = largest.min(Ratio::new(sum(&model.uplink), model.sites() as u128 - 1));
    }
    for (wanted, downlink) in wanted.iter().zip(&model.downlink) {
        largest = largest.min(Ratio::whole(wanted + downlink));
    }
    // A site must itself send what exceeds its downlink, and all sites together no more than the
    // total: for the k smallest downlinks k·T - sum <= T.
    let mut downlinks = model.downlink.clone();
    downlinks.sort_unstable();
    let mut smallest = 0;
    for (index, downlink) in downlinks.into_iter().enumerate() {
        smallest += u128::from(downlink);
        if index > 0 {
            largest = largest.min(Ratio::new(smallest, index as u128));
        }
    }
    largest
}

/// The rates with the largest total that are even, or even per weight: each at a common level, but
/// for those that have a bound above or below it.
fn fill(model: &HoseModel, weights: &[u32]) -> Rates {
    let total = total(model);
    // Everything times the denominator of the total is whole.
    let (unit, total) = (total.denominator(), total.numerator());
    let bounds = upper(model).into_iter().zip(&model.downlink).zip(weights);
    let bounds: Vec<Bound> = bounds
        .map(|((upper, &downlink), &weight)| Bound {
            lower: total.saturating_sub(unit * u128::from(downlink)),
            upper: unit * u128::from(upper),
            weight: weight.into(),
        })
        .collect();
    let level = level(&bounds, total);
    let rate = |bound: &Bound| Ratio::new(bound.at(level), level.denominator() * unit);
    Rates { exact: bounds.iter().map(rate).collect() }
}

/// Between which a rate must be, all times the same unit.
struct Bound {
    lower: u128,
    upper: u128,
    weight: u128,
}

impl Bound {
    /// The rate at a level, times the denominator of the level.
    fn at(&self, level: Ratio) -> u128 {
        let parts = level.denominator();
        (self.weight * level.numerator()).clamp(self.lower * parts, self.upper * parts)
    }

    fn corners(&self) -> [Ratio; 2] {
        [Ratio::new(self.lower, self.weight), Ratio::new(self.upper, self.weight)]
    }
}

/// The level at which the rates add up to the total.
fn level(bounds: &[Bound], total: u128) -> Ratio {
    let mut corners: Vec<Ratio> = bounds.iter().flat_map(Bound::corners).collect();
    corners.sort_unstable();
    let reached = |level: &Ratio| {
        bounds.iter().map(|bound| bound.at(*level)).sum::<u128>() >= total * level.denominator()
    };
    let index = corners.partition_point(|corner| !reached(corner));
    let Some(&above) = corners.get(index) else {
        return corners.last().copied().unwrap_or(Ratio::ONE);
    };
    let below = index.checked_sub(1).map_or(Ratio::whole(0), |index| corners[index]);
    // Between two corners the sum is linear: those within their bounds grow, the others stay.
    let (mut left, mut growing) = (total, 0);
    for bound in bounds {
        let [from, to] = bound.corners();
        if from <= below && above <= to && from < to {
            growing += bound.weight;
        } else {
            left -= bound.at(above) / above.denominator();
        }
    }
    if growing == 0 { above } else { Ratio::new(left, growing) }
}

/// Most that each site can send of its own.
fn upper(model: &HoseModel) -> Vec<u64> {
    let both = model.demand.iter().zip(&model.uplink);
    both.map(|(demand, uplink)| *demand.min(uplink)).collect()
}

fn sum(rates: &[u64]) -> u128 {
    rates.iter().map(|rate| u128::from(*rate)).sum()
}

fn check_weights(count: usize, weights: &[u32]) -> Result<(), ModelError> {
    if weights.len() != count {
        let found = weights.len();
        return Err(ModelError::Length { field: "weights", expected: count, found });
    }
    let wrong = sites(count).zip(weights).find(|(_, weight)| !(1..=WEIGHT_MAX).contains(*weight));
    wrong.map_or(Ok(()), |(site, &found)| Err(ModelError::Weight { site, found, max: WEIGHT_MAX }))
}
