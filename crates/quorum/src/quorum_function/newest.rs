//! The newest of several versions.

use std::fmt;

use crate::{QuorumFunction, QuorumSystem, Replies, Verdict};

/// The newest reply of a quorum; see [`newest_of`].
#[derive(Clone, Copy)]
pub struct NewestOf<S, K> {
    system: S,
    version: K,
}

/// Of the replies of a quorum of `system` the one with the greatest version: the read of a
/// replicated register. Its quorums must meet those of the writes: `Majority` meets `Majority`,
/// `Threshold(k)` those of more than `n - k` members.
pub fn newest_of<Resp, S, V, K>(system: S, version: K) -> NewestOf<S, K>
where
    S: QuorumSystem,
    V: Ord,
    K: Fn(&Resp) -> V,
{
    NewestOf { system, version }
}

impl<Resp, S, V, K> QuorumFunction<Resp> for NewestOf<S, K>
where
    S: QuorumSystem,
    V: Ord,
    K: Fn(&Resp) -> V,
{
    type Output = Resp;

    fn system(&self) -> &dyn QuorumSystem {
        &self.system
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Resp> {
        let Self { system, version } = self;
        replies.decide_by(&*system, |replies| {
            let newest = replies.iter().max_by_key(|(_, reply)| version(reply));
            let newest = newest.map(|(member, _)| member);
            newest.and_then(|member| replies.take(member))
        })
    }
}

impl<S: fmt::Debug, K> fmt::Debug for NewestOf<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewestOf").field(&self.system).finish()
    }
}
