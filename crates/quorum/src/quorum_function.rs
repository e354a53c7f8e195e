//! The rule that turns replies into one answer, or says not yet, or never.

mod matching;
mod newest;

use convoke_core::NodeId;

use crate::system::{All, Byzantine, First, Grid, Majority, Threshold, Weighted};
use crate::{QuorumSystem, Replies, Unsuitable};

pub use matching::{Matching, matching, matching_by};
pub use newest::{NewestOf, newest_of};

/// What a quorum function says of the replies so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Not yet.
    Continue,
    /// This is the answer.
    Done(T),
    /// Whatever still comes, there will be none. The call ends at once.
    Impossible,
}

/// Decides a quorum call.
///
/// It is asked on the caller's task after every reply and every failure, and for the last time when nothing
/// can come any more; where members are skipped also before anything is sent. Any function is one; `quorum_by` of a call infers its types:
/// ```
/// use convoke_quorum::{Majority, Replies, Verdict};
///
/// /// The sum over a majority.
/// fn sum(replies: &Replies<u64>) -> Verdict<u64> {
///     match () {
///         () if replies.reach(&Majority) => Verdict::Done(replies.iter().map(|(_, n)| n).sum()),
///         () if replies.may_reach(&Majority) => Verdict::Continue,
///         () => Verdict::Impossible,
///     }
/// }
/// # fn is_function<F: convoke_quorum::QuorumFunction<u64>>(_: F) {}
/// # is_function(sum);
/// ```
///
/// Every [`QuorumSystem`] of this crate is one, too: its answer is the reply that came first, once those who
/// replied are a quorum. [`Gathered`] gives all their replies instead.
pub trait QuorumFunction<Resp> {
    /// The answer.
    type Output;

    /// Whether these members can give an answer at all. Asked before anything is sent. Default: yes.
    ///
    /// # Errors
    /// [`Unsuitable`] says what does not fit.
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        let _ = members;
        Ok(())
    }

    /// It never decides well on fewer replies of so many members: until then the call need not be woken for
    /// each. Default 1.
    fn fewest(&self, members: usize) -> usize {
        let _ = members;
        1
    }

    /// Decides. It may take the replies it decides on out, and is not asked again then.
    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Self::Output>;
}

impl<Resp, T, F: FnMut(&Replies<Resp>) -> Verdict<T>> QuorumFunction<Resp> for F {
    type Output = T;

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<T> {
        self(replies)
    }
}

/// The replies of a quorum of any [`QuorumSystem`], in the order in which they came, with their members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathered<S>(pub S);

impl<Resp, S: QuorumSystem> QuorumFunction<Resp> for Gathered<S> {
    type Output = Vec<(NodeId, Resp)>;

    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        self.0.check(members)
    }

    fn fewest(&self, members: usize) -> usize {
        self.0.fewest(members)
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Self::Output> {
        verdict(&self.0, replies, |replies| Some(replies.take_all()))
    }
}

/// The first reply of a quorum of a [`QuorumSystem`] of one's own. Those of this crate need no wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Of<S>(pub S);

impl<Resp, S: QuorumSystem> QuorumFunction<Resp> for Of<S> {
    type Output = Resp;

    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        self.0.check(members)
    }

    fn fewest(&self, members: usize) -> usize {
        self.0.fewest(members)
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Resp> {
        verdict(&self.0, replies, Replies::take_first)
    }
}

/// Exact, because a system is monotone.
pub(crate) fn verdict<Resp, T>(
    system: &impl QuorumSystem,
    replies: &mut Replies<Resp>,
    take: impl FnOnce(&mut Replies<Resp>) -> Option<T>,
) -> Verdict<T> {
    if replies.reach(system) {
        // A quorum of nobody has no reply to give.
        return take(replies).map_or(Verdict::Impossible, Verdict::Done);
    }
    if replies.may_reach(system) { Verdict::Continue } else { Verdict::Impossible }
}

macro_rules! functions {
    ($($system:ty),*) => {$(
        impl<Resp> QuorumFunction<Resp> for $system {
            type Output = Resp;

            fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
                QuorumSystem::check(self, members)
            }

            fn fewest(&self, members: usize) -> usize {
                QuorumSystem::fewest(self, members)
            }

            fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Resp> {
                verdict(self, replies, Replies::take_first)
            }
        }
    )*};
}

functions!(All, Byzantine, First, Grid, Majority, Threshold, Weighted);

#[cfg(test)]
mod tests;
