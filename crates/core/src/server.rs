//! Handles of services: the table of methods, and for each task a [`Task`] or a [`Context`].

mod cast;
mod deferred;
mod fan_out;
mod health;
mod items;
#[cfg(feature = "tower")]
mod layer;
mod state;
mod stream;
mod task;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{MethodId, NodeId};
use convoke_proto::metadata::Metadata;
use convoke_proto::task::{SendError, TaskFailure};
use convoke_proto::wire::Extension;

use crate::caller::Caller;
use crate::driver::{self, Driver, HandlerResult, LastWord, MethodEntry, TaskHandle};
use crate::error::{StartError, Status};
use crate::message::Payload;
use crate::method::Method;
use crate::trace_context::TraceContext;

pub use convoke_proto::visits::TaskRef;

pub use cast::{CastBody, CastPort, CastSpace, ReceivedCast, Waiting};
pub use deferred::Deferred;
pub use fan_out::FanOut;
pub use items::{FromRequest, Items, ItemsError};
#[cfg(feature = "tower")]
pub use layer::{Handled, HandlerService, Incoming};
pub use state::{Handler, IntoService, ServiceOf};
pub use stream::ReplyStream;
pub use task::{Finish, Refused, Task};

/// Methods and their handlers, to be given to an endpoint.
///
/// A handler is polled for the first time by whoever brought its request, most often the reader of
/// a connection, which goes on when the handler waits or ends. Work that blocks a thread or takes
/// long belongs in `tokio::task::spawn_blocking`.
///
/// Calls are to be awaited. What a handler sends, its calls among it, leaves when its poll ends:
/// one that blocks on a call within it, by `tokio::task::block_in_place` and `Handle::block_on`,
/// waits in vain, for the call is not sent before its deadline. In `spawn_blocking` it is.
///
/// Generated servers turn into one; by hand:
/// ```
/// # use convoke_core::{Method, Service, Status, Context};
/// # #[derive(Clone, PartialEq, prost::Message)]
/// # struct Ask { #[prost(uint32, tag = "1")] n: u32 }
/// # #[derive(Clone, PartialEq, prost::Message)]
/// # struct Answer { #[prost(uint32, tag = "1")] n: u32 }
/// const DOUBLE: Method<Ask, Answer> = Method::new("math.Math/Double");
///
/// let service = Service::new().unary(DOUBLE, |ask, _: Context| async move {
///     Ok::<_, Status>(Answer { n: ask.n * 2 })
/// });
/// ```
#[derive(Default)]
pub struct Service {
    methods: Vec<(MethodId, MethodEntry)>,
    order_by: Option<&'static str>,
    /// Asked before an endpoint starts.
    requirements: Vec<Requirement>,
    /// Nodes whose casts it counts.
    voters: Vec<NodeId>,
}

/// Check that a node can serve a service; else the reason.
type Requirement = Box<dyn Fn(NodeId) -> Result<(), String> + Send + Sync>;

impl Service {
    /// A service without methods.
    pub fn new() -> Self {
        Self::default()
    }

    /// From here on, the handlers of all methods added run one at a time for each peer, ordered
    /// among each other under this name.
    #[must_use]
    pub fn ordered(mut self, name: &'static str) -> Self {
        self.order_by = Some(name);
        self
    }

    /// Adds a method whose handler answers with one message.
    #[must_use]
    pub fn unary<Req, Resp, F, Fut>(self, method: Method<Req, Resp>, handler: F) -> Self
    where
        Req: FromRequest,
        Resp: Payload,
        F: Fn(Req, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, Status>> + Send + 'static,
    {
        self.add(method, move |handle, payload| {
            let request = items::take(&handle, payload);
            let future = request.map(|request| handler(request, Context::new(handle)));
            async move {
                match run(future).await {
                    Ok(reply) => LastWord::Reply(reply.to_encoded()).ended(),
                    Err(failure) => LastWord::from(failure).ended(),
                }
            }
        })
    }

    /// Adds a method whose handler replies as often as it likes, streams, or delegates to other
    /// methods that answer with `Resp`.
    #[must_use]
    pub fn tree<Req, Resp, F, Fut>(self, method: Method<Req, Resp>, handler: F) -> Self
    where
        Req: FromRequest,
        Resp: Payload,
        F: Fn(Req, Task<Resp>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Finish, Status>> + Send + 'static,
    {
        self.add(method, move |handle, payload| {
            let request = items::take(&handle, payload);
            let future = request.map(|request| handler(request, Task::new(handle)));
            async move {
                match run(future).await {
                    Ok(Finish(result)) => result,
                    Err(failure) => LastWord::from(failure).ended(),
                }
            }
        })
    }

    /// Lets an endpoint start with this service only if `fits` says yes to its node. Otherwise it
    /// fails with [`StartError::Unfit`] and the reason that is given, before anything is listened
    /// on.
    ///
    /// ```
    /// # use convoke_core::{Endpoint, NodeId, Service, StartError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let seven = NodeId::new(7);
    /// let service = || Service::new().requires(|node| match node.get() {
    ///     7 => Ok(()),
    ///     _ => Err(format!("{node} is not n7")),
    /// });
    /// assert!(Endpoint::builder().node(seven).serve(service()).start().await.is_ok());
    /// let error = Endpoint::builder().serve(service()).start().await.unwrap_err();
    /// assert!(matches!(error, StartError::Unfit { .. }));
    /// # }
    /// ```
    #[must_use]
    pub fn requires(
        mut self,
        fits: impl Fn(NodeId) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.requirements.push(Box::new(fits));
        self
    }

    /// Keeps the casts of these nodes from the start, also before a handler asks for them with
    /// [`Context::casts`]. Of others they are kept only where the endpoint was given addresses of
    /// theirs.
    #[must_use]
    pub fn hears(mut self, voters: impl IntoIterator<Item = NodeId>) -> Self {
        self.voters.extend(voters);
        self
    }

    pub(crate) fn into_methods(self) -> impl Iterator<Item = (MethodId, MethodEntry)> {
        self.methods.into_iter()
    }

    pub(crate) fn take_voters(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.voters)
    }

    /// # Errors
    /// [`StartError::Unfit`] when the node does not do.
    pub(crate) fn check(&self, node: NodeId) -> Result<(), StartError> {
        let mut requirements = self.requirements.iter();
        let checked = requirements.try_for_each(|fits| fits(node));
        checked.map_err(|reason| StartError::Unfit { reason })
    }

    fn add<Req: FromRequest, Resp, Fut>(
        mut self,
        method: Method<Req, Resp>,
        start: impl Fn(Arc<TaskHandle>, Bytes) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        let start = Arc::new(start);
        let room = Box::new(move || {
            let start = start.clone();
            driver::room(move |handle, payload| start(handle, payload))
        });
        let order_by = self.order_by.or(method.is_ordered().then_some(method.name()));
        let (name, takes_items) = (method.name(), Req::IS_STREAMED);
        let entry = MethodEntry {
            name,
            order_by,
            takes_items,
            #[cfg(feature = "tower")]
            is_layered: false,
            room,
        };
        self.methods.push((method.id(), entry));
        self
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods.iter().map(|(_, entry)| entry.name)).finish()
    }
}

async fn run<T>(
    future: Result<impl Future<Output = Result<T, Status>>, TaskFailure>,
) -> Result<T, TaskFailure> {
    future?.await.map_err(TaskFailure::from)
}

/// Context of a task: facts for its handler, and a client for calls of its own.
#[derive(Clone)]
pub struct Context {
    handle: Arc<TaskHandle>,
}

impl Context {
    fn new(handle: Arc<TaskHandle>) -> Self {
        Self { handle }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.handle.driver()
    }

    /// Node that opened the branch: the initiator, or the parent's node. [`Context::caller`] says
    /// whether its connection proved it.
    pub fn parent(&self) -> NodeId {
        self.handle.start().from
    }

    /// Caller that opened the branch, with the identity that its connection proved. The principal
    /// and the credentials are `None` once that connection has closed.
    pub fn caller(&self) -> Caller {
        self.handle.caller()
    }

    /// The call's initiator, as the request says.
    pub fn initiator(&self) -> NodeId {
        self.handle.start().origin
    }

    /// The task, for logs.
    pub fn task(&self) -> &TaskRef {
        self.handle.task()
    }

    /// Time that remains until the task is stopped.
    pub fn remaining(&self) -> Duration {
        self.handle.start().deadline.since(self.driver().now())
    }

    /// The metadata that came with the request, in order.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::among(self.extensions())
    }

    /// Adds metadata to the next reply of this task, or item of a streamed one, or else to its
    /// failure: a version, a cost, a hint where to ask next time. The caller finds it in
    /// [`Reply::metadata`] or [`Failure::metadata`]. Branches do not inherit it. A task that ends
    /// without a reply drops it.
    ///
    /// # Errors
    /// [`SendError::MetadataTooLarge`] above 16,000 bytes of metadata, or 255 of a key; the pair is
    /// then not added. [`SendError::Ended`] when the task has been stopped or has returned.
    ///
    /// ```
    /// # use convoke_core::{Context, Status};
    /// async fn read(key: String, context: Context) -> Result<String, Status> {
    ///     context.reply_metadata("version", "7")?;
    ///     Ok(format!("the value of {key}"))
    /// }
    /// ```
    ///
    /// [`Reply::metadata`]: crate::Reply::metadata
    /// [`Failure::metadata`]: crate::Failure::metadata
    pub fn reply_metadata(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), SendError> {
        self.handle.reply_metadata(key, value.as_ref())
    }

    /// The epoch of the configuration that the request was made for; 0 is none.
    pub fn epoch(&self) -> u64 {
        // One that cannot be read was refused.
        Extension::epoch_among(self.extensions()).unwrap_or(0)
    }

    /// The extensions that came with the request.
    fn extensions(&self) -> &[Extension] {
        &self.handle.start().extensions
    }

    /// Place of the task in a distributed trace, which its delegations carry and which other
    /// systems should be given. It names the task's own span where the endpoint records one
    /// (feature `tracing-spans`), else the span that the request came with. `None` when it came
    /// with none.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.handle.span_context().or_else(|| TraceContext::among(self.extensions()))
    }

    /// Lets the next handler of an ordered method start before this one returns.
    pub fn release(&self) {
        self.handle.release();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("task", self.task())
            .field("parent", &self.parent())
            .finish_non_exhaustive()
    }
}
