//! Outlet for the frames of the endpoint's node: into the buffers of its connections, as they are
//! sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke_proto::id::NodeId;
use convoke_proto::outbox::{Destination, Outbox, Rejected};
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Frame, Message};

use crate::telemetry::Telemetry;
use crate::transport::{Appended, CloseReason, Connection, Lane, NotWritable};

use super::FlushScope;
use super::caller::CallerFlush;
use super::connections::Connections;

/// The connections, and what sending over them leaves to be done.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(super) connections: Connections,
    /// Nodes for whose connection the last request was the last that it had room for.
    pub(super) full: BTreeSet<NodeId>,
    /// When the frames are those of a caller: how they leave. Else with the open [`FlushScope`].
    pub(super) caller: Option<CallerFlush>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// For these, cancels have begun to wait.
    pub(super) held: Vec<Arc<dyn Connection>>,
    telemetry: Telemetry,
}

impl Outlet {
    pub(super) fn new(telemetry: Telemetry) -> Self {
        Self {
            connections: Connections::default(),
            full: BTreeSet::new(),
            caller: None,
            closes: Vec::new(),
            held: Vec::new(),
            telemetry,
        }
    }
}

impl Outbox for Outlet {
    fn send(
        &mut self,
        now: Timestamp,
        destination: Destination,
        frame: &mut Frame,
    ) -> Result<(), Rejected> {
        let Destination { to, link, lane } = destination;
        let Some(attached) = self.connections.get_mut(link) else { return Ok(()) };
        self.telemetry.on_transmit(frame);
        match append(attached.connection.as_ref(), lane, frame) {
            Ok(appended) => {
                // Callers append to the data lane alone.
                if lane == Lane::Data {
                    match appended {
                        Appended::Full => drop(self.full.insert(to)),
                        _ if self.full.is_empty() => {}
                        _ => drop(self.full.remove(&to)),
                    }
                }
                match &mut self.caller {
                    Some(caller) => attached.flush_for(now, caller),
                    None => FlushScope::note(&attached.connection),
                }
            }
            // on_closed tells the node, but for a cast, of which it keeps nothing.
            Err(NotWritable::Closed | NotWritable::Full)
                if matches!(frame.message, Message::Cast(_)) =>
            {
                return Err(Rejected { text: NO_ROOM.to_owned() });
            }
            Err(NotWritable::Closed) => {}
            Err(NotWritable::Full) => match frame.message {
                // Nothing was promised yet: the branch fails, and the connection carries on.
                Message::Request(_) => {
                    self.full.insert(to);
                    return Err(Rejected { text: NO_ROOM.to_owned() });
                }
                _ => self.find_no_room(now, destination, frame),
            },
            Err(error @ NotWritable::TooLarge { .. }) => {
                tracing::warn!(%to, %error, "frame larger than the peer takes");
                return Err(Rejected { text: format!("{error}: raise its message_bytes_max") });
            }
        }
        Ok(())
    }
}

impl Outlet {
    /// A frame does not fit into what a lane may queue: the peer has not read for long, unless it
    /// is one of those that many calls send at once.
    fn find_no_room(&mut self, now: Timestamp, destination: Destination, frame: &Frame) {
        let Some(attached) = self.connections.get_mut(destination.link) else { return };
        match &frame.message {
            Message::Cancel(cancel) => {
                let header = frame.header.clone();
                if attached.held.hold(now, header, frame.key, cancel.clone()) {
                    self.held.push(attached.connection.clone());
                }
            }
            // What is asked is asked again, and so answered again.
            Message::Probe(_) | Message::Status(_) if destination.lane == Lane::Control => {}
            Message::Ask(_) | Message::Settled(_) => {}
            _ => self.closes.push((attached.connection.clone(), CloseReason::Overloaded)),
        }
    }
}

/// Reason why a request was not sent.
const NO_ROOM: &str = "its connection has no room for another request";

/// Encodes a frame into a connection's buffer, which takes the payload.
pub(super) fn append(
    connection: &dyn Connection,
    lane: Lane,
    frame: &mut Frame,
) -> Result<Appended, NotWritable> {
    let payload = frame.message.take_payload();
    frame.with_head(|head| connection.append_bytes(lane, head, payload))
}
