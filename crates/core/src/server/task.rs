//! The handle of a task of a tree call.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;

use convoke_proto::task::SendError;

use crate::driver::{HandlerResult, LastWord, RoomWait, TaskHandle};
use crate::error::Status;
use crate::message::Payload;
use crate::method::Request;
use crate::packing::LastPacked;
use crate::peer::Peer;

use super::Context;
use super::stream::ReplyStream;

/// One task of a tree call, answered with `Resp`s: it replies to the initiator, any number of
/// times, and opens branches at other nodes, whose tasks reply to the initiator in turn.
///
/// The compiler sees to it that a branch is of a method that answers with `Resp` too:
/// ```
/// # use convoke_core::{Finish, Method, Peer, Status, Task};
/// # #[derive(Clone, PartialEq, prost::Message)] struct Ask {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Apple {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Pear {}
/// const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");
/// const PEARS: Method<Ask, Pear> = Method::new("fruit.Fruit/Pears");
///
/// async fn apples(_: Ask, task: Task<Apple>, peer: Peer) -> Result<Finish, Status> {
///     task.delegate(&peer, APPLES.request(Ask {})).await?;
///     Ok(task.finish())
/// }
/// ```
/// and refuses another:
/// ```compile_fail,E0308
/// # use convoke_core::{Finish, Method, Peer, Status, Task};
/// # #[derive(Clone, PartialEq, prost::Message)] struct Ask {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Apple {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Pear {}
/// # const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");
/// # const PEARS: Method<Ask, Pear> = Method::new("fruit.Fruit/Pears");
/// async fn apples(_: Ask, task: Task<Apple>, peer: Peer) -> Result<Finish, Status> {
///     task.delegate(&peer, PEARS.request(Ask {})).await?;
///     Ok(task.finish())
/// }
/// ```
/// A handler that ends without finishing its task is refused as well:
/// ```compile_fail,E0271
/// # use convoke_core::{Method, Service, Status, Task};
/// # #[derive(Clone, PartialEq, prost::Message)] struct Ask {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Apple {}
/// # const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");
/// async fn apples(_: Ask, task: Task<Apple>) -> Result<(), Status> {
///     task.reply(&Apple {})?;
///     Ok(())
/// }
/// let service = Service::new().tree(APPLES, apples);
/// ```
pub struct Task<Resp> {
    context: Context,
    types: PhantomData<fn(Resp)>,
}

/// The handler is done with its task. Only a [`Task`] can make one:
/// ```compile_fail,E0423
/// let finish = convoke_core::Finish(());
/// ```
#[derive(Debug)]
pub struct Finish(pub(super) HandlerResult);

/// A branch that was not opened, with its request: for another try elsewhere by [`Task::delegate`],
/// whose task is still there. After [`Task::tail`] the task is gone with it: its handler can fail.
pub struct Refused<Resp> {
    /// Reason.
    pub reason: SendError,
    /// Request that was not sent.
    pub request: Request<Resp>,
    /// The node that cannot be reached and what the last dial there came to, where that is the
    /// reason: whoever reads the failure of the task knows that node by nothing else.
    unreached: Option<Box<str>>,
}

impl<Resp> fmt::Debug for Refused<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<Resp> fmt::Display for Refused<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unreached {
            Some(unreached) => f.write_str(unreached),
            None => fmt::Display::fmt(&self.reason, f),
        }
    }
}

impl<Resp> std::error::Error for Refused<Resp> {}

impl<Resp> From<Refused<Resp>> for Status {
    fn from(refused: Refused<Resp>) -> Self {
        let text = refused.to_string();
        Self::from(refused.reason).saying(text)
    }
}

impl<Resp: Payload> Task<Resp> {
    pub(super) fn new(handle: Arc<TaskHandle>) -> Self {
        Self { context: Context::new(handle), types: PhantomData }
    }

    /// Context of the task: facts about it, and the calls that it can make.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Sends a reply to the initiator. It leaves with the next output, when the handler waits for
    /// something, or at its end.
    ///
    /// # Errors
    /// [`SendError`] when the task has been stopped or the message is too large.
    pub fn reply(&self, reply: &Resp) -> Result<(), SendError> {
        self.handle().reply(reply.to_encoded())
    }

    /// Ends the task with a last reply, which leaves when the handler returns.
    ///
    /// # Errors
    /// [`Status`] when the message is too large.
    pub fn answer(self, reply: &Resp) -> Result<Finish, Status> {
        let payload = reply.to_encoded();
        let limit = self.handle().driver().limits.message_bytes_max;
        let size = payload.len();
        if size > limit {
            return Err(SendError::TooLarge { size, limit }.into());
        }
        Ok(Finish(LastWord::Reply(payload).ended()))
    }

    /// Ends the task.
    pub fn finish(self) -> Finish {
        Finish(LastWord::Nothing.ended())
    }

    /// Begins a streamed reply.
    ///
    /// # Errors
    /// [`SendError::Ended`] when the task has been stopped.
    pub fn stream(&self) -> Result<ReplyStream<Resp>, SendError> {
        let handle = self.handle();
        let index = handle
            .driver()
            .with_node(handle.origin(), |node, now| node.stream(now, handle.task()))?;
        Ok(ReplyStream::new(handle.clone(), index))
    }

    /// Opens a branch at `peer`: its task replies to the initiator. Waits while the connection to
    /// the peer has no room.
    ///
    /// # Errors
    /// [`Refused`] with the request, when the peer is known to be dead or a bound is reached. A
    /// peer that turns out to be unreachable later is a failure record at the initiator.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, no branch was opened.
    pub async fn delegate(
        &self,
        peer: impl Into<Peer>,
        request: Request<Resp>,
    ) -> Result<(), Refused<Resp>> {
        let (handle, peer) = (self.handle(), peer.into());
        let opened = match handle.branch(&request, peer, &mut LastPacked::default()) {
            Ok(mut branch) => {
                let mut room = RoomWait::default();
                poll_fn(|cx| handle.poll_delegate(&mut branch, &mut room, cx)).await
            }
            Err(reason) => Err(reason),
        };
        opened.map_err(|reason| self.refused(peer, reason, request))
    }

    /// Hands the rest of the work to `peer`, when the handler returns. The branch of a task that
    /// has sent nothing moves there itself, which costs no manifest. Waits while the connection to
    /// the peer has no room.
    ///
    /// # Errors
    /// As [`Task::delegate`]. The task cannot be handed to another then: a handler that means to
    /// try several delegates, and returns [`Task::finish`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, or with a [`Finish`] that the handler does not return, it has
    /// handed nothing on.
    pub async fn tail(
        self,
        peer: impl Into<Peer>,
        request: Request<Resp>,
    ) -> Result<Finish, Refused<Resp>> {
        let (handle, peer) = (self.handle(), peer.into());
        let taken = match handle.branch(&request, peer, &mut LastPacked::default()) {
            Ok(mut branch) => {
                let mut room = RoomWait::default();
                poll_fn(|cx| handle.poll_tail(&mut branch, &mut room, cx)).await
            }
            Err(reason) => Err(reason),
        };
        match taken {
            Ok(branch) => Ok(Finish(LastWord::Branch(branch).ended())),
            Err(reason) => Err(self.refused(peer, reason, request)),
        }
    }

    fn refused(&self, peer: Peer, reason: SendError, request: Request<Resp>) -> Refused<Resp> {
        let unreached = matches!(reason, SendError::NodeDead).then(|| {
            let (handle, node) = (self.handle(), peer.node());
            let why = handle
                .driver()
                .ask_node(handle.origin(), |core| core.links().why_unreachable(node).to_owned());
            format!("{node} cannot be reached at the moment: {why}").into()
        });
        Refused { reason, request, unreached }
    }
}

impl<Resp> Task<Resp> {
    pub(super) fn handle(&self) -> &Arc<TaskHandle> {
        &self.context.handle
    }
}

impl<Resp> fmt::Debug for Task<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(self.context.task()).finish()
    }
}
