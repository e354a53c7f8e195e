//! Which core a frame is for, and which connection a message takes.

use crate::id::{CallId, Incarnation, LinkNonce, NodeId, Path};
use crate::time::Timestamp;
use crate::wire::{Frame, Message};

use super::super::links::Way;
use super::super::participant::TaskRef;
use super::super::tree::Holder;
use super::super::{Arrival, Fault, Outbound, Transmit};
use super::{LOCAL, Node};

impl Node {
    pub(super) fn dispatch(
        &mut self,
        now: Timestamp,
        via: NodeId,
        link: LinkNonce,
        frame: Frame,
    ) -> Result<(), Fault> {
        let by = Arrival { via, from: frame.relayed_from.unwrap_or(via), link };
        let call = frame.header.call;
        match frame.message {
            Message::Request(request) => {
                if frame.relayed_from.is_some() {
                    return Err(Fault::Misrouted);
                }
                let me = self.identity.incarnation;
                let (header, links) = (frame.header, &mut self.links);
                self.participant.handle_request(now, by, header, request, links, me)?;
            }
            Message::Cancel(cancel) => {
                let is_initiators = self.incarnation_of(via) == Some(call.origin);
                let (header, links) = (&frame.header, &mut self.links);
                self.participant.handle_cancel(now, via, is_initiators, header, &cancel, links);
            }
            Message::Cast(cast) => {
                if frame.relayed_from.is_some() {
                    return Err(Fault::Misrouted);
                }
                self.handle_cast(now, via, call, cast);
            }
            Message::Probe(_) | Message::Credit(_) => self.dispatch_down(now, by, frame)?,
            Message::Reply(_)
            | Message::Manifest(_)
            | Message::Fail(_)
            | Message::Status(_)
            | Message::LinkDown(_) => self.dispatch_up(now, by, frame),
        }
        Ok(())
    }

    /// A frame on its way to the initiator: this node, or one to which it is relayed.
    pub(super) fn dispatch_up(&mut self, now: Timestamp, by: Arrival, frame: Frame) {
        if frame.header.call.origin == self.identity.incarnation {
            self.initiator.handle_frame(now, by, frame, &self.links);
        } else if frame.relayed_from.is_some() {
            self.participant.relay_up(now, by, frame, &mut self.links);
        }
        // Else it is for an earlier life of this node.
    }

    /// A frame of the initiator for a task: here, or further down where only this node's children are
    /// known.
    pub(super) fn dispatch_down(
        &mut self,
        now: Timestamp,
        by: Arrival,
        mut frame: Frame,
    ) -> Result<(), Fault> {
        let call = frame.header.call;
        let is_initiators = self.incarnation_of(by.via) == Some(call.origin);
        let by = match frame.relayed_from {
            None if !is_initiators => {
                return Err(Fault::NotInitiator);
            }
            None => by,
            Some(to) if to != self.identity.node => {
                self.participant.relay_down(by, is_initiators, frame);
                return Ok(());
            }
            Some(_) => {
                let Some(origin) = self.participant.initiator_of(call) else { return Ok(()) };
                let task = TaskRef { call, task: frame.header.task.clone() };
                match &mut frame.message {
                    Message::Probe(probe) => self.participant.restrict_probe(by, call, probe),
                    _ if !self.participant.is_upstream(by.via, &task) => return Ok(()),
                    _ => {}
                }
                Arrival { from: origin, ..by }
            }
        };
        let links = &mut self.links;
        match frame.message {
            Message::Probe(probe) => {
                self.participant.handle_probe(now, by, &frame.header, &probe, links);
            }
            Message::Credit(credit) => {
                let task = TaskRef { call, task: frame.header.task };
                let (index, limit) = (credit.index, credit.limit_bytes);
                self.participant.handle_credit(now, &task, index, limit, links);
            }
            _ => debug_assert!(false, "only these go down"),
        }
        Ok(())
    }

    pub(super) fn incarnation_of(&self, node: NodeId) -> Option<Incarnation> {
        if node == self.identity.node {
            Some(self.identity.incarnation)
        } else {
            self.links.incarnation(node)
        }
    }

    /// Moves what the cores want sent to connections, and this node's frames to itself back in.
    pub(super) fn pump(&mut self, now: Timestamp) {
        loop {
            if let Some(outbound) = self.initiator.poll_outbound() {
                self.send(now, outbound);
            } else if let Some(outbound) = self.participant.poll_outbound() {
                self.send(now, outbound);
            } else if let Some(frame) = self.loopback.pop_front() {
                let result = self.dispatch(now, self.identity.node, LOCAL, frame);
                debug_assert_eq!(result, Ok(()), "this node keeps the protocol with itself");
            } else {
                return;
            }
        }
    }

    pub(super) fn send(&mut self, now: Timestamp, outbound: Outbound) {
        let (to, lane) = (outbound.to, outbound.lane());
        let way = match outbound.link {
            Some(link) if to != self.identity.node => {
                // Bound to a connection: when it is gone, so is the frame.
                if !self.links.is_up(to, link) {
                    return;
                }
                Way::Up(link)
            }
            _ => self.links.way(now, to),
        };
        match way {
            Way::Local => self.loopback.push_back(outbound.into_frame()),
            Way::Up(link) => {
                if let Some((call, path)) = self.own_request(&outbound) {
                    let life = self.links.incarnation(to);
                    self.initiator.handle_sent(call, &path, link, life);
                } else if matches!(outbound.message, Message::Request(_)) {
                    self.participant.note_branch_link(&outbound.header, to, link);
                }
                let frame = outbound.into_frame();
                self.transmits.push_back(Transmit { to, link, lane, frame });
            }
            Way::Dialable => {
                // A question that finds no room says nothing of the node; it is asked again.
                if let Some(outbound) = self.links.wait(now, outbound)
                    && !matches!(outbound.message, Message::Probe(_))
                {
                    self.handle_undeliverable(now, outbound);
                }
            }
            Way::Dead => self.handle_undeliverable(now, outbound),
        }
    }

    /// The root branch that a request of this node's own call opens.
    pub(super) fn own_request(&self, outbound: &Outbound) -> Option<(CallId, Path)> {
        let (call, task) = (outbound.header.call, &outbound.header.task);
        let is_root = task.hop == 0 && task.path.level_count() == 1;
        let is_own = is_root && call.origin == self.identity.incarnation;
        let is_request = matches!(outbound.message, Message::Request(_));
        (is_own && is_request).then(|| (call, task.path.clone()))
    }

    pub(super) fn handle_undeliverable(&mut self, now: Timestamp, outbound: Outbound) {
        if let Some((call, path)) = self.own_request(&outbound) {
            let text = self.links.why_unreachable(outbound.to);
            self.initiator.handle_unsent(now, call, &path, text);
            return;
        }
        let Outbound { to, header, message, relayed_from, .. } = outbound;
        match message {
            Message::Request(request) => {
                let (links, entries) = (&mut self.links, request.inherited);
                self.participant.handle_unsent(now, &header, to, entries, links);
            }
            Message::Probe(probe) => {
                let asked =
                    Holder { node: relayed_from.unwrap_or(to), relay: relayed_from.map(|_| to) };
                self.initiator.handle_unasked(now, header.call, asked, &probe.tasks);
            }
            // Replies that had only this way are lost; the rest is repeated or not needed.
            _ => {}
        }
    }
}
