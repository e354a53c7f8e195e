//! The end of a connection of several flows: with the last of them, for the reason of the first.

use super::{Flow, Flows};
use crate::CloseReason;
use crate::parts::Lifetime;

/// Flows that have not ended, and the life of the connection until then.
pub(super) struct Ending<C: Flow> {
    left: usize,
    reason: Option<CloseReason>,
    lifetime: Option<Lifetime<Flows<C>>>,
}

/// Consequences of the end of one flow.
pub(super) struct Ended<C: Flow> {
    /// It was the first: the others are to end so.
    pub(super) others: Option<CloseReason>,
    /// It was the last: the connection is over, for this reason.
    pub(super) last: Option<(Lifetime<Flows<C>>, CloseReason)>,
}

impl<C: Flow> Ending<C> {
    pub(super) fn new(flows: usize) -> Self {
        Self { left: flows, reason: None, lifetime: None }
    }

    pub(super) fn begin(&mut self, lifetime: Lifetime<Flows<C>>) {
        self.lifetime = Some(lifetime);
    }

    /// True when the connection takes nothing more.
    pub(super) fn has_begun(&self) -> bool {
        self.reason.is_some()
    }

    /// The reason of the end: this one, unless it has begun before.
    pub(super) fn reason_or(&mut self, reason: &CloseReason) -> CloseReason {
        self.reason.get_or_insert_with(|| reason.clone()).clone()
    }

    /// A flow has ended.
    pub(super) fn on_flow_ended(&mut self, reason: &CloseReason) -> Ended<C> {
        self.left -= 1;
        let others = self.reason.is_none().then(|| reason.clone());
        let reason = self.reason_or(reason);
        let over = if self.left == 0 { self.lifetime.take() } else { None };
        Ended { others, last: over.map(|lifetime| (lifetime, reason)) }
    }
}
