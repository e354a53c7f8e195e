//! Requests whose replies nobody waits for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_core::seam::{CallBuilderSeam, CallSeam, Progress};
use convoke_core::{
    Call, CallBuilder, CallError, Cause, Code, Executed, Failure, NodeId, Path, Payload, Status,
};

use crate::member_set::MemberSet;

/// One-way requests on their way; see [`QuorumBuilder::send`](crate::QuorumBuilder::send).
///
/// # Cancel safety
/// Dropped before it resolves, what was sent stays sent.
#[must_use = "nothing is sent until it is awaited"]
pub struct Sending<Resp>(State<Resp>);

enum State<Resp> {
    Ready(CallBuilder<Resp>),
    /// It was told what only calls with replies are.
    Refused(MulticastError),
    Open {
        call: Call<Resp>,
        members: Vec<NodeId>,
        unsent: MemberSet,
        failed: Vec<(NodeId, Failure)>,
    },
    Over,
}

/// Reason why one-way requests were not all sent.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// A setting has to do with replies, and nobody reads those of a one-way request: the caller's
    /// doing. Nothing was sent.
    #[error("a one-way request has no replies that `{setting}` could be about: leave it out")]
    NotOneWay {
        /// The setting, as its method is called.
        setting: &'static str,
    },
    /// The call could not be opened. Nothing was sent.
    #[error("the requests were not sent: {0}")]
    NotOpened(#[from] CallError),
    /// Some requests were not sent; the others were.
    #[error("{} of {members} requests were not sent: {}", failed.len(), Listed(failed))]
    Unsent {
        /// Number of requests that were to be sent.
        members: usize,
        /// The members whose request was not, each with the reason.
        failed: Vec<(NodeId, Failure)>,
    },
}

/// As that of [`QuorumError`](crate::QuorumError).
impl From<MulticastError> for Status {
    fn from(error: MulticastError) -> Self {
        let code = match error {
            MulticastError::NotOpened(error) => return error.into(),
            MulticastError::NotOneWay { .. } => Code::Internal,
            MulticastError::Unsent { .. } => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

struct Listed<'a>(&'a [(NodeId, Failure)]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (_, failure)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{failure}")?;
        }
        Ok(())
    }
}

/// A one-way message to members, of a method whose replies say nothing.
#[must_use = "nothing is sent until it is told how"]
pub struct Multicast<Resp>(CallBuilder<Resp>);

impl<Resp: Payload> Multicast<Resp> {
    /// Of the request of each root branch to its peer.
    pub fn new(call: CallBuilder<Resp>) -> Self {
        Self(call)
    }

    /// Stops handlers after `deadline`, the endpoint's `deadline_max` at most. Default: that of the
    /// call it was made of, else that of its client, else the endpoint's `deadline_default`, 10 s.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self(self.0.deadline(deadline))
    }

    /// Adds metadata to the requests of all members, as [`CallBuilder::metadata`].
    pub fn metadata(self, key: &str, value: impl AsRef<[u8]>) -> Self {
        Self(self.0.metadata(key, value))
    }

    /// Sends it, in order. Resolves when it has been handed to a connection to each member, which
    /// is not to say that it arrived. Nothing is sent until it is awaited.
    pub fn send(self) -> Sending<Resp> {
        Sending::new(Ok(self.0))
    }

    /// Sends it now, in order, and forgets it. A member that cannot be reached does not get it.
    ///
    /// # Errors
    /// [`MulticastError::NotOpened`] when there are too many calls or it is too large; nothing was
    /// sent then.
    pub fn send_and_forget(self) -> Result<(), MulticastError> {
        send_and_forget(self.0)
    }
}

impl<Resp> fmt::Debug for Multicast<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Multicast").field(&self.0).finish()
    }
}

/// # Errors
/// [`MulticastError::NotOpened`]; nothing was sent then.
pub(crate) fn send_and_forget<Resp: Payload>(
    call: CallBuilder<Resp>,
) -> Result<(), MulticastError> {
    call.open_apart(None)?.let_run();
    Ok(())
}

impl<Resp: Payload> Sending<Resp> {
    pub(crate) fn new(call: Result<CallBuilder<Resp>, MulticastError>) -> Self {
        Self(call.map_or_else(State::Refused, State::Ready))
    }

    fn open(&mut self) -> Result<(), MulticastError> {
        if !matches!(self.0, State::Ready(_) | State::Refused(_)) {
            return Ok(());
        }
        let mut builder = match std::mem::replace(&mut self.0, State::Over) {
            State::Ready(builder) => builder,
            State::Refused(error) => return Err(error),
            State::Open { .. } | State::Over => unreachable!("it was seen above"),
        };
        let me = builder.client().endpoint().node();
        let members: Vec<NodeId> = builder.branches().map(|(peer, _)| peer.node()).collect();
        // What is for this node itself is there already.
        let remote = members.iter().enumerate().filter(|(_, node)| **node != me);
        let unsent: MemberSet = remote.map(|(index, _)| index).collect();
        builder.options_mut().tells_sent = true;
        let call = builder.open_apart(None)?;
        self.0 = State::Open { call, members, unsent, failed: Vec::new() };
        Ok(())
    }
}

impl<Resp> Drop for Sending<Resp> {
    /// Leaves sent what was sent.
    fn drop(&mut self) {
        if let State::Open { call, .. } = std::mem::replace(&mut self.0, State::Over) {
            call.let_run();
        }
    }
}

fn root_of(path: &Path) -> Option<usize> {
    path.indices().next().map(|index| index as usize)
}

/// True when a connection that was given a request has not taken it after all.
fn is_refused(failure: &Failure) -> bool {
    failure.cause == Cause::Unreachable && failure.executed == Executed::No
}

impl<Resp: Payload> Future for Sending<Resp> {
    type Output = Result<(), MulticastError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.open()?;
        let State::Open { call, members, unsent, failed } = &mut this.0 else {
            panic!("polled after it was ready");
        };
        loop {
            let progress = match call.poll_progress(cx) {
                Poll::Ready(progress) => progress,
                // A connection that had no room says so right after it was given the request.
                Poll::Pending if unsent.is_empty() => break,
                Poll::Pending => return Poll::Pending,
            };
            match progress {
                Some(Progress::Sent(path)) => {
                    root_of(&path).map(|index| unsent.remove(index));
                }
                Some(Progress::Failed(failure)) => {
                    // What a member that has its request asks of others is its own concern.
                    let task = &failure.task;
                    let is_of_request = task.hop == 0 && task.path.level_count() == 1;
                    let index = root_of(&task.path).filter(|_| is_of_request);
                    let was_unsent = index.is_some_and(|index| unsent.remove(index));
                    let member = index.and_then(|index| members.get(index).copied());
                    if let Some(member) = member
                        && (was_unsent || is_refused(&failure))
                    {
                        failed.push((member, failure));
                    }
                }
                Some(_) => {}
                // Everything was sent or has failed.
                None => break,
            }
        }
        let (members, failed) = (members.len(), std::mem::take(failed));
        if let State::Open { call, .. } = std::mem::replace(&mut this.0, State::Over) {
            call.let_run();
        }
        match failed.is_empty() {
            true => Poll::Ready(Ok(())),
            false => Poll::Ready(Err(MulticastError::Unsent { members, failed })),
        }
    }
}

// Nothing of it is pinned.
impl<Resp> Unpin for Sending<Resp> {}

impl<Resp> fmt::Debug for Sending<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Ready(call) => f.debug_tuple("Sending").field(call).finish(),
            State::Refused(error) => f.debug_tuple("Sending").field(error).finish(),
            State::Open { unsent, .. } => f.debug_tuple("Sending").field(unsent).finish(),
            State::Over => f.write_str("Sending(over)"),
        }
    }
}
