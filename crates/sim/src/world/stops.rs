//! Nodes that stop in good order, as an endpoint does that shuts down, and words about connections.

use std::time::Duration;

use convoke_proto::Fault;
use convoke_proto::id::{CallId, LinkNonce};
use convoke_proto::link::Lane;
use convoke_proto::parting::{LinkName, Partings};
use convoke_proto::wire::{Frame, Message, Parting};

use crate::network::Place;

use super::World;
use super::event::Event;

/// A node that takes no requests any more.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) partings: Partings,
    /// Time from its end to its next start.
    starts_after: Duration,
}

impl World {
    /// A node takes no requests any more. It closes once nothing runs, and nothing is on its way.
    pub(super) fn stop(&mut self, place: Place, starts_after: Duration) {
        let host = &self.hosts[place];
        if !host.is_up() || host.is_paused || host.stopping.is_some() {
            return;
        }
        let mut partings = Partings::default();
        host.links.keys().for_each(|link| partings.begin(self.link_name(place, *link)));
        let id = host.id;
        self.oracle.stopped.insert(id);
        self.hosts[place].stopping = Some(Stopping { partings, starts_after });
        self.drive_each(place, |node, now| _ = node.begin_shutdown(now));
    }

    /// A connection of a node is up: one that stops has said so by it.
    pub(super) fn note_opened(&mut self, place: Place, link: LinkNonce) {
        let name = self.link_name(place, link);
        if let Some(stopping) = &mut self.hosts[place].stopping {
            stopping.partings.begin(name);
        }
    }

    /// A word about a connection has come by it.
    pub(super) fn hear(&mut self, at: Place, link: LinkNonce, frame: Frame) -> Result<(), String> {
        let Frame { relayed: None, message: Message::Parting(word), .. } = frame else {
            return Err(Fault::Misrouted.to_string());
        };
        let (now, name) = (self.now, self.link_name(at, link));
        let host = &mut self.hosts[at];
        match word {
            Parting::Leaving => {
                let ids = host.links.get(&link).map_or(&[][..], Vec::as_slice);
                let mut sent = 0;
                for (core, id) in host.cores.iter_mut().zip(ids).rev() {
                    sent = core.handle_leaving(now, *id, sent);
                }
            }
            Parting::Sent(requests) => {
                if let Some(stopping) = &mut host.stopping {
                    stopping.partings.handle_sent(name, requests);
                }
            }
        }
        Ok(())
    }

    /// Compares what has come by a connection with what its peer says that it has sent.
    pub(super) fn note_come(&mut self, at: Place, link: LinkNonce) {
        let name = self.link_name(at, link);
        let host = &mut self.hosts[at];
        if let (Some(stopping), Some(ids)) = (&mut host.stopping, host.links.get(&link)) {
            let come = host.cores.iter().zip(ids).map(|(core, id)| core.requests_by(*id));
            stopping.partings.handle_come(name, come.sum());
        }
    }

    pub(super) fn link_name(&self, at: Place, link: LinkNonce) -> LinkName {
        (self.hosts[self.peer_end(link, at).place].id, link)
    }

    /// Has a node close that stops, when it may.
    pub(super) fn close_if_parted(&mut self, place: Place) {
        if self.has_parted(place) {
            let end = self.hosts[place].end();
            self.schedule_in(Duration::ZERO, Event::Close { end });
        }
    }

    /// A node closes, unless it has something to do again.
    pub(super) fn on_close(&mut self, place: Place) {
        if !self.has_parted(place) {
            return;
        }
        let is_lost = |(_, event): &(_, &Event)| match event {
            Event::Frame { to, frame, .. } if to.place == place => {
                matches!(
                    Frame::decode(frame.clone()),
                    Ok(Frame { message: Message::Request(_), .. })
                )
            }
            _ => false,
        };
        if self.queue.iter().any(|entry| is_lost(&entry)) {
            let message = format!("{} closes, and a request for it is lost", self.hosts[place].id);
            self.violate("I52: nothing is on its way to a node that closes in good order", message);
        }
        self.close(place);
    }

    /// A node that stops, if this one does, closes its connections, behind all that it has sent.
    pub(super) fn close(&mut self, place: Place) {
        let Some(stopping) = self.hosts[place].stopping.take() else { return };
        let own: Vec<CallId> = self.hosts[place].watched.iter().copied().collect();
        own.into_iter().for_each(|call| self.note_cancel(call));
        self.drive_each(place, |node, now| node.end_calls(now));
        self.trace.note(self.now, || format!("{} closes", self.hosts[place].id));
        self.forget_host(place);
        for link in self.network.of(place) {
            let peer = self.peer_end(link, place);
            let delay = self.network.latency(place, peer.place, Lane::Control, 0);
            let at = self.network.last_arrival(link, peer.place).max(self.now + delay);
            self.network.cut(link);
            self.schedule(at, Event::LinkDown { end: peer, link });
        }
        self.schedule_in(stopping.starts_after, Event::Restart(place));
    }

    fn has_parted(&self, place: Place) -> bool {
        let host = &self.hosts[place];
        let has_ended = || {
            host.cores.iter().all(|core| {
                let runs = core.visits().running_count() + core.initiator().open_count() > 0;
                !runs && !core.waits_for_dial()
            })
        };
        host.stopping.as_ref().is_some_and(|stopping| stopping.partings.are_over()) && has_ended()
    }
}
