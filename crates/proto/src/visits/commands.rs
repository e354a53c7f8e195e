//! Commands of handlers to their tasks: reply, stream, delegate, wait, end.

use bytes::Bytes;

use crate::flow::cost;
use crate::id::{MethodId, NodeId, TaskKey};
use crate::limits::Limits;
use crate::links::{Links, Way};
use crate::share::Pool;
use crate::task::{SendError, Task, TaskFailure};
use crate::time::Timestamp;
use crate::wire::{CancelReason, Extension, extension};

use super::records::{Over, Record};
use super::route::WayUp;
use super::{TaskRef, Visits};

/// A branch that a task wants opened.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The node to ask.
    pub to: NodeId,
    /// The method to run there.
    pub method: MethodId,
    /// The request message.
    pub payload: Bytes,
    /// Replace those of the task's own request with the same tag.
    pub extensions: Vec<Extension>,
    /// Earlier than the task's own, if given.
    pub deadline: Option<Timestamp>,
}

impl Visits {
    /// Adds a pair to the metadata of the next reply, item or failure.
    pub(crate) fn reply_metadata(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        (key, value): (&str, &[u8]),
        links: &mut Links,
    ) -> Result<(), SendError> {
        self.with_task(now, task, links, |task| task.reply_metadata(key, value))?
    }

    /// Sends a whole reply.
    pub(crate) fn reply(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        payload: Bytes,
        links: &mut Links,
    ) -> Result<(), SendError> {
        self.hold_reply(task, payload.len(), links)?;
        self.with_task(now, task, links, |task| task.reply(payload))?
    }

    /// Sends the only reply and ends the task; when it cannot be sent, the task goes on. One that
    /// can leave at once stays where it is, and is to be sent by the way that is given.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        payload: &mut Bytes,
        links: &mut Links,
    ) -> Result<Option<WayUp>, SendError> {
        let Limits { message_bytes_max, unscheduled_bytes, .. } = self.limits;
        let bytes = payload.len();
        let fits = bytes <= message_bytes_max && cost(bytes) <= unscheduled_bytes;
        let found = self.origins.ring(task.ring).and_then(|ring| {
            let spot = ring.records.find(task.name()).filter(|_| fits)?;
            Some((ring.records.at(&spot).filter(|record| record.is_quiet())?, spot))
        });
        let me = (self.me.node, &task.task);
        let way =
            found.map(|(record, spot)| (self.way_up(now, (task.ring, record), me, links), spot));
        if let Some((Ok(way), spot)) = way
            && let Some(ring) = self.origins.ring_mut(task.ring)
            && let Some(record) = ring.records.at_mut(&spot)
        {
            let (_, accounts) = record.end(Over::Answered(way.reply_path(links)));
            let of = (task.ring, task.call.seq);
            self.note_over(now, of, accounts, || task.place(), links);
            return Ok(Some(way));
        }
        self.hold_reply(task, bytes, links)?;
        let payload = std::mem::take(payload);
        self.with_task(now, task, links, |task| {
            task.reply(payload)?;
            task.finish();
            Ok(None)
        })?
    }

    /// Takes room for a reply that may have to wait for credit, in the share of who asked for it.
    /// A reply that leaves without any costs nothing.
    fn hold_reply(
        &mut self,
        task: &TaskRef,
        bytes: usize,
        links: &mut Links,
    ) -> Result<(), SendError> {
        if bytes as u64 <= self.limits.unscheduled_bytes {
            return Ok(());
        }
        let Some(record) = self.record_mut(&task.place()) else { return Ok(()) };
        let shares = links.shares_mut();
        if !shares.may_take(record.payer, Pool::Replies) {
            return Err(SendError::TooMuchWaits);
        }
        // A task that sends gigabytes at once pays for four.
        let left = u32::MAX - record.waiting_bytes;
        let bytes = u32::try_from(bytes).map_or(left, |bytes| bytes.min(left));
        shares.take(record.payer, Pool::Replies, bytes as usize);
        record.waiting_bytes += bytes;
        Ok(())
    }

    /// Begins a streamed reply.
    pub(crate) fn stream(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        links: &mut Links,
    ) -> Result<u32, SendError> {
        self.with_task(now, task, links, Task::stream)?
    }

    /// True when a stream takes another item now.
    pub(crate) fn has_stream_credit(
        &mut self,
        task: &TaskRef,
        index: u32,
    ) -> Result<bool, SendError> {
        let ring = self.origins.ring_mut(task.ring).ok_or(SendError::Ended)?;
        let running = ring.records.get_mut(task.name()).and_then(Record::running);
        Ok(running.ok_or(SendError::Ended)?.has_stream_credit(index))
    }

    /// Sends an item of a stream.
    pub(crate) fn stream_item(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        index: u32,
        payload: Bytes,
        links: &mut Links,
    ) -> Result<(), SendError> {
        self.with_task(now, task, links, |task| task.stream_item(index, payload))?
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

    /// Opens a branch. The index is consumed only when this succeeds, so that the handler may route
    /// around a node that is known to be dead.
    pub(crate) fn delegate(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        branch: Branch,
        links: &mut Links,
    ) -> Result<TaskKey, SendError> {
        if links.way(now, branch.to) == Way::Dead && !links.is_resolvable(now, branch.to) {
            return Err(SendError::NodeDead);
        }
        self.with_task(now, task, links, |task| {
            let Branch { to, method, payload, extensions, deadline } = branch;
            let extensions = inherit(&task.extensions, extensions);
            let deadline = deadline.unwrap_or(Timestamp::MAX);
            task.delegate(to, method, extensions, payload, deadline)
        })?
    }

    /// Opens a branch at a node that is known to be dead: a failure record at the initiator.
    pub(crate) fn delegate_to_dead(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        to: NodeId,
        links: &mut Links,
    ) -> Result<(), SendError> {
        let (child, key) = self.with_task(now, task, links, |task| task.delegate_to_dead(to))??;
        self.report_unsent(now, task.call, &task.place(), (child, key), to, Vec::new(), links);
        Ok(())
    }

    /// The handler waits for something.
    pub(crate) fn handle_yield(&mut self, now: Timestamp, task: &TaskRef, links: &mut Links) {
        // A task that was stopped meanwhile has nothing held.
        let _ = self.with_task(now, task, links, Task::handle_yield);
    }

    /// The handler returned.
    pub(crate) fn finish(&mut self, now: Timestamp, task: &TaskRef, links: &mut Links) {
        // A task that was stopped meanwhile has said all it will.
        let _ = self.with_task(now, task, links, Task::finish);
    }

    /// The handler failed, panicked or was dropped.
    pub(crate) fn fail(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        failure: TaskFailure,
        links: &mut Links,
    ) {
        let aborts = failure.aborts_children;
        if self.with_task(now, task, links, |task| task.fail(failure)).is_ok() && aborts {
            self.cancel_children(now, task.call, &task.place(), CancelReason::ParentFailed, links);
        }
    }
}

/// The task's own extensions, but for tags that the branch sets, and for the client that asked this
/// node: whoever is asked next is asked by the node.
fn inherit(own: &[Extension], mut set: Vec<Extension>) -> Vec<Extension> {
    let is_left = |old: &&Extension| {
        old.tag != extension::CLIENT && !set.iter().any(|new| new.tag == old.tag)
    };
    let inherited = own.iter().filter(is_left).cloned();
    let inherited: Vec<Extension> = inherited.collect();
    set.extend(inherited);
    set
}
