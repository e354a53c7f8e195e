//! Votes of a round: one of each member in each phase, whatever it sends.

use bytes::Bytes;
use convoke_core::{Digest, NodeId};
use convoke_proto::mutant::{self, Mutant};

/// Cast of a member in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The value it speaks for.
    pub digest: Digest,
    /// The value itself, if it sent it along.
    pub payload: Bytes,
}

/// A member has cast two different votes in one phase. Only the first counts.
///
/// The connection says who it was. This node can be sure of it; as votes are not signed, it cannot
/// prove it to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The member.
    pub node: NodeId,
    /// In which phase.
    pub phase: u16,
    /// The vote that counts.
    pub first: Vote,
    /// The one that came later. Of a payload above [`Self::PAYLOAD_BYTES_MAX`] nothing is kept.
    pub second: Vote,
}

impl Evidence {
    /// Largest payload of a second vote that is kept: room for a signature of any common kind, and
    /// little enough that liars do not make a round large.
    pub const PAYLOAD_BYTES_MAX: usize = 8 << 10;
}

/// Effect of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It counts.
    Counted,
    /// The same was said before.
    Repeated,
    /// It differs from what counts: its sender is faulty.
    Differs,
}

/// Reason why a cast is none of this round. It leaves nothing behind but a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is about a phase that does not exist.
    #[error("there is no phase {phase}")]
    UnknownPhase {
        /// The phase cast in.
        phase: u16,
    },
    /// Its sender is no member of the configuration.
    #[error("{node} is no member")]
    NotMember {
        /// The node.
        node: NodeId,
    },
    /// Its sender says that it has the place of another.
    #[error("{node} says that it has place {claimed} of the configuration")]
    WrongIndex {
        /// The node.
        node: NodeId,
        /// Index of the member whose place it claims.
        claimed: u16,
    },
    /// It is of another epoch of the configuration.
    #[error("{node} votes in epoch {epoch}")]
    WrongEpoch {
        /// The node.
        node: NodeId,
        /// The epoch it was cast in.
        epoch: u64,
    },
}

/// Number of casts that were none of a round, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// [`Refusal::UnknownPhase`].
    pub unknown_phase: u32,
    /// [`Refusal::NotMember`].
    pub not_member: u32,
    /// [`Refusal::WrongIndex`].
    pub wrong_index: u32,
    /// [`Refusal::WrongEpoch`].
    pub wrong_epoch: u32,
}

impl Refused {
    pub(super) fn note(&mut self, refusal: Refusal) {
        let count = match refusal {
            Refusal::UnknownPhase { .. } => &mut self.unknown_phase,
            Refusal::NotMember { .. } => &mut self.not_member,
            Refusal::WrongIndex { .. } => &mut self.wrong_index,
            Refusal::WrongEpoch { .. } => &mut self.wrong_epoch,
        };
        *count = count.saturating_add(1);
    }
}

/// The votes of one round: for each phase and member which of the digests seen.
///
/// Takes memory for the members and phases there are, once; every further cast costs none, but for
/// the first proof that a member is faulty in a phase.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    members: usize,
    /// By phase, then member: the place in `digests`.
    votes: Vec<Option<u32>>,
    /// The digests that were voted for, with the counts of each by phase.
    digests: Vec<Digest>,
    /// By digest, then phase.
    counts: Vec<u32>,
    phases: usize,
    /// Of those who sent one along, in the order they came.
    payloads: Vec<(u16, u16, Bytes)>,
    evidence: Vec<Evidence>,
}

impl Tally {
    pub(super) fn new(members: usize, phases: u16) -> Self {
        let phases = usize::from(phases);
        Self {
            members,
            votes: vec![None; members * phases],
            digests: Vec::new(),
            counts: Vec::new(),
            phases,
            payloads: Vec::new(),
            evidence: Vec::new(),
        }
    }

    fn place(&self, phase: u16, member: u16) -> usize {
        usize::from(phase) * self.members + usize::from(member)
    }

    /// Takes a vote of `node`, which is the member of this index, in a phase that exists.
    pub(super) fn record(&mut self, phase: u16, member: u16, node: NodeId, vote: Vote) -> Heard {
        let place = self.place(phase, member);
        match self.votes[place].map(|at| self.digests[at as usize]) {
            Some(first) if first == vote.digest => {
                if mutant::is(Mutant::CopiesCount) {
                    self.count_vote(phase, vote.digest);
                }
                Heard::Repeated
            }
            Some(first) => {
                if mutant::is(Mutant::SecondVoteCounts) {
                    self.count_vote(phase, vote.digest);
                }
                self.note_evidence(phase, (member, node), first, vote);
                Heard::Differs
            }
            None => {
                self.votes[place] = Some(self.count_vote(phase, vote.digest));
                if !vote.payload.is_empty() {
                    self.payloads.push((phase, member, vote.payload));
                }
                Heard::Counted
            }
        }
    }

    /// Counts a vote for a digest, and says its place in the list of them.
    fn count_vote(&mut self, phase: u16, digest: Digest) -> u32 {
        let at = self.digest_index(digest);
        self.counts[at as usize * self.phases + usize::from(phase)] += 1;
        at
    }

    /// The first proof in a phase is enough.
    fn note_evidence(
        &mut self,
        phase: u16,
        (member, node): (u16, NodeId),
        first: Digest,
        mut second: Vote,
    ) {
        if self.evidence.iter().any(|one| one.node == node && one.phase == phase) {
            return;
        }
        if second.payload.len() > Evidence::PAYLOAD_BYTES_MAX {
            second.payload = Bytes::new();
        }
        let payload = self.payload(phase, member).cloned().unwrap_or_default();
        let first = Vote { digest: first, payload };
        self.evidence.push(Evidence { node, phase, first, second });
    }

    fn digest_index(&mut self, digest: Digest) -> u32 {
        let known = self.digests.iter().position(|known| *known == digest);
        let at = known.unwrap_or_else(|| {
            self.digests.push(digest);
            self.counts.resize(self.counts.len() + self.phases, 0);
            self.digests.len() - 1
        });
        u32::try_from(at).expect("each vote brings one digest at most")
    }

    /// Cast of a member in a phase.
    pub(super) fn vote(&self, phase: u16, member: u16) -> Option<Digest> {
        self.votes[self.place(phase, member)].map(|at| self.digests[at as usize])
    }

    /// The value that a member sent along with its vote in a phase.
    pub(super) fn payload(&self, phase: u16, member: u16) -> Option<&Bytes> {
        let sent = self.payloads.iter().find(|(of, by, _)| (*of, *by) == (phase, member));
        sent.map(|(_, _, payload)| payload)
    }

    /// Number of members that have cast this digest in a phase.
    pub(super) fn count(&self, phase: u16, digest: Digest) -> usize {
        let at = self.digests.iter().position(|known| *known == digest);
        at.map_or(0, |at| self.counts[at * self.phases + usize::from(phase)] as usize)
    }

    /// The most members that have cast one digest in a phase.
    pub(super) fn count_max(&self, phase: u16) -> usize {
        let of_phase = self.counts.iter().skip(usize::from(phase)).step_by(self.phases);
        of_phase.max().map_or(0, |count| *count as usize)
    }

    /// True when there are votes for different digests in a phase.
    pub(super) fn is_split(&self) -> bool {
        (0..self.phases).any(|phase| {
            let counts = self.counts.iter().skip(phase).step_by(self.phases);
            counts.filter(|count| **count > 0).count() > 1
        })
    }

    /// Members that have not cast in a phase.
    pub(super) fn silent(&self, phase: u16) -> impl Iterator<Item = u16> {
        let start = self.place(phase, 0);
        let votes = &self.votes[start..start + self.members];
        (0..).zip(votes).filter(|(_, vote)| vote.is_none()).map(|(member, _)| member)
    }

    pub(super) fn vote_count(&self) -> usize {
        self.votes.iter().flatten().count()
    }

    pub(super) fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }
}
