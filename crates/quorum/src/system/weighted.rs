//! Votes of different weight.

use std::collections::BTreeMap;

use convoke_core::NodeId;

use crate::MemberSet;

use super::{QuorumSystem, Unsuitable};

/// Members whose weights reach a threshold together. Source: Gifford, *Weighted Voting for
/// Replicated Data*, SOSP 1979. A member without a weight has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted {
    weights: BTreeMap<NodeId, u32>,
    threshold: u64,
}

impl Weighted {
    /// More than half of all weight: any two quorums have a member in common.
    pub fn majority(weights: impl IntoIterator<Item = (NodeId, u32)>) -> Self {
        let weights: BTreeMap<NodeId, u32> = weights.into_iter().collect();
        let total: u64 = weights.values().map(|weight| u64::from(*weight)).sum();
        Self { weights, threshold: total / 2 + 1 }
    }

    /// At least this much weight.
    pub fn at_least(threshold: u64, weights: impl IntoIterator<Item = (NodeId, u32)>) -> Self {
        Self { weights: weights.into_iter().collect(), threshold }
    }

    fn weight(&self, member: NodeId) -> u64 {
        self.weights.get(&member).copied().unwrap_or(0).into()
    }
}

impl QuorumSystem for Weighted {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        if members.is_empty() {
            return Err(Unsuitable::NoMembers);
        }
        let available = members.iter().map(|member| self.weight(*member)).sum();
        match self.threshold {
            0 => Err(Unsuitable::ThresholdZero),
            threshold if threshold > available => {
                Err(Unsuitable::ThresholdTooHigh { threshold, available })
            }
            _ => Ok(()),
        }
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        let weights = present.iter().map(|index| self.weight(members[index]));
        weights.sum::<u64>() >= self.threshold
    }
}
