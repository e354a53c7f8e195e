//! Frames on their way: uplinks, latency, loss, copies, and links that take no more.

use std::time::Duration;

use convoke_overlay::{Frame, LinkEvent, Site, Transmit, TransmitKind};

use super::{Event, Flight, World, pair};

impl World {
    pub(super) fn transmit(&mut self, from: Site, transmit: Transmit) {
        let Transmit { to, kind, frame } = transmit;
        let generation = self.links[&pair(from, to)].generation;
        let is_up = self.links[&pair(from, to)].is_up;
        self.oracle.on_frame(from, to, &frame);
        let bytes = frame.to_bytes();
        let lives = [from, to].map(|site| (site, self.hosts[site.index()].life));
        let flight = Flight { from: lives[0], to: lives[1], generation, kind, bytes };
        if !is_up {
            return; // Its sender does not know yet.
        }
        let is_of_another = match &frame {
            Frame::Data(data) => data.op.source != from,
            Frame::Passed(passed) => passed.from != from,
            _ => false,
        };
        if is_of_another && self.conditions.drops.contains(from) {
            return;
        }
        if kind == TransmitKind::Control {
            self.fly(flight);
            return;
        }
        let len = flight.bytes.len();
        let in_flight = self.in_flight.entry((from, to)).or_default();
        *in_flight += len;
        if *in_flight > self.conditions.link_bytes && !self.blocked.contains_key(&(from, to)) {
            self.blocked.insert((from, to), true);
            let node = self.hosts[from.index()].node.as_mut().expect("it transmits");
            node.handle_link(self.now, to, LinkEvent::Blocked);
        }
        let host = &mut self.hosts[from.index()];
        let nanos = self.conditions.uplink.map_or(0, |rate| len as u64 * 8_000_000 / rate);
        host.uplink_free_at = host.uplink_free_at.max(self.now) + Duration::from_nanos(nanos);
        let delay = host.uplink_free_at - self.now;
        self.after(delay, Event::Depart { flight });
    }

    pub(super) fn depart(&mut self, flight: Flight) {
        // What has not left by then dies with its sender.
        if !self.ended.contains_key(&flight.from) {
            self.fly(flight);
        }
    }

    fn fly(&mut self, flight: Flight) {
        if self.random.per_mille(self.conditions.loss_per_mille) {
            self.land(&flight);
            return;
        }
        let copies = if self.random.per_mille(self.conditions.copy_per_mille) { 2 } else { 1 };
        for _ in 0..copies {
            let jitter = u64::try_from(self.conditions.jitter.as_micros()).unwrap();
            let delay = self.conditions.latency + self.random.micros(0..jitter.max(1));
            let delay = delay.max(self.downlink_delay(&flight));
            self.after(delay, Event::Arrive { flight: flight.clone() });
        }
    }

    /// Time that what is before it on the downlink of its receiver leaves a frame to wait, and its
    /// own.
    fn downlink_delay(&mut self, flight: &Flight) -> Duration {
        let (to, kind) = (flight.to.0, flight.kind);
        let is_slow = |(site, _): &(Site, u64)| *site == to && kind != TransmitKind::Control;
        let Some((_, rate)) = self.conditions.downlink.filter(is_slow) else {
            return Duration::ZERO;
        };
        let host = &mut self.hosts[to.index()];
        let nanos = flight.bytes.len() as u64 * 8_000_000 / rate;
        host.downlink_free_at = host.downlink_free_at.max(self.now) + Duration::from_nanos(nanos);
        host.downlink_free_at - self.now
    }

    pub(super) fn arrive(&mut self, flight: Flight) {
        let to = &mut self.hosts[flight.to.0.index()];
        if !to.is_reading && to.node.is_some() {
            to.backlog.push(flight);
            return;
        }
        self.land(&flight);
        let (from, generation) = (flight.from.0, flight.generation);
        let link = self.links[&pair(from, flight.to.0)];
        // What was in flight over a link that went down may come, until its receiver is told, or
        // not.
        let is_stale = if link.is_up {
            link.generation != generation
        } else {
            link.generation != generation + 1 || self.random.chance(50)
        };
        let (host, now) = (&mut self.hosts[flight.to.0.index()], self.now);
        let Some(node) = &mut host.node else { return };
        if is_stale || host.life != flight.to.1 {
            return;
        }
        let frame = Frame::decode(&flight.bytes).expect("nodes send frames");
        node.handle_frame(now, from, frame).expect("nodes keep to the rules");
        self.settle(flight.to.0);
    }

    /// The link has room again.
    fn land(&mut self, flight: &Flight) {
        let (from, to) = (flight.from.0, flight.to.0);
        let is_current = self.links[&pair(from, to)].generation == flight.generation;
        if flight.kind == TransmitKind::Control || !is_current {
            return;
        }
        let in_flight = self.in_flight.entry((from, to)).or_default();
        *in_flight = in_flight.saturating_sub(flight.bytes.len());
        if *in_flight <= self.conditions.link_bytes / 2
            && self.blocked.remove(&(from, to)).is_some()
        {
            let generation = flight.generation;
            self.on_link(from, to, generation, LinkEvent::Writable);
        }
    }
}
