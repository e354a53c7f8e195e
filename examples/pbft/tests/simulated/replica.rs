//! Four replicas of a counter, for tests of single rules.

use std::collections::BTreeMap;

use bytes::Bytes;
use convoke::NodeId;
use pbft::core::{Checker, Effect, Group, Machine, Replica, Scope, Signer};

pub(crate) const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };

/// Counts operations.
#[derive(Clone, Debug)]
pub(crate) struct Counter(pub(crate) u64);

impl Machine for Counter {
    fn apply(&mut self, _: &[u8]) -> Bytes {
        self.0 += 1;
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn encode(&self) -> Vec<u8> {
        self.0.to_le_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

pub(crate) fn signer(number: u64) -> Signer {
    Signer::stand_in([u8::try_from(number).unwrap_or(0); 32])
}

pub(crate) fn group() -> Group {
    Group::new((1..=4).map(NodeId::new)).expect("there are members")
}

/// Everybody's signatures.
pub(crate) fn checkers() -> BTreeMap<NodeId, Checker> {
    (1..=4).map(|node| (NodeId::new(node), signer(node).checker())).collect()
}

pub(crate) fn effects(replica: &mut Replica<Counter>) -> Vec<Effect> {
    std::iter::from_fn(|| replica.poll_effect()).collect()
}
