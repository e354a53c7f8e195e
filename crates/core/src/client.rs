//! What a caller holds: an [`Invocation`] being addressed, a [`Call`] under way.

mod awaited;
mod call;
#[cfg(feature = "tower")]
mod service;

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use convoke_proto::call::{CallOptions, Decision, Tally};
use smallvec::SmallVec;

use crate::driver::SlotRequest;
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::method::Request;
use crate::peer::Peer;
use crate::telemetry::CallProbe;

pub use awaited::Awaited;
use call::begin;
pub use call::{Call, Outcome, Progress, Reply};
#[cfg(feature = "tower")]
pub use service::PeerService;

/// A request of an endpoint, on its way to being addressed: `client.method(message)` gives one.
#[must_use = "nothing is sent until it is addressed with `to` and awaited or opened"]
pub struct Invocation<Resp> {
    endpoint: Endpoint,
    request: Request<Resp>,
}

impl<Resp: prost::Message + Default> Invocation<Resp> {
    /// A request of this endpoint.
    pub fn new(endpoint: &Endpoint, request: Request<Resp>) -> Self {
        Self { endpoint: endpoint.clone(), request }
    }

    /// Ends within `deadline`. Default: the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.request = self.request.deadline(deadline);
        self
    }

    /// Adds metadata for the handlers of the whole tree.
    pub fn metadata(mut self, key: &str, value: &[u8]) -> Self {
        self.request = self.request.metadata(key, value);
        self
    }

    /// To one peer.
    pub fn to(self, peer: &Peer) -> CallBuilder<Resp> {
        CallBuilder {
            endpoint: self.endpoint,
            deadline: self.request.deadline,
            branches: SmallVec::from_buf([(*peer, self.request)]),
            options: CallOptions::default(),
        }
    }

    /// The same to each of several peers, one branch each.
    pub fn to_all<'a>(self, peers: impl IntoIterator<Item = &'a Peer>) -> CallBuilder<Resp> {
        let deadline = self.request.deadline;
        let branches = peers.into_iter().map(|peer| (*peer, self.request.clone())).collect();
        CallBuilder { deadline, branches, ..CallBuilder::new(&self.endpoint) }
    }
}

impl<Resp> fmt::Debug for Invocation<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Invocation").field(&self.request).finish()
    }
}

/// The root branches of a call; one, most of the time.
type Branches<Resp> = SmallVec<[(Peer, Request<Resp>); 1]>;

/// A call being put together: its root branches, its deadline, its early decision.
///
/// Awaited, it opens the call and resolves to the first reply. [`CallBuilder::open`] gives all of them.
///
/// One call has one type of replies:
/// ```compile_fail,E0308
/// # use convoke_core::{CallBuilder, Endpoint, Method, Peer};
/// # #[derive(Clone, PartialEq, prost::Message)] struct Ask {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Apple {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Pear {}
/// # const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");
/// # const PEARS: Method<Ask, Pear> = Method::new("fruit.Fruit/Pears");
/// fn call(endpoint: &Endpoint, peer: &Peer) -> CallBuilder<Apple> {
///     CallBuilder::new(endpoint)
///         .branch(APPLES.request(Ask {}), peer)
///         .branch(PEARS.request(Ask {}), peer)
/// }
/// ```
#[must_use = "nothing is sent until it is awaited or opened"]
pub struct CallBuilder<Resp> {
    endpoint: Endpoint,
    branches: Branches<Resp>,
    deadline: Option<Duration>,
    options: CallOptions,
}

impl<Resp: prost::Message + Default> CallBuilder<Resp> {
    /// A call without branches.
    pub fn new(endpoint: &Endpoint) -> Self {
        let endpoint = endpoint.clone();
        let options = CallOptions::default();
        Self { endpoint, branches: SmallVec::new(), deadline: None, options }
    }

    /// Adds a root branch.
    pub fn branch(mut self, request: Request<Resp>, peer: &Peer) -> Self {
        self.branches.push((*peer, request));
        self
    }

    /// Ends within `deadline`. Default: the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Ends as soon as `decide` says so. It is called after every reply and failure, on whatever thread
    /// brought them, while the endpoint is locked: it must neither block nor use the endpoint. Once
    /// decided nothing is cancelled: late tasks run on, so that a write still reaches the slow ones.
    pub fn decide(
        mut self,
        decide: impl FnMut(&Tally<'_>) -> Decision + Send + 'static,
    ) -> DecidingCall<Resp> {
        self.options.predicate = Some(Box::new(decide));
        DecidingCall(self)
    }

    /// Keeps what is learnt of the tree that is executed; see [`Call::trace`].
    pub fn trace(mut self) -> Self {
        self.options.traces = true;
        self
    }

    /// Tells also of branches that end without a reply, as [`Progress::Silent`].
    pub fn tell_silent(mut self) -> Self {
        self.options.tells_silent = true;
        self
    }

    /// Tells also of branches whose request was handed to a connection, as [`Progress::Sent`]. Those at this
    /// node itself are not told of.
    pub fn tell_sent(mut self) -> Self {
        self.options.tells_sent = true;
        self
    }

    /// The endpoint that makes the call.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The peers of the root branches, in order, and the requests for them.
    pub fn branches(&self) -> impl ExactSizeIterator<Item = (&Peer, &Request<Resp>)> {
        self.branches.iter().map(|(peer, request)| (peer, request))
    }

    /// The deadline it was given, if any.
    pub fn deadline_set(&self) -> Option<Duration> {
        self.deadline
    }

    /// Sends the requests now, in order, and gives the call to read replies from.
    ///
    /// # Errors
    /// [`CallError`] when this endpoint has too many calls, or a request is too large; then nothing was
    /// sent. A peer that cannot be reached is a failure of its branch.
    pub fn open(self) -> Result<Call<Resp>, CallError> {
        self.open_begun(None)
    }

    /// Opens it with the probe that follows it already, if one does.
    fn open_begun(mut self, begun: Option<CallProbe>) -> Result<Call<Resp>, CallError> {
        self.options.cancels_late &= self.branches.iter().all(|(_, request)| request.is_read_only);
        Call::open(self.endpoint, self.branches, self.deadline, self.options, begun)
    }

    /// The request to open the call flat with, if it is of one branch and asks for nothing else, and what
    /// follows the call from here on.
    fn take_slot_request(&mut self) -> Result<Option<(SlotRequest, CallProbe)>, CallError> {
        let [(_, request)] = &*self.branches else { return Ok(None) };
        if !self.options.is_default() {
            return Ok(None);
        }
        if let Some((size, limit)) = request.too_large(self.endpoint.limits().message_bytes_max) {
            return Err(CallError::TooLarge { size, limit });
        }
        let probe = begin(&self.endpoint, &mut self.branches);
        let [(peer, request)] = &mut *self.branches else { return Ok(None) };
        let request = SlotRequest {
            to: peer.node(),
            budget: self.deadline,
            method: request.method,
            extensions: std::mem::take(&mut request.extensions),
            payload: std::mem::take(&mut request.payload),
        };
        Ok(Some((request, probe)))
    }

    /// Undoes [`Self::take_slot_request`].
    fn put_back(&mut self, taken: SlotRequest) {
        if let [(_, request)] = &mut *self.branches {
            (request.extensions, request.payload) = (taken.extensions, taken.payload);
        }
    }
}

/// A call with an early decision, being put together; see [`CallBuilder::decide`]. What it decided is for
/// its maker to know: open it, read it to its end, and look at the outcome.
#[must_use = "nothing is sent until it is opened"]
pub struct DecidingCall<Resp>(CallBuilder<Resp>);

impl<Resp: prost::Message + Default> DecidingCall<Resp> {
    /// Every branch replies at most once and opens no other: makes the tally's `max_remaining` exact, so
    /// that an impossible decision is noticed at once.
    pub fn flat(mut self) -> Self {
        self.0.options.is_flat = true;
        self
    }

    /// Cancels late tasks once decided. Ignored unless every branch is of a read-only method.
    pub fn cancel_late(mut self) -> Self {
        self.0.options.cancels_late = true;
        self
    }

    /// Ends within `deadline`. Default: the endpoint's `deadline_default`, 10 s.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self(self.0.deadline(deadline))
    }

    /// Sends the requests now, as [`CallBuilder::open`] does.
    ///
    /// # Errors
    /// As [`CallBuilder::open`].
    pub fn open(self) -> Result<Call<Resp>, CallError> {
        self.0.open()
    }
}

impl<Resp> fmt::Debug for DecidingCall<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DecidingCall").field(&self.0).finish()
    }
}

impl<Resp> fmt::Debug for CallBuilder<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder")
            .field("branches", &self.branches)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl<Resp: prost::Message + Default + 'static> IntoFuture for CallBuilder<Resp> {
    type Output = Result<Resp, CallError>;
    type IntoFuture = Awaited<Resp>;

    fn into_future(self) -> Awaited<Resp> {
        Awaited::new(self)
    }
}
