//! Faults in what another site says.

use crate::site::Site;

/// A message of another site that cannot be taken: its sender's doing. Nothing of it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlFault {
    /// It ends inside a field.
    #[error("the message is too short")]
    Truncated,
    /// It goes on behind its last field.
    #[error("the message has {0} bytes too many")]
    Trailing(usize),
    /// It is no message of this version.
    #[error("no control message begins with {0:#04x}")]
    Kind(u8),
    /// It speaks of another number of sites.
    #[error("the message is for {found} sites, not for {expected}: configurations differ")]
    Sites {
        /// Number of sites that there are.
        expected: usize,
        /// Number of sites that it speaks of.
        found: usize,
    },
    /// A report that is not of the site that sent it.
    #[error("{from:?} reports for {site:?}")]
    NotItsOwn {
        /// Site that sent it.
        from: Site,
        /// Site that it claims to be of.
        site: Site,
    },
    /// A rate that no network has.
    #[error("a rate is too large")]
    Rate,
    /// A site that is away from itself.
    #[error("the latency from a site to itself is not 0")]
    OwnLatency,
}
