//! The newest of several versions.

use std::fmt;

use convoke_core::NodeId;

use crate::system::check_count;
use crate::{QuorumFunction, Replies, Unsuitable, Verdict};

/// The newest reply of a number of members; see [`newest_of`].
#[derive(Clone, Copy)]
pub struct NewestOf<K> {
    count: usize,
    version: K,
}

/// Of `count` members' replies the one with the greatest version: the read of a replicated register whose
/// writes reach more than `n - count` members.
pub fn newest_of<Resp, V: Ord, K: Fn(&Resp) -> V>(count: usize, version: K) -> NewestOf<K> {
    NewestOf { count, version }
}

impl<Resp, V: Ord, K: Fn(&Resp) -> V> QuorumFunction<Resp> for NewestOf<K> {
    type Output = Resp;

    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        check_count(self.count, members.len())
    }

    fn fewest(&self, _: usize) -> usize {
        self.count
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Resp> {
        if replies.len() >= self.count {
            let newest = replies.iter().max_by_key(|(_, reply)| (self.version)(reply));
            let newest = newest.map(|(member, _)| member);
            let newest = newest.and_then(|member| replies.take(member));
            return newest.map_or(Verdict::Impossible, Verdict::Done);
        }
        match replies.len() + replies.remaining() < self.count {
            true => Verdict::Impossible,
            false => Verdict::Continue,
        }
    }
}

impl<K> fmt::Debug for NewestOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewestOf({})", self.count)
    }
}
