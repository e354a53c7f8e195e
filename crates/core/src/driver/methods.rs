//! The methods that an endpoint serves, and what starts their handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::id::MethodId;

use crate::caller::Authorize;
use crate::error::StartError;

use super::task::{HandlerResult, TaskHandle};

/// A handler's future.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

pub(crate) type StartHandler = Box<dyn Fn(Arc<TaskHandle>, Bytes) -> HandlerFuture + Send + Sync>;

/// One method as it is served.
pub(crate) struct MethodEntry {
    pub(crate) name: &'static str,
    /// Name by which its handlers are ordered, if they are.
    pub(crate) order_by: Option<&'static str>,
    /// Its request is a stream.
    pub(crate) takes_items: bool,
    pub(crate) start: StartHandler,
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
