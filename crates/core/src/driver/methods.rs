//! The methods that an endpoint serves, and what starts their handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_proto::id::MethodId;
use pin_project_lite::pin_project;

use crate::caller::Authorize;
use crate::error::StartError;

use super::ending::HandlerResult;
use super::task::TaskHandle;

/// Room for the future of a handler. When one has ended, the next one of the same method takes its
/// place.
pub(crate) trait HandlerRoom: Future<Output = HandlerResult> + Send {
    /// Starts the handler of a task, in place of the one before.
    fn start(self: Pin<&mut Self>, handle: Arc<TaskHandle>, payload: Bytes);

    /// Drops the future of the handler, if there is one.
    fn clear(self: Pin<&mut Self>);
}

/// A handler's future, in its room.
pub(crate) type HandlerFuture = Pin<Box<dyn HandlerRoom>>;

/// Makes rooms for the handlers of a method.
pub(crate) type MakeRoom = Box<dyn Fn() -> HandlerFuture + Send + Sync>;

pin_project! {
    struct Room<S, F> {
        start: S,
        #[pin]
        future: Option<F>,
    }
}

/// An empty room for the futures that `start` makes.
pub(crate) fn room<S, F>(start: S) -> HandlerFuture
where
    S: Fn(Arc<TaskHandle>, Bytes) -> F + Send + 'static,
    F: Future<Output = HandlerResult> + Send + 'static,
{
    Box::pin(Room { start, future: None })
}

impl<S, F: Future<Output = HandlerResult>> Future for Room<S, F> {
    type Output = HandlerResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HandlerResult> {
        let future = self.project().future.as_pin_mut();
        future.expect("a handler is polled from its start to its end").poll(cx)
    }
}

impl<S, F> HandlerRoom for Room<S, F>
where
    S: Fn(Arc<TaskHandle>, Bytes) -> F + Send,
    F: Future<Output = HandlerResult> + Send,
{
    fn start(self: Pin<&mut Self>, handle: Arc<TaskHandle>, payload: Bytes) {
        let mut room = self.project();
        let future = (room.start)(handle, payload);
        room.future.set(Some(future));
    }

    fn clear(self: Pin<&mut Self>) {
        self.project().future.set(None);
    }
}

/// One method as it is served.
pub(crate) struct MethodEntry {
    pub(crate) name: &'static str,
    /// Name by which its handlers are ordered, if they are.
    pub(crate) order_by: Option<&'static str>,
    /// Its request is a stream.
    pub(crate) takes_items: bool,
    /// True of middleware, behind which the handler is.
    #[cfg(feature = "tower")]
    pub(crate) is_layered: bool,
    pub(crate) room: MakeRoom,
}

impl MethodEntry {
    /// Starts a handler in a room of its own.
    pub(crate) fn start(&self, handle: Arc<TaskHandle>, payload: Bytes) -> HandlerFuture {
        let mut room = (self.room)();
        room.as_mut().start(handle, payload);
        room
    }
}

/// All methods an endpoint serves.
#[derive(Default)]
pub(crate) struct MethodTable {
    methods: BTreeMap<MethodId, MethodEntry>,
    /// Asked before a handler starts, if set.
    authorize: Option<Authorize>,
}

impl MethodTable {
    pub(crate) fn add(&mut self, id: MethodId, entry: MethodEntry) -> Result<(), StartError> {
        let name = entry.name;
        match self.methods.insert(id, entry) {
            Some(other) => Err(StartError::MethodClash(other.name, name)),
            None => Ok(()),
        }
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

    /// The rule that is asked before a handler starts.
    pub(crate) fn rule(&self) -> Option<&Authorize> {
        self.authorize.as_ref()
    }
}

impl fmt::Debug for MethodTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods.values().map(|entry| entry.name)).finish()
    }
}
