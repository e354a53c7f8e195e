//! Streamed replies of tasks: their items leave as they come, as far as there is credit.

use crate::encoded::Encoded;
use crate::id::LinkId;
use crate::links::Links;
use crate::task::{SendError, Task};
use crate::time::Timestamp;
use crate::wire::Reply;

use super::records::Record;
use super::route::WayUp;
use super::{TaskRef, Visits};

impl Visits {
    /// Begins a streamed reply.
    pub(crate) fn stream(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        links: &mut Links,
    ) -> Result<u32, SendError> {
        self.with_task(now, task, links, Task::stream)?
    }

    /// Bytes that further items of a stream may have now.
    pub(crate) fn stream_credit(&mut self, task: &TaskRef, index: u32) -> Result<u64, SendError> {
        let ring = self.origins.ring_mut(task.ring).ok_or(SendError::Ended)?;
        let running = ring.records.get_mut(task.name()).and_then(Record::running);
        // Who waited behind what the task has left would never be told.
        let running = running.filter(|task| task.finished().is_none());
        Ok(running.ok_or(SendError::Ended)?.stream_credit(index))
    }

    /// Sends items of a stream, all but the last at once as far as they can leave: these go to
    /// `leave`, with their way and their messages. The credit that is left.
    pub(crate) fn stream_items(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        (index, items): (u32, impl Iterator<Item = Encoded>),
        links: &mut Links,
        mut leave: impl FnMut((LinkId, &WayUp), Reply, Encoded),
    ) -> Result<u64, SendError> {
        let ring = self.origins.ring(task.ring).ok_or(SendError::Ended)?;
        let spot = ring.records.find(task.name()).ok_or(SendError::Ended)?;
        let record = ring.records.at(spot, task.name()).ok_or(SendError::Ended)?;
        let from = (self.me.node, &task.task);
        let way = self.way_up(now, (task.ring, record), from, links).ok();
        // Whatever else waits for its peer: who has more waits with it, and holds one in hand.
        let has_room = way.is_none_or(|way| links.has_room(way.link_now(links)));
        let way = way.and_then(|way| Some((way.link.filter(|link| *link != LinkId::LOCAL)?, way)));
        let ring = self.origins.ring_mut(task.ring).ok_or(SendError::Ended)?;
        let record = ring.records.at_mut(spot, task.name()).ok_or(SendError::Ended)?;
        let running = record.running().ok_or(SendError::Ended)?;
        running.note_room(has_room);
        let mut has_left = false;
        let mut sent = Ok(());
        for item in items {
            sent = match way.as_ref().filter(|_| self.out.is_empty()) {
                Some((link, way)) => {
                    let mut leave = |reply, message| {
                        has_left = true;
                        leave((*link, way), reply, message);
                    };
                    running.stream_item(index, item, Some(&mut leave))
                }
                None => running.stream_item(index, item, None),
            };
            if sent.is_err() {
                break;
            }
        }
        let is_drained = !running.has_output() && !running.has_granted();
        let credit = running.stream_credit(index);
        if let Some((link, way)) = way.filter(|_| has_left) {
            record.note_way(Some(link), Some(way.reply_path(links)));
        }
        if !is_drained || record.waiting_bytes > 0 {
            self.drain_task(now, task.call, &task.place(), links);
        }
        sent.map(|()| credit)
    }

    /// Ends a stream.
    pub(crate) fn stream_end(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        index: u32,
        links: &mut Links,
    ) -> Result<(), SendError> {
        self.with_task(now, task, links, |task| task.stream_end(index))?
    }
}
