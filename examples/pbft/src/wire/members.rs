//! Members, their changes, and the proof of them.

use bytes::Bytes;

use super::message::{fields, kinds};
use super::{Malformed, Reader, Wire, put_kind};
use crate::core::{
    Change, Changed, Checker, Digest, Handover, Member, Members, Membership, NotChanged, Sequence,
    Stable,
};

fields! {
    Member { key: Checker, addresses: Vec<String> }
    Members { epoch: u64, nodes: std::collections::BTreeMap<convoke::NodeId, Member> }
    Membership { now: Members, next: Option<(Sequence, Members)> }
    Change {
        epoch: u64, remove: Option<convoke::NodeId>, add: Option<(convoke::NodeId, Member)>
    }
    Handover { stable: Stable, parts: Digest, members: Members }
}

kinds! {
    Checker "key" { 1 => Ed25519(key), 2 => StandIn(seed), 3 => Unsigned, 4 => Connection(node) }
    Changed "result of a change" { 1 => Taken(members, end), 2 => Refused(why) }
    NotChanged "reason" {
        1 => Changing(end),
        2 => OtherEpoch(epoch),
        3 => Known(node),
        4 => Unknown(node),
        5 => TooFew,
        6 => TooMany,
        7 => Key(node),
        8 => Malformed
    }
}

impl Wire for String {
    const LEAST: usize = Bytes::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        super::reader::put_bytes(self.as_bytes(), out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        let bytes = Bytes::take(from)?;
        Self::from_utf8(bytes.into()).map_err(|_| Malformed::Text)
    }
}
