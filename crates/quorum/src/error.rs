//! Why there was no quorum, and what became of each member.

use std::fmt;

use convoke_core::proto::call::End;
use convoke_core::{CallError, Cause, Failure, NodeId};

use crate::Unsuitable;

/// Why a member gave no reply that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// Its branch failed; the failure says why and whether the request may have run.
    #[error("{0}")]
    Failed(Failure),
    /// Its reply cannot be decoded: the two ends disagree on the message.
    #[error("its reply cannot be decoded: {message}")]
    Undecodable {
        /// What is wrong with it.
        message: String,
    },
    /// The reply to its request came from a node that is no member, or through a relay that may claim any
    /// sender. It does not count.
    #[error("{}", stranger(*from, *is_authenticated))]
    NotItself {
        /// Who is said to have sent it.
        from: NodeId,
        /// Whether a connection with that node brought it.
        is_authenticated: bool,
    },
    /// It ended its task without a reply: the service's doing.
    #[error("it ended without a reply")]
    Silent,
    /// A request that was to be sent later could not be: this endpoint has too many calls open.
    #[error("it was not asked: {reason}")]
    NotSent {
        /// Why.
        reason: String,
    },
}

fn stranger(from: NodeId, is_authenticated: bool) -> String {
    match is_authenticated {
        true => format!("its reply came from {from}, which is not asked"),
        false => format!("its reply came through a relay, which says it is from {from}"),
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

    /// Why the branch failed, if one failed.
    pub fn cause(&self) -> Option<Cause> {
        self.failure().map(|failure| failure.cause)
    }
}

/// Who of the members asked did not give a reply that counts, and why as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members =
            self.replied.len() + self.failed.len() + self.silent.len() + self.skipped.len();
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

/// Why a quorum call gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// The call could not be opened. Nothing was sent.
    #[error("the call was not opened: {0}")]
    NotOpened(#[from] CallError),
    /// Whatever the members say that have not replied yet, there will be no quorum. Known at once, not at the
    /// deadline.
    #[error("a quorum is not possible any more: {0}")]
    Impossible(Box<Shortfall>),
    /// The deadline passed first.
    #[error("the deadline passed before there was a quorum: {0}")]
    Deadline(Box<Shortfall>),
    /// The call ended otherwise: it outgrew a bound of this endpoint.
    #[error("the call ended as {end:?} before there was a quorum: {shortfall}")]
    Ended {
        /// How.
        end: End,
        /// What there was until then.
        shortfall: Box<Shortfall>,
    },
}

impl QuorumError {
    /// Who did not reply and why, unless nothing was sent.
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

    /// The present epoch, where members refused the request as of an older one: the latest they named.
    pub fn current_epoch(&self) -> Option<u64> {
        let failed = self.shortfall().into_iter().flat_map(|short| &short.failed);
        failed.filter_map(|(_, error)| error.failure()?.current_epoch()).max()
    }
}
