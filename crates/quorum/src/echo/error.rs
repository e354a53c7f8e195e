//! Errors of a round.

use std::fmt;

use convoke_core::{Code, Digest, JoinRefusal, NodeId, SpaceRefusal, Status};

use super::plan::PlanError;

/// Reason why a round does not begin, or a phase of it has no quorum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EchoError {
    /// This node is none of the members. The caller's doing: the configuration is another's.
    #[error("{node} is no member of the configuration that votes")]
    NotMember {
        /// This node.
        node: NodeId,
    },
    /// The plan is for another number of members.
    #[error("the plan is for {plan} members, the configuration has {members}")]
    Members {
        /// Of the plan.
        plan: usize,
        /// Of the configuration.
        members: usize,
    },
    /// The phases make no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The call or tag has, or had, a round at this node.
    #[error(transparent)]
    Join(#[from] JoinRefusal),
    /// The space is open at this endpoint already.
    #[error(transparent)]
    Space(#[from] SpaceRefusal),
    /// A cast is not possible.
    #[error(transparent)]
    Cast(#[from] CastRefused),
    /// A phase can have no quorum any more: members are down, or the votes are split. Without the
    /// members that are missing it cannot be repeated with success.
    #[error("{0}")]
    QuorumNotReached(Box<QuorumNotReached>),
    /// This node votes in a later epoch, or so many members do that too few are left.
    #[error("the round is of epoch {epoch}; a later one has begun{}", at(.later))]
    StaleEpoch {
        /// Epoch of the round's members.
        epoch: u64,
        /// Other members that vote in a later one.
        later: Vec<NodeId>,
    },
    /// The members that are to change have no epoch: what is asked and voted without one is taken
    /// in any. The caller's doing: see
    /// [`Configuration::with_epoch`](crate::Configuration::with_epoch).
    #[error("members without an epoch cannot change")]
    NoEpoch,
    /// Most members have voted for another value than this node was asked to echo: whoever asked
    /// has told members different things.
    #[error("in echo phase {phase} a quorum has cast {reached:?}, not {own:?}")]
    OtherValue {
        /// In which phase.
        phase: u16,
        /// The digest that has the quorum.
        reached: Digest,
        /// The digest that this node has cast.
        own: Digest,
    },
    /// The endpoint was shut down: no vote comes any more.
    #[error("the endpoint was shut down while the round waited for votes")]
    Stopped,
}

fn at(later: &[NodeId]) -> String {
    match later {
        [] => " here".to_owned(),
        later => format!(" at {later:?}"),
    }
}

/// A phase without a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumNotReached {
    /// The phase.
    pub phase: u16,
    /// Its name.
    pub name: &'static str,
    /// Equal votes that it takes.
    pub needed: usize,
    /// Members there are.
    pub members: usize,
    /// The most equal votes there were.
    pub votes: usize,
    /// Members without a vote that are known to be down.
    pub missing: Vec<NodeId>,
}

impl fmt::Display for QuorumNotReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phase, name, needed, members, votes, missing } = self;
        write!(f, "echo phase {phase} ({name}) has {votes} of the {needed} equal votes it takes ")?;
        write!(f, "among {members} members")?;
        if missing.is_empty() {
            return f.write_str(": the votes are split");
        }
        f.write_str(", down are ")?;
        missing.iter().enumerate().try_for_each(|(at, node)| match at {
            0 => write!(f, "{node}"),
            _ => write!(f, ", {node}"),
        })
    }
}

/// Reason why this node cannot cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CastRefused {
    /// There is no such phase.
    #[error("the plan has no phase {phase}")]
    UnknownPhase {
        /// The phase to be cast in.
        phase: u16,
    },
    /// Nobody votes twice.
    #[error("this node has cast {digest:?} in phase {phase} already")]
    AlreadyCast {
        /// The phase.
        phase: u16,
        /// The digest it has cast.
        digest: Digest,
    },
    /// A vote to be released that this node has not cast: it is of another round.
    #[error("this node has not cast {digest:?} in phase {phase} of this round")]
    NotCast {
        /// The phase.
        phase: u16,
        /// The digest of the vote.
        digest: Digest,
    },
    /// No mailbox would keep it: see
    /// [`Limits::cast_payload_bytes_max`](convoke_core::Limits::cast_payload_bytes_max).
    #[error("a payload of {bytes} bytes is larger than the {bytes_max} that a member keeps")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is kept.
        bytes_max: usize,
    },
}

impl CastRefused {
    /// Refuses a payload that no mailbox would keep.
    pub(super) fn check_size(payload: &[u8], bytes_max: usize) -> Result<(), Self> {
        let bytes = payload.len();
        if bytes > bytes_max { Err(Self::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }
}

impl From<EchoError> for Status {
    /// Status for a handler to answer with. The text names the missing members.
    fn from(error: EchoError) -> Self {
        let code = match &error {
            EchoError::QuorumNotReached(_) | EchoError::Stopped => Code::Unavailable,
            EchoError::OtherValue { .. } => Code::Aborted,
            EchoError::NotMember { .. }
            | EchoError::Join(_)
            | EchoError::StaleEpoch { .. }
            | EchoError::NoEpoch => Code::FailedPrecondition,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}
