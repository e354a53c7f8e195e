//! Outlet for the frames of the endpoint's node: into the buffers of its connections, as they are
//! sent.

use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::encoded::Encoded;
use convoke_proto::outbox::{Destination, Hand, Outbox, Rejected, Room};
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Frame, Head, Message};

use crate::telemetry::Telemetry;
use crate::transport::{Appended, CloseReason, Connection, Lane, Link, NotWritable};

use super::FlushScope;
use super::caller::CallerFlush;
use super::connections::{Attached, Connections};
use super::full::FullConnections;
use super::held::HeldCancels;
use super::unsaid::Unsaid;

/// The connections, and what sending over them leaves to be done.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(super) connections: Connections,
    pub(super) full: Arc<FullConnections>,
    /// When the frames are those of a caller: how they leave. Else with the open [`FlushScope`].
    pub(super) caller: Option<CallerFlush>,
    pub(super) closes: Vec<(Arc<dyn Connection>, CloseReason)>,
    /// For these, cancels have begun to wait.
    pub(super) held: Vec<Arc<dyn Connection>>,
    /// Those that had no room for a cast, of which nobody has been told that they have.
    pub(super) choked: Vec<Arc<dyn Connection>>,
    /// Those that have become full, at which no task waits yet.
    pub(super) filled: Vec<Arc<dyn Connection>>,
    pub(super) spent: Spent,
    pub(super) unsaid: Vec<Unsaid>,
    telemetry: Telemetry,
}

impl Outlet {
    pub(super) fn new(telemetry: Telemetry, full: Arc<FullConnections>) -> Self {
        Self {
            connections: Connections::default(),
            full,
            caller: None,
            closes: Vec::new(),
            held: Vec::new(),
            choked: Vec::new(),
            filled: Vec::new(),
            spent: Spent::default(),
            unsaid: Vec::new(),
            telemetry,
        }
    }
}

impl Outlet {
    /// Does what sending over a connection has left to be done, beside what always is.
    fn see_to(&mut self, to: Destination, left: &Left) {
        let Some(attached) = self.connections.get_mut(to.link) else { return };
        let connection = &attached.connection;
        if left.was_full {
            FlushScope::note_full();
            if let Some(caller) = &mut self.caller {
                caller.has_filled = true;
            }
            if to.lane == Lane::Data && self.full.insert(connection.as_ref()) {
                self.filled.push(connection.clone());
            }
        }
        if left.has_refused_cast && !std::mem::replace(&mut attached.is_choked, true) {
            self.choked.push(connection.clone());
        }
        if left.has_held {
            self.held.push(connection.clone());
        }
        if left.is_overloaded {
            self.closes.push((connection.clone(), CloseReason::Overloaded));
        }
    }

    /// True when sending has left something to be done.
    pub(super) fn has_news(&self) -> bool {
        let is_quiet = self.closes.is_empty() && self.held.is_empty();
        let is_done = self.spent.0.is_empty() && self.unsaid.is_empty();
        !is_quiet || !is_done || !self.choked.is_empty() || !self.filled.is_empty()
    }
}

/// Payloads that were sent, or go nowhere: their owners may call back as they are dropped, which is
/// done without the lock.
#[derive(Debug, Default)]
pub(super) struct Spent(Vec<Bytes>);

impl Spent {
    #[inline]
    fn put(&mut self, payload: Encoded) {
        if payload.as_shared().is_some_and(|bytes| !bytes.is_empty()) {
            self.0.push(payload.into_bytes());
        }
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Bytes> {
        self.0.drain(..)
    }
}

/// Payloads up to this size are copied into the buffer of any connection.
const COPY_BYTES_MAX: usize = 4 * 1024;

/// Bytes that a connection keeps rather than copies. The payload is held until they are there.
#[inline]
fn large(payload: &Encoded) -> Option<Bytes> {
    payload.as_shared().filter(|bytes| bytes.len() > COPY_BYTES_MAX).cloned()
}

impl Outbox for Outlet {
    fn send_each(&mut self, now: Timestamp, to: Destination, mut frames: impl FnMut(Hand<'_>)) {
        let Some(attached) = self.connections.get_mut(to.link) else {
            return frames(&mut |_, payload| {
                self.spent.put(payload);
                Ok(Room::Some)
            });
        };
        let Attached { connection, held, .. } = attached;
        let (link, left) = (connection.link(), Left::default());
        let mut sending = Sending { now, to, held, link, left, unsaid: &mut self.unsaid };
        connection.with_buffer(&mut |buffer| {
            frames(&mut |head, payload| {
                if let Some(cause) = self.telemetry.refusal(head, &payload) {
                    sending.unsaid.push(Unsaid::Refusal(cause));
                }
                let sent = sending.send(head, &payload, |head, payload| match large(payload) {
                    Some(bytes) => buffer.append_bytes(to.lane, head.as_bytes(), bytes),
                    None => buffer.append_copy(to.lane, head.as_bytes(), payload),
                });
                self.spent.put(payload);
                sent
            });
        });
        let left = sending.left;
        attached.leave(now, &left, &mut self.caller);
        if left.is_more() {
            self.see_to(to, &left);
        }
    }

    /// One frame is appended by the connection itself, which takes 110 instructions less.
    fn send(
        &mut self,
        now: Timestamp,
        to: Destination,
        head: Head<'_>,
        payload: Encoded,
    ) -> Result<Room, Rejected> {
        let Some(attached) = self.connections.get_mut(to.link) else {
            self.spent.put(payload);
            return Ok(Room::Some);
        };
        if let Some(cause) = self.telemetry.refusal(head, &payload) {
            self.unsaid.push(Unsaid::Refusal(cause));
        }
        let Attached { connection, held, .. } = attached;
        let (link, left) = (connection.link(), Left::default());
        let mut sending = Sending { now, to, held, link, left, unsaid: &mut self.unsaid };
        let sent = sending.send(head, &payload, |head, payload| match large(payload) {
            Some(bytes) => connection.append_bytes(to.lane, head.as_bytes(), bytes),
            None => connection.append_copy(to.lane, head.as_bytes(), payload),
        });
        self.spent.put(payload);
        let left = sending.left;
        attached.leave(now, &left, &mut self.caller);
        if left.is_more() {
            self.see_to(to, &left);
        }
        sent
    }

    fn let_go(&mut self, payload: Bytes) {
        self.spent.put(payload.into());
    }
}

/// Frames for a connection, and what is said of each.
struct Sending<'a> {
    now: Timestamp,
    to: Destination,
    held: &'a mut HeldCancels,
    link: &'a Link,
    left: Left,
    unsaid: &'a mut Vec<Unsaid>,
}

/// Things to be done once the buffer is free.
#[derive(Default)]
struct Left {
    /// Something was appended.
    is_new: bool,
    /// Something was appended that left no room for what can wait, or a request found none.
    was_full: bool,
    /// There was no room after the last frame.
    is_full: bool,
    has_refused_cast: bool,
    /// Cancels have begun to wait.
    has_held: bool,
    is_overloaded: bool,
}

impl Left {
    fn is_more(&self) -> bool {
        self.was_full || self.has_refused_cast || self.has_held || self.is_overloaded
    }
}

impl Sending<'_> {
    /// Has a frame appended: a reply or an item that is too large, in parts.
    #[inline]
    fn send(
        &mut self,
        head: Head<'_>,
        payload: &Encoded,
        mut append: impl FnMut(Head<'_>, &Encoded) -> Result<Appended, NotWritable>,
    ) -> Result<Room, Rejected> {
        let appended = append(head, payload);
        if let Err(NotWritable::TooLarge { limit, .. }) = appended
            && let Some(parts) = head.in_parts(payload, limit)
        {
            return self.send_parts(parts, &mut append);
        }
        self.on_appended(head, appended)
    }

    #[cold]
    fn send_parts(
        &mut self,
        parts: Vec<Frame>,
        append: &mut dyn FnMut(Head<'_>, &Encoded) -> Result<Appended, NotWritable>,
    ) -> Result<Room, Rejected> {
        let mut room = Room::Some;
        for mut part in parts {
            let payload = part.message.take_payload().into();
            room = part.with_head(|head| self.on_appended(head, append(head, &payload)))?;
        }
        Ok(room)
    }

    #[inline]
    fn on_appended(
        &mut self,
        head: Head<'_>,
        appended: Result<Appended, NotWritable>,
    ) -> Result<Room, Rejected> {
        let Destination { to, lane, .. } = self.to;
        let left = &mut self.left;
        match appended {
            Ok(appended) => {
                left.is_new = true;
                left.is_full = appended == Appended::Full;
                left.was_full |= left.is_full;
                if left.is_full && lane == Lane::Data {
                    return Ok(Room::None);
                }
            }
            // on_closed tells the node, but for a cast, of which it keeps nothing.
            Err(error @ (NotWritable::Closed | NotWritable::Full)) if head.is_cast() => {
                left.has_refused_cast |= error == NotWritable::Full;
                return Err(Rejected { text: NO_ROOM.to_owned() });
            }
            Err(NotWritable::Closed) => {}
            // Nothing was promised yet: the branch fails, and the connection carries on.
            Err(NotWritable::Full) if head.is_request() => {
                (left.is_full, left.was_full) = (true, true);
                return Err(Rejected { text: NO_ROOM.to_owned() });
            }
            Err(NotWritable::Full) => self.find_no_room(head),
            Err(error @ NotWritable::TooLarge { limit, .. }) => {
                let text = format!("{error} {}", whose(limit, self.link));
                self.unsaid.push(Unsaid::TooLarge(to, text.clone()));
                return Err(Rejected { text });
            }
        }
        Ok(Room::Some)
    }

    /// A frame does not fit into what a lane may queue: the peer has not read for long, unless it
    /// is one of those that many calls send at once.
    fn find_no_room(&mut self, head: Head<'_>) {
        if head.is_cancel() {
            if let Ok(Frame { header, key, message, .. }) = head.frame(Bytes::new())
                && let Message::Cancel(cancel) = message
            {
                self.left.has_held |= self.held.hold(self.now, header, key, cancel);
            }
        } else if !head.is_of_question() || self.to.lane == Lane::Data {
            self.left.is_overloaded = true;
        } // What is asked is asked again, and so answered again, or is done without.
    }
}

impl Attached {
    /// Sees to it that what is new is flushed.
    #[inline]
    fn leave(&mut self, now: Timestamp, left: &Left, caller: &mut Option<CallerFlush>) {
        if left.is_new {
            match caller {
                Some(caller) => self.arrange_flush(now, caller, left.is_full),
                None => FlushScope::note(&self.connection),
            }
        }
    }
}

/// Owner of a limit of frames, and what to raise.
fn whose(limit: usize, link: &Link) -> String {
    let scheme = link.scheme;
    if limit < link.peer.frame_bytes_max as usize {
        return format!(
            "of the {scheme} transport at this end: raise its frame_bytes_max, or leave it unset, \
             and have four times as much in its send_bytes_total_max"
        );
    }
    format!(
        "that the peer has told: raise Limits::message_bytes_max there, frame_bytes_max of its \
         {scheme} transport if that is set, and send_bytes_total_max to four times as much"
    )
}

/// Reason why a request was not sent.
const NO_ROOM: &str = "its connection has no room for another request";
