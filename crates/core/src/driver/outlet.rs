//! Outlet for the frames of the endpoint's node: into the buffers of its connections, as they are
//! sent.

use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::encoded::Encoded;
use convoke_proto::outbox::{Destination, Outbox, Rejected, Room};
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Frame, Head, Message};

use crate::telemetry::Telemetry;
use crate::transport::{Appended, CloseReason, Connection, Lane, NotWritable};

use super::FlushScope;
use super::caller::CallerFlush;
use super::choked::Choked;
use super::connections::Connections;
use super::full::FullNodes;

/// The connections, and what sending over them leaves to be done.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(super) connections: Connections,
    pub(super) full: Arc<FullNodes>,
    /// When the frames are those of a caller: how they leave. Else with the open [`FlushScope`].
    pub(super) caller: Option<CallerFlush>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// For these, cancels have begun to wait.
    pub(super) held: Vec<Arc<dyn Connection>>,
    /// Those that had no room, of which nobody has been told that they have, and for what.
    pub(super) choked: Vec<(Choked, Arc<dyn Connection>)>,
    telemetry: Telemetry,
}

impl Outlet {
    pub(super) fn new(telemetry: Telemetry, full: Arc<FullNodes>) -> Self {
        Self {
            connections: Connections::default(),
            full,
            caller: None,
            closes: Vec::new(),
            held: Vec::new(),
            choked: Vec::new(),
            telemetry,
        }
    }
}

impl Outlet {
    /// True when sending has left something to be done.
    pub(super) fn has_news(&self) -> bool {
        !self.closes.is_empty() || !self.held.is_empty() || !self.choked.is_empty()
    }
}

impl Outbox for Outlet {
    fn send(
        &mut self,
        now: Timestamp,
        destination: Destination,
        head: Head<'_>,
        payload: Encoded,
    ) -> Result<Room, Rejected> {
        let Destination { to, link, lane } = destination;
        let Some(attached) = self.connections.get_mut(link) else { return Ok(Room::Some) };
        self.telemetry.on_transmit(head, &payload);
        let (connection, head_bytes) = (&attached.connection, head.as_bytes());
        let appended = match payload.as_shared() {
            Some(_) => connection.append_bytes(lane, head_bytes, payload.into_bytes()),
            None => connection.append_copy(lane, head_bytes, &payload),
        };
        match appended {
            Ok(appended) => {
                // Callers append to the data lane alone.
                if lane == Lane::Data {
                    match appended {
                        Appended::Full => self.full.insert(to),
                        _ => self.full.remove(to),
                    }
                }
                match &mut self.caller {
                    Some(caller) => attached.flush_for(now, caller),
                    None => FlushScope::note(&attached.connection),
                }
                if appended == Appended::Full {
                    FlushScope::note_full();
                    if lane == Lane::Data {
                        if !std::mem::replace(&mut attached.is_awaited, true) {
                            self.choked.push((Choked::Replies, attached.connection.clone()));
                        }
                        return Ok(Room::None);
                    }
                }
            }
            // on_closed tells the node, but for a cast, of which it keeps nothing.
            Err(error @ (NotWritable::Closed | NotWritable::Full)) if head.is_cast() => {
                if error == NotWritable::Full && !std::mem::replace(&mut attached.is_choked, true) {
                    self.choked.push((Choked::Casts, attached.connection.clone()));
                }
                return Err(Rejected { text: NO_ROOM.to_owned() });
            }
            Err(NotWritable::Closed) => {}
            // Nothing was promised yet: the branch fails, and the connection carries on.
            Err(NotWritable::Full) if head.is_request() => {
                self.full.insert(to);
                return Err(Rejected { text: NO_ROOM.to_owned() });
            }
            Err(NotWritable::Full) => self.find_no_room(now, destination, head),
            Err(error @ NotWritable::TooLarge { .. }) => {
                tracing::warn!(%to, %error, "frame larger than the peer takes");
                return Err(Rejected { text: format!("{error}: raise its message_bytes_max") });
            }
        }
        Ok(Room::Some)
    }
}

impl Outlet {
    /// A frame does not fit into what a lane may queue: the peer has not read for long, unless it
    /// is one of those that many calls send at once.
    fn find_no_room(&mut self, now: Timestamp, destination: Destination, head: Head<'_>) {
        let Some(attached) = self.connections.get_mut(destination.link) else { return };
        if head.is_cancel() {
            if let Ok(Frame { header, key, message, .. }) = head.frame(Bytes::new())
                && let Message::Cancel(cancel) = message
                && attached.held.hold(now, header, key, cancel)
            {
                self.held.push(attached.connection.clone());
            }
        } else if !head.is_of_question() || destination.lane == Lane::Data {
            self.closes.push((attached.connection.clone(), CloseReason::Overloaded));
        } // What is asked is asked again, and so answered again.
    }
}

/// Reason why a request was not sent.
const NO_ROOM: &str = "its connection has no room for another request";
