//! Rules that decide on some of the replies, or on parts of them.

use std::fmt;

use convoke_core::NodeId;

use crate::{QuorumFunction, QuorumSystem, Replies, Verdict};

/// A rule for which only some replies count; see [`QuorumFunction::filter`].
#[derive(Clone, Copy)]
pub struct Filter<F, P> {
    rule: F,
    keep: P,
}

impl<F, P> Filter<F, P> {
    pub(super) fn new(rule: F, keep: P) -> Self {
        Self { rule, keep }
    }
}

impl<Resp, F, P> QuorumFunction<Resp> for Filter<F, P>
where
    F: QuorumFunction<Resp>,
    P: FnMut(NodeId, &Resp) -> bool,
{
    type Output = F::Output;

    fn system(&self) -> &dyn QuorumSystem {
        self.rule.system()
    }

    fn believes_relays(&self) -> bool {
        self.rule.believes_relays()
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<F::Output> {
        replies.filter_news(&mut self.keep);
        self.rule.decide(replies)
    }

    fn why_impossible(&self, replies: &Replies<Resp>) -> Option<String> {
        self.rule.why_impossible(replies)
    }
}

/// A rule that decides on parts of the replies; see [`QuorumFunction::map`].
pub struct Map<F, M, U> {
    rule: F,
    map: M,
    /// The replies as the rule sees them.
    mapped: Replies<U>,
}

impl<F, M, U> Map<F, M, U> {
    pub(super) fn new(rule: F, map: M) -> Self {
        Self { rule, map, mapped: Replies::default() }
    }
}

impl<Resp, U, F, M> QuorumFunction<Resp> for Map<F, M, U>
where
    F: QuorumFunction<U>,
    M: FnMut(&Resp) -> U,
{
    type Output = F::Output;

    fn system(&self) -> &dyn QuorumSystem {
        self.rule.system()
    }

    fn believes_relays(&self) -> bool {
        self.rule.believes_relays()
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<F::Output> {
        let Self { rule, map, mapped } = self;
        replies.decide_mapped(mapped, map, |mapped| rule.decide(mapped))
    }

    fn why_impossible(&self, _: &Replies<Resp>) -> Option<String> {
        self.rule.why_impossible(&self.mapped)
    }
}

impl<F: fmt::Debug, P> fmt::Debug for Filter<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.rule).finish()
    }
}

impl<F: fmt::Debug, M, U> fmt::Debug for Map<F, M, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Map").field(&self.rule).finish()
    }
}
