//! The machine of the world: it notices an operation that is executed twice.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::core::{Digest, Machine};

/// Operations that were executed, and a digest of their order.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    order: Digest,
    operations: BTreeSet<[u8; 16]>,
}

/// The result of an operation that was executed before.
pub(super) const TWICE: &[u8] = b"twice";

impl Tape {
    pub(super) fn new() -> Self {
        Self { order: Digest([0; 32]), operations: BTreeSet::new() }
    }
}

impl Machine for Tape {
    fn apply(&mut self, operation: &[u8]) -> Bytes {
        let name = <[u8; 16]>::try_from(operation).unwrap_or_default();
        if !self.operations.insert(name) {
            return Bytes::from_static(TWICE);
        }
        self.order = Digest::of(&[&self.order.0, operation].concat());
        Bytes::copy_from_slice(&self.order.0[..8])
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.order.0.to_vec();
        self.operations.iter().for_each(|operation| bytes.extend_from_slice(operation));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (order, rest) = bytes.split_first_chunk::<32>()?;
        let (names, left) = rest.as_chunks::<16>();
        let operations = names.iter().copied().collect();
        left.is_empty().then_some(Self { order: Digest(*order), operations })
    }
}
