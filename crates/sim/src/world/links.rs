//! Connections and frames: what the driver and the transport do in a real node.

use std::time::Duration;

use bytes::Bytes;
use convoke_proto::address::Address;
use convoke_proto::id::{LinkNonce, NodeId};
use convoke_proto::link::{Lane, Link};
use convoke_proto::outbox::{Destination, Transmit};
use convoke_proto::wire::{ABOUT_CONNECTION, Cause, Executed, Frame, Message};

use crate::invariants::Observation;
use crate::network::{Arrival, End, Place};
use crate::oracle::TaskName;
use crate::trace::Hop;

use super::World;
use super::event::Event;
use super::host::{listens, place_of};

/// One in so many connections has room for one frame at a time of what can wait.
const NARROW_LINKS: u64 = 4;

/// Time after a frame until such a connection has room again.
const ROOM_AFTER: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn on_room(&mut self, place: Place, core: usize, link: LinkNonce) {
        let host = &mut self.hosts[place];
        let id = host.links.get(&link).and_then(|ids| ids.get(core)).copied();
        if let Some((id, node)) = id.zip(host.cores.get_mut(core)) {
            node.handle_room(self.now, id);
            self.settle(place);
        }
    }

    pub(super) fn transmit(&mut self, from: Place, core: usize, transmit: Transmit) {
        let Transmit { to: Destination { to, link, lane }, frame } = transmit;
        let node = &self.hosts[from].cores[core];
        let is_full = lane == Lane::Data && node.outbox().full.contains(&link);
        let Some(link) = node.links().nonce(link) else { return };
        if is_full {
            let end = self.hosts[from].end();
            self.schedule_in(ROOM_AFTER, Event::Room { end, core, link });
        }
        if self.scenario.liars.contains(&from) {
            return self.transmit_altered(from, link, lane, frame);
        }
        self.check_for_liars(from, to, &frame);
        let bytes = frame.to_bytes();
        let hop = Hop { verb: "send", from: self.hosts[from].id, to, lane };
        self.trace.frame(self.now, &hop, &bytes, &frame);
        self.oracle.count(self.hosts[from].id, &frame);
        let seen = Observation::Sent { from: self.hosts[from].id, to, lane, frame: &frame };
        self.observe(&seen);
        if let Some(task) = refused_for_lack_of_room(self.hosts[from].id, &frame) {
            self.hosts[from].turned_away.insert(task);
        }
        // A request that never left; its sender says so once.
        if matches!(&frame.message, Message::Fail(fail) if fail.node.is_some()) {
            self.oracle.hurt(&TaskName::of(frame.header.call, frame.header.task.clone()));
        }
        let late_max = self.late_max(&frame);
        self.send_bytes(from, link, (lane, &bytes), late_max);
    }

    /// A frame was lost with its connection: if it was to open a branch, that was hurt.
    fn note_lost(&mut self, frame: &Bytes) {
        let Ok(Frame { header, message, .. }) = Frame::decode(frame.clone()) else { return };
        if matches!(message, Message::Request(_)) {
            self.oracle.hurt(&TaskName::of(header.call, header.task));
        }
    }

    /// Longest delay of a copy of a frame. That of a request comes while the request may be
    /// remembered: no connection lives with a frame that is older than that (`settlement.md` I28).
    fn late_max(&self, frame: &Frame) -> Duration {
        let remembered = self.scenario.limits.keep_alive_timeout;
        match &frame.message {
            Message::Request(request) => Duration::from_micros(request.budget_us) + remembered,
            _ => Duration::from_micros(self.scenario.workload.budget_us.end) + remembered * 3,
        }
    }

    pub(super) fn send_bytes(
        &mut self,
        from: Place,
        link: LinkNonce,
        (lane, bytes): (Lane, &Bytes),
        late_max: Duration,
    ) {
        let Some(wire) = self.network.wire(link) else { return };
        let end = wire.ends[1 - wire.side(from)];
        let arrivals = self.network.send(self.now, from, link, (lane, bytes.len()), late_max);
        if arrivals.is_empty() {
            self.note_lost(bytes);
            self.trace
                .note(self.now, || format!("a frame to {} is lost", self.hosts[end.place].id));
        }
        for at in arrivals {
            self.schedule(at, Event::Frame { to: end, link, lane, frame: bytes.clone() });
        }
    }

    pub(super) fn on_frame(&mut self, to: End, link: LinkNonce, lane: Lane, frame: Bytes) {
        match self.network.arrive(to.place, link, lane, frame.clone()) {
            Arrival::Taken(frame) => self.take_frame(to.place, link, lane, &frame),
            Arrival::Stalled => {}
            Arrival::Dropped => {
                self.trace.note(self.now, || {
                    format!("a frame to {} is lost with its connection", self.hosts[to.place].id)
                });
                self.note_lost(&frame);
            }
        }
    }

    fn take_frame(&mut self, to: Place, link: LinkNonce, lane: Lane, bytes: &Bytes) {
        let Some(wire) = self.network.wire(link) else { return };
        let via = self.hosts[wire.ends[1 - wire.side(to)].place].id;
        if self.oracle.liars.contains(&via) {
            return self.take_lie(to, link, lane, bytes);
        }
        let frame = match Frame::decode(bytes.clone()) {
            Ok(frame) if frame.to_bytes() == *bytes => frame,
            other => {
                let message = format!("a frame of {via} was decoded as {other:?}");
                return self.violate("I23 (completion.md section 4)", message);
            }
        };
        let hop = Hop { verb: "take", from: via, to: self.hosts[to].id, lane };
        self.trace.frame(self.now, &hop, &[], &frame);
        if self.is_copy_of_refused(to, &frame) {
            return self
                .trace
                .note(self.now, || "a copy of what was refused is dropped".to_owned());
        }
        let tells = matches!(frame.message, Message::Request(_) | Message::Settled(_));
        self.learn(to, &frame);
        self.note_heard(to, via, &frame);
        let name = frame.message.name();
        let result = self.take_bytes(to, link, bytes);
        self.settle(to);
        if tells {
            self.look_at_settled(to);
        }
        if let Err(fault) = result {
            self.violate("no fault among correct nodes", format!("{name} of {via}: {fault}"));
        }
    }

    /// Gives a frame, or each part of it, to the core that it is for.
    pub(super) fn take_bytes(
        &mut self,
        to: Place,
        link: LinkNonce,
        bytes: &Bytes,
    ) -> Result<(), String> {
        if bytes.first() == Some(&ABOUT_CONNECTION) {
            let frame = Frame::decode(bytes.clone()).map_err(|error| error.to_string())?;
            self.hear(to, link, frame)?;
        } else {
            self.take_call_bytes(to, link, bytes)?;
        }
        self.note_come(to, link);
        Ok(())
    }

    fn take_call_bytes(&mut self, to: Place, link: LinkNonce, bytes: &Bytes) -> Result<(), String> {
        let (now, host) = (self.now, &mut self.hosts[to]);
        let routes = host.routes();
        let parts = match routes.of_frame(bytes) {
            Some(core) => vec![(core, bytes.clone())],
            None => {
                let frame = Frame::decode(bytes.clone()).map_err(|error| error.to_string())?;
                let parts = routes.parts(frame).into_iter();
                parts.map(|(core, part)| (core, part.to_bytes())).collect()
            }
        };
        let Some(ids) = host.links.get(&link).cloned() else { return Ok(()) };
        parts.into_iter().try_for_each(|(core, part)| {
            host.hear(core, ids[core]);
            let taken = host.cores[core].handle_bytes(now, ids[core], part);
            host.tell();
            taken.map_err(|fault| fault.to_string())
        })
    }

    /// A node that has no room for a request has none for remembering it either. It says that the
    /// task did not run, and takes that a connection delivers a request once, as all of ours do: a
    /// copy could run when there is room again. So nothing delivers such copies here.
    fn is_copy_of_refused(&self, to: Place, frame: &Frame) -> bool {
        let refused = &self.hosts[to].turned_away;
        matches!(frame.message, Message::Request(_))
            && refused.contains(&TaskName::of(frame.header.call, frame.header.task.clone()))
    }

    /// A node may have learnt which calls are settled: those that are not must not be among them.
    pub(super) fn look_at_settled(&mut self, at: Place) {
        let host = &self.hosts[at];
        let open = self.oracle.calls.iter().filter(|(_, truth)| truth.settled_at.is_none());
        let mut known = open.filter(|(_, truth)| !truth.is_orphan);
        let wrong = known.find(|(call, truth)| {
            host.core_of(**call).is_some_and(|node| node.visits().has_settled(truth.node, **call))
        });
        if let Some((call, _)) = wrong.map(|(call, truth)| (*call, truth.node)) {
            let message = format!("{} takes {call:?} for settled", self.hosts[at].id);
            self.violate("I27: no request of an unsettled call is refused as settled", message);
        }
    }

    pub(super) fn dial(&mut self, place: Place, node: NodeId, addresses: &[Address]) {
        let from = self.hosts[place].end();
        let to = addresses.first().and_then(|address| address.rest().parse().ok());
        self.trace.note(self.now, || format!("{} dials {node}", self.hosts[place].id));
        let Some(to) = to else {
            let peer = place_of(node);
            return self.schedule_in(Duration::ZERO, Event::DialFailed { end: from, peer });
        };
        let (total, succeeds) = self.network.dial(place, to);
        let back = total / 2;
        self.schedule_in(total - back, Event::Accept { from, to, back, succeeds });
    }

    pub(super) fn on_accept(&mut self, from: End, to: Place, back: Duration, succeeds: bool) {
        let is_blocked =
            self.network.is_blocked(from.place, to) || self.network.is_blocked(to, from.place);
        let host = &self.hosts[to];
        let is_there = host.is_up()
            && !host.is_paused
            && host.stopping.is_none()
            && listens(&self.scenario, to);
        let dialler = &self.hosts[from.place];
        if dialler.life != from.life || !dialler.is_up() {
            return;
        }
        if !succeeds || is_blocked || !is_there {
            return self.schedule_in(back, Event::DialFailed { end: from, peer: to });
        }
        let end = host.end();
        let link = self.network.open([from, end], [self.now + back, self.now]);
        // In this order: what the acceptor sends at once comes behind.
        self.schedule_in(back, Event::LinkUp { end: from, link });
        self.on_link_up(end, link);
    }

    pub(super) fn on_link_up(&mut self, end: End, link: LinkNonce) {
        let Some(wire) = self.network.wire(link) else { return };
        let side = wire.side(end.place);
        let peer = wire.ends[1 - side].place;
        if !self.network.rise(end, link) {
            // It broke before this end heard of it.
            if side == 0 {
                self.on_dial_failed(end, peer);
            }
            return;
        }
        let link = Link {
            peer: self.hello_of(peer, link),
            nonce: link,
            is_dialler: side == 0,
            scheme: "sim",
            principal: None,
            remote: None,
        };
        self.trace
            .note(self.now, || format!("{} up to {}", self.hosts[end.place].id, link.peer.node));
        if side == 0 {
            self.hosts[end.place].dialling.remove(&link.peer.node);
        }
        let (now, host) = (self.now, &mut self.hosts[end.place]);
        let cores = host.cores.iter_mut();
        let is_narrow = link.nonce.0.is_multiple_of(NARROW_LINKS);
        let up = cores.map(|node| {
            let id = node.handle_link_up(now, &link, |_, _| ());
            if is_narrow {
                node.outbox_mut().full.insert(id);
            }
            id
        });
        let ids = up.collect();
        host.links.insert(link.nonce, ids);
        self.note_opened(end.place, link.nonce);
        self.settle(end.place);
    }

    pub(super) fn on_link_down(&mut self, end: End, link: LinkNonce) {
        if !self.network.fall(end, link) {
            return;
        }
        let wire = self.network.wire(link).expect("it just fell");
        let peer = self.hosts[wire.ends[1 - wire.side(end.place)].place].id;
        let me = self.hosts[end.place].id;
        self.oracle.troubled.extend([me, peer]);
        self.trace.note(self.now, || format!("{me} down to {peer}"));
        self.tell_link_down(end.place, link);
        self.settle(end.place);
    }

    /// Tells each core that a connection has ended.
    pub(super) fn tell_link_down(&mut self, place: Place, link: LinkNonce) {
        let (now, name) = (self.now, self.link_name(place, link));
        let host = &mut self.hosts[place];
        if let Some(stopping) = &mut host.stopping {
            stopping.partings.end(name);
        }
        let ids = host.links.remove(&link).unwrap_or_default();
        for (core, id) in host.cores.iter_mut().zip(ids) {
            core.handle_link_down(now, id);
        }
    }

    pub(super) fn on_dial_failed(&mut self, end: End, peer: Place) {
        let peer = self.hosts[peer].id;
        self.oracle.troubled.insert(peer);
        self.trace.note(self.now, || format!("{} cannot dial {peer}", self.hosts[end.place].id));
        self.hosts[end.place].dialling.remove(&peer);
        self.drive_each(end.place, |node, now| node.handle_dial_failed(now, peer));
    }

    /// The driver closes a connection of its own will.
    pub(super) fn reset(&mut self, place: Place, link: LinkNonce) {
        let end = self.hosts[place].end();
        let Some(wire) = self.network.wire(link) else { return };
        let other = wire.ends[1 - wire.side(place)];
        self.oracle.troubled.extend([self.hosts[place].id, self.hosts[other.place].id]);
        self.network.fall(end, link);
        let delay = self.network.latency(place, other.place, Lane::Control, 0);
        self.schedule_in(delay, Event::LinkDown { end: other, link });
    }

    /// Breaks a connection: each end learns of it at its own time.
    pub(super) fn cut(&mut self, link: LinkNonce) {
        if !self.network.cut(link) {
            return;
        }
        let Some(wire) = self.network.wire(link) else { return };
        for end in wire.ends {
            let delay = self.random.micros(0..8_000);
            self.schedule_in(delay, Event::LinkDown { end, link });
        }
    }
}

/// The task that a node says it has no room for, of which it keeps nothing.
fn refused_for_lack_of_room(node: NodeId, frame: &Frame) -> Option<TaskName> {
    let Message::Fail(fail) = &frame.message else { return None };
    let is_refusal = (fail.cause, fail.executed) == (Cause::Overloaded, Executed::No);
    let name = || TaskName::of(frame.header.call, frame.header.task.clone());
    let is_own = frame.relayed.is_none_or(|relayed| relayed.node == node);
    (is_refusal && is_own && fail.entry.is_none()).then(name)
}
