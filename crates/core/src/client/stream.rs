//! Calls whose request is a stream: the items on their way out.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::time::Duration;

use convoke_proto::encoded::Encoded;
use convoke_proto::id::CallId;
use convoke_proto::task::SendError;

use crate::coop::poll_in_budget;
use crate::driver::RoomWait;
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::message::Payload;
use crate::method::{Method, Request};
use crate::peer::Peer;
use crate::server::{Context, Items};

use super::{Call, CallBuilder, Client, Invocation};

/// A call with a streamed request, on its way to being addressed, as [`Client::call_stream`] and
/// generated clients make it.
///
/// It has one branch: items go to one task, over the connection of its request.
#[must_use = "nothing is sent until it is addressed with `to` and opened"]
pub struct StreamInvocation<Req, Resp> {
    invocation: Invocation<Resp>,
    types: PhantomData<fn(Req)>,
}

impl<Req: Payload, Resp: Payload> StreamInvocation<Req, Resp> {
    fn new(client: Client, request: Request<Resp>) -> Self {
        Self { invocation: Invocation::new(client, request), types: PhantomData }
    }

    /// Ends the call within `deadline`, its items included: within `Limits::deadline_max` of both
    /// ends at most, 10 min. Default: that of its client, else the endpoint's `deadline_default`,
    /// 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.invocation = self.invocation.deadline(deadline);
        self
    }

    /// Adds metadata for the handlers of the whole tree, as [`Request::metadata`].
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.invocation = self.invocation.metadata(key, value);
        self
    }

    /// Addresses it to one peer.
    pub fn to(self, peer: impl Into<Peer>) -> StreamBuilder<Req, Resp> {
        StreamBuilder { call: self.invocation.to(peer).send_items(), types: PhantomData }
    }
}

/// A call with a streamed request that is about to be opened.
#[must_use = "nothing is sent until it is opened"]
pub struct StreamBuilder<Req, Resp> {
    call: CallBuilder<Resp>,
    types: PhantomData<fn(Req)>,
}

impl<Req: Payload, Resp: Payload> StreamBuilder<Req, Resp> {
    /// Adds metadata to the request, as [`CallBuilder::metadata`].
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.call = self.call.metadata(key, value);
        self
    }

    /// Ends the call within `deadline`, as [`StreamInvocation::deadline`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.call = self.call.deadline(deadline);
        self
    }

    /// Keeps what is learnt of the tree that is executed, as [`CallBuilder::trace`].
    pub fn trace(mut self) -> Self {
        self.call = self.call.trace();
        self
    }

    /// The time it gets, as [`CallBuilder::budget`].
    pub fn budget(&self) -> Duration {
        self.call.budget()
    }

    /// Sends the request now. Gives what its items are sent with, and the call to read replies
    /// from: use both at once where the handler replies while it reads.
    ///
    /// # Errors
    /// As [`CallBuilder::open`].
    pub fn open(self) -> Result<(RequestStream<Req>, Call<Resp>), CallError> {
        self.call.open().map(with_items)
    }

    /// As [`StreamBuilder::open`], once the connection has room for the request.
    ///
    /// # Errors
    /// As [`CallBuilder::open`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the call is cancelled, or was not opened.
    pub async fn open_when_writable(self) -> Result<(RequestStream<Req>, Call<Resp>), CallError>
    where
        Resp: 'static,
    {
        self.call.open_when_writable().await.map(with_items)
    }
}

/// Splits a call into the sender of its items and the call.
fn with_items<Req, Resp: Payload>(call: Call<Resp>) -> (RequestStream<Req>, Call<Resp>) {
    let (endpoint, id) = (call.endpoint().clone(), call.id());
    (RequestStream { endpoint, call: id, is_finished: false, types: PhantomData }, call)
}

/// Sends the items of a streamed request, within the credit that their reader grants: at most
/// `Limits::stream_window_bytes` are on their way or unread.
///
/// Dropped before [`RequestStream::finish`] it cancels the call, also one that was let run, so that
/// a task never takes a part for the whole. Dropping the [`Call`] ends the items, too, unless it
/// was let run.
#[must_use = "dropped unfinished, it cancels the call"]
pub struct RequestStream<Req> {
    endpoint: Endpoint,
    call: CallId,
    is_finished: bool,
    types: PhantomData<fn(Req)>,
}

impl<Req: Payload> RequestStream<Req> {
    /// Sends an item once the handler has made room for it and the connection takes it.
    ///
    /// # Errors
    /// [`SendError::Ended`] when the task has ended or reads no further items: the call says which,
    /// and a task may well answer before it has read all. [`SendError::Lost`] when the connection
    /// has ended; nothing is sent again over another. [`SendError::TooLarge`] of the item alone,
    /// at once.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the item was not sent.
    pub async fn send(&mut self, item: &Req) -> Result<(), SendError> {
        let (driver, call, mut payload) = (self.endpoint.driver(), self.call, item.to_encoded());
        driver.check_size(&payload)?;
        let mut room = RoomWait::default();
        poll_fn(|cx| {
            poll_in_budget(cx, |cx| driver.poll_send_item(call, &mut payload, &mut room, cx))
        })
        .await
    }
}

impl<Req> RequestStream<Req> {
    /// Ends the items: the handler sees their end once it has read them.
    pub fn finish(mut self) {
        self.is_finished = true;
        let call = self.call;
        self.endpoint.driver().let_items_go(call, |node, now| node.finish_items(now, call));
    }
}

impl<Req> Drop for RequestStream<Req> {
    fn drop(&mut self) {
        if !self.is_finished {
            let call = self.call;
            self.endpoint.driver().let_items_go(call, |node, now| node.abandon_items(now, call));
        }
    }
}

impl Client {
    /// A call of a method whose request is a stream, to be addressed with
    /// [`to`](StreamInvocation::to).
    /// ```
    /// # use convoke_core::{Client, Items, Method, Peer, SendError, Status};
    /// const LOAD: Method<Items<String>, u64> = Method::new("store.Store/Load");
    ///
    /// async fn load(client: &Client, store: Peer, lines: &[String]) -> Result<u64, Status> {
    ///     let (mut items, call) = client.call_stream(LOAD).to(store).open()?;
    ///     for line in lines {
    ///         match items.send(line).await {
    ///             Err(SendError::Ended) => break, // It reads no more: the call says why.
    ///             sent => sent?,
    ///         }
    ///     }
    ///     items.finish();
    ///     Ok(call.first().await?.into_inner())
    /// }
    /// ```
    pub fn call_stream<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Items<Req>, Resp>,
    ) -> StreamInvocation<Req, Resp> {
        self.invoke_stream(method.request_of(Encoded::default()))
    }

    /// A call with a streamed request that was made elsewhere.
    pub fn invoke_stream<Req: Payload, Resp: Payload>(
        &self,
        request: Request<Resp>,
    ) -> StreamInvocation<Req, Resp> {
        StreamInvocation::new(self.clone(), request)
    }
}

impl Endpoint {
    /// A call of a method whose request is a stream, as [`Client::call_stream`].
    pub fn call_stream<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Items<Req>, Resp>,
    ) -> StreamInvocation<Req, Resp> {
        self.client().call_stream(method)
    }
}

impl Context {
    /// A call of a method whose request is a stream, as [`Client::call_stream`].
    pub fn call_stream<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Items<Req>, Resp>,
    ) -> StreamInvocation<Req, Resp> {
        self.client().call_stream(method)
    }
}

impl<Req, Resp> fmt::Debug for StreamInvocation<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamInvocation").field(&self.invocation).finish()
    }
}

impl<Req, Resp> fmt::Debug for StreamBuilder<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamBuilder").field(&self.call).finish()
    }
}

impl<Req> fmt::Debug for RequestStream<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestStream")
            .field("call", &self.call)
            .field("is_finished", &self.is_finished)
            .finish_non_exhaustive()
    }
}
