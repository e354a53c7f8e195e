//! Errors by operation, each of which says whose doing it is.

use std::fmt;

use bytes::Bytes;
use convoke_proto::call::End;
use convoke_proto::failure::Failure;
use convoke_proto::id::{NodeId, Path};
use convoke_proto::initiator::OpenError;
use convoke_proto::limits::LimitsError;
use convoke_proto::task::{SendError, TaskFailure};
use convoke_proto::wire::{Cause, Executed};

use crate::transport::{AddressError, DialError, ListenError};

pub use convoke_proto::code::Code;

/// An error that a handler answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// A refusal of the runtime keeps its own cause.
    cause: Cause,
    /// Execution of the task, as far as who answers knows.
    executed: Executed,
    code: Code,
    message: String,
    details: Bytes,
    aborts_children: bool,
}

impl Status {
    /// An error of this kind. The message is cut to 4 KiB on the wire, between characters.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (cause, executed, message) = (Cause::Application, Executed::Yes, message.into());
        Self { cause, executed, code, message, details: Bytes::new(), aborts_children: false }
    }

    /// Gives details for programs, as bytes of the service's own format, in place of any before.
    /// [`Status::with_detail`] adds typed ones, which gRPC clients understand.
    ///
    /// They are for hints, not for data: above [`Limits::details_bytes_max`], 64 KiB with the
    /// default, they are left out, which is logged. So are those, and metadata of the failure, that
    /// a node with a smaller `message_bytes_max` would not take, or that would have to wait where
    /// the share of `waiting_reply_bytes_max` is used up. Code and message come in any case, and
    /// whether the task ran.
    ///
    /// [`Limits::details_bytes_max`]: crate::Limits::details_bytes_max
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        self.details = details.into();
        self
    }

    /// Also cancels the branches that the failing task has opened. By default they run on, and
    /// their replies count.
    #[must_use]
    pub fn aborting_children(mut self) -> Self {
        self.aborts_children = true;
        self
    }

    /// Says that the task has changed nothing, so that asking again, or another node, runs nothing
    /// twice: [`CallError::is_safe_to_repeat`] is true of it. For a server that is not the leader,
    /// or whose queue is full. Default: a task that fails has run.
    #[must_use]
    pub fn without_effect(mut self) -> Self {
        self.executed = Executed::No;
        self
    }

    /// Kind of the error.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Text for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Bytes for programs, as [`Self::with_details`] or [`Self::with_detail`] gave them.
    pub fn details(&self) -> &Bytes {
        &self.details
    }

    /// The status with another message.
    pub(crate) fn saying(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// A task's end as middleware sees it; turned back it is the same.
    #[cfg(feature = "tower")]
    pub(crate) fn of_failure(failure: TaskFailure) -> Self {
        let code = match failure.cause {
            Cause::Application => Code::from_number(failure.code),
            // That of a status which the handler was given, such as by a delegation.
            _ if failure.code != 0 => Code::from_number(failure.code),
            Cause::BadRequest => Code::InvalidArgument,
            _ => Code::Internal,
        };
        Self {
            cause: failure.cause,
            executed: failure.executed,
            code,
            message: failure.text,
            details: failure.details,
            aborts_children: failure.aborts_children,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Status {}

impl From<SendError> for Status {
    fn from(refusal: SendError) -> Self {
        let code = match refusal {
            SendError::Ended => Code::Cancelled,
            SendError::NodeDead => Code::Unavailable,
            _ => Code::ResourceExhausted,
        };
        Self { cause: refusal.cause(), ..Self::new(code, refusal.to_string()) }
    }
}

impl From<Status> for TaskFailure {
    fn from(status: Status) -> Self {
        Self {
            cause: status.cause,
            executed: status.executed,
            code: status.code as u32,
            text: status.message,
            details: status.details,
            aborts_children: status.aborts_children,
        }
    }
}

/// Passes on with `?` the failure of a handler's own call. A service's error keeps code, text and
/// details. The task that fails so has run, whatever became of its call.
impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        if let Some(status) = error.status() {
            return Self { executed: Executed::Yes, ..status };
        }
        let code = match &error {
            CallError::Branch(failure) => code_of(failure.cause),
            CallError::Decode { .. } => Code::Internal,
            CallError::TooLarge { .. }
            | CallError::MetadataTooLarge { .. }
            | CallError::NotOpened(_)
            | CallError::Ended(End::Exhausted) => Code::ResourceExhausted,
            _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// The code for a failure of the runtime, to the caller of the task that met it.
fn code_of(cause: Cause) -> Code {
    match cause {
        Cause::Deadline => Code::DeadlineExceeded,
        Cause::UnknownMethod => Code::Unimplemented,
        Cause::BadRequest => Code::Internal,
        Cause::Overloaded
        | Cause::PathTooDeep
        | Cause::TooManyBranches
        | Cause::ResourceExhausted => Code::ResourceExhausted,
        _ => Code::Unavailable,
    }
}

/// Reason why a call gave no answer, or not all of them.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A branch failed. The failure names branch, node and cause, and whether repeating is safe.
    #[error("{0}")]
    Branch(Failure),
    /// The call was addressed to no peer: its caller's doing. Nothing was sent.
    #[error("the call was addressed to no peer: the list of its peers was empty")]
    NoPeer,
    /// Every task finished, and none replied: the service's doing.
    #[error("every task of the call finished without a reply")]
    NoReply,
    /// A reply cannot be decoded: client and server disagree on the message.
    #[error("the reply of branch {path} from {from} cannot be decoded: {message}")]
    Decode {
        /// The branch.
        path: Path,
        /// Sender of the reply.
        from: NodeId,
        /// Defect of the message.
        message: String,
    },
    /// The request is larger than `message_bytes_max` of this endpoint.
    #[error(
        "a request of {size} bytes is larger than the limit of {limit}: send less, or raise \
         Limits::message_bytes_max at both ends"
    )]
    TooLarge {
        /// The request.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The metadata of the request has more than 16,000 bytes, or a key of it more than 255.
    #[error(
        "metadata of {size} bytes is too large: a request has at most {limit}, of which a key has \
         at most 255, and no limit raises that; send it in the request"
    )]
    MetadataTooLarge {
        /// The metadata, with the pair that was to be added.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// This endpoint has too many calls open, or the call has too many branches. Nothing was sent.
    #[error(transparent)]
    NotOpened(#[from] OpenError),
    /// A hook of the client, [`Client::before_each`](crate::Client::before_each), ended the call
    /// before anything was sent.
    #[error("a hook of the client ended the call unsent: {0}")]
    Hook(Status),
    /// The endpoint was shut down. Nothing was sent.
    #[error("the endpoint was shut down: nothing was sent")]
    Stopped,
    /// The call ended otherwise: cancelled, or too large for its initiator.
    #[error("{}", told_of_end(*.0))]
    Ended(End),
}

fn told_of_end(end: End) -> String {
    match end {
        End::Cancelled => "the call was cancelled by its caller, as it is when its \
                           RequestStream is dropped before RequestStream::finish"
            .to_owned(),
        End::Exhausted => "the call outgrew a bound of its caller: open fewer branches, or send \
                           less in one reply, or raise Limits::branches_max or \
                           Limits::reply_bytes_max where the call is made"
            .to_owned(),
        end => format!("the call ended as {end:?}"),
    }
}

/// The same text: a `main` that returns the error prints this.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CallError {
    /// The service's own error, if that is what it is.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Branch(failure) if failure.cause == Cause::Application => {
                let status = Status::new(Code::from_number(failure.code), failure.text.clone());
                Some(status.with_details(failure.details.clone()))
            }
            Self::Hook(status) => Some(status.clone()),
            _ => None,
        }
    }

    /// The failed branch, if one failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Branch(failure) => Some(failure),
            _ => None,
        }
    }

    /// True when the same call may be repeated without running anything twice. Of a call that
    /// reads on after a failed branch, that branch alone may be. Never of a branch that a task has
    /// opened, or one that was handed on by a tail transfer: the task has run that did.
    pub fn is_safe_to_repeat(&self) -> bool {
        match self {
            Self::Branch(failure) => failure.task.opens_root() && failure.is_safe_to_repeat(),
            Self::NoPeer | Self::NotOpened(_) | Self::Hook(_) | Self::Stopped => true,
            _ => false,
        }
    }
}

/// Reason why an endpoint could not start.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// An address is not one.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Two limits contradict each other, or nothing works with one.
    #[error("the limits are not usable: {0}")]
    Limits(#[from] LimitsError),
    /// Two methods have the same name, as of a service that is served twice, or the same 32-bit
    /// hash of it.
    #[error("{}", told_of_clash(.0, .1))]
    MethodClash(&'static str, &'static str),
    /// The certificates of the endpoint's transports prove no node that they share, or not the one
    /// that it was named.
    #[error("it cannot be {0} and {1}: name a node that each transport's certificate proves")]
    TwoNodes(NodeId, NodeId),
    /// A service cannot be served by this node: it was set up without something, or for others.
    #[error("a service does not fit this node: {reason}")]
    Unfit {
        /// Reason that the service gives.
        reason: String,
    },
}

/// The same text: a `main` that returns the error prints this.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn told_of_clash(one: &str, other: &str) -> String {
    if one == other {
        return format!("{one} is served twice: serve each service and method once");
    }
    format!("the methods {one} and {other} cannot be told apart on the wire: rename one")
}

/// Reason why a peer could not be connected.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No address was given.
    #[error("there is no address to connect to")]
    NoAddress,
    /// Dialling failed.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The endpoint was shut down.
    #[error("the endpoint was shut down: it makes no connections any more")]
    Stopped,
}

/// The same text: a `main` that returns the error prints this.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Endpoint, Items, Method, Service};

    const READ: Method<Items<u64>, u64> = Method::new("test.Test/Read");

    async fn endpoint() -> Endpoint {
        let read = async |mut items: Items<u64>, _: Context| {
            while items.next().await.is_some() {}
            Ok::<_, Status>(0)
        };
        let builder = Endpoint::builder().serve(Service::new().unary(READ, read));
        builder.start().await.expect("nothing to bind")
    }

    #[tokio::test]
    async fn a_call_to_no_peer_says_so() {
        let endpoint = endpoint().await;
        let echo = Method::<u64, u64>::new("test.Test/Echo");
        let nobody = || endpoint.call(echo, 1).to_all([0_u64; 0].map(NodeId::new));
        let awaited = nobody().await.expect_err("nobody was asked");
        let first = nobody().open().expect("there is room").first().await.expect_err("as above");
        for error in [awaited, first] {
            assert!(matches!(error, CallError::NoPeer) && error.is_safe_to_repeat(), "{error}");
        }
    }

    #[tokio::test]
    async fn a_call_whose_request_stream_was_dropped_names_it() {
        let endpoint = endpoint().await;
        let (items, call) = endpoint.call_stream(READ).to(endpoint.me()).open().expect("so");
        drop(items);
        let error = call.first().await.expect_err("it was cancelled");
        assert!(matches!(error, CallError::Ended(End::Cancelled)), "{error}");
        assert!(error.to_string().contains("RequestStream::finish"), "{error}");
    }
}
