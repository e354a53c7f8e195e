//! Counts of what was refused, by cause.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::core::Refused;

/// The reason something that came was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dropped {
    /// Bytes that are no words, or no request.
    Malformed,
    /// Words that came from a node that is no replica.
    NoMember,
    /// An operation that is larger than one may be.
    TooLarge,
    /// More than a member's share.
    Flood,
    /// The node has no room.
    Full,
    /// A request to the primary alone, where others would not believe it.
    NotToAll,
    /// The door of the core did not let it in.
    Refused(Refused),
}

impl Dropped {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NoMember => "no_member",
            Self::TooLarge => "too_large",
            Self::Flood => "flood",
            Self::Full => "full",
            Self::NotToAll => "not_to_all",
            Self::Refused(Refused::Epoch) => "epoch",
            Self::Refused(Refused::Stranger) => "stranger",
            Self::Refused(Refused::Signature) => "signature",
            Self::Refused(Refused::Request) => "request",
            Self::Refused(Refused::Certificate) => "certificate",
            Self::Refused(Refused::OverShare) => "over_share",
            Self::Refused(Refused::Connection) => "connection",
            Self::Refused(Refused::Batch) => "batch",
        }
    }
}

/// Counts that handlers and actor share.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<BTreeMap<Dropped, u64>>);

impl Counts {
    pub(super) fn count(&self, cause: Dropped) {
        *self.0.lock().entry(cause).or_default() += 1;
        metrics::counter!("pbft_refused_total", "cause" => cause.name()).increment(1);
    }

    pub(super) fn by_name(&self) -> BTreeMap<String, u64> {
        self.0.lock().iter().map(|(cause, count)| (cause.name().to_owned(), *count)).collect()
    }
}
