//! The health of a node: whether it works at all, and whether to send it work.

use std::sync::Arc;

use convoke::health::{Health, ServingState};
use parking_lot::Mutex;

/// Health of a node, shared by clones. It begins as not ready.
///
/// The endpoint of the node says the same to peers and gRPC clients by
/// [`endpoint`](Self::endpoint).
#[derive(Clone, Debug)]
pub struct NodeHealth {
    state: Arc<Mutex<State>>,
    endpoint: Health,
}

/// State of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It works, and takes requests.
    Ready,
    /// It works, and takes none now, for a reason: leave it alone.
    NotReady(String),
    /// It is about to end and is never ready again.
    Stopping,
    /// It does not work any more, for a reason: start it again.
    Broken(String),
}

impl NodeHealth {
    /// That of a node that is not ready yet, for a reason.
    pub fn new(why: impl Into<String>) -> Self {
        let endpoint = Health::new();
        endpoint.set("", ServingState::NotServing);
        Self { state: Arc::new(Mutex::new(State::NotReady(why.into()))), endpoint }
    }

    /// Ready, unless it is stopping or broken.
    pub fn ready(&self) {
        self.become_unless_over(State::Ready);
    }

    /// Not ready, for a reason, unless it is stopping or broken.
    pub fn not_ready(&self, why: impl Into<String>) {
        self.become_unless_over(State::NotReady(why.into()));
    }

    /// About to end.
    pub fn stopping(&self) {
        self.become_unless_over(State::Stopping);
    }

    /// Broken, for a reason, such as a ledger that cannot be written. The first reason stays.
    pub fn broken(&self, why: impl Into<String>) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Broken(_)) {
            *state = State::Broken(why.into());
            self.endpoint.set("", ServingState::NotServing);
        }
    }

    /// The state it is in.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// The same, for the endpoint of the node.
    pub fn endpoint(&self) -> &Health {
        &self.endpoint
    }

    fn become_unless_over(&self, next: State) {
        let mut state = self.state.lock();
        if matches!(*state, State::Stopping | State::Broken(_)) {
            return;
        }
        let is_ready = next == State::Ready;
        *state = next;
        // Under the lock, so that both say the same in the end.
        let serving = if is_ready { ServingState::Serving } else { ServingState::NotServing };
        self.endpoint.set("", serving);
    }
}
