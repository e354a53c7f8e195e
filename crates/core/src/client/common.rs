//! An endpoint, and what the calls made by it have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_proto::wire::Extension;

use crate::endpoint::Endpoint;
use crate::error::{CallError, Status};
use crate::message::Payload;
use crate::method::{Method, Request};
use crate::peer::Peer;
use crate::server::{Context, Task};
use convoke_proto::metadata::{self, Oversize};

use super::{Branches, CallBuilder, Invocation};

/// Makes calls by an endpoint, with what they have in common: a deadline, metadata, a hook. Cheap
/// to clone.
///
/// An [`Endpoint`] is a client without any of this. The client of a handler, [`Context::client`],
/// makes calls that end with its task and are part of its trace.
/// ```
/// use std::time::Duration;
/// # use convoke_core::{CallError, Endpoint, Method, Peer};
/// # const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello");
/// # async fn greet(endpoint: &Endpoint, peer: Peer) -> Result<(), CallError> {
/// let client = endpoint.client().deadline(Duration::from_secs(2)).metadata("user", "ada");
/// let answer = client.call(HELLO, "Ada".into()).to(peer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    /// The task whose calls these are.
    task: Option<Context>,
    common: Option<Arc<Common>>,
}

#[derive(Clone, Default)]
struct Common {
    deadline: Option<Duration>,
    metadata: Vec<Extension>,
    oversize: Option<Oversize>,
    hooks: Vec<Hook>,
}

type Hook = Arc<dyn Fn(&mut Outgoing<'_>) -> Result<(), Status> + Send + Sync>;

impl Client {
    /// Ends each call within `deadline`, unless the call says another, and within the endpoint's
    /// `deadline_max`, 10 min, in any case. Default: the endpoint's `deadline_default`, 10 s; in a
    /// handler no more than what remains of its task.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.common_mut().deadline = Some(deadline);
        self
    }

    /// Adds metadata to every request. A value that a request has of its own comes after it, and so
    /// is the one that [`Metadata::get`](crate::Metadata::get) gives.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        let common = self.common_mut();
        if let Err(oversize) = metadata::push(&mut common.metadata, key, value.as_ref()) {
            common.oversize = Some(oversize);
        }
        self
    }

    /// Runs `hook` before each request leaves, once for every root branch of a call, after the
    /// hooks added before. Where it fails, the call ends unsent with [`CallError::Hook`].
    ///
    /// A hook must not wait: a token that has to be fetched is the work of a tower layer.
    #[must_use]
    pub fn before_each(
        mut self,
        hook: impl Fn(&mut Outgoing<'_>) -> Result<(), Status> + Send + Sync + 'static,
    ) -> Self {
        self.common_mut().hooks.push(Arc::new(hook));
        self
    }

    /// The endpoint that makes its calls.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A call of `method`, to be addressed with [`to`](Invocation::to) or
    /// [`to_all`](Invocation::to_all).
    pub fn call<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Req, Resp>,
        message: Req,
    ) -> Invocation<Resp> {
        self.invoke(method.request(message))
    }

    /// A call of a request that was made elsewhere.
    pub fn invoke<Resp: Payload>(&self, request: Request<Resp>) -> Invocation<Resp> {
        Invocation::new(self.clone(), request)
    }

    /// A call of several branches that differ. More can be added with [`CallBuilder::branch`].
    ///
    /// ```compile_fail,E0308
    /// # use convoke_core::{Client, Method, Peer};
    /// # #[derive(Clone, PartialEq, prost::Message)] struct Ask {}
    /// # #[derive(Clone, PartialEq, prost::Message)] struct Apple {}
    /// # #[derive(Clone, PartialEq, prost::Message)] struct Pear {}
    /// # const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");
    /// # const PEARS: Method<Ask, Pear> = Method::new("fruit.Fruit/Pears");
    /// fn ask(client: &Client, peer: Peer) {
    ///     // One call has one type of replies.
    ///     client.fan_out([(peer, APPLES.request(Ask {})), (peer, PEARS.request(Ask {}))]);
    /// }
    /// ```
    pub fn fan_out<Resp: Payload, P: Into<Peer>>(
        &self,
        branches: impl IntoIterator<Item = (P, Request<Resp>)>,
    ) -> CallBuilder<Resp> {
        let branches = branches.into_iter().map(|(peer, request)| (peer.into(), request));
        CallBuilder::new(self.clone(), Branches(branches.collect()))
    }

    /// The time a call gets that asks for `own`, where it is not the endpoint's default.
    pub(super) fn budget(&self, own: Option<Duration>) -> Option<Duration> {
        let set = own.or_else(|| self.common.as_ref()?.deadline);
        match &self.task {
            None => set,
            Some(task) => {
                let set = set.unwrap_or_else(|| self.endpoint.deadline_default());
                Some(set.min(task.remaining()))
            }
        }
    }

    /// Adds to the requests of a call what all calls have in common.
    ///
    /// # Errors
    /// [`CallError::Hook`] of the first hook that fails, [`CallError::TooLarge`] of metadata.
    pub(super) fn prepare<Resp>(
        &self,
        branches: &mut [(Peer, Request<Resp>)],
    ) -> Result<(), CallError> {
        if let Some(common) = &self.common {
            for (peer, request) in branches.iter_mut() {
                common.apply(*peer, request)?;
            }
        }
        if let Some(trace) = self.task.as_ref().and_then(Context::trace_context) {
            for (_, request) in branches {
                request.join_trace(trace);
            }
        }
        Ok(())
    }

    pub(super) fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }

    fn common_mut(&mut self) -> &mut Common {
        Arc::make_mut(self.common.get_or_insert_default())
    }
}

impl Common {
    fn apply<Resp>(&self, peer: Peer, request: &mut Request<Resp>) -> Result<(), CallError> {
        let put = metadata::put_before(&mut request.root.extensions, &self.metadata);
        if let Some((size, limit)) = self.oversize.or(put.err()) {
            return Err(CallError::MetadataTooLarge { size, limit });
        }
        let Request { root, name: method, oversize, .. } = request;
        let extensions = &mut root.extensions;
        let mut outgoing = Outgoing { peer, method, extensions, oversize };
        self.hooks.iter().try_for_each(|hook| hook(&mut outgoing)).map_err(CallError::Hook)
    }
}

/// A request that is about to leave, as a hook of its client sees it.
pub struct Outgoing<'a> {
    peer: Peer,
    method: &'static str,
    extensions: &'a mut Vec<Extension>,
    oversize: &'a mut Option<Oversize>,
}

impl Outgoing<'_> {
    /// The node it goes to.
    pub fn node(&self) -> NodeId {
        self.peer.node()
    }

    /// The full name of its method, `package.Service/Method`.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Adds metadata, after what is there already.
    pub fn metadata(&mut self, key: &str, value: impl AsRef<[u8]>) {
        if let Err(oversize) = metadata::push(self.extensions, key, value.as_ref()) {
            *self.oversize = Some(oversize);
        }
    }
}

impl From<Endpoint> for Client {
    fn from(endpoint: Endpoint) -> Self {
        Self { endpoint, task: None, common: None }
    }
}

impl From<&Endpoint> for Client {
    fn from(endpoint: &Endpoint) -> Self {
        endpoint.clone().into()
    }
}

impl From<&Self> for Client {
    fn from(client: &Self) -> Self {
        client.clone()
    }
}

impl From<&Context> for Client {
    fn from(context: &Context) -> Self {
        Self { endpoint: context.endpoint(), task: Some(context.clone()), common: None }
    }
}

impl<Resp: Payload> From<&Task<Resp>> for Client {
    fn from(task: &Task<Resp>) -> Self {
        task.context().into()
    }
}

impl Endpoint {
    /// A call of `method`, to be addressed with [`to`](Invocation::to) or
    /// [`to_all`](Invocation::to_all).
    pub fn call<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Req, Resp>,
        message: Req,
    ) -> Invocation<Resp> {
        self.invoke(method.request(message))
    }

    /// A call of a request that was made elsewhere.
    pub fn invoke<Resp: Payload>(&self, request: Request<Resp>) -> Invocation<Resp> {
        Invocation::new(self.client(), request)
    }

    /// A call of several branches that differ, as [`Client::fan_out`].
    pub fn fan_out<Resp: Payload, P: Into<Peer>>(
        &self,
        branches: impl IntoIterator<Item = (P, Request<Resp>)>,
    ) -> CallBuilder<Resp> {
        self.client().fan_out(branches)
    }

    /// A client by this endpoint, for calls that have something in common.
    pub fn client(&self) -> Client {
        self.into()
    }
}

/// A handler is a client. Its calls get no more time than its task has left and belong to its
/// trace. Unlike a branch they carry none of its metadata: a call is a new question of trust.
impl Context {
    /// A call of `method`, to be addressed with [`to`](Invocation::to) or
    /// [`to_all`](Invocation::to_all).
    pub fn call<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Req, Resp>,
        message: Req,
    ) -> Invocation<Resp> {
        self.invoke(method.request(message))
    }

    /// A call of a request that was made elsewhere.
    pub fn invoke<Resp: Payload>(&self, request: Request<Resp>) -> Invocation<Resp> {
        Invocation::new(self.client(), request)
    }

    /// A call of several branches that differ, as [`Client::fan_out`].
    pub fn fan_out<Resp: Payload, P: Into<Peer>>(
        &self,
        branches: impl IntoIterator<Item = (P, Request<Resp>)>,
    ) -> CallBuilder<Resp> {
        self.client().fan_out(branches)
    }

    /// A client for the calls of this task.
    pub fn client(&self) -> Client {
        self.into()
    }
}

impl<Resp: Payload> Task<Resp> {
    /// A call of `method` by this task, whose replies come here: [`Context::call`]. A branch, whose
    /// replies go to the initiator, is opened with [`Task::delegate`].
    pub fn call<Req: Payload, Other: Payload>(
        &self,
        method: Method<Req, Other>,
        message: Req,
    ) -> Invocation<Other> {
        self.context().call(method, message)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = self.common.as_deref();
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("task", &self.task)
            .field("deadline", &common.and_then(|common| common.deadline))
            .field("hooks", &common.map_or(0, |common| common.hooks.len()))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("node", &self.peer.node())
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
