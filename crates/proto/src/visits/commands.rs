//! Commands of handlers to their tasks: reply, stream, delegate, wait, end.

use crate::encoded::Encoded;
use crate::flow::cost;
use crate::id::{NodeId, TaskKey};
use crate::limits::Limits;
use crate::links::{Links, Way};
use crate::share::Pool;
use crate::task::{Branch, Child, Given, SendError, Task, TaskFailure};
use crate::time::Timestamp;
use crate::wire::{CancelReason, Cause, Executed};

use super::records::{Over, State};
use super::refusal::{cost_beside, requests_overload};
use super::route::{Onward, WayUp};
use super::{TaskRef, Visits};

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
        mut payload: Encoded,
        links: &mut Links,
    ) -> Result<(), SendError> {
        let held = self.hold_reply(now, task, payload.len(), links);
        let replied = held.and_then(|()| {
            self.with_task(now, task, links, |task| task.reply(std::mem::take(&mut payload)))?
        });
        self.spend(payload); // Of a task that has ended, for example.
        replied
    }

    /// Sends the only reply and ends the task; when it cannot be sent, the task goes on. One that
    /// can leave at once stays where it is, and is to be sent by the way that is given, with what
    /// the task was given to pass on.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        payload: &mut Encoded,
        links: &mut Links,
    ) -> Result<Option<(WayUp, Given)>, SendError> {
        let Limits { message_bytes_max, unscheduled_bytes, .. } = self.limits;
        let bytes = payload.len();
        let fits = bytes <= message_bytes_max && cost(bytes) <= unscheduled_bytes;
        let me = (self.me.node, &task.task);
        if fits
            && let Some(ring) = self.origins.ring(task.ring)
            && let Some(spot) = ring.records.find(task.name())
            && let Some(record) = ring.records.at(spot, task.name())
            && let State::Quiet(quiet) = &record.state
            && let Ok(way) = self.way_up(now, (task.ring, record), me, links)
            && (links.full_count() == 0 || self.has_room_up(now, &task.place(), links))
            && let given = quiet.given.clone()
            && let Some(ring) = self.origins.ring_mut(task.ring)
            && let Some(record) = ring.records.at_mut(spot, task.name())
        {
            let over = Over::Answered(way.reply_path(links), given.clone());
            let accounts = record.end(over);
            let of = (task.ring, task.call.seq);
            self.note_over(now, of, accounts, || task.place(), links);
            return Ok(Some((way, given)));
        }
        self.hold_reply(now, task, bytes, links)?;
        self.with_task(now, task, links, |task| {
            task.reply(std::mem::take(payload))?;
            task.finish();
            Ok(None)
        })?
    }

    /// Takes room for a reply that may have to wait for credit, or for room in its connection, in
    /// the share of who asked for it. A reply that leaves at once costs nothing.
    fn hold_reply(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        bytes: usize,
        links: &mut Links,
    ) -> Result<(), SendError> {
        let needs_no_credit = bytes as u64 <= self.limits.unscheduled_bytes;
        if needs_no_credit && self.has_room_up(now, &task.place(), links) {
            return Ok(());
        }
        // One that is over takes nothing, and what it took nobody would give back.
        let record = self.record(&task.place()).filter(|record| record.is_running());
        let Some(payer) = record.map(|record| record.payer) else { return Ok(()) };
        if !links.shares().may_take(payer, Pool::Replies) {
            self.drop_orphaned(now, links);
            if !links.shares().may_take(payer, Pool::Replies) {
                return Err(SendError::TooMuchWaits);
            }
        }
        if let Some(record) = self.record_mut(&task.place()) {
            record.hold_replies(bytes, links);
        }
        Ok(())
    }

    /// Has whoever pays for a task pay for a message of so many bytes in place of that of its
    /// request, until the task is over: the message came packed, or another way.
    ///
    /// # Errors
    /// The failure for the task, which has begun nothing: its payer has its share already.
    pub(crate) fn resize_request(
        &mut self,
        task: &TaskRef,
        bytes: usize,
        links: &mut Links,
    ) -> Result<(), TaskFailure> {
        let bytes = self.limits.large_bytes(bytes.saturating_add(self.beside_request(task)));
        self.pay_for_request(task, bytes, links)
    }

    /// The same for the largest message that there is, before it is known how long it is: a quarter
    /// of what there is for all at most, so that one does not take it from all others. However
    /// small it is, it counts.
    ///
    /// # Errors
    /// As [`Self::resize_request`].
    pub(crate) fn reserve_request(
        &mut self,
        task: &TaskRef,
        links: &mut Links,
    ) -> Result<(), TaskFailure> {
        let Limits { message_bytes_max, unscheduled_bytes, .. } = self.limits;
        let most = message_bytes_max.min(links.shares().max(Pool::Requests) / 4);
        let most = (most as u64).max(unscheduled_bytes);
        let most = most.saturating_add(self.beside_request(task) as u64);
        let bytes = u32::try_from(most).unwrap_or(u32::MAX);
        self.pay_for_request(task, bytes, links)
    }

    /// Bytes that the extensions of a request count for.
    fn beside_request(&self, task: &TaskRef) -> usize {
        self.record(&task.place()).map_or(0, |record| cost_beside(record.extensions()))
    }

    fn pay_for_request(
        &mut self,
        task: &TaskRef,
        bytes: u32,
        links: &mut Links,
    ) -> Result<(), TaskFailure> {
        let record = self.record_mut(&task.place()).filter(|record| record.is_running());
        // What it took nobody would give back.
        let Some(record) = record else {
            return Err(TaskFailure::new(Cause::Cancelled, Executed::No, "the task has ended"));
        };
        if bytes > record.request_bytes
            && let Some(text) = requests_overload(record.payer, links)
        {
            return Err(TaskFailure::new(Cause::Overloaded, Executed::No, text));
        }
        let before = std::mem::replace(&mut record.request_bytes, bytes);
        let (payer, shares) = (record.payer, links.shares_mut());
        shares.adjust(payer, Pool::Requests, before as usize, bytes as usize);
        Ok(())
    }

    /// Checks that a task may open a branch with a message of `size` bytes at a node now; with
    /// `is_last`, that it may end so.
    pub(crate) fn check_branch(
        &self,
        now: Timestamp,
        task: &TaskRef,
        (to, size, is_last): (NodeId, usize, bool),
        links: &Links,
    ) -> Result<(), SendError> {
        if links.way(now, to) == Way::Dead && !links.is_resolvable(now, to) {
            return Err(SendError::NodeDead);
        }
        let record = self.origins.ring(task.ring).and_then(|ring| ring.records.get(task.name()));
        let (record, limit) = (record.ok_or(SendError::Ended)?, self.limits.message_bytes_max);
        match &record.state {
            State::Over(_) | State::Gone => Err(SendError::Ended),
            _ if size > limit => Err(SendError::TooLarge { size, limit }),
            State::Quiet(_) if self.limits.children_max == 0 => Err(SendError::TooManyBranches),
            State::Quiet(_) if is_last || record.task.path.has_room() => Ok(()),
            State::Quiet(_) => Err(SendError::TooDeep),
            State::Running(task) if is_last => task.check_tail(),
            State::Running(task) => task.check_branch(),
        }
    }

    /// Opens a branch. The index is consumed only when this succeeds, so that the handler may route
    /// around a node that is known to be dead.
    pub(crate) fn delegate(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        mut branch: Branch,
        links: &mut Links,
    ) -> Result<TaskKey, SendError> {
        let checked = self.check_branch(now, task, (branch.to, branch.payload.len(), false), links);
        let opened = checked.and_then(|()| {
            self.with_task(now, task, links, |task| task.delegate(branch.take()))?
        });
        self.spend(branch.payload); // Of one that is refused.
        opened
    }

    /// Opens the last branch of a task and ends it: without another output, the branch of the task
    /// itself goes on. One that can leave at once stays where it is, and is to be sent as is given.
    /// A node that cannot be reached any more is a failure record at the initiator.
    pub(crate) fn tail(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        branch: &mut Branch,
        links: &mut Links,
    ) -> Result<Option<Onward>, SendError> {
        match self.check_branch(now, task, (branch.to, branch.payload.len(), true), links) {
            Err(SendError::NodeDead) => {
                let to = branch.to;
                let unsent = self.with_task(now, task, links, |task| task.tail_to_dead(to))??;
                self.report_unsent(now, task.call, &task.place(), unsent, (to, None), links);
                return Ok(None);
            }
            checked => checked?,
        }
        if let Some(onward) = self.tail_at_once(now, task, branch, links) {
            return Ok(Some(onward));
        }
        self.with_task(now, task, links, |task| task.tail(branch.take()))??;
        Ok(None)
    }

    /// The tail of a task that has said nothing, to a node that is connected and takes requests.
    fn tail_at_once(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        branch: &mut Branch,
        links: &mut Links,
    ) -> Option<Onward> {
        let link = links.current(branch.to).filter(|link| !links.is_leaving(*link))?;
        let ring = self.origins.ring(task.ring)?;
        let spot = ring.records.find(task.name())?;
        let record = ring.records.at(spot, task.name())?;
        let State::Quiet(quiet) = &record.state else { return None };
        if quiet.given.is_some() {
            return None; // Its record keeps that, too.
        }
        let deadlines = (branch.deadline_within(quiet.deadline), quiet.call_deadline);
        let terms = self.terms(now, (task.call, record.origin), deadlines, links);
        branch.inherit(&quiet.extensions).ok()?; // Told where it is delegated.
        let child = Child { node: branch.to, link: Some(link) };
        let ring = self.origins.ring_mut(task.ring)?;
        let record = ring.records.at_mut(spot, task.name())?;
        let accounts = record.end(Over::Tailed(child));
        self.add_left(branch.to, task.call, task.ring);
        let of = (task.ring, task.call.seq);
        self.note_over(now, of, accounts, || task.place(), links);
        Some(Onward { link, task: task.task.next_hop(), terms })
    }

    /// Opens a branch at a node that is known to be dead: a failure record at the initiator.
    pub(crate) fn delegate_to_dead(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        to: NodeId,
        links: &mut Links,
    ) -> Result<(), SendError> {
        let child = self.with_task(now, task, links, |task| task.delegate_to_dead(to))??;
        let unsent = (child, Vec::new());
        self.report_unsent(now, task.call, &task.place(), unsent, (to, None), links);
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
        mut failure: TaskFailure,
        links: &mut Links,
    ) {
        let too_long = failure.bound_details(&self.limits);
        self.spend(too_long);
        let (aborts, details) = (failure.aborts_children, failure.details.clone());
        if self.with_task(now, task, links, |task| task.fail(failure)).is_err() {
            return self.spend(details);
        }
        self.hold_failure(task, links);
        if aborts {
            self.cancel_children(now, task.call, &task.place(), CancelReason::ParentFailed, links);
        }
    }

    /// As [`Self::fail`], and drops what is left to be sent before the failure, so that this leaves
    /// now.
    pub(crate) fn abort(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        failure: TaskFailure,
        links: &mut Links,
    ) {
        let cause = failure.cause;
        self.fail(now, task, failure, links);
        let place = task.place();
        if let Some(running) = self.task_mut(&place) {
            running.abandon(cause);
            self.drain_task(now, task.call, &place, links);
        }
    }

    /// Takes room for a failure that waits behind replies, or for room in its connection, as for a
    /// reply. It is told in any case: without room, as cause, code and text alone.
    fn hold_failure(&mut self, task: &TaskRef, links: &mut Links) {
        let Some(record) = self.record_mut(&task.place()) else { return };
        let State::Running(running) = &mut record.state else { return };
        let bytes = running.waiting_failure_bytes();
        if bytes == 0 {
            return;
        }
        if !links.shares().may_take(record.payer, Pool::Replies) {
            let details = running.shorten_failure();
            return self.spend(details);
        }
        record.hold_replies(bytes, links);
    }
}
