//! Log of what a listener refuses.

use std::fmt::{Debug, Display};

use super::seldom::Seldom;

/// Log of the connections that a listener refuses. Strangers choose how many there are, so in a
/// flood it says of most only how many they were.
#[derive(Debug)]
pub struct Refusals {
    seldom: Seldom,
}

impl Default for Refusals {
    fn default() -> Self {
        Self::new()
    }
}

impl Refusals {
    /// Enough lines for each of a few peers, and few enough to be read.
    pub const fn new() -> Self {
        Self { seldom: Seldom::per_second(8) }
    }

    /// Notes that `peer` was refused for what people should hear of.
    pub fn note(&self, peer: &dyn Debug, reason: &dyn Display) {
        if let Some(left_out) = self.seldom.pass() {
            tracing::info!(?peer, %reason, left_out, "connection refused");
        }
    }

    /// Notes that `peer` was refused for what any port sees all day: for debugging alone.
    pub fn note_noise(&self, peer: &dyn Debug, reason: &dyn Display) {
        tracing::debug!(?peer, %reason, "connection refused");
    }
}
