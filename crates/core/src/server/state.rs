//! Services whose handlers share a state.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use convoke_proto::id::NodeId;

use crate::error::Status;
use crate::message::Payload;
use crate::method::Method;

use super::{Context, Finish, FromRequest, Service, Task};

/// Methods whose handlers are functions of one shared state; see [`Service::with`].
pub struct ServiceOf<S> {
    service: Service,
    state: Arc<S>,
}

/// An `async fn(&S, Req, H) -> Result<Out, Status>`, or a method of `S` like it, whose future is
/// `Send`. Implemented for all of them; a bound of [`ServiceOf`]'s functions.
// A helper trait, since `AsyncFn(&S, ..)` cannot say that its future is `Send`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of this method for the state `{S}`",
    label = "should be an `async fn(&{S}, {Req}, {H}) -> Result<{Out}, Status>`",
    note = "its future has to be `Send`, and what it takes and gives must be what the method says",
    note = "a closure goes to `Service::new()`, and captures the state in an `Arc`"
)]
pub trait Handler<'a, S: 'a, Req, H, Out>: Fn(&'a S, Req, H) -> Self::Future {
    /// Future that it returns.
    type Future: Future<Output = Result<Out, Status>> + Send + 'a;
}

impl<'a, S: 'a, Req, H, Out, F, Fut> Handler<'a, S, Req, H, Out> for F
where
    F: Fn(&'a S, Req, H) -> Fut,
    Fut: Future<Output = Result<Out, Status>> + Send + 'a,
{
    type Future = Fut;
}

impl Service {
    /// A service whose handlers are functions of `state`: its own methods, or functions that borrow
    /// it.
    /// ```
    /// use convoke_core::{Context, Finish, Method, Service, ServiceOf, Status, Task};
    ///
    /// const COUNT: Method<String, u64> = Method::new("text.Text/Count");
    /// const WORDS: Method<String, String> = Method::new("text.Text/Words");
    ///
    /// struct Text {
    ///     separator: char,
    /// }
    ///
    /// impl Text {
    ///     async fn count(&self, text: String, _: Context) -> Result<u64, Status> {
    ///         Ok(text.split(self.separator).count() as u64)
    ///     }
    ///
    ///     async fn words(&self, text: String, task: Task<String>) -> Result<Finish, Status> {
    ///         for word in text.split(self.separator) {
    ///             task.reply(&word.to_owned())?;
    ///         }
    ///         Ok(task.finish())
    ///     }
    /// }
    ///
    /// fn service() -> ServiceOf<Text> {
    ///     let text = Text { separator: ' ' };
    ///     Service::with(text).unary(COUNT, Text::count).tree(WORDS, Text::words)
    /// }
    /// ```
    /// A closure cannot be a handler that borrows the state. It goes to [`Service::new`], or
    /// through [`ServiceOf::and`], and captures an `Arc` of what it needs.
    pub fn with<S: Send + Sync + 'static>(state: S) -> ServiceOf<S> {
        Self::with_arc(Arc::new(state))
    }

    /// As [`Service::with`], of a state that others hold too.
    pub fn with_arc<S: Send + Sync + 'static>(state: Arc<S>) -> ServiceOf<S> {
        ServiceOf { service: Self::new(), state }
    }
}

impl<S: Send + Sync + 'static> ServiceOf<S> {
    /// Adds a method whose handler answers with one message.
    #[must_use]
    pub fn unary<Req, Resp, F>(mut self, method: Method<Req, Resp>, handler: F) -> Self
    where
        Req: FromRequest + 'static,
        Resp: Payload + 'static,
        F: for<'a> Handler<'a, S, Req, Context, Resp> + Copy + Send + Sync + 'static,
    {
        let state = self.state.clone();
        self.service = self.service.unary(method, move |request, context| {
            let state = state.clone();
            async move { handler(&state, request, context).await }
        });
        self
    }

    /// Adds a method whose handler replies as often as it likes, streams, or delegates to other
    /// methods that answer with `Resp`.
    #[must_use]
    pub fn tree<Req, Resp, F>(mut self, method: Method<Req, Resp>, handler: F) -> Self
    where
        Req: FromRequest + 'static,
        Resp: Payload + 'static,
        F: for<'a> Handler<'a, S, Req, Task<Resp>, Finish> + Copy + Send + Sync + 'static,
    {
        let state = self.state.clone();
        self.service = self.service.tree(method, move |request, task| {
            let state = state.clone();
            async move { handler(&state, request, task).await }
        });
        self
    }

    /// From here on, the handlers of all methods added run one at a time for each peer, as
    /// [`Service::ordered`].
    #[must_use]
    pub fn ordered(self, name: &'static str) -> Self {
        self.and(|service| service.ordered(name))
    }

    /// Lets an endpoint start with this service only if `fits` says yes to its node, as
    /// [`Service::requires`].
    #[must_use]
    pub fn requires(
        self,
        fits: impl Fn(NodeId) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.and(|service| service.requires(fits))
    }

    /// Adds what only a [`Service`] can have: methods that are closures, middleware around all that
    /// were added before.
    #[must_use]
    pub fn and(mut self, add: impl FnOnce(Service) -> Service) -> Self {
        self.service = add(self.service);
        self
    }

    /// State that its handlers share.
    pub fn state(&self) -> &Arc<S> {
        &self.state
    }
}

/// Conversion into a service: of a [`Service`], a [`ServiceOf`], and every generated server.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "cannot be served",
    note = "give the generated server: `.serve(GraphServer::new(shard))`",
    note = "or name its methods: `Service::with(shard).unary(PROFILE, Shard::profile)`"
)]
pub trait IntoService {
    /// The methods and their handlers.
    fn into_service(self) -> Service;
}

impl IntoService for Service {
    fn into_service(self) -> Service {
        self
    }
}

impl<S> IntoService for ServiceOf<S> {
    fn into_service(self) -> Service {
        self.service
    }
}

impl<S> fmt::Debug for ServiceOf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceOf").field(&self.service).finish()
    }
}
