//! Reasons why there was no quorum, and what became of each member.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use convoke_core::proto::call::End;
use convoke_core::{CallError, Cause, Code, Failure, NodeId, Status, Way};

use crate::Unsuitable;

/// Reason why a member gave no reply that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// Its branch failed; the failure says why and whether the request may have run.
    #[error("{0}")]
    Failed(Failure),
    /// Its reply cannot be decoded: the two ends disagree on the message.
    #[error("its reply cannot be decoded: {message}")]
    Undecodable {
        /// Defect of the message.
        message: String,
    },
    /// The reply to its request came from a node that is no member, or through a relay that may
    /// claim any sender. It does not count.
    #[error("{}", stranger(*from, *way))]
    NotItself {
        /// Node that is said to have sent it.
        from: NodeId,
        /// The way by which it came.
        way: Way,
    },
    /// It ended its task without a reply: the service's doing.
    #[error("it ended without a reply")]
    Silent,
    /// The rule's [`filter`](crate::QuorumFunction::filter) does not let its reply count: the
    /// caller's doing.
    #[error("its reply was filtered out")]
    Filtered,
    /// A request that was to be sent later could not be: this endpoint has too many calls open.
    #[error("it was not asked: {reason}")]
    NotSent {
        /// The reason.
        reason: String,
    },
}

fn stranger(from: NodeId, way: Way) -> String {
    match way {
        Way::Relayed => format!("its reply came through a relay, which says it is from {from}"),
        _ => format!("its reply came from {from}, which is not asked"),
    }
}

impl MemberError {
    /// The failed branch, if one failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Cause of the failed branch, if one failed.
    pub fn cause(&self) -> Option<Cause> {
        self.failure().map(|failure| failure.cause)
    }
}

/// Members without a counting reply, each with the reason where one is known.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Shortfall {
    /// Members whose reply counts.
    pub replied: Vec<NodeId>,
    /// Members whose reply does not or will not come.
    pub failed: Vec<(NodeId, MemberError)>,
    /// Members from which nothing was heard.
    pub silent: Vec<NodeId>,
    /// Members that were not asked, for there was no request for them.
    pub skipped: Vec<NodeId>,
    /// Failures of nodes that are no members: of a leader, where members are the leaves of a tree.
    pub others: Vec<Failure>,
    /// Reason of the rule why the replies do not do, where it has given one: see
    /// [`why_impossible`](crate::QuorumFunction::why_impossible).
    pub reason: Option<String>,
    pub(crate) replies: Option<PartialReplies>,
}

/// Replies of a type that only the caller knows.
#[derive(Clone)]
pub(crate) struct PartialReplies(Arc<dyn Any + Send + Sync>);

impl PartialReplies {
    pub(crate) fn new<Resp: Send + Sync + 'static>(replies: Vec<(NodeId, Resp)>) -> Self {
        Self(Arc::new(replies))
    }

    fn of<Resp: 'static>(&self) -> Option<&[(NodeId, Resp)]> {
        self.0.downcast_ref::<Vec<(NodeId, Resp)>>().map(Vec::as_slice)
    }
}

impl fmt::Debug for PartialReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members =
            self.replied.len() + self.failed.len() + self.silent.len() + self.skipped.len();
        if let Some(reason) = &self.reason {
            write!(f, "{reason}: ")?;
        }
        write!(f, "{} of {members} members replied", self.replied.len())?;
        for (node, error) in &self.failed {
            // A failure names its branch and node by itself.
            write!(f, "; {node}: {error}")?;
        }
        for (nodes, what) in [(&self.silent, "silent"), (&self.skipped, "not asked")] {
            if !nodes.is_empty() {
                write!(f, "; {what}: {nodes:?}")?;
            }
        }
        self.others.iter().try_for_each(|failure| write!(f, "; {failure}"))
    }
}

/// Reason why a quorum call gave no answer.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum QuorumError {
    /// The rule does not fit the members: the caller's doing. Nothing was sent.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// Retries were asked for, and the method does not say that it is idempotent. Nothing was sent.
    #[error(
        "{method} is not idempotent, so a request of it is not sent twice: declare the method \
             idempotent, or do not ask for retries"
    )]
    NotIdempotent {
        /// The method.
        method: &'static str,
    },
    /// Late requests were to be cancelled, and the method does not say that it is read-only.
    /// Nothing was sent.
    #[error(
        "{method} is not read-only, so its late requests are not cancelled: declare the method \
             read-only, or do not ask for it"
    )]
    NotReadOnly {
        /// The method.
        method: &'static str,
    },
    /// Branches of the leaves of a tree were named, and the members are not such: the caller's
    /// doing. Nothing was sent.
    #[error("`leaves_at` is of members that are the leaves of a tree: name them with `among`")]
    NoLeaves,
    /// The call could not be opened. Nothing was sent.
    #[error("the call was not opened: {0}")]
    NotOpened(#[from] CallError),
    /// Whatever the members say that have not replied yet, there will be no quorum. Known at once,
    /// not at the deadline.
    #[error("a quorum is not possible any more: {0}")]
    Impossible(Box<Shortfall>),
    /// The deadline passed first.
    #[error("the deadline passed before there was a quorum: {0}")]
    Deadline(Box<Shortfall>),
    /// The call ended otherwise: it outgrew a bound of this endpoint.
    #[error(
        "the call outgrew a bound of its caller before there was a quorum: ask fewer members, or \
         send less in one reply, or raise Limits::branches_max or Limits::reply_bytes_max where \
         the call is made: {shortfall}"
    )]
    Ended {
        /// Its end.
        end: End,
        /// The state of the members by then.
        shortfall: Box<Shortfall>,
    },
    /// The task that decides is gone: its rule panicked, or its runtime has ended.
    #[error("nobody decides any more: the rule panicked, or its runtime has ended")]
    Undecided,
}

/// The same text: a `main` that returns the error prints this.
impl fmt::Debug for QuorumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl QuorumError {
    /// The replies of members that came before it ended, in order of arrival: for a caller who can
    /// do with less than a quorum. `None` when nothing was sent, and for a type that is not that of
    /// the call's replies.
    pub fn replies<Resp: 'static>(&self) -> Option<&[(NodeId, Resp)]> {
        self.shortfall()?.replies.as_ref()?.of()
    }

    /// With the reason that the rule gives.
    pub(crate) fn because(mut self, reason: Option<String>) -> Self {
        if let Self::Impossible(shortfall) = &mut self {
            shortfall.reason = reason;
        }
        self
    }

    /// The members that did not reply and why, unless nothing was sent.
    pub fn shortfall(&self) -> Option<&Shortfall> {
        match self {
            Self::Impossible(shortfall)
            | Self::Deadline(shortfall)
            | Self::Ended { shortfall, .. } => Some(shortfall),
            _ => None,
        }
    }

    /// The members that gave no reply that counts, though they were asked: for
    /// [`Configuration::without`](crate::Configuration::without).
    pub fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        let shortfall = self.shortfall().into_iter();
        shortfall.flat_map(|short| {
            short.failed.iter().map(|(node, _)| *node).chain(short.silent.iter().copied())
        })
    }

    /// The members that failed in a way that `is_meant` says yes to: for
    /// [`Configuration::without`](crate::Configuration::without).
    pub fn failed<'a>(
        &'a self,
        is_meant: impl Fn(&MemberError) -> bool + 'a,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let failed = self.shortfall().into_iter().flat_map(|short| &short.failed);
        failed.filter(move |(_, error)| is_meant(error)).map(|(node, _)| *node)
    }

    /// The present epoch, where members refused the request as of an older one: the latest they
    /// named.
    pub fn current_epoch(&self) -> Option<u64> {
        let failed = self.shortfall().into_iter().flat_map(|short| &short.failed);
        failed.filter_map(|(_, error)| error.failure()?.current_epoch()).max()
    }
}

/// A handler that passes on with `?` why a quorum call of its own failed. The task that fails so
/// has run, whatever became of its call.
impl From<QuorumError> for Status {
    fn from(error: QuorumError) -> Self {
        let code = match error {
            QuorumError::NotOpened(error) => return error.into(),
            QuorumError::Impossible(_) => Code::Unavailable,
            QuorumError::Deadline(_) => Code::DeadlineExceeded,
            QuorumError::Ended { .. } => Code::ResourceExhausted,
            // The handler's own mistake, which asking again does not mend.
            QuorumError::Undecided
            | QuorumError::Unsuitable(_)
            | QuorumError::NoLeaves
            | QuorumError::NotIdempotent { .. }
            | QuorumError::NotReadOnly { .. } => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}
