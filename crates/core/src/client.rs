//! Handles of callers: a [`Client`], an [`Invocation`] being addressed, a [`Call`] under way.

mod awaited;
mod call;
mod common;
#[cfg(feature = "tower")]
mod service;
mod stream;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use convoke_proto::call::{CallOptions, RootRequest, Roots};
use convoke_proto::id::NodeId;
use convoke_proto::node::Opening;
use smallvec::SmallVec;

use crate::driver::{Driver, OpenTerms, Opened};
use crate::error::CallError;
use crate::message::Payload;
use crate::method::Request;
use crate::peer::Peer;
use crate::telemetry::CallProbe;

pub use awaited::Awaited;
use call::begin;
pub use call::{Call, CallSeam, Outcome, Progress, Reply};
pub use common::{Client, Outgoing};
#[cfg(feature = "tower")]
pub use service::PeerService;
pub use stream::{RequestStream, StreamBuilder, StreamInvocation};

/// A call on its way to being addressed, as [`Client::call`] and generated clients make it.
///
/// Nothing is sent before it is addressed and awaited or opened:
/// ```compile_fail,E0277
/// # use convoke_core::{CallError, Client, Method};
/// # const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello");
/// async fn greet(client: &Client) -> Result<String, CallError> {
///     client.call(HELLO, "Ada".into()).await
/// }
/// ```
#[must_use = "nothing is sent until it is addressed with `to` and awaited or opened"]
pub struct Invocation<Resp> {
    client: Client,
    request: Request<Resp>,
    deadline: Option<Duration>,
}

impl<Resp: Payload> Invocation<Resp> {
    fn new(client: Client, request: Request<Resp>) -> Self {
        Self { client, request, deadline: None }
    }

    /// Ends the call within `deadline`, the endpoint's `deadline_max` at most. Default: that of its
    /// client, else the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Adds metadata for the handlers of the whole tree, as [`Request::metadata`].
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.request = self.request.metadata(key, value);
        self
    }

    /// Addresses it to one peer.
    pub fn to(self, peer: impl Into<Peer>) -> CallBuilder<Resp> {
        let Self { client, request, deadline } = self;
        let branches = Branches(SmallVec::from_buf([(peer.into(), request)]));
        CallBuilder { deadline, ..CallBuilder::new(client, branches) }
    }

    /// Addresses it to each of several peers, one branch each.
    pub fn to_all(self, peers: impl IntoIterator<Item: Into<Peer>>) -> CallBuilder<Resp> {
        let Self { client, request, deadline } = self;
        let branches = peers.into_iter().map(|peer| (peer.into(), request.clone()));
        CallBuilder { deadline, ..CallBuilder::new(client, Branches(branches.collect())) }
    }

    // The compiler would say that there is no such method, and nothing of `to`.
    #[doc(hidden)]
    pub fn open(self) -> Result<Call<Resp>, CallError>
    where
        Self: AddressedWithTo,
    {
        Err(CallError::NoReply)
    }
}

/// Implemented by nothing. Who awaits or opens an [`Invocation`] is told that it is not
/// `AddressedWithTo`: that is done as `.to(peer).await` or `.to_all(&peers).open()`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the call is addressed to nobody",
    label = "to whom?",
    note = "`.to(peer)` addresses it to one, `.to_all(&peers)` to several"
)]
pub trait AddressedWithTo {}

// The compiler would say that it is no future, and propose to remove the `.await`.
#[doc(hidden)]
impl<Resp> Future for Invocation<Resp>
where
    Self: AddressedWithTo,
{
    type Output = Result<Resp, CallError>;

    fn poll(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}

impl<Resp> fmt::Debug for Invocation<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Invocation").field(&self.request).finish()
    }
}

/// The root branches of a call; one, most of the time. They stay here until they leave.
struct Branches<Resp>(SmallVec<[(Peer, Request<Resp>); 1]>);

impl<Resp> Roots for Branches<Resp> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn branch(&self, index: u32) -> (NodeId, &RootRequest) {
        let (peer, request) = &self.0[index as usize];
        (peer.node(), &request.root)
    }

    fn branch_mut(&mut self, index: u32) -> (NodeId, &mut RootRequest) {
        let (peer, request) = &mut self.0[index as usize];
        (peer.node(), &mut request.root)
    }
}

/// A call being put together: its root branches, and its deadline.
///
/// Awaited, it opens the call and resolves to the first reply. [`CallBuilder::open`] gives all of
/// them.
/// Branches that differ are those of [`Client::fan_out`], which have one type of replies.
#[must_use = "nothing is sent until it is awaited or opened"]
pub struct CallBuilder<Resp> {
    client: Client,
    branches: Branches<Resp>,
    deadline: Option<Duration>,
    options: CallOptions,
}

impl<Resp: Payload> CallBuilder<Resp> {
    fn new(client: Client, branches: Branches<Resp>) -> Self {
        Self { client, branches, deadline: None, options: CallOptions::default() }
    }

    /// Adds a root branch. A deadline of the request is that of this branch alone.
    pub fn branch(mut self, peer: impl Into<Peer>, request: Request<Resp>) -> Self {
        self.branches.0.push((peer.into(), request));
        self
    }

    /// Adds metadata to the requests of all branches that it has by now.
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let with = |(peer, request): (Peer, Request<Resp>)| (peer, request.metadata(key, value));
        self.branches = Branches(self.branches.0.into_iter().map(with).collect());
        self
    }

    /// Ends the call within `deadline`, the endpoint's `deadline_max` at most. Default: that of its
    /// client, else the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Keeps what is learnt of the tree that is executed, the first 65,536 events; see
    /// [`Call::trace`].
    pub fn trace(mut self) -> Self {
        self.options.traces = true;
        self
    }

    /// Has nobody dialled or resolved for it: a peer that is not connected fails its branch.
    pub(crate) fn never_dial(mut self) -> Self {
        self.options.never_dials = true;
        self
    }

    /// Has items follow the request of its one branch.
    fn send_items(mut self) -> Self {
        self.options.sends_items = true;
        self
    }

    /// The client that makes the call.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The peers of the root branches, in order, and the requests for them.
    pub fn branches(&self) -> impl ExactSizeIterator<Item = (&Peer, &Request<Resp>)> {
        self.branches.0.iter().map(|(peer, request)| (peer, request))
    }

    /// The time it gets: its deadline, else that of its client or endpoint. In a handler no more
    /// than remains of the task, and never more than the endpoint's `deadline_max`.
    pub fn budget(&self) -> Duration {
        let (budget, endpoint) = (self.client.budget(self.deadline), self.client.endpoint());
        let budget = budget.unwrap_or_else(|| endpoint.deadline_default());
        budget.min(endpoint.limits().deadline_max)
    }

    /// Sends the requests now, in order, and gives the call to read replies from.
    ///
    /// # Errors
    /// [`CallError`] when this endpoint has too many calls, or a request is too large; then nothing
    /// was sent. A peer that cannot be reached is a failure of its branch.
    pub fn open(self) -> Result<Call<Resp>, CallError> {
        self.open_with(OpenTerms::default())
    }

    fn open_with(mut self, terms: OpenTerms<'_>) -> Result<Call<Resp>, CallError> {
        let mut probe = self.begin()?;
        let (driver, opening) = self.opening();
        let opened = driver.open_call(opening, terms).inspect_err(|_| probe.refused())?;
        let opened = opened.expect("it needs no room");
        Ok(self.opened(opened, probe))
    }

    /// Makes the requests what they leave as, once.
    fn begin(&mut self) -> Result<CallProbe, CallError> {
        let branches = &mut self.branches.0;
        self.client.prepare(branches)?;
        let endpoint = self.client.endpoint();
        let limit = endpoint.limits().message_bytes_max;
        branches.iter().try_for_each(|(_, request)| request.check_size(limit))?;
        Ok(begin(endpoint, branches))
    }

    /// As the driver opens it.
    fn opening(&mut self) -> (&Arc<Driver>, Opening<'_>) {
        let Self { client, branches, deadline, options } = self;
        let budget = client.budget(*deadline);
        (client.endpoint().driver(), Opening { budget, options: *options, branches })
    }

    /// The call that it has become.
    fn opened(self, opened: Opened, probe: CallProbe) -> Call<Resp> {
        Call::new(self.client.into_endpoint(), opened, probe, &self.branches)
    }
}

/// More ways to open the call of a [`CallBuilder`].
pub trait CallBuilderSeam {
    /// The call that it opens.
    type Call;

    /// Opens the call as [`CallBuilder::open`] does, and starts what this node itself was asked on
    /// another task of the runtime: a handler that blocks its thread does not hold up the caller.
    /// On a runtime of one thread it starts in place.
    ///
    /// With a waker it is as if the call had been polled at once and had nothing yet: its caller
    /// need not poll it before it is woken.
    ///
    /// # Errors
    /// As [`CallBuilder::open`].
    fn open_apart(self, waker: Option<&Waker>) -> Result<Self::Call, CallError>;

    /// Options of the call: of what its caller is told, and when.
    fn options_mut(&mut self) -> &mut CallOptions;
}

impl<Resp: Payload> CallBuilderSeam for CallBuilder<Resp> {
    type Call = Call<Resp>;

    fn open_apart(self, waker: Option<&Waker>) -> Result<Call<Resp>, CallError> {
        self.open_with(OpenTerms { waker, apart: true, ..OpenTerms::default() })
    }

    fn options_mut(&mut self) -> &mut CallOptions {
        &mut self.options
    }
}

impl<Resp> fmt::Debug for CallBuilder<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder")
            .field("branches", &self.branches.0)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl<Resp: Payload + 'static> IntoFuture for CallBuilder<Resp> {
    type Output = Result<Resp, CallError>;
    type IntoFuture = Awaited<Resp>;

    fn into_future(self) -> Awaited<Resp> {
        Awaited::new(self)
    }
}
