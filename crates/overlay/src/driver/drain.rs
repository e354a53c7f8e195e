//! Carries out what the parts want, under the lock as far as it must be.

use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::Bytes;
use convoke_core::time::Timestamp;
use convoke_core::transport::parts::Wakers;
use convoke_core::transport::{CloseReason, Connection, Lane};

use crate::bodies::Told;
use crate::control::{Control, ControlEvent, ControlTransmit};
use crate::estimate::{Estimator, HeldBy};
use crate::event::{BroadcastError, Event, LinkEvent, Transmit, TransmitKind};
use crate::inbox::Arrived;
use crate::node::Backlog;
use crate::payload::Payload;
use crate::site::{Site, SiteSet};
use crate::wire::OpId;

use super::State;
use super::flows::Flows;
use super::unsaid::Unsaid;

/// Work that is left to do without the lock.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    pub(super) flushes: Vec<Arc<dyn Connection>>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// Connections that have no room for data.
    pub(super) full: Vec<(Site, Arc<dyn Connection>)>,
    pub(super) wakers: Wakers,
    /// Those who waited for bodies.
    pub(super) told: Told,
    pub(super) unsaid: Vec<Unsaid>,
    pub(super) rearm: bool,
    /// A link came up, or an operation is over.
    pub(super) has_settled: bool,
}

impl State {
    #[cfg(feature = "metrics")]
    pub(super) fn seen(&self) -> crate::meters::Seen {
        let node = &self.node;
        crate::meters::Seen {
            counters: node.counters(),
            load: node.load(),
            traffic: node.traffic().to_vec(),
            suspects: node.suspects(),
            failing: node.failing(),
        }
    }

    pub(super) fn drain(&mut self, now: Timestamp, aftermath: &mut Aftermath) {
        if self.is_closed {
            return;
        }
        loop {
            self.drain_events(now, aftermath);
            self.drain_control(now, aftermath);
            let Some(transmit) = self.node.poll_transmit(now) else { break };
            self.send(now, transmit, aftermath);
        }
        self.note_backlog(now);
        aftermath.has_settled |= self.is_leaving && self.is_drained();
        aftermath.rearm = self.poll_timeout() < self.armed;
    }

    /// Sends an operation of the application to all other sites.
    pub(crate) fn broadcast(
        &mut self,
        now: Timestamp,
        payload: Bytes,
    ) -> Result<OpId, BroadcastError> {
        if self.is_closed {
            return Err(BroadcastError::Closed);
        }
        let bytes = payload.len() as u64;
        let op = self.node.broadcast(now, payload)?;
        self.note_offered(bytes);
        Ok(op)
    }

    /// Brings the body of requests to some sites.
    pub(crate) fn bring(
        &mut self,
        now: Timestamp,
        body: Bytes,
        to: SiteSet,
    ) -> Result<OpId, BroadcastError> {
        if self.is_closed || self.is_leaving {
            return Err(BroadcastError::Closed);
        }
        let (bytes, others) = (body.len() as u64, self.node.sites() as u64 - 1);
        let op = self.node.bring(now, body, to)?;
        // Demand is of broadcasts: one to half of the sites takes half as much.
        self.note_offered(bytes * to.len() as u64 / others);
        Ok(op)
    }

    /// The oldest delivery, and whether its source waits to be asked for what found no room; `None`
    /// when it is closed, and all were read.
    pub(super) fn poll_next(&mut self) -> Poll<Option<(Arrived, bool)>> {
        let Some(arrived) = ready!(self.inbox.poll_next()) else { return Poll::Ready(None) };
        let source = arrived.source();
        self.node.handle_read(source, arrived.cost());
        Poll::Ready(Some((arrived, self.node.has_turned_away(source))))
    }

    fn note_offered(&mut self, bytes: u64) {
        if let Some(estimator) = &mut self.estimator {
            estimator.handle_offered(bytes);
        }
    }

    /// True when nobody is owed anything, of this site or by it.
    pub(super) fn is_drained(&self) -> bool {
        let load = self.node.load();
        load.unacked_chunks == 0 && load.forward_bytes == 0
    }

    /// Those of `to` that the body of a request of so many bytes would be brought to now; `None`
    /// where requests carry it themselves.
    pub(crate) fn receivers(&self, to: SiteSet, bytes: usize) -> Option<SiteSet> {
        let to = to.intersection(self.node.up()).difference(self.node.leaving());
        let takes = !self.is_leaving && !self.is_closed && self.node.is_ready(bytes);
        (takes && to.len() >= 2).then_some(to)
    }

    fn drain_events(&mut self, now: Timestamp, aftermath: &mut Aftermath) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Delivered { op, payload } => self.deliver(now, op, payload, aftermath),
                Event::Acked { op, by, .. } => self.watched.acked(op, by, &mut aftermath.wakers),
                Event::AllAcked { op, missed } => {
                    aftermath.has_settled = true;
                    self.watched.over(op, missed, &mut aftermath.wakers);
                }
                Event::Ready => self.offers.wake(&mut aftermath.wakers),
                Event::Suspect { relay, by, evidence } => {
                    if let Some(left_out) = self.suspected.pass() {
                        aftermath.unsaid.push(Unsaid::Suspected { relay, by, evidence, left_out });
                    }
                    self.suspect(now, relay, by, true);
                }
                Event::Trusted { relay, by } => {
                    if let Some(left_out) = self.suspected.pass() {
                        aftermath.unsaid.push(Unsaid::Trusted { relay, by, left_out });
                    }
                    self.suspect(now, relay, by, false);
                }
                // A plan is made for what is true after all of them.
                Event::RelaysFail { relays } => {
                    if let Some(left_out) = self.suspected.pass() {
                        aftermath.unsaid.push(Unsaid::Failing { relays, left_out });
                    }
                }
                Event::ShortOfCredit { streams } => {
                    aftermath.unsaid.push(Unsaid::ShortOfCredit { streams });
                }
                Event::RoundTrip { site, rtt } => {
                    if let Some(estimator) = &mut self.estimator {
                        estimator.handle_rtt(now, site, rtt);
                    }
                }
                Event::Gap { source, life, from, to } => {
                    self.arrive(Arrived::Gap { source, life, from, to }, aftermath);
                }
                Event::Unavailable { op } => self.bodies.give_up(op, &mut aftermath.told),
            }
        }
        if let Some(control) = &mut self.control {
            control.handle_failing(now, self.node.lacking());
        }
    }

    fn deliver(&mut self, now: Timestamp, op: OpId, payload: Payload, aftermath: &mut Aftermath) {
        let count = payload.chunks().len() as u64;
        self.bodies.hand_out(op, count, &payload, &mut aftermath.told);
        if payload.is_body() {
            self.bodies.insert(now, op, payload);
        } else {
            self.arrive(Arrived::Operation { op, payload }, aftermath);
        }
    }

    /// Lets the application read it, and counts it until then.
    fn arrive(&mut self, arrived: Arrived, aftermath: &mut Aftermath) {
        let (source, bytes) = (arrived.source(), arrived.cost());
        if self.inbox.push(arrived, &mut aftermath.wakers) {
            self.node.handle_unread(source, bytes);
        }
    }

    fn suspect(&mut self, now: Timestamp, relay: Site, by: Site, is_suspect: bool) {
        if let Some(control) = self.control.as_mut().filter(|_| by == self.node.me()) {
            control.handle_suspicion(now, relay, is_suspect);
        }
    }

    fn drain_control(&mut self, now: Timestamp, aftermath: &mut Aftermath) {
        while let Some(transmit) = self.control.as_mut().and_then(Control::poll_transmit) {
            let ControlTransmit { to, message } = transmit;
            let bytes = Bytes::from(message.encode());
            to.iter().for_each(|site| self.send_control(now, site, &bytes, aftermath));
        }
        while let Some(event) = self.control.as_mut().and_then(Control::poll_event) {
            let taken = match event {
                ControlEvent::Plan(plan) => {
                    let (epoch, relays) = (plan.epoch(), plan.relays());
                    aftermath.unsaid.push(Unsaid::Plan { epoch, relays });
                    let taken = self.node.set_plan(now, (*plan).clone());
                    taken.map(|()| self.plan = plan)
                }
                ControlEvent::Contingency(relays, plan) => {
                    self.node.set_contingency(now, relays, (*plan).clone())
                }
            };
            if let Err(refused) = taken {
                aftermath.unsaid.push(Unsaid::Refused(refused));
            }
        }
    }

    fn send(&mut self, now: Timestamp, transmit: Transmit, aftermath: &mut Aftermath) {
        let Transmit { to, kind, frame } = transmit;
        let mut head = Vec::with_capacity(32);
        frame.encode_head(&mut head);
        let body = frame.into_payload();
        let lane = match kind {
            TransmitKind::Control => Lane::Control,
            TransmitKind::Data => Lane::Data,
        };
        self.append(now, to, lane, &head, &body, aftermath);
    }

    pub(super) fn send_control(
        &mut self,
        now: Timestamp,
        to: Site,
        frame: &Bytes,
        aftermath: &mut Aftermath,
    ) {
        self.append(now, to, Lane::Control, frame, &Bytes::new(), aftermath);
    }

    /// A frame that no flow takes is lost: its flows are about to close, or the peer does not read
    /// what is for the control lane. The timers of the node repeat what mattered.
    fn append(
        &mut self,
        now: Timestamp,
        to: Site,
        lane: Lane,
        head: &[u8],
        body: &Bytes,
        aftermath: &mut Aftermath,
    ) {
        let flows = &mut self.flows[to.index()];
        let taken = match flows.append(lane, head, body) {
            Ok(taken) => taken,
            Err(refused) => return aftermath.unsaid.push(Unsaid::Lost { to, lane, refused }),
        };
        if taken.has_filled {
            aftermath.full.push((to, taken.connection.clone()));
            if !flows.is_writable() {
                self.node.handle_link(now, to, LinkEvent::Blocked);
            }
        }
        if !aftermath.flushes.iter().any(|one| Arc::ptr_eq(one, &taken.connection)) {
            aftermath.flushes.push(taken.connection);
        }
    }

    fn note_backlog(&mut self, now: Timestamp) {
        let Some(estimator) = &mut self.estimator else { return };
        let held_by = match self.node.backlog() {
            Backlog::Nothing => HeldBy::Application,
            Backlog::Paced => HeldBy::Pacing,
            Backlog::Blocked => HeldBy::Network,
        };
        estimator.handle_held_by(now, held_by);
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Timestamp) {
        self.node.handle_timeout(now);
        if let Some(estimator) = &mut self.estimator {
            if estimator.poll_timeout() <= now {
                // Not what connections have taken: their buffers take much at once, far above the
                // rate of the network.
                estimator.handle_sent(self.flows.iter_mut().map(Flows::take_sent).sum());
            }
            let has_changed = estimator.handle_timeout(now);
            let planned = self.plan.uplink_use(self.node.me());
            self.node.set_pacing(now, estimator.pacing_permille(planned));
            if let Some(control) = self.control.as_mut().filter(|_| has_changed) {
                let largest = control.largest_uplink(now);
                control.handle_estimate(now, estimator.estimate_beside(largest));
            }
        }
        if let Some(control) = self.control.as_mut()
            && control.poll_timeout().is_some_and(|at| at <= now)
        {
            control.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Timestamp {
        let control = self.control.as_ref().and_then(Control::poll_timeout);
        let estimator = self.estimator.as_ref().map(Estimator::poll_timeout);
        let parts = [self.node.poll_timeout(), control, estimator];
        parts.into_iter().flatten().min().unwrap_or(Timestamp::MAX)
    }
}
