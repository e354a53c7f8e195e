//! Log lines that others cause: so many a second of each endpoint, so that in a process of several
//! none of them takes the lines of another.

use convoke_transport::parts::Seldom;

/// Bounds of the lines of one endpoint.
#[derive(Debug)]
pub(super) struct Logged {
    /// Connections that it refused.
    pub(super) refused: Seldom,
    /// Connections that ended. More than of the others: a restart of a large cluster ends many.
    pub(super) closed: Seldom,
    /// Calls that its rule denied.
    pub(super) denied: Seldom,
    /// Details of failures that were left out.
    pub(super) details: Seldom,
    /// Frames that a connection did not take: a peer says how large they may be.
    pub(super) too_large: Seldom,
}

impl Default for Logged {
    fn default() -> Self {
        Self {
            refused: Seldom::per_second(8),
            closed: Seldom::per_second(32),
            denied: Seldom::per_second(8),
            details: Seldom::per_second(8),
            too_large: Seldom::per_second(8),
        }
    }
}
