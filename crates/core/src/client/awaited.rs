//! A call that is awaited for its first reply.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::driver::{OpenTerms, RoomWait};
use crate::error::CallError;
use crate::message::Payload;
use crate::telemetry::CallProbe;
use crate::transport::BoxFuture;

use super::call::Failed;
use super::{Call, CallBuilder, Reply};

/// Resolves to the first reply of a call; what still runs then is cancelled. Waits while no
/// connection to those it asks has room.
///
/// A call of one branch over a connection that is open costs no allocation of its own.
///
/// # Panics
/// When it is polled after it has resolved.
///
/// # Cancel safety
/// Dropped before it resolves, the call is cancelled.
#[must_use = "futures do nothing unless polled"]
pub struct Awaited<Resp>(State<Resp>);

enum State<Resp> {
    /// With true once its requests are about to be what they leave as.
    Ready(CallBuilder<Resp>, bool),
    /// No connection has room.
    Waiting(BoxFuture<Begun<Resp>>),
    Open(Open<Resp>),
    Over,
}

/// A call whose requests are what they leave as.
type Begun<Resp> = (CallBuilder<Resp>, CallProbe);

/// A call under way.
struct Open<Resp> {
    call: Call<Resp>,
    failed: Failed,
}

impl<Resp> Awaited<Resp> {
    pub(super) fn new(builder: CallBuilder<Resp>) -> Self {
        Self(State::Ready(builder, false))
    }
}

impl<Resp: Payload + 'static> Future for Awaited<Resp> {
    type Output = Result<Resp, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.0 {
            State::Open(open) => {
                ready!(open.call.poll_first(&mut open.failed, cx)).map(Reply::into_inner)
            }
            state => match ready!(state.open(cx)) {
                Ok(()) => return Poll::Pending, // Its waker is kept; others may append meanwhile.
                Err(error) => Err(error),
            },
        };
        self.0 = State::Over;
        Poll::Ready(result)
    }
}

impl<Resp: Payload + 'static> State<Resp> {
    /// Opens the call, once there is room for one of its requests.
    fn open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Where it lies: it is not moved before the call is open.
        let (mut probe, needs_room) = match self {
            Self::Ready(builder, is_begun @ false) => {
                *is_begun = true;
                (builder.begin()?, true)
            }
            Self::Waiting(waiting) => {
                let (builder, probe) = ready!(waiting.as_mut().poll(cx));
                *self = Self::Ready(builder, true);
                (probe, false)
            }
            Self::Ready(_, true) | Self::Open(_) | Self::Over => {
                panic!("a call was polled after it had resolved")
            }
        };
        let Self::Ready(builder, _) = self else { unreachable!("the others were left above") };
        let (driver, opening) = builder.opening();
        let terms = OpenTerms { waker: Some(cx.waker()), needs_room, apart: false };
        let opened = driver.open_call(opening, terms).inspect_err(|_| probe.refused())?;
        let Self::Ready(builder, _) = std::mem::replace(self, Self::Over) else { unreachable!() };
        let Some(opened) = opened else {
            *self = Self::Waiting(Box::pin(when_writable((builder, probe))));
            return self.open(cx);
        };
        *self = Self::Open(Open { call: builder.opened(opened, probe), failed: Failed::default() });
        Poll::Ready(Ok(()))
    }
}

impl<Resp: Payload + 'static> CallBuilder<Resp> {
    /// As [`CallBuilder::open`], once the connection to one of those that it asks has room: what is
    /// awaited need not fail for want of it. Others may have none, and fail their own branches.
    ///
    /// # Errors
    /// As [`CallBuilder::open`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the call is cancelled, or was not opened.
    pub async fn open_when_writable(self) -> Result<Call<Resp>, CallError> {
        let mut state = State::Ready(self, false);
        poll_fn(|cx| state.open(cx)).await?;
        let State::Open(Open { call, .. }) = state else { unreachable!("it was opened above") };
        Ok(call)
    }
}

/// Waits until there is room for a request of a call: one member that takes nothing keeps none from
/// the others.
async fn when_writable<Resp: Payload>((mut builder, probe): Begun<Resp>) -> Begun<Resp> {
    let driver = builder.client().endpoint().driver().clone();
    let budget = builder.budget();
    let start = driver.now();
    let nodes: Vec<_> = builder.branches().map(|(peer, _)| peer.node()).collect();
    let mut wait = RoomWait::default();
    let room = poll_fn(|cx| driver.poll_room(&nodes, &mut wait, cx));
    // A connection that stays full is no reason to wait beyond the deadline: the call then opens
    // with nothing left, and fails as any that is late.
    let _ = driver.within(budget, room).await;
    builder.deadline = Some(budget.saturating_sub(driver.now().since(start)));
    (builder, probe)
}

impl<Resp> fmt::Debug for Awaited<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            State::Ready(..) => "Awaited(not polled yet)",
            State::Waiting(_) | State::Open(_) => "Awaited(under way)",
            State::Over => "Awaited(over)",
        })
    }
}
