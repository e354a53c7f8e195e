//! Votes that this node has sent, and which of them a member may lack. No I/O, no clock.
//!
//! Each vote is sent in a turn, and a member's connections say before which turn all that was sent
//! to it may be lost ([`Reach::lost_before`](convoke_core::Reach::lost_before)). What a member may
//! lack is told by these numbers alone, so that a connection counts as lost also where the member
//! was never seen without one.

use smallvec::SmallVec;

use super::machine::EchoVote;

/// Votes that have left, and how far each member has been told again.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// With the turn in which each was sent to all.
    votes: SmallVec<[(EchoVote, u64); 2]>,
    /// By index of the member: what was lost before this turn was said again. Members beyond have
    /// been told nothing again.
    again: Vec<u64>,
    /// Members to which something could not be sent: any of the votes, as far as known.
    unsent: Vec<u16>,
}

impl Said {
    /// A vote is sent to all in this turn.
    pub(super) fn note(&mut self, vote: EchoVote, turn: u64) {
        match self.votes.iter_mut().find(|(said, _)| *said == vote) {
            Some((_, sent)) => *sent = turn,
            None => self.votes.push((vote, turn)),
        }
    }

    /// Something could not be sent to a member.
    pub(super) fn note_unsent(&mut self, member: u16) {
        if !self.unsent.contains(&member) {
            self.unsent.push(member);
        }
    }

    /// All votes.
    pub(super) fn all(&self) -> impl Iterator<Item = EchoVote> + '_ {
        self.votes.iter().map(|(vote, _)| *vote)
    }

    /// True when a member may lack a vote that has left, where all that was sent to it before
    /// `lost_before` may be lost.
    pub(super) fn has_lost(&self, member: u16, lost_before: u64) -> bool {
        let again = self.again.get(usize::from(member)).copied().unwrap_or(0);
        again < lost_before && self.votes.iter().any(|(_, sent)| *sent < lost_before)
    }

    /// Votes to be said again to a member, which is told so: those that may be lost, or all where
    /// something could not be sent.
    pub(super) fn take_lacking(
        &mut self,
        member: u16,
        lost_before: u64,
    ) -> SmallVec<[EchoVote; 2]> {
        let is_unsent = self.unsent.contains(&member);
        let has_lost = self.has_lost(member, lost_before);
        self.unsent.retain(|of| *of != member);
        let at = usize::from(member);
        if has_lost {
            self.again.resize(self.again.len().max(at + 1), 0);
            self.again[at] = lost_before;
        }
        let is_lost = |(_, sent): &&(EchoVote, u64)| has_lost && *sent < lost_before;
        let lacking = self.votes.iter().filter(|vote| is_unsent || is_lost(vote));
        lacking.map(|(vote, _)| *vote).collect()
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::Digest;

    use super::*;

    fn vote(phase: u16) -> EchoVote {
        EchoVote { phase, digest: Digest([7; 32]) }
    }

    fn said(turns: &[u64]) -> Said {
        let mut said = Said::default();
        (0..).zip(turns).for_each(|(phase, turn)| said.note(vote(phase), *turn));
        said
    }

    fn lacking(said: &mut Said, member: u16, lost_before: u64) -> Vec<u16> {
        said.take_lacking(member, lost_before).iter().map(|vote| vote.phase).collect()
    }

    #[test]
    fn what_was_said_before_the_loss_is_said_again_once() {
        let mut said = said(&[3, 5, 8]);
        assert!(!said.has_lost(1, 3) && said.has_lost(1, 4));
        assert_eq!(lacking(&mut said, 1, 8), [0, 1], "the last one went by the next connection");
        assert!(!said.has_lost(1, 8) && lacking(&mut said, 1, 8).is_empty());
        assert!(said.has_lost(0, 8), "others lack theirs");
        assert_eq!(lacking(&mut said, 1, 9), [0, 1, 2], "the next loss may have taken all");
    }

    /// A connection may be lost between the look at it and what is said again over it.
    #[test]
    fn what_is_said_again_may_be_lost_as_well() {
        let mut said = said(&[0]);
        assert_eq!(lacking(&mut said, 2, 1), [0]);
        assert!(said.has_lost(2, 2));
    }

    #[test]
    fn where_something_could_not_be_sent_all_is_said_again() {
        let mut said = said(&[3, 5]);
        said.note_unsent(1);
        said.note_unsent(1);
        assert!(!said.has_lost(1, 0));
        assert_eq!(lacking(&mut said, 1, 0), [0, 1]);
        assert!(lacking(&mut said, 1, 0).is_empty());
        said.note(vote(1), 9);
        assert_eq!(lacking(&mut said, 1, 9), [0], "the other has left anew");
        assert_eq!(said.all().count(), 2);
    }
}
