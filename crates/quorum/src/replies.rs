//! The replies of a quorum call so far, as a rule sees them: one a member.

use std::fmt;

use convoke_core::{Failure, NodeId};

use crate::error::{MemberError, Shortfall};
use crate::roster::{Roster, Worth};
use crate::{MemberSet, QuorumSystem, Verdict};

/// The replies of members so far, and what can still come. A member counts once, and only when a
/// connection with itself brought its reply; what it streams replaces what it said before.
pub struct Replies<Resp> {
    standing: Standing,
    /// The latest of each member that counts and was not taken out, in the order of first replies.
    /// Allocated with the first.
    values: Vec<(NodeId, Resp)>,
}

/// Knowledge of the members, whatever they say.
#[derive(Default)]
struct Standing {
    roster: Roster,
    latest: Option<usize>,
    news: Option<Heard>,
    failed: Vec<(usize, MemberError)>,
    others: Vec<Failure>,
}

/// A reply that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The member that sent it.
    pub(crate) index: usize,
    /// It is the first of this member that counts.
    pub(crate) is_first: bool,
    /// It is an item of a stream, so more may follow.
    pub(crate) is_item: bool,
}

impl<Resp> Replies<Resp> {
    pub(crate) fn new(roster: Roster) -> Self {
        Self { standing: Standing { roster, ..Standing::default() }, values: Vec::new() }
    }

    /// Says what a reply that has come is worth, which this member sent.
    pub(crate) fn hear(&mut self, member: Option<usize>, is_item: bool) -> Worth {
        let worth = self.standing.roster.hear(member, is_item);
        if let Worth::New(index) = worth {
            self.standing.failed.retain(|(failed, _)| *failed != index);
        }
        worth
    }

    /// Keeps the reply of a member that was heard, in place of what it said before.
    pub(crate) fn store(&mut self, heard: Heard, value: Resp) {
        let Some(member) = self.member(heard.index) else { return };
        self.put(member, heard.is_first, value);
        self.standing.latest = Some(heard.index);
        self.standing.news = Some(heard);
    }

    fn put(&mut self, member: NodeId, is_first: bool, value: Resp) {
        let before = if is_first { None } else { self.position_of(member) };
        match before {
            Some(position) => self.values[position].1 = value,
            None => {
                if self.values.is_empty() {
                    self.values.reserve_exact(self.standing.roster.members().len());
                }
                self.values.push((member, value));
            }
        }
    }

    /// Notes that a member gives no reply that counts any more. True when that is news.
    pub(crate) fn lose(&mut self, index: usize, error: MemberError) -> bool {
        self.standing.news = None;
        let is_news = self.standing.roster.lose(index);
        let is_known = |(failed, _): &(usize, MemberError)| *failed == index;
        // One that ends after items that did not count has failed for these.
        let is_told =
            matches!(error, MemberError::Silent) && self.standing.failed.iter().any(is_known);
        if is_news && !is_told {
            self.standing.failed.retain(|failed| !is_known(failed));
            self.standing.failed.push((index, error));
        }
        is_news
    }

    /// Notes why a member has given no reply so far, which still may.
    pub(crate) fn note_failed(&mut self, index: usize, error: MemberError) {
        self.standing.news = None;
        if !self.replied().contains(index) {
            self.standing.failed.retain(|(failed, _)| *failed != index);
            self.standing.failed.push((index, error));
        }
    }

    /// Notes that a node failed that is no member.
    pub(crate) fn note(&mut self, failure: Failure) {
        self.standing.news = None;
        self.standing.others.push(failure);
    }

    /// Takes the members back whose reply was given away: they count no more.
    pub(crate) fn discount_taken(&mut self) {
        let is_here = |index: &usize| self.member(*index).is_some_and(|m| self.of(m).is_some());
        let taken: MemberSet = self.replied().iter().filter(|index| !is_here(index)).collect();
        taken.iter().for_each(|index| self.standing.roster.discount(index));
    }

    /// Notes that nothing comes any more.
    pub(crate) fn close(&mut self) {
        self.standing.news = None;
        self.standing.roster.close();
    }

    /// Number of members, skipped ones included.
    pub fn member_count(&self) -> usize {
        self.members().len()
    }

    /// The members, in the order of their indices: that of a configuration is that of ids.
    pub fn members(&self) -> &[NodeId] {
        self.standing.roster.members()
    }

    /// Number of members that have replied.
    pub fn len(&self) -> usize {
        self.replied().len()
    }

    /// True when no member has replied.
    pub fn is_empty(&self) -> bool {
        self.replied().is_empty()
    }

    /// Number of members that have not replied and still may.
    pub fn remaining(&self) -> usize {
        self.standing.roster.remaining()
    }

    /// Members that have replied, by index.
    pub fn replied(&self) -> &MemberSet {
        self.standing.roster.replied()
    }

    /// Members whose reply is a stream that goes on, by index: what they say may change.
    pub fn streaming(&self) -> &MemberSet {
        self.standing.roster.streaming()
    }

    /// Members that have replied or still may, by index.
    pub fn possible(&self) -> &MemberSet {
        self.standing.roster.possible()
    }

    /// The replies, in the order in which their members first replied.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Resp)> {
        self.values.iter().map(|(member, value)| (*member, value))
    }

    /// The reply of one member.
    pub fn of(&self, member: NodeId) -> Option<&Resp> {
        self.iter().find(|(other, _)| *other == member).map(|(_, value)| value)
    }

    /// The reply that came last.
    pub fn latest(&self) -> Option<(NodeId, &Resp)> {
        let member = self.member(self.standing.latest?)?;
        Some((member, self.of(member)?))
    }

    /// The members that failed, each with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (NodeId, &MemberError)> {
        let failed = self.standing.failed.iter();
        failed.filter_map(|(index, error)| Some((self.member(*index)?, error)))
    }

    /// Reason why a member has given no reply that counts, if there is one.
    pub(crate) fn error_of(&self, index: usize) -> Option<&MemberError> {
        let mut failed = self.standing.failed.iter();
        failed.find(|(failed, _)| *failed == index).map(|(_, error)| error)
    }

    /// Number of members that failed.
    pub(crate) fn failed_count(&self) -> usize {
        self.standing.failed.len()
    }

    /// True when the members that have replied are a quorum of this system.
    pub fn reach(&self, system: &(impl QuorumSystem + ?Sized)) -> bool {
        system.is_quorum(self.members(), self.replied())
    }

    /// True when they and those that still may reply are a quorum of this system.
    pub fn may_reach(&self, system: &(impl QuorumSystem + ?Sized)) -> bool {
        system.is_quorum(self.members(), self.possible())
    }

    /// Takes the reply of one member out; the member still counts. For a rule that is done with it.
    pub fn take(&mut self, member: NodeId) -> Option<Resp> {
        Some(self.values.remove(self.position_of(member)?).1)
    }

    /// Takes the reply of the member out that replied first.
    pub fn take_first(&mut self) -> Option<Resp> {
        (!self.values.is_empty()).then(|| self.values.remove(0).1)
    }

    /// Takes all replies out, in the order in which their members first replied.
    pub fn take_all(&mut self) -> Vec<(NodeId, Resp)> {
        std::mem::take(&mut self.values)
    }

    /// Decides by a system: what `take` gives once those who replied are a quorum. Exact, because a
    /// system is monotone.
    pub(crate) fn decide_by<T>(
        &mut self,
        system: &(impl QuorumSystem + ?Sized),
        take: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Verdict<T> {
        if self.reach(system) {
            // A quorum of nobody has no reply to give.
            return take(self).map_or(Verdict::Impossible, Verdict::Done);
        }
        if self.may_reach(system) { Verdict::Continue } else { Verdict::Impossible }
    }

    /// Lets the reply that has just come count only if `is_good` is true of it.
    pub(crate) fn filter_news(&mut self, is_good: impl FnOnce(NodeId, &Resp) -> bool) {
        let Some(heard) = self.standing.news else { return };
        let Some(member) = self.member(heard.index) else { return };
        let Some(position) = self.position_of(member) else { return };
        if !is_good(member, &self.values[position].1) {
            self.values.remove(position);
            self.standing.reject(heard);
        }
    }

    /// Lets `decide` see these replies as others, of which `mapped` keeps the values: the reply
    /// that has just come is given to `map`.
    pub(crate) fn decide_mapped<U, T>(
        &mut self,
        mapped: &mut Replies<U>,
        map: impl FnOnce(&Resp) -> U,
        decide: impl FnOnce(&mut Replies<U>) -> Verdict<T>,
    ) -> Verdict<T> {
        std::mem::swap(&mut self.standing, &mut mapped.standing);
        // A rule outside may have rejected what came: `mapped` has its standing now.
        mapped.keep_counted(self.values.len());
        if let Some(heard) = mapped.standing.news
            && let Some(member) = mapped.member(heard.index)
            && let Some(position) = self.position_of(member)
        {
            mapped.put(member, heard.is_first, map(&self.values[position].1));
        }
        let verdict = decide(mapped);
        std::mem::swap(&mut self.standing, &mut mapped.standing);
        // And the one inside may have.
        self.keep_counted(mapped.values.len());
        verdict
    }

    /// Drops the replies that count no more, if there are more than `count`.
    fn keep_counted(&mut self, count: usize) {
        let Self { standing, values } = self;
        if values.len() > count {
            values.retain(|(member, _)| standing.counts(*member));
        }
    }

    fn position_of(&self, member: NodeId) -> Option<usize> {
        self.values.iter().rposition(|(other, _)| *other == member)
    }

    pub(crate) fn index_of(&self, member: NodeId) -> Option<usize> {
        self.standing.roster.index_of(member)
    }

    pub(crate) fn member(&self, index: usize) -> Option<NodeId> {
        self.standing.roster.member(index)
    }

    pub(crate) fn shortfall(&self) -> Shortfall {
        self.standing.shortfall()
    }
}

impl Standing {
    /// The reply that has come does not count.
    fn reject(&mut self, heard: Heard) {
        let Heard { index, is_item, .. } = heard;
        self.news = None;
        self.latest = self.latest.filter(|latest| *latest != index);
        self.roster.reject(index, is_item);
        self.failed.push((index, MemberError::Filtered));
    }

    fn counts(&self, member: NodeId) -> bool {
        let index = self.roster.index_of(member);
        index.is_some_and(|index| self.roster.replied().contains(index))
    }

    fn shortfall(&self) -> Shortfall {
        let Self { roster, failed, others, .. } = self;
        let nodes = |set: &MemberSet| set.iter().filter_map(|i| roster.member(i)).collect();
        let is_silent = |index: &usize| {
            let has_failed = failed.iter().any(|(failed, _)| failed == index);
            !roster.replied().contains(*index) && !has_failed && !roster.skipped().contains(*index)
        };
        let silent: MemberSet = (0..roster.members().len()).filter(is_silent).collect();
        let failed = failed.iter();
        let failed =
            failed.filter_map(|(index, error)| Some((roster.member(*index)?, error.clone())));
        Shortfall {
            replied: nodes(roster.replied()),
            failed: failed.collect(),
            silent: nodes(&silent),
            skipped: nodes(roster.skipped()),
            others: others.clone(),
            reason: None,
            replies: None,
        }
    }
}

impl<Resp> Default for Replies<Resp> {
    /// The replies of nobody.
    fn default() -> Self {
        Self { standing: Standing::default(), values: Vec::new() }
    }
}

impl<Resp: fmt::Debug> fmt::Debug for Replies<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("members", &self.members())
            .field("values", &self.values)
            .field("failed", &self.standing.failed)
            .finish_non_exhaustive()
    }
}
