//! The rule that turns replies into one answer, or says not yet, or never.

mod adapters;
mod matching;
mod newest;

use convoke_core::NodeId;

use crate::system::First;
use crate::{QuorumSystem, Replies};

pub use adapters::{Filter, Map};
pub use matching::{Matching, matching, matching_by};
pub use newest::{NewestOf, newest_of};

/// Judgement of the replies so far, by a rule, a closure or a correctable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// No answer yet, or no better one.
    Continue,
    /// An answer that may be corrected. Where nobody reads such answers, as [`Self::Continue`].
    Preliminary(T),
    /// The answer. It ends the call.
    Done(T),
    /// There will be no answer, whatever still comes. It ends the call at once.
    Impossible,
}

/// A rule that decides a quorum call.
///
/// It is asked on the caller's task after every reply and every failure, and for the last time when
/// nothing can come any more; where members are skipped also before anything is sent. Implement it
/// for a type of your own, or give a closure to `quorum_by`:
/// ```
/// use convoke_quorum::{Majority, QuorumFunction, QuorumSystem, Replies, Verdict};
///
/// /// The sum over a majority.
/// struct Sum;
///
/// impl QuorumFunction<u64> for Sum {
///     type Output = u64;
///
///     fn system(&self) -> &dyn QuorumSystem {
///         &Majority
///     }
///
///     fn decide(&mut self, replies: &mut Replies<u64>) -> Verdict<u64> {
///         match () {
///             () if replies.reach(&Majority) => {
///                 Verdict::Done(replies.iter().map(|(_, n)| n).sum())
///             }
///             () if replies.may_reach(&Majority) => Verdict::Continue,
///             () => Verdict::Impossible,
///         }
///     }
/// }
/// ```
///
/// Every [`QuorumSystem`] is one, too, also of your own: its answer is all replies of the quorum,
/// in the order in which they came. [`AckedBy`] gives the first of them alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no rule that decides a quorum call",
    label = "neither a `QuorumSystem` nor a `QuorumFunction`",
    note = "a closure is given to `.quorum_by(|replies| ..)`",
    note = "a type implements `QuorumSystem`, which members are enough, or `QuorumFunction`, what \
            their replies come to"
)]
pub trait QuorumFunction<Resp> {
    /// The answer.
    type Output;

    /// The sets of members on which it decides, or larger ones: checked against the members before
    /// anything is sent, and nobody is woken for fewer replies. Default: [`First`].
    fn system(&self) -> &dyn QuorumSystem {
        &First
    }

    /// True where a member among the leaves of a tree has failed when the node above it says so.
    /// Default: as [`Self::system`] says.
    fn believes_relays(&self) -> bool {
        QuorumSystem::believes_relays(self.system())
    }

    /// Decides. It may take the replies it decides on out, and is not asked again then.
    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Self::Output>;

    /// Reason why these replies lead to no answer, for the error that says so, where it is more
    /// than that they are too few. Asked once the rule says [`Verdict::Impossible`], or the call is
    /// over without an answer. Default: none.
    fn why_impossible(&self, replies: &Replies<Resp>) -> Option<String> {
        let _ = replies;
        None
    }

    /// Lets only replies count of which `keep` is true. A member whose reply is filtered out has
    /// failed, as [`MemberError::Filtered`](crate::MemberError::Filtered); one that streams may
    /// still send a better item.
    ///
    /// ```
    /// # use convoke_quorum::{Majority, QuorumFunction, newest_of};
    /// # #[derive(Clone, PartialEq, prost::Message)]
    /// # struct Versioned { #[prost(uint64, tag = "1")] version: u64 }
    /// // A member that is behind does not count.
    /// let rule = Majority.filter(|_member, reply: &Versioned| reply.version >= 7);
    /// # fn is_rule(_: impl QuorumFunction<Versioned>) {}
    /// # is_rule(rule);
    /// ```
    fn filter<P>(self, keep: P) -> Filter<Self, P>
    where
        Self: Sized,
        P: FnMut(NodeId, &Resp) -> bool,
    {
        Filter::new(self, keep)
    }

    /// Decides on what `map` makes of the replies, in place of the replies.
    ///
    /// ```
    /// # use convoke_quorum::{QuorumFunction, matching};
    /// # #[derive(Clone, PartialEq, prost::Message)]
    /// # struct Versioned { #[prost(uint64, tag = "1")] version: u64 }
    /// // The version that two members agree on, whatever else they say.
    /// let rule = matching(2).map(|reply: &Versioned| reply.version);
    /// # fn is_rule(_: impl QuorumFunction<Versioned, Output = u64>) {}
    /// # is_rule(rule);
    /// ```
    fn map<Of, M>(self, map: M) -> Map<Self, M, Resp>
    where
        Self: Sized,
        M: FnMut(&Of) -> Resp,
    {
        Map::new(self, map)
    }
}

impl<Resp, S: QuorumSystem> QuorumFunction<Resp> for S {
    type Output = Vec<(NodeId, Resp)>;

    fn system(&self) -> &dyn QuorumSystem {
        self
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Self::Output> {
        replies.decide_by(&*self, |replies| Some(replies.take_all()))
    }
}

/// The first reply, once those who replied are a quorum of a [`QuorumSystem`]: for writes, whose
/// replies say nothing. Read by it, a value may be stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckedBy<S>(pub S);

impl<Resp, S: QuorumSystem> QuorumFunction<Resp> for AckedBy<S> {
    type Output = Resp;

    fn system(&self) -> &dyn QuorumSystem {
        &self.0
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Resp> {
        replies.decide_by(&self.0, Replies::take_first)
    }
}

/// A closure that decides; see [`QuorumExt::quorum_by`](crate::QuorumExt::quorum_by).
#[derive(Clone, Copy)]
pub struct Closure<C>(pub(crate) C);

impl<Resp, T, C: FnMut(&Replies<Resp>) -> Verdict<T>> QuorumFunction<Resp> for Closure<C> {
    type Output = T;

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<T> {
        (self.0)(replies)
    }
}

impl<C> std::fmt::Debug for Closure<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closure")
    }
}

#[cfg(test)]
mod tests;
