//! A network in the hose model: each site has one uplink and one downlink, and the core between
//! them is unlimited and takes time. (ShallowForest, section 4.1)
//!
//! ```text
//!   send ──▶ uplink of `from` ──▶ core, latency ──▶ downlink of `to` ──▶ poll_arrival
//!            one parcel at a time                   one parcel at a time
//! ```
//! It has no clock: it takes the time and says when it wants to be called again. What the downlink
//! takes next is decided when the downlink is free, among what has come through the core by then,
//! and not when a parcel is sent: what is sent later may come earlier.
//!
//! ```
//! # use std::time::Duration;
//! # use convoke_proto::time::Timestamp;
//! # use convoke_sim::hose::{Hose, Limits};
//! let mut hose = Hose::new();
//! hose.uplink('a', Limits::kbit_per_s(8_000)); // a byte in a microsecond
//! hose.send(Timestamp::ZERO, 'a', 'b', 1_000, Duration::from_millis(20), "hello");
//!
//! let at = hose.poll_timeout().expect("it is on its way");
//! assert_eq!(at, Timestamp::from_nanos(1_000_000)); // it leaves the uplink
//! let at = Timestamp::from_nanos(21_000_000);
//! let arrival = hose.poll_arrival(at).map(|arrival| (arrival.at, arrival.item));
//! assert_eq!(arrival, Some((at, "hello")));
//! ```
//!
//! # Promises
//! - **Exact.** A parcel takes its bits over the capacity; the rounding to nanoseconds is done once
//!   for a busy period, not once for a parcel. Late calls do not make anything later: each event
//!   has its own time.
//! - **Conserving.** A link is idle only when nothing waits for it, and every parcel arrives once
//!   or is counted as dropped by one [`Limits::queue_bytes_max`].
//! - **In order.** What goes from one site to another arrives in the order it was sent, also when a
//!   later latency is shorter.
//! - **Fair as told.** [`Sharing::Fair`], the default: an uplink serves those it sends to, and a
//!   downlink those it hears from, by equal bytes, as long as they have something waiting.
//!   [`Sharing::FirstCome`]: first come, first served, as a router with one queue does it.
//! - **Deterministic.** Nothing is drawn; what happens at the same time happens in the order of its
//!   causes.

mod port;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use convoke_proto::time::Timestamp;

use self::port::Port;

pub use self::port::{Limits, QUANTUM_BYTES, Sharing};

/// A network of sites that are named by `S`, which carries parcels of `T`.
#[derive(Debug)]
pub struct Hose<S, T> {
    uplinks: BTreeMap<S, Port<S, Parcel<S, T>>>,
    downlinks: BTreeMap<S, Port<S, Parcel<S, T>>>,
    /// When the latest parcel of a pair comes through the core.
    through: BTreeMap<(S, S), Timestamp>,
    events: BTreeMap<(Timestamp, u64), Event<S, T>>,
    event_count: u64,
    arrived: VecDeque<Arrival<S, T>>,
    counters: HoseCounters,
}

/// Parcel that has come to its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<S, T> {
    /// When.
    pub at: Timestamp,
    /// Sender of the parcel.
    pub from: S,
    /// Receiver of the parcel.
    pub to: S,
    /// Size that [`Hose::send`] was told.
    pub bytes: u64,
    /// Item that was sent.
    pub item: T,
}

/// Counters of what became of all parcels so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoseCounters {
    /// Parcels that were sent.
    pub sent: u64,
    /// Parcels that arrived.
    pub arrived: u64,
    /// Parcels for which an uplink had no room.
    pub dropped_uplink: u64,
    /// Parcels for which a downlink had no room.
    pub dropped_downlink: u64,
}

#[derive(Debug)]
struct Parcel<S, T> {
    from: S,
    to: S,
    bytes: u64,
    latency: Duration,
    item: T,
}

#[derive(Debug)]
enum Event<S, T> {
    UplinkFree(S),
    ThroughCore(Parcel<S, T>),
    DownlinkFree(S),
}

impl<S: Copy + Ord, T> Hose<S, T> {
    /// A network without limits.
    pub fn new() -> Self {
        Self {
            uplinks: BTreeMap::new(),
            downlinks: BTreeMap::new(),
            through: BTreeMap::new(),
            events: BTreeMap::new(),
            event_count: 0,
            arrived: VecDeque::new(),
            counters: HoseCounters::default(),
        }
    }

    /// Sets what a site can send. What is being sent keeps its time. Default: no limit.
    pub fn uplink(&mut self, site: S, limits: Limits) {
        self.uplinks.entry(site).or_default().set_limits(limits);
    }

    /// Sets what a site can receive. What is being received keeps its time. Default: no limit.
    pub fn downlink(&mut self, site: S, limits: Limits) {
        self.downlinks.entry(site).or_default().set_limits(limits);
    }

    /// Sends `item`, which counts as `bytes`, and takes `latency` through the core. `now` is not
    /// before that of any earlier call.
    pub fn send(&mut self, now: Timestamp, from: S, to: S, bytes: u64, latency: Duration, item: T) {
        self.run_until(now);
        self.counters.sent += 1;
        let uplink = self.uplinks.entry(from).or_default();
        if uplink.offer(to, bytes, Parcel { from, to, bytes, latency, item }).is_err() {
            self.counters.dropped_uplink += 1;
        }
        self.start_uplink(now, from);
        self.run_until(now);
    }

    /// Takes the next parcel that has arrived by `now`, in the order of its times.
    pub fn poll_arrival(&mut self, now: Timestamp) -> Option<Arrival<S, T>> {
        self.run_until(now);
        self.arrived.pop_front()
    }

    /// When to call [`Hose::poll_arrival`] again; in the past when something has arrived. `None`
    /// when nothing is on its way.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let arrived = self.arrived.front().map(|arrival| arrival.at);
        arrived.or_else(|| self.events.keys().next().map(|(at, _)| *at))
    }

    /// Counters of what became of all parcels so far.
    pub fn counters(&self) -> HoseCounters {
        self.counters
    }

    /// Bytes that wait for the uplink of a site, with those that are being sent.
    pub fn uplink_backlog(&self, site: S) -> u64 {
        self.uplinks.get(&site).map_or(0, Port::backlog)
    }

    /// Bytes that wait for the downlink of a site, with those that are being received.
    pub fn downlink_backlog(&self, site: S) -> u64 {
        self.downlinks.get(&site).map_or(0, Port::backlog)
    }

    fn run_until(&mut self, now: Timestamp) {
        while let Some(first) = self.events.first_entry() {
            let at = first.key().0;
            if at > now {
                return;
            }
            match first.remove() {
                Event::UplinkFree(site) => self.on_uplink_free(at, site),
                Event::ThroughCore(parcel) => self.on_through_core(at, parcel),
                Event::DownlinkFree(site) => self.on_downlink_free(at, site),
            }
        }
    }

    fn on_uplink_free(&mut self, at: Timestamp, site: S) {
        let sent = self.uplinks.get_mut(&site).and_then(Port::finish);
        if let Some(parcel) = sent {
            let last = self.through.entry((parcel.from, parcel.to)).or_default();
            *last = (at + parcel.latency).max(*last);
            let through = *last;
            self.schedule(through, Event::ThroughCore(parcel));
        }
        self.start_uplink(at, site);
    }

    fn on_through_core(&mut self, at: Timestamp, parcel: Parcel<S, T>) {
        let (from, to, bytes) = (parcel.from, parcel.to, parcel.bytes);
        if self.downlinks.entry(to).or_default().offer(from, bytes, parcel).is_err() {
            self.counters.dropped_downlink += 1;
        }
        self.start_downlink(at, to);
    }

    fn on_downlink_free(&mut self, at: Timestamp, site: S) {
        if let Some(parcel) = self.downlinks.get_mut(&site).and_then(Port::finish) {
            let Parcel { from, to, bytes, item, .. } = parcel;
            self.counters.arrived += 1;
            self.arrived.push_back(Arrival { at, from, to, bytes, item });
        }
        self.start_downlink(at, site);
    }

    fn start_uplink(&mut self, now: Timestamp, site: S) {
        if let Some(free_at) = self.uplinks.get_mut(&site).and_then(|port| port.start(now)) {
            self.schedule(free_at, Event::UplinkFree(site));
        }
    }

    fn start_downlink(&mut self, now: Timestamp, site: S) {
        if let Some(free_at) = self.downlinks.get_mut(&site).and_then(|port| port.start(now)) {
            self.schedule(free_at, Event::DownlinkFree(site));
        }
    }

    fn schedule(&mut self, at: Timestamp, event: Event<S, T>) {
        self.event_count += 1;
        self.events.insert((at, self.event_count), event);
    }
}

impl<S: Copy + Ord, T> Default for Hose<S, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
