//! A call that is awaited for its first reply.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use convoke_proto::call::{End, root_path};
use convoke_proto::id::CallId;
use convoke_proto::initiator::SlotPoll;

use crate::driver::{FlushDuty, SlotOpened};
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::telemetry::CallProbe;
use crate::transport::{BoxFuture, Lane};

use super::call::unpack;
use super::{Call, CallBuilder};

/// Resolves to the first reply of a call; what still runs then is cancelled. Waits while a connection has
/// no room.
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
    Ready(CallBuilder<Resp>),
    Flat(Flat, CallProbe),
    Full(BoxFuture<Result<Resp, CallError>>),
    Over,
}

/// A call under way that may still become a full one.
struct Flat {
    endpoint: Endpoint,
    call: CallId,
    /// Others rely on this caller to flush once it has yielded.
    duty: Option<FlushDuty>,
    is_over: bool,
}

impl<Resp> Awaited<Resp> {
    pub(super) fn new(builder: CallBuilder<Resp>) -> Self {
        Self(State::Ready(builder))
    }
}

impl<Resp: prost::Message + Default + 'static> Future for Awaited<Resp> {
    type Output = Result<Resp, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                State::Flat(flat, probe) => match flat.poll(cx, probe) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => self.0.grow(),
                    Poll::Ready(Some(delivered)) => {
                        self.0 = State::Over;
                        return Poll::Ready(delivered);
                    }
                },
                State::Full(call) => return call.as_mut().poll(cx),
                State::Ready(_) => {
                    if let Err(error) = self.0.open(cx) {
                        self.0 = State::Over;
                        return Poll::Ready(Err(error));
                    }
                    if matches!(self.0, State::Flat(..)) {
                        return Poll::Pending; // Its waker is kept; others may append meanwhile.
                    }
                }
                State::Over => panic!("a call was polled after it had resolved"),
            }
        }
    }
}

impl<Resp: prost::Message + Default + 'static> State<Resp> {
    fn open(&mut self, cx: &Context<'_>) -> Result<(), CallError> {
        let Self::Ready(builder) = self else { return Ok(()) };
        let Some((request, probe)) = builder.take_slot_request()? else {
            self.open_full(None);
            return Ok(());
        };
        match builder.endpoint.driver().open_slot(request, cx.waker())? {
            SlotOpened::Open(call, duty) => {
                let duty = duty.inspect(|_| cx.waker().wake_by_ref());
                let endpoint = builder.endpoint.clone();
                probe.opened(call);
                *self = Self::Flat(Flat { endpoint, call, duty, is_over: false }, probe);
            }
            SlotOpened::Unsuited(request) => {
                builder.put_back(request);
                self.open_full(Some(probe));
            }
        }
        Ok(())
    }

    fn open_full(&mut self, begun: Option<CallProbe>) {
        if let Self::Ready(builder) = std::mem::replace(self, Self::Over) {
            *self = Self::Full(Box::pin(open_when_writable(builder, begun)));
        }
    }

    /// The call is a full one by now.
    fn grow(&mut self) {
        let Self::Flat(mut flat, probe) = std::mem::replace(self, Self::Over) else { return };
        flat.is_over = true;
        let call = Call::adopt(flat.endpoint.clone(), flat.call, probe, false);
        *self = Self::Full(Box::pin(call.first()));
    }
}

impl Flat {
    /// `None` when it is no longer flat.
    fn poll<Resp: prost::Message + Default>(
        &mut self,
        cx: &mut Context<'_>,
        probe: &mut CallProbe,
    ) -> Poll<Option<Result<Resp, CallError>>> {
        // The second poll: others had their turn to append.
        if let Some(duty) = self.duty.take() {
            drop(duty);
        }
        match self.endpoint.driver().poll_slot(self.call, cx.waker()) {
            SlotPoll::Pending => Poll::Pending,
            SlotPoll::Grown => Poll::Ready(None),
            SlotPoll::Answered { from, payload } => {
                self.is_over = true;
                let message = unpack(&self.endpoint.driver().packing, payload);
                match &message {
                    Ok(_) => probe.answered(),
                    Err(_) => probe.ended(End::Complete),
                }
                Poll::Ready(Some(message.map_err(|message| CallError::Decode {
                    path: root_path(0),
                    from,
                    message,
                })))
            }
        }
    }
}

impl Drop for Flat {
    fn drop(&mut self) {
        if !self.is_over {
            self.endpoint.driver().forget_call(self.call);
        }
    }
}

/// The long way: waits for room, opens the call, and reads it to its first reply.
async fn open_when_writable<Resp: prost::Message + Default>(
    mut builder: CallBuilder<Resp>,
    begun: Option<CallProbe>,
) -> Result<Resp, CallError> {
    let driver = builder.endpoint.driver().clone();
    let budget = builder.deadline.unwrap_or(builder.endpoint.deadline_default());
    let start = driver.now();
    let nodes = builder.branches.iter().map(|(peer, _)| peer.node());
    let connections: Vec<_> = nodes.filter_map(|node| driver.connection_to(node)).collect();
    let writable = async {
        for connection in connections {
            poll_fn(|cx| connection.poll_writable(Lane::Data, cx)).await;
        }
    };
    // A connection that stays full is no reason to wait beyond the deadline: the call then opens with
    // nothing left, and fails as any that is late.
    let _ = tokio::time::timeout(budget, writable).await;
    builder.deadline = Some(budget.saturating_sub(driver.now().since(start)));
    builder.open_begun(begun)?.first().await
}

impl<Resp> fmt::Debug for Awaited<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            State::Ready(_) => "Awaited(not polled yet)",
            State::Flat(..) | State::Full(_) => "Awaited(under way)",
            State::Over => "Awaited(over)",
        })
    }
}
