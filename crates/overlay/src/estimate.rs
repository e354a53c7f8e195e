//! Estimates of a site about itself: how much it wants to send, how much it can, and how far the
//! others are.
//!
//! ```text
//!   offered ──▶ mean of the last seconds ──────────────────────────▶ demand
//!   sent ─────▶ rate of an interval ──▶ does it say anything? ──▶ best of a window ──▶ uplink
//!   received ─▶ likewise ─────────────────────────────────────────────────────────────▶ downlink
//!   round trips ─▶ smallest of a window, halved ──────────────────────────────────────▶ latency
//! ```
//! A rate below the estimate only says something about the link if the link was what held the
//! sender back: not its application, and not its own pacing (the rule of delivery-rate estimation,
//! draft-cheng-iccrg-delivery-rate-estimation). A rate above the estimate says so in any case.
//! Since plans leave headroom and pacing keeps to plans, no sender would ever see such a rate; so
//! it probes: now and then it may send a little faster than the estimate for a short while, soon if
//! something waits for it, and faster each time that it finds more. What the network has never held
//! back is not known, whatever was guessed: nothing is paced by it, so that no guess gives less
//! than sending without a plan would. What falls is believed sooner than the window would have it,
//! if all samples of a second say so.
//!
//! Samples can be wrong, from a process that was paused, acknowledgements that come in one bunch,
//! or a clock that jumps. No estimate follows fewer than three samples of its window, and none
//! leaves its bounds.

mod filter;

use std::time::Duration;

use convoke_core::time::Timestamp;

use self::filter::{AGREEING, Filter};
use crate::hose::RATE_MAX_KBIT;
use crate::site::Site;

/// Bounds and times of an [`Estimator`].
#[derive(Clone, Debug)]
pub struct EstimatorConfig {
    /// The uplink. Default: [`Bounds::default`].
    pub uplink: Bounds,
    /// The downlink. Default: [`Bounds::default`].
    pub downlink: Bounds,
    /// For how long a good rate or round trip counts. Default 20 s.
    pub window: Duration,
    /// Over how long a rate is measured, if 512 KiB go over in it; else up to five times as long,
    /// since what is counted are whole messages. Default 200 ms.
    pub interval: Duration,
    /// Time between two probes for more. Default one minute.
    pub probe_period: Duration,
    /// Time between two probes while something waits that the plan does not let leave; doubles with
    /// each probe that finds nothing, up to the period. Default 5 s.
    pub probe_period_backlog: Duration,
    /// Rate of a probe in thousandths of the uplink estimate. Default 1050; one that follows on one
    /// that has found more sends faster by twice as much, up to twice the rate.
    pub probe_permille: u32,
    /// Over how long demand is averaged, in intervals. Default 10.
    pub demand_intervals: u32,
    /// Round trips that are so much longer than the shortest are a queue. Default 50 ms.
    pub queue: Duration,
}

/// Bounds on a capacity that are known beforehand, kbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The estimate before there are samples. Default 100 Mbit/s.
    pub initial: u64,
    /// It is never taken for less. Default 1 Mbit/s.
    pub floor: u64,
    /// It is never taken for more. Default 100 Gbit/s.
    pub ceiling: u64,
}

/// Reason why what a site could send is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// There is nothing to send.
    Application,
    /// The rates of the plan.
    Pacing,
    /// The network takes no more.
    Network,
}

/// Knowledge of a site about itself at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Rate that it can send, kbit/s.
    pub uplink: u64,
    /// Rate that it can receive, kbit/s.
    pub downlink: u64,
    /// Rate that it wants to broadcast, kbit/s.
    pub demand: u64,
    /// Half a round trip to each site, microseconds; [`LATENCY_UNKNOWN`] before it was measured, 0
    /// to itself.
    pub latency_us: Vec<u32>,
}

/// A latency that nobody has measured.
pub const LATENCY_UNKNOWN: u32 = u32::MAX;

/// Most that a probe sends, in thousandths of the plan.
const PACING_PERMILLE_MAX: u128 = 2_000;

/// As good as not paced: a thousand times the plan.
const PACING_PERMILLE_UNKNOWN: u32 = 1_000_000;

/// Samples in a row below the estimate by a fifth are what the link has fallen to: those of a
/// second, as many as must agree.
const FALLEN: Duration = Duration::from_secs(1);
const FALLEN_PERMILLE: u64 = 800;

/// A sample of fewer bytes says little, as bytes come in chunks of 64 KiB and are acknowledged
/// several at a time: it takes in the next interval, until it has so many.
const SAMPLE_BYTES: u64 = 512 << 10;
const SAMPLE_INTERVALS: u32 = 5;

/// Length of a probe: as many whole intervals as must agree, and what is left of the one it begins
/// in.
const PROBE_INTERVALS: u32 = 4;
const _: () = assert!(PROBE_INTERVALS as usize > AGREEING);

/// Longer round trips are taken for wrong.
const RTT_MAX: Duration = Duration::from_secs(60);

/// Estimates from what happens at one site. It has no clock: after any input ask
/// [`Estimator::poll_timeout`].
#[derive(Debug)]
pub struct Estimator {
    config: EstimatorConfig,
    me: Site,
    interval: Interval,
    demand: u64,
    uplink: Filter,
    downlink: Filter,
    peers: Vec<Peer>,
    held_by: HeldBy,
    probe: Probe,
    /// Number of probes that have found nothing since one found something.
    probes_in_vain: u32,
    /// Number of probes that have found something since one found nothing.
    probes_in_row: u32,
    /// The network has held the uplink back once: what it takes is known.
    is_known: bool,
    /// The downlink has made something queue once.
    is_downlink_known: bool,
    /// Samples of the uplink in a row that were far below the estimate, and their time.
    fallen: (usize, Duration),
    sample: Sample,
}

/// One interval, or several together.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    took: Duration,
    sent: u64,
    received: u64,
    /// Number of its intervals, of those in which the network held the uplink back, and of those in
    /// which the downlink made something queue.
    intervals: u32,
    network: u32,
    queueing: u32,
}

/// Counts since it began.
#[derive(Clone, Copy, Debug)]
struct Interval {
    start: Timestamp,
    offered: u64,
    sent: u64,
    received: u64,
    /// For how long the network was what held the uplink back, until `noted_at`.
    network: Duration,
    noted_at: Timestamp,
    /// There was something to send, all the time.
    was_busy: bool,
}

#[derive(Clone, Debug)]
struct Peer {
    rtt_us: Filter,
    last_rtt_us: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Probe {
    NextAt(Timestamp),
    Until {
        at: Timestamp,
        /// Uplink estimate when it began.
        before: u64,
    },
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self {
            uplink: Bounds::default(),
            downlink: Bounds::default(),
            window: Duration::from_secs(20),
            interval: Duration::from_millis(200),
            probe_period: Duration::from_secs(60),
            probe_period_backlog: Duration::from_secs(5),
            probe_permille: 1_050,
            demand_intervals: 10,
            queue: Duration::from_millis(50),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self { initial: 100_000, floor: 1_000, ceiling: 100_000_000 }
    }
}

impl Bounds {
    /// A capacity that is known and never estimated, kbit/s.
    pub fn fixed(kbit_per_s: u64) -> Self {
        Self { initial: kbit_per_s, floor: kbit_per_s, ceiling: kbit_per_s }
    }

    fn apply(self, kbit_per_s: u64) -> u64 {
        let ceiling = self.ceiling.min(RATE_MAX_KBIT);
        kbit_per_s.clamp(self.floor.min(ceiling), ceiling)
    }
}

impl Estimator {
    /// For one of so many sites.
    pub fn new(config: EstimatorConfig, me: Site, sites: usize, now: Timestamp) -> Self {
        let window = config.window;
        let peer = Peer { rtt_us: Filter::smallest(window), last_rtt_us: None };
        Self {
            me,
            interval: Interval::from(now),
            demand: 0,
            uplink: Filter::largest(window),
            downlink: Filter::largest(window),
            peers: vec![peer; sites],
            held_by: HeldBy::Application,
            probe: Probe::NextAt(now + config.probe_period),
            probes_in_vain: 0,
            probes_in_row: 0,
            is_known: config.uplink.floor >= config.uplink.ceiling,
            is_downlink_known: config.downlink.floor >= config.downlink.ceiling,
            fallen: (0, Duration::ZERO),
            sample: Sample::default(),
            config,
        }
    }

    /// The application wants to broadcast so many bytes: once, whatever the number of receivers.
    pub fn handle_offered(&mut self, bytes: u64) {
        self.interval.offered = self.interval.offered.saturating_add(bytes);
    }

    /// So many bytes, own and forwarded, have left over the uplink: acknowledged, or handed to the
    /// network. What only waits in the buffer of a connection has not.
    pub fn handle_sent(&mut self, bytes: u64) {
        self.interval.sent = self.interval.sent.saturating_add(bytes);
    }

    /// So many bytes have come.
    pub fn handle_received(&mut self, bytes: u64) {
        self.interval.received = self.interval.received.saturating_add(bytes);
    }

    /// Sets what holds the uplink back from now on.
    pub fn handle_held_by(&mut self, now: Timestamp, held_by: HeldBy) {
        self.interval.note(now, self.held_by);
        self.held_by = held_by;
        self.interval.note(now, held_by);
    }

    /// A round trip to another site. Absurd ones and unknown sites are ignored.
    pub fn handle_rtt(&mut self, now: Timestamp, site: Site, rtt: Duration) {
        let is_peer = site != self.me && site.index() < self.peers.len();
        let us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        if is_peer && us > 0 && rtt <= RTT_MAX {
            let peer = &mut self.peers[site.index()];
            peer.rtt_us.add(now, us);
            peer.last_rtt_us = Some(us);
        }
    }

    /// Ends the interval, if it is over. Whether [`Estimator::estimate`] may have changed.
    pub fn handle_timeout(&mut self, now: Timestamp) -> bool {
        self.turn_probe(now);
        let took = now.since(self.interval.start);
        if took < self.config.interval {
            return false;
        }
        self.interval.note(now, self.held_by);
        let ended = std::mem::replace(&mut self.interval, Interval::from(now));
        // Nobody was looking for a while: what was counted belongs to no known time.
        if took <= self.config.interval * 2 {
            self.take(now, &ended, took);
        }
        true
    }

    /// When to call [`Estimator::handle_timeout`].
    pub fn poll_timeout(&self) -> Timestamp {
        let probe = match self.probe {
            Probe::NextAt(at) | Probe::Until { at, .. } => at,
        };
        probe.min(self.interval.start + self.config.interval)
    }

    /// Factor for the paced rates now, in thousandths: more than 1000 during a probe. `planned` is
    /// what these rates come to without it, all together, in kbit/s: they keep the headroom of
    /// their plan, so a probe raises them above the estimate from below it.
    pub fn pacing_permille(&self, planned: u64) -> u32 {
        if !self.is_known {
            return PACING_PERMILLE_UNKNOWN;
        }
        if matches!(self.probe, Probe::NextAt(_)) {
            return 1_000;
        }
        let more = u128::from(self.config.probe_permille.saturating_sub(1_000));
        let probe = (1_000 + (more << self.probes_in_row.min(8))).min(PACING_PERMILLE_MAX);
        let gain = probe * u128::from(self.uplink()) / u128::from(planned.max(1));
        u32::try_from(gain.clamp(1_000, PACING_PERMILLE_MAX)).unwrap_or(1_000)
    }

    /// The estimate now, with guesses that are not below `largest` for what is not known, such as
    /// the largest uplink of another site: who is taken for less is given nothing to show that it
    /// can more.
    pub fn estimate_beside(&self, largest: u64) -> Estimate {
        let mut estimate = self.estimate();
        if !self.is_known {
            estimate.uplink = self.config.uplink.apply(estimate.uplink.max(largest));
        }
        if !self.is_downlink_known {
            estimate.downlink = self.config.downlink.apply(estimate.downlink.max(largest));
        }
        estimate
    }

    /// The estimate as of now.
    pub fn estimate(&self) -> Estimate {
        let latency = |(index, peer): (usize, &Peer)| {
            if index == self.me.index() {
                return 0;
            }
            let half = peer.rtt_us.best().map(|us| us.div_ceil(2));
            half.and_then(|us| u32::try_from(us).ok()).unwrap_or(LATENCY_UNKNOWN)
        };
        Estimate {
            uplink: self.uplink(),
            downlink: self.downlink(),
            demand: self.demand.min(RATE_MAX_KBIT),
            latency_us: self.peers.iter().enumerate().map(latency).collect(),
        }
    }

    fn uplink(&self) -> u64 {
        self.config.uplink.apply(self.uplink.best().unwrap_or(self.config.uplink.initial))
    }

    fn downlink(&self) -> u64 {
        self.config.downlink.apply(self.downlink.best().unwrap_or(self.config.downlink.initial))
    }

    fn take(&mut self, now: Timestamp, ended: &Interval, took: Duration) {
        self.average(ended, took);
        let was_network = ended.was_network(took);
        let is_queueing = !was_network && self.is_downlink_queueing();
        self.is_known |= was_network;
        self.is_downlink_known |= is_queueing;
        self.sample.add(ended, took, (was_network, is_queueing));
        if self.sample.is_whole() {
            let sample = std::mem::take(&mut self.sample);
            self.judge(now, &sample);
        }
    }

    fn judge(&mut self, now: Timestamp, sample: &Sample) {
        let sent = kbit_per_s(sample.sent, sample.took);
        let was_network = sample.network == sample.intervals;
        let is_low = was_network && sent < self.uplink() / 1_000 * FALLEN_PERMILLE;
        let (count, time) = self.fallen;
        self.fallen = if is_low { (count + 1, time + sample.took) } else { Default::default() };
        if was_network || sent > self.uplink() {
            self.uplink.add(now, sent);
        }
        let (count, time) = self.fallen;
        if count >= AGREEING && time >= FALLEN {
            self.uplink.keep_last(count);
            self.fallen = Default::default();
        }
        let received = kbit_per_s(sample.received, sample.took);
        if received > self.downlink() || sample.queueing == sample.intervals {
            self.downlink.add(now, received);
        }
    }

    /// A mean that forgets. An application that is held back wants more than it can offer, and how
    /// much more shows only when it gets more.
    fn average(&mut self, ended: &Interval, took: Duration) {
        let offered = kbit_per_s(ended.offered, took).min(RATE_MAX_KBIT);
        let wanted =
            if ended.was_busy { offered.max(self.demand + self.demand / 8) } else { offered };
        let wanted = wanted.min(self.config.uplink.apply(u64::MAX));
        let weight = u64::from(self.config.demand_intervals.max(1));
        let sum = self.demand.saturating_mul(weight - 1).saturating_add(wanted);
        // Rounded up while it rises, or it would never reach a small demand.
        self.demand = if wanted > self.demand { sum.div_ceil(weight) } else { sum / weight };
    }

    /// Round trips to most sites take long although the own uplink is not what holds things up:
    /// what comes from them waits for the downlink.
    fn is_downlink_queueing(&self) -> bool {
        let queue = u64::try_from(self.config.queue.as_micros()).unwrap_or(u64::MAX);
        let is_slow = |peer: &&Peer| match (peer.last_rtt_us, peer.rtt_us.best()) {
            (Some(last), Some(best)) => last > best.saturating_add(queue),
            _ => false,
        };
        let slow = self.peers.iter().filter(is_slow).count();
        slow * 2 > self.peers.len().saturating_sub(1)
    }

    fn turn_probe(&mut self, now: Timestamp) {
        match self.probe {
            // Nothing that is there to be sent is also nothing to probe with.
            Probe::NextAt(at) if now >= at => {
                self.probe = match self.held_by {
                    HeldBy::Application => Probe::NextAt(now + self.config.interval),
                    _ => {
                        let (at, before) = (now + self.probe_duration(), self.uplink());
                        Probe::Until { at, before }
                    }
                };
            }
            // What waits has waited for long enough.
            Probe::NextAt(at) if self.held_by == HeldBy::Pacing => {
                self.probe = Probe::NextAt(at.min(now + self.backlog_period()));
            }
            // There is more than was known, and perhaps more than that.
            Probe::Until { at, before } if now >= at && self.uplink() > before => {
                self.probes_in_vain = 0;
                self.probes_in_row += 1;
                self.probe = Probe::NextAt(now + self.config.interval);
            }
            Probe::Until { at, .. } if now >= at => {
                self.probes_in_vain += 1;
                self.probes_in_row = 0;
                self.probe = Probe::NextAt(now + self.config.probe_period);
            }
            Probe::NextAt(_) | Probe::Until { .. } => {}
        }
    }

    fn backlog_period(&self) -> Duration {
        let period = self.config.probe_period_backlog;
        period.saturating_mul(1 << self.probes_in_vain.min(10)).min(self.config.probe_period)
    }

    /// A round trip more than the intervals, since it takes that long until they show it.
    fn probe_duration(&self) -> Duration {
        let longest = self.peers.iter().filter_map(|peer| peer.rtt_us.best()).max().unwrap_or(0);
        self.config.interval * PROBE_INTERVALS + Duration::from_micros(longest)
    }
}

impl Sample {
    fn add(&mut self, ended: &Interval, took: Duration, (was_network, is_queueing): (bool, bool)) {
        self.took += took;
        self.sent = self.sent.saturating_add(ended.sent);
        self.received = self.received.saturating_add(ended.received);
        self.intervals += 1;
        self.network += u32::from(was_network);
        self.queueing += u32::from(is_queueing);
    }

    fn is_whole(&self) -> bool {
        self.sent.max(self.received) >= SAMPLE_BYTES || self.intervals >= SAMPLE_INTERVALS
    }
}

impl Interval {
    fn from(start: Timestamp) -> Self {
        let (network, noted_at, was_busy) = (Duration::ZERO, start, true);
        Self { start, offered: 0, sent: 0, received: 0, network, noted_at, was_busy }
    }

    /// Notes what has held the uplink back since it was noted last.
    fn note(&mut self, now: Timestamp, held_by: HeldBy) {
        if held_by == HeldBy::Network {
            self.network += now.since(self.noted_at);
        }
        self.noted_at = self.noted_at.max(now);
        self.was_busy &= held_by != HeldBy::Application;
    }

    /// True when the network has held it back for most of the time, and the application never. Not
    /// all of the time: one link has room for a moment, while others have none.
    fn was_network(&self, took: Duration) -> bool {
        self.was_busy && self.network * 2 > took
    }
}

fn kbit_per_s(bytes: u64, took: Duration) -> u64 {
    let rate = u128::from(bytes) * 8_000_000 / took.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
