//! The beginning of a view: what it has to propose again, which follows from who wanted it.

use std::collections::BTreeMap;

use super::group::{Digest, Sequence};
use super::message::{Batch, NewView, Prepared, Stable};
use crate::mutant::{self, Mutant};

/// Proposals that a new view begins with (O of the paper), as a function of the word of those who
/// wanted it (V).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// All up to here is stable.
    pub low: Sequence,
    /// The last place that is bound.
    pub high: Sequence,
    /// Batches of the places in between: of each the one prepared in the latest view, or the null
    /// request.
    pub bound: BTreeMap<Sequence, Digest>,
}

impl Plan {
    /// The plan of a view.
    pub fn of(new_view: &NewView) -> Self {
        let low = latest_stable(new_view).map_or(Sequence(0), |stable| stable.checkpoint.sequence);
        let mut latest: BTreeMap<Sequence, &Prepared> = BTreeMap::new();
        let proofs = new_view.changes.iter().flat_map(|change| &change.body.prepared);
        for proof in proofs.filter(|proof| proof.sequence > low) {
            let best = latest.entry(proof.sequence).or_insert(proof);
            let is_better = proof.view > best.view;
            if is_better != mutant::is(Mutant::OldestCertificate) {
                *best = proof;
            }
        }
        let high = latest.keys().next_back().copied().unwrap_or(low);
        let null = Batch::null().digest();
        let mut bound: BTreeMap<Sequence, Digest> =
            (low.0 + 1..=high.0).map(|sequence| (Sequence(sequence), null)).collect();
        bound.extend(latest.iter().map(|(sequence, proof)| (*sequence, proof.digest)));
        if mutant::is(Mutant::NoNullRequests) {
            bound.retain(|sequence, _| latest.contains_key(sequence));
        }
        Self { low, high, bound }
    }

    /// True when the primary may propose this batch there.
    pub(super) fn allows(&self, sequence: Sequence, digest: Digest) -> bool {
        if sequence > self.high || mutant::is(Mutant::PlanNotChecked) {
            return true;
        }
        sequence > self.low && self.bound.get(&sequence) == Some(&digest)
    }
}

/// The latest stable checkpoint that those who wanted a view know of.
pub(super) fn latest_stable(new_view: &NewView) -> Option<&Stable> {
    let stable = new_view.changes.iter().map(|change| &change.body.stable);
    stable.max_by_key(|stable| stable.checkpoint.sequence)
}
