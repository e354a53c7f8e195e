//! Algorithm 1 of ShallowForest, section 4.3.2: sub-streams that carry any sustainable rates, at no
//! matter which latency. The proof of its theorem, and what an optimal plan is compared with.

use crate::hose::{HoseModel, ModelError};
use crate::plan::Substreams;

/// Gives each site in turn what it can get of each relay in turn.
///
/// The demands should be sustainable; what has no room is left out. A relayed unit takes n-2 units
/// of an uplink; whole kbit/s are given only, so that with capacities that are no multiples of n-2
/// a little can be left out.
///
/// # Errors
/// If the model is not [valid](HoseModel::validate).
pub fn greedy(model: &HoseModel) -> Result<Substreams, ModelError> {
    model.validate()?;
    let n = model.sites();
    // With two sites there is nobody to relay to: any sub-stream fits anywhere.
    let copies = (n as u64).saturating_sub(2);
    let residual = model.uplink.iter().zip(&model.demand);
    let mut residual: Vec<u64> =
        residual.map(|(uplink, demand)| uplink.saturating_sub(*demand)).collect();
    let mut rates = Vec::with_capacity(n * n);
    for demand in &model.demand {
        let mut left = *demand;
        // Departs from ShallowForest, algorithm 1, line 9: it is the uplink of the relay that gets
        // less, not that of the root. The literal version gives rates below zero.
        for residual in &mut residual {
            let rate = residual.checked_div(copies).unwrap_or(left).min(left);
            *residual -= copies * rate;
            left -= rate;
            rates.push(rate);
        }
    }
    Ok(Substreams::new(n, rates))
}
