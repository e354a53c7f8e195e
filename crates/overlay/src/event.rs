//! Inputs and outputs of an [`OverlayNode`](crate::OverlayNode) besides frames.

use std::time::Duration;

use convoke_core::id::Incarnation;

use crate::payload::Payload;
use crate::site::{SITES_MAX, Site, SiteSet};
use crate::wire::{Frame, Life, OpId};

/// In which order the operations of one source are delivered. Those of different sources have no
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Each as soon as it has come. The default.
    #[default]
    Unordered,
    /// As the source broadcast them; those that wait for an earlier one are kept, up to
    /// [`Limits::reorder_bytes_max`](crate::Limits::reorder_bytes_max). What is fetched after a
    /// [`Event::Gap`] comes out of its order.
    SourceFifo,
}

/// Something happened to the link to a site: all connections and flows to it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It can be reached. What was sent over an earlier link may be lost.
    Up {
        /// The life of the site, as its connection says.
        incarnation: Incarnation,
    },
    /// It cannot be reached any more.
    Down,
    /// It takes no data frames for now: its send buffer is full.
    Blocked,
    /// It takes data frames again.
    Writable,
}

/// Lane of a connection that a frame takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitKind {
    /// Small and urgent: must not wait behind data.
    Control,
    /// Operations.
    Data,
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Receiver. Its link is up.
    pub to: Site,
    /// Its lane. Frames to one site need no order, not even within a lane.
    pub kind: TransmitKind,
    /// The frame: its head is to be encoded, its payload is shared.
    pub frame: Frame,
}

/// Something the user of the overlay is to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An operation of another site has come, all of it. Exactly once.
    Delivered {
        /// The operation.
        op: OpId,
        /// Payload that it carries.
        payload: Payload,
    },
    /// A site has all of an operation of this one.
    Acked {
        /// The operation.
        op: OpId,
        /// Site that has it.
        by: Site,
        /// Number of sites that have it now, this one not counted: available at `count + 1`.
        count: usize,
    },
    /// Nothing more will come of an operation of this site: all others have it, but for `missed`.
    AllAcked {
        /// The operation.
        op: OpId,
        /// Sites it is not owed to any more: they were gone, or did not acknowledge, for too long.
        missed: SiteSet,
    },
    /// After [`BroadcastError::NotReady`]: there is room again.
    Ready,
    /// A site suspects a relay of its own stream.
    Suspect {
        /// The relay.
        relay: Site,
        /// Site that says so; this site, too.
        by: Site,
        /// Reason.
        evidence: Evidence,
    },
    /// It does not suspect it any more.
    Trusted {
        /// The relay.
        relay: Site,
        /// Site that says so.
        by: Site,
    },
    /// These relays fail, of all that the plan has, as all sites know by now: the plan that does
    /// without them is for [`OverlayNode::set_contingency`](crate::OverlayNode::set_contingency),
    /// unless it has been given before. Of several such events the last counts:
    /// [`OverlayNode::lacking`](crate::OverlayNode::lacking) has its relays.
    RelaysFail {
        /// The relays.
        relays: SiteSet,
    },
    /// The plan needs more bytes on their way than [`Limits::memory_bytes_max`](crate::Limits) has
    /// room for: some get less credit than their rates need, and may not reach these.
    ShortOfCredit {
        /// Number of streams: those of the roots that relay here, and the own one.
        streams: usize,
    },
    /// Time that a sign of life took to a site and back.
    RoundTrip {
        /// The site.
        site: Site,
        /// There and back.
        rtt: Duration,
    },
    /// These sequence numbers of a source will not come by themselves: it has given them up, or is
    /// gone and nobody who could be asked has them. An operation among them that is known by name
    /// can be fetched.
    Gap {
        /// The source.
        source: Site,
        /// In which of its lives.
        life: Life,
        /// The first.
        from: u64,
        /// The first after them.
        to: u64,
    },
    /// Nobody who could be asked has an operation that was to be fetched.
    Unavailable {
        /// The operation.
        op: OpId,
    },
}

/// Reason why a relay is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// Frames by way of it are not acknowledged in time.
    Late,
    /// A receiver says that it does not get what this relay should bring.
    Missed {
        /// Receiver that says so.
        by: Site,
    },
    /// A receiver says that this relay brought something else than was sent.
    Changed {
        /// Receiver that says so.
        by: Site,
    },
    /// Frames by way of it come, and take far longer than any takes directly.
    Slow,
    /// The other site has its reasons.
    Told,
}

/// Reason why there is no such node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Too many sites, or none.
    #[error("an overlay has 1 to {SITES_MAX} sites, not {sites}")]
    Sites {
        /// Number of sites that was given.
        sites: usize,
    },
    /// The node's own site is not one of them.
    #[error("site {me:?} is not one of the {sites} sites")]
    NotASite {
        /// Site that was given.
        me: Site,
        /// Number of sites.
        sites: usize,
    },
    /// Two limits contradict each other, or nothing works with one.
    #[error("the limits are not usable: {0}")]
    Limits(#[from] crate::limits::LimitsError),
}

/// Reason why a plan is not used. The one before is, or direct sending without pacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanRefused {
    /// It is made for another number of sites.
    #[error("the plan is for {plan} sites, and there are {sites}")]
    Sites {
        /// Of the plan.
        plan: usize,
        /// Of the overlay.
        sites: usize,
    },
    /// It is older than the one in use.
    #[error("the plan is of epoch {epoch}, and one of epoch {in_use} is in use")]
    Stale {
        /// Of the plan.
        epoch: u32,
        /// In use.
        in_use: u32,
    },
    /// It is of another epoch than the plan whose relay it does without.
    #[error("the contingency plan is of epoch {epoch}, and the plan in use of epoch {in_use}")]
    Epoch {
        /// Of the contingency plan.
        epoch: u32,
        /// In use.
        in_use: u32,
    },
}

/// Reason why an operation is not broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BroadcastError {
    /// Too much is unacknowledged. [`Event::Ready`] says when to try again.
    #[error("too much is unacknowledged: try again when there is room")]
    NotReady,
    /// It is larger than an operation may be.
    #[error("an operation of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// The operation.
        size: usize,
        /// The most.
        limit: usize,
    },
    /// The overlay is closed, or was while this waited.
    #[error("the overlay is closed")]
    Closed,
}

/// Outcome of asking for an operation.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// It is still here.
    Held(Payload),
    /// It was delivered before and is not here any more.
    Delivered,
    /// Others are asked: [`Event::Delivered`] or [`Event::Unavailable`] follows.
    Asked,
}

/// Reason why an operation cannot be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// Its source is no site.
    #[error("{site:?} is not one of the {sites} sites")]
    UnknownSite {
        /// Site that was given.
        site: Site,
        /// Number of sites.
        sites: usize,
    },
    /// No source counts so far: whoever gave this name made it up.
    #[error("no operation has the sequence number {seq}")]
    OutOfRange {
        /// Sequence number that was given.
        seq: u64,
    },
    /// Too many are being fetched, of this source or of all.
    #[error(
        "too many operations are being fetched, of this source or of all that may be, {limit}: try \
         again when some have come"
    )]
    Busy {
        /// The most of all sources.
        limit: usize,
    },
}

/// A frame broke the rules: its sender's doing. The frame was dropped, and nothing else came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It came from, or speaks of, no site or this site itself where it may not.
    #[error("the frame speaks of {site:?}, which it may not")]
    Site {
        /// Of whom.
        site: Site,
    },
    /// It is to be forwarded, and does not come from its source.
    #[error("a frame of {source_site:?} is to be forwarded a second time")]
    SecondRelay {
        /// Its source.
        source_site: Site,
    },
    /// Its operation has another number of chunks than was said before, or more than an operation
    /// may have here.
    #[error("the chunks of {op:?} contradict each other or the limit of payloads")]
    Chunks {
        /// The operation.
        op: OpId,
    },
    /// A relay has brought something else than its source says that it sent.
    #[error("{relay:?} has brought {op:?} changed")]
    Changed {
        /// The relay.
        relay: Site,
        /// The operation.
        op: OpId,
    },
    /// It acknowledges what was never sent.
    #[error("the frame acknowledges {seq}, and {sent} were sent")]
    AckBeyond {
        /// Sequence number that it acknowledges.
        seq: u64,
        /// Number of sequence numbers that there are.
        sent: u64,
    },
}

/// Counts of a node since it began. Bytes are those of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames with own operations, sent for the first time.
    pub own_frames: u64,
    /// And their bytes.
    pub own_bytes: u64,
    /// Frames of others that were forwarded.
    pub forwarded_frames: u64,
    /// And their bytes.
    pub forwarded_bytes: u64,
    /// Frames with own operations that were sent again.
    pub resent_frames: u64,
    /// And their bytes.
    pub resent_bytes: u64,
    /// Chunks sent to answer a fetch.
    pub repair_frames: u64,
    /// And their bytes.
    pub repair_bytes: u64,
    /// Frames that are no operations.
    pub control_frames: u64,
    /// And their bytes.
    pub control_bytes: u64,
    /// Operations delivered.
    pub delivered: u64,
    /// Chunks of others that did not come by their relays in time.
    pub missed: u64,
    /// Chunks that came changed.
    pub changed: u64,
    /// Number of times that a relay of this site became a suspect.
    pub suspicions: u64,
    /// Chunks that were here already.
    pub duplicates: u64,
    /// Chunks of a life of their source that is not the present one.
    pub stale: u64,
    /// Chunks too far ahead, or for which there was no room.
    pub no_room: u64,
    /// Number of times that a relay granted no credit for a quarter of a second, and was passed
    /// over.
    pub starved: u64,
    /// Chunks of others that nobody has any more.
    pub gaps: u64,
    /// Own operations that somebody missed.
    pub given_up: u64,
    /// Streams that get less credit than the plan in use needs; not a count since the beginning.
    pub short_of_credit: u64,
    /// Frames that were not forwarded: their root had more queued here than it was granted.
    pub relay_overruns: u64,
}
