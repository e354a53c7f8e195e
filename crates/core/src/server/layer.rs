//! Middleware around handlers: tower layers over a tower service of what comes in.
//!
//! ```text
//!   request ──▶ your layers: Service<Incoming> ──▶ HandlerService ──▶ handler
//! ```
//! A layered service is cloned for each request, made ready and called, all within the handler's
//! future: what stops a handler stops its middleware, and where nothing is layered nothing is
//! added.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use convoke_proto::task::TaskFailure;
use convoke_transport::parts::Mutex;
use tower_layer::Layer;

use crate::driver::{self, HandlerResult, LastWord, MakeRoom, MethodEntry, Passage, TaskHandle};
use crate::error::{Code, Status};
use crate::message::Payload;
use crate::transport::BoxFuture;

use super::{Context, Service};

/// A request on its way to its handler, as middleware sees it.
pub struct Incoming {
    method: &'static str,
    context: Context,
    payload: Bytes,
    handler: Arc<MethodEntry>,
}

impl Incoming {
    /// The full name of the method, `package.Service/Method`.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Context of the task: the caller, the deadline, the metadata. A handler finds in it what
    /// middleware keeps there with [`Context::insert`].
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The request message, encoded.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The same with another message, encoded.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("method", &self.method)
            .field("context", &self.context)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Good end of a handler, as middleware sees it.
#[derive(Clone, Debug)]
pub struct Handled(HandlerResult);

impl Handled {
    /// An answer of the middleware's own, given instead of the handler's. It must be of the message
    /// that the method answers with.
    pub fn reply(message: &impl Payload) -> Self {
        Self(LastWord::Reply(message.to_bytes().into()).ended())
    }

    /// The encoded reply that the handler ended with. `None` when it ended otherwise, as that of a
    /// tree may: it has sent what it had to say by itself, or hands its branch on.
    pub fn payload(&self) -> Option<&Bytes> {
        match &self.0 {
            HandlerResult::Ended(LastWord::Reply(payload)) => payload.as_shared(),
            _ => None,
        }
    }
}

/// The innermost service: it runs the handler. See [`Service::layer`].
#[derive(Clone, Copy, Debug)]
pub struct HandlerService(());

impl tower_service::Service<Incoming> for HandlerService {
    type Response = Handled;
    type Error = Status;
    type Future = BoxFuture<Result<Handled, Status>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, incoming: Incoming) -> Self::Future {
        let Incoming { context, payload, handler, .. } = incoming;
        // Within the future, so that a panic is the task's and not that of whoever calls.
        Box::pin(async move {
            // The handler is behind the last of them.
            let passage = (!handler.is_layered).then_some(&context.handle.passage);
            passage.inspect(|passage| passage.begin());
            let result = handler.start(context.handle.clone(), payload).await;
            passage.inspect(|passage| passage.end());
            match result {
                HandlerResult::Ended(LastWord::Failure(failure)) => {
                    Err(Status::of_failure(failure))
                }
                // Middleware looks at the bytes, and may keep them.
                HandlerResult::Ended(LastWord::Reply(payload)) => {
                    let payload = payload.into_bytes().into();
                    Ok(Handled(LastWord::Reply(payload).ended()))
                }
                result => Ok(Handled(result)),
            }
        })
    }
}

impl Service {
    /// Wraps the handlers of all methods added so far in a tower layer; what is added later stays
    /// as it is. The last layer added is the first that a request meets. All these methods share
    /// one layered service, which is cloned for each request: a limit in it counts them together.
    ///
    /// An error of the middleware is the task's. A [`Status`], also as the source of another error,
    /// stays what it is; any other becomes [`Code::Unavailable`] with its text. Where the handler
    /// was not reached, the failure says that the task did not run, so that the caller may repeat
    /// it.
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<HandlerService>,
        L::Service: tower_service::Service<Incoming, Response = Handled> + Clone + Send + 'static,
        <L::Service as tower_service::Service<Incoming>>::Error: Into<Box<dyn Error + Send + Sync>>,
        <L::Service as tower_service::Service<Incoming>>::Future: Send + 'static,
    {
        // Behind a lock, for many a service can be sent to another thread but not shared with one.
        let layered = Arc::new(Mutex::new(layer.layer(HandlerService(()))));
        let methods = std::mem::take(&mut self.methods).into_iter().map(|(id, entry)| {
            let layered = layered.clone();
            (id, wrap(entry, move || layered.lock().clone()))
        });
        self.methods = methods.collect();
        self
    }
}

fn wrap<S>(entry: MethodEntry, service: impl Fn() -> S + Send + Sync + 'static) -> MethodEntry
where
    S: tower_service::Service<Incoming, Response = Handled> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send + 'static,
{
    let MethodEntry { name: method, order_by, takes_items, .. } = entry;
    let (handler, service) = (Arc::new(entry), Arc::new(service));
    let room: MakeRoom = Box::new(move || {
        let (handler, service) = (handler.clone(), service.clone());
        driver::room(move |handle: Arc<TaskHandle>, payload| {
            let context = Context::new(handle.clone());
            let incoming = Incoming { method, context, payload, handler: handler.clone() };
            let service = service();
            async move {
                match run(service, incoming).await {
                    Ok(Handled(result)) => result,
                    Err(error) => LastWord::from(failure(&handle.passage, error.as_ref())).ended(),
                }
            }
        })
    });
    MethodEntry { name: method, order_by, takes_items, is_layered: true, room }
}

async fn run<S>(mut service: S, incoming: Incoming) -> Result<Handled, Box<dyn Error + Send + Sync>>
where
    S: tower_service::Service<Incoming, Response = Handled>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    service.call(incoming).await.map_err(Into::into)
}

/// Failure of a task whose middleware gave an error.
fn failure(passage: &Passage, error: &(dyn Error + 'static)) -> TaskFailure {
    let status = std::iter::successors(Some(error), |error| (*error).source())
        .find_map(|error| error.downcast_ref::<Status>().cloned())
        .unwrap_or_else(|| Status::new(Code::Unavailable, error.to_string()));
    let failure = TaskFailure::from(status);
    TaskFailure { executed: passage.executed(failure.executed), ..failure }
}

impl Context {
    /// Keeps a value with the task, one per type, and gives back the one before: how middleware
    /// tells a handler who the caller is, for example.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) -> Option<Arc<T>> {
        self.handle.passage.insert(value)
    }

    /// The value of this type that was kept with the task.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.handle.passage.get()
    }
}
