//! The replies of a quorum call so far, as a quorum function sees them: one a member.

use std::fmt;

use convoke_core::{Failure, NodeId};
use smallvec::SmallVec;

use crate::error::{MemberError, Shortfall};
use crate::roster::{Roster, Worth};
use crate::{MemberSet, QuorumSystem};

/// What members have replied so far, and what can still come. A member counts once, and only when a
/// connection with itself brought its reply; what it streams replaces what it said before.
pub struct Replies<Resp> {
    roster: Roster,
    /// The latest of each member, by index. Allocated with the first.
    values: Vec<Option<Resp>>,
    /// Members in the order of their first replies.
    order: SmallVec<[u32; 8]>,
    latest: Option<usize>,
    failed: Vec<(usize, MemberError)>,
    others: Vec<Failure>,
}

impl<Resp> Replies<Resp> {
    pub(crate) fn new(roster: Roster) -> Self {
        let (values, failed, others) = (Vec::new(), Vec::new(), Vec::new());
        Self { roster, values, order: SmallVec::new(), latest: None, failed, others }
    }

    /// A reply has come: what it is worth.
    pub(crate) fn hear(&mut self, from: NodeId, is_authenticated: bool) -> Worth {
        let worth = self.roster.hear(from, is_authenticated);
        if let Worth::New(index) = worth {
            let index = u32::try_from(index).expect("a call has at most 65,536 branches");
            self.order.push(index);
            self.failed.retain(|(failed, _)| *failed != index as usize);
        }
        worth
    }

    /// The reply of a member that was heard, in place of what it said before.
    pub(crate) fn store(&mut self, index: usize, value: Resp) {
        if self.values.is_empty() {
            self.values.resize_with(self.member_count(), || None);
        }
        self.values[index] = Some(value);
        self.latest = Some(index);
    }

    /// A member gives no reply that counts any more. Whether that is news.
    pub(crate) fn lose(&mut self, index: usize, error: MemberError) -> bool {
        let is_news = self.roster.lose(index);
        if is_news {
            self.failed.push((index, error));
        }
        is_news
    }

    /// A node that is no member failed.
    pub(crate) fn note(&mut self, failure: Failure) {
        self.others.push(failure);
    }

    /// Replies that were given away count no more.
    pub(crate) fn discount_taken(&mut self) {
        let Self { roster, values, order, .. } = self;
        order.retain(|index| {
            let index = *index as usize;
            let is_here = values.get(index).is_some_and(Option::is_some);
            if !is_here {
                roster.discount(index);
            }
            is_here
        });
    }

    /// Nothing comes any more.
    pub(crate) fn close(&mut self) {
        self.roster.close();
    }

    /// How many members there are, skipped ones included.
    pub fn member_count(&self) -> usize {
        self.roster.members().len()
    }

    /// The members, in the order of their indices: that of a configuration is that of ids.
    pub fn members(&self) -> &[NodeId] {
        self.roster.members()
    }

    /// How many members have replied.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no member has replied.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many members have not replied and still may.
    pub fn remaining(&self) -> usize {
        self.roster.remaining()
    }

    /// Which members have replied, by index.
    pub fn replied(&self) -> &MemberSet {
        self.roster.replied()
    }

    /// Which members have replied or still may, by index.
    pub fn possible(&self) -> MemberSet {
        self.roster.possible()
    }

    /// The replies, in the order in which their members first replied.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Resp)> {
        self.order.iter().filter_map(|index| {
            let index = *index as usize;
            Some((self.roster.member(index)?, self.values.get(index)?.as_ref()?))
        })
    }

    /// The reply of one member.
    pub fn of(&self, member: NodeId) -> Option<&Resp> {
        self.values.get(self.roster.index_of(member)?)?.as_ref()
    }

    /// The reply that came last.
    pub fn latest(&self) -> Option<(NodeId, &Resp)> {
        let index = self.latest?;
        Some((self.roster.member(index)?, self.values.get(index)?.as_ref()?))
    }

    /// The members that failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (NodeId, &MemberError)> {
        self.failed.iter().filter_map(|(index, error)| Some((self.roster.member(*index)?, error)))
    }

    /// Whether the members that have replied are a quorum of this system.
    pub fn reach(&self, system: &impl QuorumSystem) -> bool {
        system.is_quorum(self.members(), self.replied())
    }

    /// Whether they and those that still may reply are a quorum of this system.
    pub fn may_reach(&self, system: &impl QuorumSystem) -> bool {
        system.is_quorum(self.members(), &self.possible())
    }

    /// Takes the reply of one member out; the member still counts. For a rule that is done with it.
    pub fn take(&mut self, member: NodeId) -> Option<Resp> {
        let index = self.roster.index_of(member)?;
        self.values.get_mut(index)?.take()
    }

    /// Takes the reply of the member out that replied first.
    pub fn take_first(&mut self) -> Option<Resp> {
        self.values.get_mut(*self.order.first()? as usize)?.take()
    }

    /// Takes all replies out, in the order in which their members first replied.
    pub fn take_all(&mut self) -> Vec<(NodeId, Resp)> {
        let Self { order, values, roster, .. } = self;
        let taken = order.iter().filter_map(|index| {
            let index = *index as usize;
            Some((roster.member(index)?, values.get_mut(index)?.take()?))
        });
        taken.collect()
    }

    pub(crate) fn index_of(&self, member: NodeId) -> Option<usize> {
        self.roster.index_of(member)
    }

    pub(crate) fn member(&self, index: usize) -> Option<NodeId> {
        self.roster.member(index)
    }

    pub(crate) fn shortfall(&self) -> Shortfall {
        let nodes = |set: &MemberSet| set.iter().filter_map(|i| self.roster.member(i)).collect();
        let skipped = self.roster.skipped();
        let is_silent = |index: &usize| {
            let has_failed = self.failed.iter().any(|(failed, _)| failed == index);
            !self.replied().contains(*index) && !has_failed && !skipped.contains(*index)
        };
        let silent: MemberSet = (0..self.member_count()).filter(is_silent).collect();
        let failed = self.failed().map(|(node, error)| (node, error.clone())).collect();
        Shortfall {
            replied: nodes(self.replied()),
            failed,
            silent: nodes(&silent),
            skipped: nodes(skipped),
            others: self.others.clone(),
        }
    }
}

impl<Resp: fmt::Debug> fmt::Debug for Replies<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("members", &self.members())
            .field("values", &self.values)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
