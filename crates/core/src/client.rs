//! What a caller holds: an [`Invocation`] being addressed, a [`Call`] under way.

mod awaited;
mod call;
#[cfg(feature = "tower")]
mod service;

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use convoke_proto::call::CallOptions;
use convoke_proto::node::{self, Opening};
use smallvec::SmallVec;

use crate::driver::FlushScope;
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
    pub fn to(mut self, peer: &Peer) -> CallBuilder<Resp> {
        CallBuilder {
            endpoint: self.endpoint,
            deadline: self.request.deadline.take(),
            branches: SmallVec::from_buf([(*peer, self.request)]),
            options: CallOptions::default(),
        }
    }

    /// The same to each of several peers, one branch each.
    pub fn to_all<'a>(mut self, peers: impl IntoIterator<Item = &'a Peer>) -> CallBuilder<Resp> {
        let deadline = self.request.deadline.take();
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

/// A call being put together: its root branches, and its deadline.
///
/// Awaited, it opens the call and resolves to the first reply. [`CallBuilder::open`] gives all of
/// them.
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

    /// Adds a root branch. A deadline of the request is that of this branch alone.
    pub fn branch(mut self, request: Request<Resp>, peer: &Peer) -> Self {
        self.branches.push((*peer, request));
        self
    }

    /// Ends within `deadline`. Default: the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
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

    /// Tells also of branches whose request was handed to a connection, as [`Progress::Sent`].
    /// Those at this node itself are not told of.
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
    /// [`CallError`] when this endpoint has too many calls, or a request is too large; then nothing
    /// was sent. A peer that cannot be reached is a failure of its branch.
    pub fn open(self) -> Result<Call<Resp>, CallError> {
        let Begun { endpoint, opening, probe, is_read_only } = self.begin()?;
        let scope = FlushScope::enter();
        let id = endpoint.driver().with_node(|node, now| node.open(now, opening))?;
        endpoint.driver().end_scope(scope);
        Ok(Call::new(endpoint, id, probe, is_read_only))
    }

    /// Makes the requests what they leave as.
    fn begin(mut self) -> Result<Begun, CallError> {
        let limit = self.endpoint.limits().message_bytes_max;
        if let Some((size, limit)) = self.branches.iter().find_map(|(_, r)| r.too_large(limit)) {
            return Err(CallError::TooLarge { size, limit });
        }
        let probe = begin(&self.endpoint, &mut self.branches);
        let is_read_only = self.branches.iter().all(|(_, request)| request.is_read_only);
        let mut branches = node::Branches::new();
        for (peer, request) in self.branches {
            branches.push(request.at(peer.node()));
        }
        let opening = Opening { budget: self.deadline, options: self.options, branches };
        Ok(Begun { endpoint: self.endpoint, opening, probe, is_read_only })
    }
}

/// A call that is about to be opened.
struct Begun {
    endpoint: Endpoint,
    opening: Opening,
    probe: CallProbe,
    is_read_only: bool,
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
