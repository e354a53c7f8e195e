//! Carries out what the parts want, under the lock as far as it must be.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_core::time::Timestamp;
use convoke_core::transport::parts::Wakers;
use convoke_core::transport::{CloseReason, Connection, Lane};

use crate::control::{Control, ControlEvent, ControlTransmit};
use crate::estimate::{Estimator, HeldBy};
use crate::event::{BroadcastError, Event, LinkEvent, Transmit, TransmitKind};
use crate::inbox::Delivery;
use crate::node::Backlog;
use crate::payload::Payload;
use crate::site::{Site, SiteSet};
use crate::wire::OpId;

use super::State;
use super::flows::Flows;

/// Work that is left to do without the lock.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    pub(super) flushes: Vec<Arc<dyn Connection>>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// Connections that have no room for data.
    pub(super) full: Vec<(Site, Arc<dyn Connection>)>,
    pub(super) wakers: Wakers,
    pub(super) rearm: bool,
    /// A link came up, or an operation is over.
    pub(super) has_settled: bool,
}

/// The first byte of an operation: whose it is.
const OF_APPLICATION: u8 = 0;
/// It is the body of requests or casts.
const OF_REQUESTS: u8 = 1;

/// An operation of the application: whose it is, and its bytes. Not made under the lock, since it
/// copies them.
pub(crate) fn of_application(payload: &[u8]) -> Bytes {
    tagged(OF_APPLICATION, payload)
}

/// The body of requests or casts, likewise.
pub(crate) fn of_requests(body: &[u8]) -> Bytes {
    tagged(OF_REQUESTS, body)
}

fn tagged(kind: u8, payload: &[u8]) -> Bytes {
    let mut whole = BytesMut::with_capacity(1 + payload.len());
    whole.put_u8(kind);
    whole.put_slice(payload);
    whole.freeze()
}

impl State {
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
        aftermath.rearm = self.poll_timeout() < self.armed;
    }

    /// Broadcasts what [`of_application`] or [`of_requests`] gives.
    pub(crate) fn broadcast(
        &mut self,
        now: Timestamp,
        whole: Bytes,
    ) -> Result<OpId, BroadcastError> {
        if self.is_closed {
            return Err(BroadcastError::Closed);
        }
        let bytes = whole.len() as u64 - 1;
        let op = self.node.broadcast(now, whole)?;
        if let Some(estimator) = &mut self.estimator {
            estimator.handle_offered(bytes);
        }
        Ok(op)
    }

    /// Sites that the body of a request of so many bytes would be brought to now; none where
    /// requests carry it themselves.
    pub(crate) fn receivers(&self, bytes: usize) -> Option<SiteSet> {
        let up = self.node.up();
        let takes = !self.is_leaving && !self.is_closed && self.node.is_ready(bytes);
        (takes && up.len() >= 2).then_some(up)
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
                Event::Ready => aftermath.wakers.append(&mut self.ready),
                Event::Suspect { relay, by, evidence } => {
                    tracing::warn!(?relay, ?by, ?evidence, "a relay is suspected");
                    self.suspect(now, relay, by, true);
                }
                Event::Trusted { relay, by } => {
                    tracing::info!(?relay, ?by, "a relay is trusted again");
                    self.suspect(now, relay, by, false);
                }
                Event::RelaysFail { relays } => {
                    tracing::info!(?relays, "relays fail");
                    if let Some(control) = &mut self.control {
                        control.handle_failing(relays);
                    }
                }
                Event::ShortOfCredit { streams } => {
                    tracing::warn!(streams, "the plan needs more memory than it may take");
                }
                Event::RoundTrip { site, rtt } => {
                    if let Some(estimator) = &mut self.estimator {
                        estimator.handle_rtt(now, site, rtt);
                    }
                }
                Event::Gap { source, life, from, to } => {
                    let gap = Delivery::Gap { source, life, from, to };
                    self.inbox.push(gap, &mut aftermath.wakers);
                }
                Event::Unavailable { op } => self.bodies.give_up(op),
            }
        }
    }

    fn deliver(&mut self, now: Timestamp, op: OpId, payload: Payload, aftermath: &mut Aftermath) {
        let count = payload.chunks().len() as u64;
        let mut payload = payload.into_bytes();
        if payload.is_empty() {
            return;
        }
        let kind = payload.split_to(1)[0];
        self.bodies.hand_out(op, count, &payload);
        match kind {
            OF_REQUESTS => self.bodies.insert(now, op, payload),
            // What a later version may send is not the application's.
            OF_APPLICATION => {
                self.inbox.push(Delivery::Operation { op, payload }, &mut aftermath.wakers);
                self.node.set_unread_bytes(self.inbox.bytes());
            }
            _ => tracing::debug!(?op, kind, "an operation of an unknown kind"),
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
                    tracing::info!(epoch = plan.epoch(), relays = ?plan.relays(), "another plan");
                    let taken = self.node.set_plan(now, (*plan).clone());
                    taken.map(|()| self.plan = plan)
                }
                ControlEvent::Contingency(relays, plan) => {
                    self.node.set_contingency(now, relays, (*plan).clone())
                }
            };
            if let Err(refused) = taken {
                tracing::warn!(%refused, "a plan is not used");
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
            Err(refused) => {
                tracing::debug!(?to, ?lane, %refused, "no flow takes a frame");
                return;
            }
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
