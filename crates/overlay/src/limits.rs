//! Every bound and time of the data plane, with its default.

use std::time::Duration;

use convoke_core::proto::limits::TIME_MAX;

use crate::wire::{CHUNK_BYTES, CHUNKS_MAX};

/// Bounds and times of one [`OverlayNode`](crate::OverlayNode). All finite; [`Limits::check`] says
/// which relation is broken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Largest payload of one operation, in bytes. Default 16 MiB, at most [`CHUNKS_MAX`] chunks.
    /// Must be the same at all sites.
    pub payload_bytes_max: usize,
    /// Payloads up to this size go direct and are not paced, in bytes. Default 1 KiB.
    pub small_bytes: usize,
    /// Bytes of own payloads that not all receivers have acknowledged; beyond it a broadcast is not
    /// ready. Default 64 MiB, more where the plan needs it: see [`Limits::memory_bytes_max`].
    pub unacked_bytes_max: usize,
    /// Bytes received and not delivered yet, of one source: operations that miss chunks or wait for
    /// their turn. The oldest operation is taken beyond it. Default 32 MiB.
    pub reorder_bytes_max: usize,
    /// Bytes of one source that came by relays before it has said what they should be. Default 8
    /// MiB; what comes beyond it is asked for again.
    pub unproven_bytes_max: usize,
    /// Bytes delivered and not taken by `poll_event` yet, 128 more for each operation; what comes
    /// beyond it is dropped, and asked of its source again once there is room. One source has up to
    /// eight times as much as is still free, and an eighth of an equal share in any case; what had
    /// waited in its stream may come on top at once. Default 64 MiB.
    pub undelivered_bytes_max: usize,
    /// Bytes that one root may have queued here to be forwarded: what a relay grants it. Default 4
    /// MiB, more where the plan needs it: see [`Limits::memory_bytes_max`].
    pub relay_bytes_root_max: usize,
    /// And all roots together. Default 64 MiB, shared evenly by the roots where that is less.
    pub relay_bytes_max: usize,
    /// Bytes that the two above may exceed their bounds by, all roots together, so that fast links
    /// over long distances carry what the plan gives them: twice the planned rate times the round
    /// trip. What a plan needs beyond it is counted in
    /// [`Counters::short_of_credit`](crate::Counters). Default 1 GiB; taken when it is used only.
    pub memory_bytes_max: usize,
    /// Bytes of operations kept for the repair of others, after delivery. Default 64 MiB; the
    /// oldest of the source that has most go first.
    pub held_bytes_max: usize,
    /// And how many operations. Default 16,384.
    pub held_max: usize,
    /// Operations being fetched at once: half of them for the user, half where this site asks by
    /// itself for what a source has left open. Of what of either half the others leave free a
    /// source may have half. Default 256: one source alone has 64 of each.
    pub fetches_max: usize,
    /// Chunks queued at this site to answer the fetches of one other. Default 1,024.
    pub repairs_queued_max: usize,
    /// Part of the uplink that answers to fetches may take, in thousandths. Default 100.
    pub repair_permille: u32,
    /// And at least this much, for plans with small rates and for no plan, kbit/s. Default 1,000.
    pub repair_rate_min: u64,
    /// Burst that a paced link may send at once after a pause. Default 10 ms of its rate, and one
    /// frame.
    pub burst: Duration,
    /// Least time between two acknowledgements to the same source. Default 10 ms.
    pub ack_delay: Duration,
    /// Time that the receivers behind a relay may take to acknowledge before enough was measured.
    /// Default 4 s.
    pub relay_timer_initial: Duration,
    /// Least margin over the measured time. Default 2 s; the measured time once more where that is
    /// more. Receivers say by themselves what a relay does not bring; this is for what they were
    /// not told of, and for a relay that says nothing itself. Waiting too long for it delays a
    /// repair once, waiting too short sends again what only queues.
    pub relay_timer_margin: Duration,
    /// The most that timer may come to. Default 5 s.
    pub relay_timer_max: Duration,
    /// When a frame sent directly is sent again without an acknowledgement, at the earliest.
    /// Connections lose nothing while they are up, and a receiver that had no room says when it
    /// has: this is for what is lost all the same. Default 2 s; doubles with each time.
    pub direct_timer_min: Duration,
    /// And at most this long. Default 20 s.
    pub direct_timer_max: Duration,
    /// Time between two requests to a site for a sign of life. Default 250 ms.
    pub ping_period: Duration,
    /// After how long without any frame a site is taken for unreachable, whatever its connections
    /// say. Default 750 ms: three signs of life, and less than a second until all act on it.
    pub quiet_after: Duration,
    /// Time that a suspected relay is not used. Default 1 s; doubles with every failed probation.
    pub probation_min: Duration,
    /// And at most this long. Default 60 s.
    pub probation_max: Duration,
    /// Time that what is owed to a site without a link is kept. Default 5 s; less when the room is
    /// needed.
    pub owed_for: Duration,
    /// Time that an operation may wait for a site that has a link and does not acknowledge. Default
    /// 30 s.
    pub lag_max: Duration,
    /// Time after which a site that has a link and acknowledges nothing is given up, once what it
    /// is owed takes the room of others. Default 5 s, as [`Limits::owed_for`].
    ///
    /// It is also how long a site may hold up the others by acknowledging too little: while it
    /// keeps half of the room that others have left, at less than
    /// [`Limits::unacked_bytes_max`] per [`Limits::lag_max`], 18 Mbit/s by default. What it
    /// acknowledges counts for it by that rate. A site that was given up so has an eighth of the
    /// time until it has acknowledged more.
    pub stall_max: Duration,
    /// After the link to a source is lost, when what is missing of its stream is asked of others.
    /// Default 300 ms.
    pub pull_after: Duration,
    /// Time that one holder has to answer a fetch. Default 1 s.
    pub fetch_timeout: Duration,
    /// Number of times that all holders are asked before an operation counts as unavailable.
    /// Default 3. While a holder that may have it brings what it was asked for before, that does
    /// not count, for as long as one takes to send [`Limits::held_bytes_max`] at
    /// [`Limits::repair_rate_min`]: nine minutes by default.
    pub fetch_rounds: u32,
    /// Time that a root waits for relay credit before it asks again. Default 1 s.
    pub credit_retry: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 16 << 20,
            small_bytes: 1 << 10,
            unacked_bytes_max: 64 << 20,
            reorder_bytes_max: 32 << 20,
            unproven_bytes_max: 8 << 20,
            undelivered_bytes_max: 64 << 20,
            relay_bytes_root_max: 4 << 20,
            relay_bytes_max: 64 << 20,
            memory_bytes_max: 1 << 30,
            held_bytes_max: 64 << 20,
            held_max: 1 << 14,
            fetches_max: 256,
            repairs_queued_max: 1 << 10,
            repair_permille: 100,
            repair_rate_min: 1_000,
            burst: Duration::from_millis(10),
            ack_delay: Duration::from_millis(10),
            relay_timer_initial: Duration::from_secs(4),
            relay_timer_margin: Duration::from_secs(2),
            relay_timer_max: Duration::from_secs(5),
            direct_timer_min: Duration::from_secs(2),
            direct_timer_max: Duration::from_secs(20),
            ping_period: Duration::from_millis(250),
            quiet_after: Duration::from_millis(750),
            probation_min: Duration::from_secs(1),
            probation_max: Duration::from_secs(60),
            owed_for: Duration::from_secs(5),
            lag_max: Duration::from_secs(30),
            stall_max: Duration::from_secs(5),
            pull_after: Duration::from_millis(300),
            fetch_timeout: Duration::from_secs(1),
            fetch_rounds: 3,
            credit_retry: Duration::from_secs(1),
        }
    }
}

/// A limit that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitsError(&'static str);

impl Limits {
    /// Checks the relations between the limits.
    ///
    /// # Errors
    /// [`LimitsError`] names the first that does not hold.
    pub fn check(&self) -> Result<(), LimitsError> {
        let rules = [
            (self.payload_bytes_max > 0, "payload_bytes_max is zero"),
            (
                self.payload_bytes_max <= CHUNKS_MAX as usize * CHUNK_BYTES,
                "payload_bytes_max is above 4,096 chunks of 32 KiB",
            ),
            (
                self.payload_bytes_max <= self.unacked_bytes_max,
                "payload_bytes_max is above unacked_bytes_max",
            ),
            (
                self.payload_bytes_max <= self.undelivered_bytes_max,
                "payload_bytes_max is above undelivered_bytes_max",
            ),
            (self.repair_permille <= 1_000, "repair_permille is above 1,000"),
            (self.repair_rate_min > 0, "repair_rate_min is zero: a fetch would never be answered"),
            (self.fetch_rounds > 0, "fetch_rounds is zero: nobody would be asked"),
            (!self.fetch_timeout.is_zero(), "fetch_timeout is zero"),
            (!self.direct_timer_min.is_zero(), "direct_timer_min is zero"),
            (
                self.direct_timer_min <= self.direct_timer_max,
                "direct_timer_min is above direct_timer_max",
            ),
            (!self.relay_timer_margin.is_zero(), "relay_timer_margin is zero"),
            (
                self.relay_timer_initial <= self.relay_timer_max,
                "relay_timer_initial is above relay_timer_max",
            ),
            (!self.ping_period.is_zero(), "ping_period is zero"),
            (self.ping_period < self.quiet_after, "ping_period is not below quiet_after"),
            (!self.probation_min.is_zero(), "probation_min is zero"),
            (self.probation_min <= self.probation_max, "probation_min is above probation_max"),
            (!self.credit_retry.is_zero(), "credit_retry is zero"),
            (!self.stall_max.is_zero(), "stall_max is zero"),
            (self.burst <= TIME_MAX, "burst is above a year"),
            (self.ack_delay <= TIME_MAX, "ack_delay is above a year"),
            (self.relay_timer_initial <= TIME_MAX, "relay_timer_initial is above a year"),
            (self.relay_timer_margin <= TIME_MAX, "relay_timer_margin is above a year"),
            (self.relay_timer_max <= TIME_MAX, "relay_timer_max is above a year"),
            (self.direct_timer_min <= TIME_MAX, "direct_timer_min is above a year"),
            (self.direct_timer_max <= TIME_MAX, "direct_timer_max is above a year"),
            (self.ping_period <= TIME_MAX, "ping_period is above a year"),
            (self.quiet_after <= TIME_MAX, "quiet_after is above a year"),
            (self.probation_min <= TIME_MAX, "probation_min is above a year"),
            (self.probation_max <= TIME_MAX, "probation_max is above a year"),
            (self.owed_for <= TIME_MAX, "owed_for is above a year"),
            (self.lag_max <= TIME_MAX, "lag_max is above a year"),
            (self.stall_max <= TIME_MAX, "stall_max is above a year"),
            (self.pull_after <= TIME_MAX, "pull_after is above a year"),
            (self.fetch_timeout <= TIME_MAX, "fetch_timeout is above a year"),
            (self.credit_retry <= TIME_MAX, "credit_retry is above a year"),
        ];
        rules
            .into_iter()
            .find(|(holds, _)| !holds)
            .map_or(Ok(()), |(_, rule)| Err(LimitsError(rule)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SetupError;

    #[test]
    fn the_defaults_agree_with_each_other() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn the_first_broken_relation_is_named() {
        let limits = Limits { payload_bytes_max: 1 << 30, ..Limits::default() };
        let error = limits.check().unwrap_err();
        assert_eq!(error.to_string(), "payload_bytes_max is above 4,096 chunks of 32 KiB");
        let limits = Limits { relay_timer_margin: Duration::MAX, ..Limits::default() };
        assert_eq!(limits.check().unwrap_err().to_string(), "relay_timer_margin is above a year");
        let told = SetupError::from(error).to_string();
        assert!(told.contains("payload_bytes_max"), "{told}");
    }
}
