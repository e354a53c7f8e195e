//! Arithmetic of a quorum call, without its messages: who is asked, who has replied, and who still
//! may.

use convoke_core::NodeId;
use smallvec::SmallVec;

use crate::{MemberSet, Unsuitable};

/// The members of one quorum call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    members: SmallVec<[NodeId; 8]>,
    /// Sorted by id, so that a member is found by bisection.
    is_sorted: bool,
    replied: MemberSet,
    /// Members that have replied or still may.
    possible: MemberSet,
    skipped: MemberSet,
    /// Members that have replied with an item and may send another.
    streaming: MemberSet,
}

/// Worth of a reply to a count of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// The first of this member.
    New(usize),
    /// A further one of this member.
    Again(usize),
    /// It is from no member that was asked, or cannot be known to be.
    Nothing,
}

impl Roster {
    /// # Errors
    /// [`Unsuitable`] when there is nobody, or a member comes twice.
    pub(crate) fn new(members: impl IntoIterator<Item = NodeId>) -> Result<Self, Unsuitable> {
        let members: SmallVec<[NodeId; 8]> = members.into_iter().collect();
        if members.is_empty() {
            return Err(Unsuitable::NoMembers);
        }
        let is_sorted = members.is_sorted();
        let duplicate = if is_sorted {
            twice(&members)
        } else {
            let mut sorted = members.clone();
            sorted.sort_unstable();
            twice(&sorted)
        };
        if let Some(node) = duplicate {
            return Err(Unsuitable::DuplicateMember { node });
        }
        let (possible, none) = (MemberSet::first(members.len()), MemberSet::new);
        let [replied, skipped, streaming] = [none(), none(), none()];
        Ok(Self { members, is_sorted, replied, possible, skipped, streaming })
    }

    /// There is no request for this member.
    pub(crate) fn skip(&mut self, index: usize) {
        self.skipped.insert(index);
        self.possible.remove(index);
    }

    /// A reply of this member has come, or an item, which others may follow.
    pub(crate) fn hear(&mut self, member: Option<usize>, is_item: bool) -> Worth {
        // Nobody asked one that is skipped, so it is not known what it answers.
        let Some(index) = member.filter(|index| !self.skipped.contains(*index)) else {
            return Worth::Nothing;
        };
        self.possible.insert(index);
        if is_item {
            self.streaming.insert(index);
        }
        if self.replied.insert(index) { Worth::New(index) } else { Worth::Again(index) }
    }

    /// This member will not reply any more. Whether that is news: it has not replied before.
    pub(crate) fn lose(&mut self, index: usize) -> bool {
        self.streaming.remove(index);
        !self.replied.contains(index) && self.possible.remove(index)
    }

    /// The reply of this member was given away: it counts no more, and is not possible any more.
    pub(crate) fn discount(&mut self, index: usize) {
        if self.replied.remove(index) {
            self.possible.remove(index);
        }
    }

    /// The reply of this member does not count. It will not send another, unless more may follow.
    pub(crate) fn reject(&mut self, index: usize, may_follow: bool) {
        if self.replied.remove(index) && !may_follow {
            self.possible.remove(index);
        }
    }

    /// Nobody replies any more.
    pub(crate) fn close(&mut self) {
        (0..self.members.len()).for_each(|index| {
            self.lose(index);
        });
    }

    pub(crate) fn index_of(&self, node: NodeId) -> Option<usize> {
        if self.is_sorted {
            self.members.binary_search(&node).ok()
        } else {
            self.members.iter().position(|member| *member == node)
        }
    }

    pub(crate) fn members(&self) -> &[NodeId] {
        &self.members
    }

    pub(crate) fn member(&self, index: usize) -> Option<NodeId> {
        self.members.get(index).copied()
    }

    pub(crate) fn replied(&self) -> &MemberSet {
        &self.replied
    }

    pub(crate) fn streaming(&self) -> &MemberSet {
        &self.streaming
    }

    pub(crate) fn skipped(&self) -> &MemberSet {
        &self.skipped
    }

    /// Members that have replied or still may.
    pub(crate) fn possible(&self) -> &MemberSet {
        &self.possible
    }

    /// Number of members that have not replied and still may.
    pub(crate) fn remaining(&self) -> usize {
        self.possible.len() - self.replied.len()
    }
}

fn twice(sorted: &[NodeId]) -> Option<NodeId> {
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
