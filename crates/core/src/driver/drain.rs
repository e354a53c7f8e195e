//! What the node wants done: frames go to the connections' buffers under the lock, the rest is
//! sorted into what needs the endpoint's maps and what must wait until the lock is released.

use std::sync::Arc;
use std::task::Waker;

use convoke_proto::Transmit;
use convoke_proto::node::{NodeEvent, ResetReason};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::VisitEvent;
use convoke_proto::wire::Message;
use smallvec::SmallVec;

use crate::transport::{Appended, CloseReason, Connection, Lane, NotWritable};

use super::caller::CallerFlush;
use super::{Attached, FlushScope, State};

/// What is left to do once the lock is released.
#[derive(Default)]
pub(super) struct Aftermath {
    pub(super) events: SmallVec<[NodeEvent; 4]>,
    pub(super) wakers: SmallVec<[Waker; 4]>,
    /// When the frames are those of a caller: how they leave. Else with the open [`FlushScope`].
    pub(super) caller: Option<CallerFlush>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// For these, cancels have begun to wait.
    pub(super) held: Vec<Arc<dyn Connection>>,
    pub(super) rearm: bool,
    pub(super) is_closing: bool,
}

impl Aftermath {
    pub(super) fn is_nothing(&self) -> bool {
        let is_quiet = self.events.is_empty() && self.wakers.is_empty() && !self.rearm;
        is_quiet && self.closes.is_empty() && self.held.is_empty() && !self.is_closing
    }
}

impl State {
    /// Hands frames to connections and sorts events into what needs the maps and what must wait
    /// until the lock is released.
    pub(super) fn drain(&mut self, now: Timestamp, aftermath: &mut Aftermath) {
        loop {
            while let Some(transmit) = self.node.poll_transmit(now) {
                self.transmit(now, transmit, aftermath);
            }
            let Some(event) = self.node.poll_event() else { break };
            self.sort_event(event, aftermath);
        }
        while let Some(reader) = self.node.mailboxes_mut().poll_ready() {
            aftermath.wakers.extend(self.mail_wakers.remove(&reader));
        }
        aftermath.wakers.reserve(self.node.initiator().ready_count());
        // Who is not parked will ask.
        while let Some(call) = self.node.poll_ready() {
            if let Some(waker) = self.parked.take(call) {
                aftermath.wakers.push(waker);
            }
        }
        self.arm(aftermath);
        aftermath.is_closing = self.is_closing;
    }

    fn arm(&mut self, aftermath: &mut Aftermath) {
        let timeout = self.node.poll_timeout();
        aftermath.rearm |= timeout < self.armed;
        self.armed = self.armed.min(timeout);
    }

    fn sort_event(&mut self, event: NodeEvent, aftermath: &mut Aftermath) {
        match event {
            NodeEvent::Task(VisitEvent::Stop { task, .. }) => {
                if let Some(stopper) = self.stoppers.remove(&task) {
                    aftermath.wakers.extend(stopper.stop_later());
                }
                aftermath.wakers.extend(self.stream_wakers.remove(&task).into_iter().flatten());
            }
            NodeEvent::Task(VisitEvent::Writable(task)) => {
                aftermath.wakers.extend(self.stream_wakers.remove(&task).into_iter().flatten());
            }
            NodeEvent::Reset { link, why, .. } => {
                let reason = match why {
                    ResetReason::Noise => CloseReason::Fault(why.to_string()),
                    _ => CloseReason::Stale,
                };
                let connection = self.connections.get(link).map(|open| open.connection.clone());
                aftermath.closes.extend(connection.map(|connection| (connection, reason)));
            }
            event @ (NodeEvent::Task(VisitEvent::Start(_))
            | NodeEvent::Dial { .. }
            | NodeEvent::Ignored { .. }) => aftermath.events.push(event),
        }
    }

    fn transmit(&mut self, now: Timestamp, transmit: Transmit, aftermath: &mut Aftermath) {
        let Some(attached) = self.connections.get_mut(transmit.link) else { return };
        self.telemetry.on_transmit(&transmit);
        match append(attached.connection.as_ref(), &transmit) {
            Ok(appended) => {
                // Callers append to the data lane alone.
                if transmit.lane == Lane::Data {
                    match appended {
                        Appended::Full => drop(self.full.insert(transmit.to)),
                        _ if self.full.is_empty() => {}
                        _ => drop(self.full.remove(&transmit.to)),
                    }
                }
                match &mut aftermath.caller {
                    Some(caller) => attached.flush_for(now, caller),
                    None => FlushScope::note(&attached.connection),
                }
            }
            Err(NotWritable::Closed) => {} // on_closed tells the node.
            Err(NotWritable::Full) => match transmit.frame.message {
                // Nothing was promised yet: the branch fails, and the connection carries on.
                Message::Request(_) => {
                    self.full.insert(transmit.to);
                    self.node.handle_rejected(now, transmit, NO_ROOM);
                }
                // Nobody counts on a cast.
                Message::Cast(_) => {}
                _ => attached.find_no_room(now, transmit, aftermath),
            },
            Err(error @ NotWritable::TooLarge { .. }) => self.reject(now, transmit, &error),
        }
    }

    /// The peer takes no frame of this size.
    fn reject(&mut self, now: Timestamp, transmit: Transmit, error: &NotWritable) {
        tracing::warn!(to = %transmit.to, %error, "frame larger than the peer takes");
        let text = format!("{error}: raise its message_bytes_max");
        self.node.handle_rejected(now, transmit, &text);
    }
}

impl Attached {
    /// A frame does not fit into what a lane may queue: the peer has not read for long, unless it
    /// is one of those that many calls send at once.
    fn find_no_room(&mut self, now: Timestamp, transmit: Transmit, aftermath: &mut Aftermath) {
        let Transmit { lane, frame, .. } = transmit;
        match frame.message {
            Message::Cancel(cancel) => {
                if self.held.hold(now, frame.header, frame.key, cancel) {
                    aftermath.held.push(self.connection.clone());
                }
            }
            // What is asked is asked again, and so answered again.
            Message::Probe(_) | Message::Status(_) if lane == Lane::Control => {}
            Message::Ask(_) | Message::Settled(_) => {}
            _ => aftermath.closes.push((self.connection.clone(), CloseReason::Overloaded)),
        }
    }
}

/// Why a request was not sent.
const NO_ROOM: &str = "its connection has no room for another request";

/// Payloads from here on are handed over rather than copied.
const HAND_OVER_BYTES_MIN: usize = 16 << 10;

/// Encodes a frame into a connection's buffer.
pub(super) fn append(
    connection: &dyn Connection,
    transmit: &Transmit,
) -> Result<Appended, NotWritable> {
    let payload = transmit.frame.message.payload();
    transmit.frame.with_head(|head| match payload {
        Some(payload) if payload.len() >= HAND_OVER_BYTES_MIN => {
            connection.append_bytes(transmit.lane, head, payload.clone())
        }
        payload => {
            let payload = payload.map_or(&[][..], |bytes| &bytes[..]);
            connection.append(transmit.lane, head.len() + payload.len(), &mut |to| {
                let (to_head, to_payload) = to.split_at_mut(head.len());
                to_head.copy_from_slice(head);
                to_payload.copy_from_slice(payload);
            })
        }
    })
}
