//! Health of a node's services, for whoever sends it work.
//!
//! The application keeps a [`Health`] and says which services can be used. The endpoint answers
//! `convoke.Health/Check` and `convoke.Health/Watch` with it, and says that nothing can be used any
//! more once it shuts down. The messages have the fields and numbers of `grpc.health.v1`.
//!
//! ```
//! use convoke_core::health::{CHECK, Health, HealthRequest, ServingState};
//! use convoke_core::Endpoint;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let health = Health::new();
//! let endpoint = Endpoint::builder().health(&health).start().await?;
//! health.set("shop.Shop", ServingState::NotServing); // until its stock is loaded
//!
//! let request = CHECK.request(HealthRequest::of("shop.Shop"));
//! let reply = endpoint.invoke(request).to(&endpoint.me()).await?;
//! assert_eq!(reply.state(), ServingState::NotServing);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::error::{Code, Status};
use crate::method::Method;

/// Asks once for the state of a service. Answered with [`Code::NotFound`] by a node that does not
/// know it.
pub const CHECK: Method<HealthRequest, HealthReply> =
    Method::new("convoke.Health/Check").read_only();

/// Asks for a stream of states: the present one, then each change. A service that the node does not
/// know is [`ServingState::ServiceUnknown`] until it does. The stream ends when the node shuts
/// down.
pub const WATCH: Method<HealthRequest, HealthReply> =
    Method::new("convoke.Health/Watch").read_only();

/// A question after the health of one service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HealthRequest {
    /// Its name, as in `package.Service`; empty for the whole node.
    #[prost(string, tag = "1")]
    pub service: String,
}

impl HealthRequest {
    /// Of this service; `""` is the whole node.
    pub fn of(service: impl Into<String>) -> Self {
        Self { service: service.into() }
    }
}

/// State of a service, as it travels.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HealthReply {
    /// Its state, as a number: `state()` has it as a [`ServingState`].
    #[prost(enumeration = "ServingState", tag = "1")]
    pub state: i32,
}

/// State of a service: whether it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ServingState {
    /// Nothing was said.
    Unknown = 0,
    /// It can.
    Serving = 1,
    /// It cannot at the moment.
    NotServing = 2,
    /// The node does not know it. Only in answers to [`WATCH`].
    ServiceUnknown = 3,
}

/// Health of a node's services, set by the application and served to callers. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(Arc<watch::Sender<Board>>);

/// All that was said.
#[derive(Debug)]
struct Board {
    services: BTreeMap<String, ServingState>,
    /// The node shuts down: nothing can be used, whatever was said.
    is_stopping: bool,
}

impl Board {
    fn state(&self, service: &str) -> Option<ServingState> {
        let said = self.services.get(service).copied();
        said.map(|state| if self.is_stopping { ServingState::NotServing } else { state })
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// The node as a whole serves, and no service is known.
    pub fn new() -> Self {
        let services = BTreeMap::from([(String::new(), ServingState::Serving)]);
        Self(Arc::new(watch::Sender::new(Board { services, is_stopping: false })))
    }

    /// Says how a service is; `""` is the whole node. Who watches it is told.
    pub fn set(&self, service: &str, state: ServingState) {
        self.0.send_if_modified(|board| match board.services.get_mut(service) {
            Some(old) => std::mem::replace(old, state) != state,
            None => {
                board.services.insert(service.to_owned(), state);
                true
            }
        });
    }

    /// State that was set for a service. `None` for one without.
    pub fn state(&self, service: &str) -> Option<ServingState> {
        self.0.borrow().state(service)
    }

    /// Says of every service that it cannot be used, for good, and ends the streams of those who
    /// watch. [`Endpoint::shutdown`](crate::Endpoint::shutdown) begins with it. An application that
    /// wants its callers to leave some time before that does so itself.
    pub fn stop(&self) {
        self.0.send_modify(|board| board.is_stopping = true);
    }

    /// Follows the state of a service.
    pub fn watch(&self, service: impl Into<String>) -> HealthWatch {
        HealthWatch { board: self.0.subscribe(), service: service.into(), told: None }
    }

    pub(crate) fn check(&self, service: &str) -> Result<HealthReply, Status> {
        let state = self.state(service);
        let text = "the node does not know the service: see Health::set";
        let state = state.ok_or_else(|| Status::new(Code::NotFound, text))?;
        Ok(HealthReply { state: state.into() })
    }
}

/// State of one service as it changes; made by [`Health::watch`].
#[derive(Debug)]
pub struct HealthWatch {
    board: watch::Receiver<Board>,
    service: String,
    /// The state that was given last.
    told: Option<ServingState>,
}

impl HealthWatch {
    /// The state now, then each that differs from the one before. A service of which nothing was
    /// said is [`ServingState::ServiceUnknown`]. `None` once [`Health::stop`] was called and the
    /// last state was given, or every [`Health`] of the node is gone.
    ///
    /// # Cancel safety
    /// Dropped while it waits, it has taken no state.
    pub async fn next(&mut self) -> Option<ServingState> {
        loop {
            let (state, is_stopping) = {
                let board = self.board.borrow_and_update();
                let state = board.state(&self.service).unwrap_or(ServingState::ServiceUnknown);
                (state, board.is_stopping)
            };
            if self.told.replace(state) != Some(state) {
                return Some(state);
            }
            if is_stopping || self.board.changed().await.is_err() {
                return None;
            }
        }
    }
}
