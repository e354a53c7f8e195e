//! The list of sites, as sites hold theirs against that of each other: the first frame of every
//! flow.
//!
//! ```text
//! ROSTER = 1b | SHA-256 of the ids of all nodes, in their order, eight bytes each
//! ```
//! Frames name sites by their index. Were two lists different, operations would be taken for those
//! of other nodes.

use bytes::{BufMut, Bytes, BytesMut};
use convoke_core::NodeId;
use sha2::{Digest as _, Sha256};

const ROSTER: u8 = 0x1b;

/// One list of sites, as its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roster(Bytes);

impl Roster {
    pub(super) fn of(nodes: &[NodeId]) -> Self {
        let mut digest = Sha256::new();
        nodes.iter().for_each(|node| digest.update(node.get().to_le_bytes()));
        let mut frame = BytesMut::with_capacity(33);
        frame.put_u8(ROSTER);
        frame.put_slice(&digest.finalize());
        Self(frame.freeze())
    }

    pub(super) fn frame(&self) -> &Bytes {
        &self.0
    }

    /// `None` when it is another frame.
    pub(super) fn decode(frame: &Bytes) -> Option<Self> {
        (frame.first() == Some(&ROSTER)).then(|| Self(frame.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_nodes_have_the_same_roster_and_others_another() {
        let roster = |ids: &[u64]| {
            let nodes: Vec<NodeId> =
                ids.iter().filter_map(|id| NodeId::try_from(*id).ok()).collect();
            Roster::of(&nodes)
        };
        assert_eq!(Roster::decode(roster(&[1, 2]).frame()), Some(roster(&[1, 2])));
        assert_ne!(roster(&[1, 2]), roster(&[1, 3]));
        assert_ne!(roster(&[1, 2]), roster(&[1, 2, 3]));
        assert_eq!(Roster::decode(&Bytes::from_static(&[0x1c, 0])), None);
        assert_eq!(Roster::decode(&Bytes::new()), None);
    }
}
