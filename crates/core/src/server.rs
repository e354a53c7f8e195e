//! Handles of services: the table of methods, and for each task a [`Task`] or a [`Context`].

mod caller;
mod cast;
mod deferred;
mod fan_out;
mod hold;
mod items;
#[cfg(feature = "tower")]
mod layer;
mod state;
mod stream;
mod task;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{MethodId, NodeId};
use convoke_proto::task::{SendError, TaskFailure};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Start, TaskRef};
use convoke_proto::wire::Extension;

use crate::driver::{Driver, Node, Stopper, answer_later};
use crate::endpoint::Endpoint;
use crate::error::{StartError, Status};
use crate::message::Payload;
use crate::method::Method;
use crate::packing;
use crate::telemetry::TaskProbe;
use crate::trace_context::TraceContext;
use convoke_proto::metadata::Metadata;

pub(crate) use caller::Authorize;
pub use caller::Caller;
pub use cast::{CastBody, CastPort, CastSpace, ReceivedCast, Waiting};
pub use deferred::Deferred;
pub use fan_out::FanOut;
use hold::Hold;
pub use items::{FromRequest, Items, ItemsError};
#[cfg(feature = "tower")]
pub use layer::{Handled, HandlerService, Incoming};
pub use state::{Handler, IntoService, ServiceOf};
pub use stream::ReplyStream;
pub use task::{Finish, Refused, Task};

/// A handler's future.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

/// End of a handler.
pub(crate) enum HandlerResult {
    /// It returned, after replying or delegating as it liked.
    Finished,
    /// It returned this reply.
    Replied(Bytes),
    /// It returned, and the task goes on without it.
    Deferred(Arc<Stopper>),
    /// It failed.
    Failed(TaskFailure),
}

type StartHandler = Box<dyn Fn(Arc<TaskHandle>, Bytes) -> HandlerFuture + Send + Sync>;

/// One method as it is served.
pub(crate) struct MethodEntry {
    pub(crate) name: &'static str,
    /// Name by which its handlers are ordered, if they are.
    pub(crate) order_by: Option<&'static str>,
    /// Its request is a stream.
    pub(crate) takes_items: bool,
    pub(crate) start: StartHandler,
}

/// Methods and their handlers, to be given to an endpoint.
///
/// A handler is polled for the first time by whoever brought its request, most often the reader of
/// a connection, which goes on when the handler waits or ends. Work that blocks a thread or takes
/// long belongs in `tokio::task::spawn_blocking`.
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
            Box::pin(async move {
                match run(future).await {
                    Ok(reply) => HandlerResult::Replied(reply.to_bytes()),
                    Err(failure) => HandlerResult::Failed(failure),
                }
            })
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
            Box::pin(async move {
                match run(future).await {
                    Ok(finish) => finish.into_result(),
                    Err(failure) => HandlerResult::Failed(failure),
                }
            })
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

    fn add<Req: FromRequest, Resp>(
        mut self,
        method: Method<Req, Resp>,
        start: impl Fn(Arc<TaskHandle>, Bytes) -> HandlerFuture + Send + Sync + 'static,
    ) -> Self {
        let order_by = self.order_by.or(method.is_ordered().then_some(method.name()));
        let (name, takes_items) = (method.name(), Req::IS_STREAMED);
        let entry = MethodEntry { name, order_by, takes_items, start: Box::new(start) };
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

/// All methods an endpoint serves.
#[derive(Default)]
pub(crate) struct MethodTable {
    methods: BTreeMap<MethodId, MethodEntry>,
    /// Asked before a handler starts, if set.
    authorize: Option<Authorize>,
}

impl MethodTable {
    pub(crate) fn add(&mut self, service: Service) -> Result<(), StartError> {
        for (id, entry) in service.methods {
            let name = entry.name;
            if let Some(other) = self.methods.insert(id, entry) {
                return Err(StartError::MethodClash(other.name, name));
            }
        }
        Ok(())
    }

    /// Methods that are served, by name.
    #[cfg(feature = "metrics")]
    pub(crate) fn names(&self) -> impl Iterator<Item = (MethodId, &'static str)> + '_ {
        self.methods.iter().map(|(id, entry)| (*id, entry.name))
    }

    pub(crate) fn get(&self, id: MethodId) -> Option<&MethodEntry> {
        self.methods.get(&id)
    }

    pub(crate) fn authorize_by(&mut self, authorize: Option<Authorize>) {
        self.authorize = authorize;
    }

    /// The rule and the method's name, where both exist.
    pub(crate) fn rule(&self, id: MethodId) -> Option<(&Authorize, &'static str)> {
        let authorize = self.authorize.as_ref()?;
        Some((authorize, self.get(id)?.name))
    }
}

impl fmt::Debug for MethodTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods.values().map(|entry| entry.name)).finish()
    }
}

/// The gate of an ordered method that a task has passed.
struct PassedGate {
    key: (NodeId, &'static str),
    is_left: AtomicBool,
}

impl PassedGate {
    const fn new(key: (NodeId, &'static str)) -> Self {
        Self { key, is_left: AtomicBool::new(false) }
    }
}

/// State that the handles of one running task share with the driver.
pub(crate) struct TaskHandle {
    driver: Arc<Driver>,
    start: Start,
    /// While the handler is polled, what it sends may be held back until it waits or ends.
    hold: Hold,
    /// The driver keeps something by the name of the task.
    is_kept: AtomicBool,
    gate: Option<PassedGate>,
    probe: TaskProbe,
    /// Room of its message, if that came packed.
    _held: packing::Held,
    /// Values that its middleware left.
    #[cfg(feature = "tower")]
    passage: layer::Passage,
}

impl TaskHandle {
    pub(crate) fn new(
        driver: Arc<Driver>,
        start: Start,
        gate: Option<(NodeId, &'static str)>,
        method: &'static str,
        held: packing::Held,
    ) -> Self {
        let probe = TaskProbe::begin(&driver, method, &start);
        Self {
            driver,
            start,
            hold: Hold::default(),
            is_kept: AtomicBool::new(false),
            gate: gate.map(PassedGate::new),
            probe,
            _held: held,
            #[cfg(feature = "tower")]
            passage: layer::Passage::default(),
        }
    }

    /// Polls the handler.
    pub(crate) fn polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _entered = self.probe.enter();
        self.hold.begin_poll();
        let polled = poll();
        self.hold.end_poll();
        polled
    }

    /// Carries out an output of the task. One that comes from beside the handler, from a part of it
    /// that was spawned, is not held back: no end of a poll would let it go.
    fn output<T>(&self, act: impl FnOnce(&mut Node, Timestamp) -> T) -> T {
        self.driver.with_node(|node, now| {
            let result = act(node, now);
            if self.hold.on_output() {
                node.handle_yield(now, self.task());
            }
            result
        })
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub(crate) fn task(&self) -> &TaskRef {
        &self.start.task
    }

    /// Node that sent the request.
    pub(crate) fn from(&self) -> NodeId {
        self.start.from
    }

    pub(crate) fn method(&self) -> MethodId {
        self.start.method
    }

    /// A reply as it travels. In process it travels as it is.
    fn packed(&self, payload: Bytes) -> Bytes {
        if self.start.origin == self.driver.identity().node {
            return payload;
        }
        self.driver.packing.pack_reply(&self.start.extensions, payload)
    }

    /// The handler's future returned pending.
    pub(crate) fn yield_now(&self) {
        if self.hold.take() {
            self.driver.with_node(|node, now| node.handle_yield(now, self.task()));
        }
    }

    /// The handler ended.
    pub(crate) fn finish(self: &Arc<Self>, result: HandlerResult) {
        self.probe.finished(&result);
        match result {
            HandlerResult::Finished => {
                self.driver.with_node(|node, now| node.finish(now, self.task()));
            }
            HandlerResult::Replied(payload) => {
                if let Err(payload) = answer_later(self, self.packed(payload)) {
                    self.driver.with_node(|node, now| answer(node, now, self.task(), payload));
                }
            }
            HandlerResult::Failed(failure) => {
                self.driver.with_node(|node, now| node.fail(now, self.task(), failure));
            }
            HandlerResult::Deferred(stopper) => return self.defer(stopper),
        }
        self.end();
    }

    /// The handler is gone, and the task goes on until it is answered or stopped.
    fn defer(&self, stopper: Arc<Stopper>) {
        self.note_kept();
        self.driver.keep_stopper(self.task(), stopper);
        self.yield_now();
        self.release();
    }

    /// Sends the only reply of a task whose handler is gone.
    fn answer_deferred(&self, payload: Bytes) -> Result<(), SendError> {
        let payload = self.packed(payload);
        let answered = self.driver.with_node(|node, now| node.answer(now, self.task(), payload));
        let result = match answered {
            Ok(()) => HandlerResult::Finished,
            Err(refusal) => HandlerResult::Failed(Status::from(refusal).into()),
        };
        self.probe.finished(&result);
        if let HandlerResult::Failed(failure) = result {
            self.driver.with_node(|node, now| node.fail(now, self.task(), failure));
        }
        self.end();
        answered
    }

    /// Polls for what a part of the task waits for; `Ok(None)` while there is nothing.
    fn poll_stream<T, E>(
        &self,
        cx: &std::task::Context<'_>,
        poll: impl FnOnce(&mut Node, Timestamp, &TaskRef) -> Result<Option<T>, E>,
    ) -> Poll<Result<T, E>> {
        self.driver.poll_stream(self.task(), cx.waker(), |node, now| {
            let polled = poll(node, now, self.task()).transpose();
            if polled.is_none() {
                // Before the lock is let go of: the end of the task comes after it.
                self.note_kept();
            }
            polled.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// The driver will keep something by the name of the task, until it ends.
    pub(crate) fn note_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// The handler is gone, however.
    pub(crate) fn end(&self) {
        self.probe.gone();
        if self.is_kept.load(Ordering::Acquire) {
            self.driver.forget_task(self.task());
        }
        self.release();
    }

    /// Lets the next handler of an ordered method start.
    fn release(&self) {
        if let Some(gate) = &self.gate
            && !gate.is_left.swap(true, Ordering::AcqRel)
        {
            self.driver.leave_gate(gate.key);
        }
    }
}

/// Sends the only reply of a task.
pub(crate) fn answer(node: &mut Node, now: Timestamp, task: &TaskRef, payload: Bytes) {
    if let Err(refusal) = node.answer(now, task, payload) {
        node.fail(now, task, TaskFailure::from(Status::from(refusal)));
    }
}

/// Context of a task: facts for its handler, and a client for calls of its own.
#[derive(Clone)]
pub struct Context {
    handle: Arc<TaskHandle>,
}

impl Context {
    pub(crate) fn new(handle: Arc<TaskHandle>) -> Self {
        Self { handle }
    }

    /// The endpoint that serves the task. It does not keep that open: once it is shut down, calls
    /// by it fail as not run.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::within(self.handle.driver.clone())
    }

    /// Node that opened the branch: the initiator, or the parent's node. [`Context::caller`] says
    /// whether its connection proved it.
    pub fn parent(&self) -> NodeId {
        self.handle.start.from
    }

    /// Caller that opened the branch, with the identity that its connection proved. The principal
    /// is `None` once that connection has closed.
    pub fn caller(&self) -> Caller {
        self.handle.driver.caller(&self.handle.start)
    }

    /// The call's initiator, as the request says.
    pub fn initiator(&self) -> NodeId {
        self.handle.start.origin
    }

    /// The task, for logs.
    pub fn task(&self) -> &TaskRef {
        &self.handle.start.task
    }

    /// Time that remains until the task is stopped.
    pub fn remaining(&self) -> Duration {
        self.handle.start.deadline.since(self.handle.driver.now())
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
    /// [`SendError::TooLarge`] above 16,000 bytes of metadata, or 255 of a key; the pair is then
    /// not added. [`SendError::Ended`] when the task has been stopped or has returned.
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
        let (task, value) = (self.task(), value.as_ref());
        self.handle.driver.with_node(|node, now| node.reply_metadata(now, task, key, value))
    }

    /// The epoch of the configuration that the request was made for; 0 is none.
    pub fn epoch(&self) -> u64 {
        // One that cannot be read was refused.
        Extension::epoch_among(self.extensions()).unwrap_or(0)
    }

    /// The extensions that came with the request.
    pub(crate) fn extensions(&self) -> &[Extension] {
        &self.handle.start.extensions
    }

    /// The task's own span, if one is recorded.
    pub(crate) fn span_context(&self) -> Option<TraceContext> {
        self.handle.probe.span_context()
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
