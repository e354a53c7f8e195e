//! Input of handlers: a message, or the items of a streamed request.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use convoke_proto::task::{ItemsFailure, NextItem, TaskFailure};
use convoke_proto::wire::{Cause, Executed};
use futures_core::Stream;

use crate::coop::poll_in_budget;
use crate::driver::{Part, TaskHandle};
use crate::error::{Code, Status};
use crate::message::{DecodeError, Payload};

/// The items of a streamed request, as a handler takes them: read with [`Items::next`], or as a
/// `Stream`. A method whose `.proto` says `stream` before its request is a
/// `Method<Items<Req>, Resp>`.
/// ```
/// use convoke_core::{Context, Items, Method, Service, Status};
///
/// const SUM: Method<Items<u64>, u64> = Method::new("math.Math/Sum");
///
/// async fn sum(mut numbers: Items<u64>, _: Context) -> Result<u64, Status> {
///     let mut sum = 0;
///     while let Some(number) = numbers.next().await {
///         sum += number?;
///     }
///     Ok(sum)
/// }
///
/// let service = Service::new().unary(SUM, sum);
/// ```
/// Reading makes room for more, so a handler that does not read holds its caller back.
/// Dropped before the end, it tells the caller that no further items are taken. Like a
/// [`Task`](super::Task) it is of this node alone: a delegated branch has none.
pub struct Items<Req> {
    handle: Arc<TaskHandle>,
    /// Items that were handed out with the one before.
    ahead: VecDeque<Bytes>,
    is_over: bool,
    types: PhantomData<fn() -> Req>,
}

/// Reason why the items of a streamed request end before the last.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemsError {
    /// No further items come.
    #[error(transparent)]
    Failed(#[from] ItemsFailure),
    /// An item is not the message it should be: the caller's doing, or another version of it.
    #[error("an item cannot be decoded: {0}")]
    Decode(DecodeError),
}

impl From<ItemsError> for Status {
    fn from(error: ItemsError) -> Self {
        let code = match error {
            ItemsError::Failed(ItemsFailure::Ended | ItemsFailure::Lost) => Code::Cancelled,
            ItemsError::Failed(ItemsFailure::NoRoom) => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl<Req: Payload> Items<Req> {
    /// The next item; `None` after the last.
    ///
    /// # Errors
    /// [`ItemsError`], after which there are no others.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Req, ItemsError>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Req, ItemsError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = match self.ahead.pop_front() {
            Some(item) => Ok(NextItem::Item(item)),
            None => ready!(poll_in_budget(cx, |cx| {
                self.handle.poll_stream(Part::Items, cx, |node, now, task| {
                    node.next_item(now, task, Some(&mut self.ahead))
                })
            })),
        };
        let item = match next {
            Ok(NextItem::Item(bytes)) => Req::decode(bytes).map_err(ItemsError::Decode),
            Ok(NextItem::End) => {
                self.is_over = true;
                return Poll::Ready(None);
            }
            Err(failure) => Err(failure.into()),
        };
        if item.is_err() {
            self.end();
        }
        Poll::Ready(Some(item))
    }
}

impl<Req> Items<Req> {
    /// Reads no further items.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.handle.drop_items();
        }
    }
}

impl<Req: Payload> Stream for Items<Req> {
    type Item = Result<Req, ItemsError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(cx)
    }
}

impl<Req> Drop for Items<Req> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<Req> fmt::Debug for Items<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items")
            .field("task", self.handle.task())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

/// Input of a handler: a message, or [`Items`]. Implemented for all [`Payload`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a handler can take",
    label = "is neither a message nor `Items` of messages",
    note = "derive `prost::Message`, or have `convoke-build` make it of a `.proto` file",
    note = "a streamed request is taken as `Items<Message>`"
)]
pub trait FromRequest: Sized + Send {
    /// True when it takes a streamed request.
    #[doc(hidden)]
    const IS_STREAMED: bool;

    #[doc(hidden)]
    fn from_request(arrived: Arrived<'_>) -> Result<Self, DecodeError>;
}

/// A request that has come. Nobody else can make one.
#[doc(hidden)]
pub struct Arrived<'a> {
    handle: &'a Arc<TaskHandle>,
    payload: Bytes,
}

impl fmt::Debug for Arrived<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arrived").field(self.handle.task()).finish()
    }
}

impl<M: Payload> FromRequest for M {
    const IS_STREAMED: bool = false;

    fn from_request(arrived: Arrived<'_>) -> Result<Self, DecodeError> {
        Self::decode(arrived.payload)
    }
}

impl<M: Payload> FromRequest for Items<M> {
    const IS_STREAMED: bool = true;

    fn from_request(arrived: Arrived<'_>) -> Result<Self, DecodeError> {
        let (handle, ahead) = (arrived.handle.clone(), VecDeque::new());
        Ok(Self { handle, ahead, is_over: false, types: PhantomData })
    }
}

/// Reads what the handler of a request takes.
///
/// # Errors
/// The failure of a task whose request is not what its method takes.
pub(super) fn take<Req: FromRequest>(
    handle: &Arc<TaskHandle>,
    payload: Bytes,
) -> Result<Req, TaskFailure> {
    let refusal = |text: &str| TaskFailure::new(Cause::BadRequest, Executed::No, text);
    match (Req::IS_STREAMED, handle.start().has_items) {
        (true, false) => Err(refusal("the method takes a stream of requests: call_stream")),
        (false, true) => Err(refusal("the method takes one request, and no stream of them")),
        _ => Req::from_request(Arrived { handle, payload })
            .map_err(|error| refusal(&error.to_string())),
    }
}
