//! Acts of handlers on their tasks at a node: reply, stream, delegate, wait, end.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::id::{LinkId, NodeId, TaskKey};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::{Envelope, Scratch};

use super::super::Outbound;
use super::super::links::Links;
use super::super::outbox::{Destination, Outbox, Room};
use super::super::task::{Branch, Given, ItemsFailure, NextItem, SendError, TaskFailure};
use super::super::visits::{TaskRef, Visits, WayUp};
use super::Node;

impl<O: Outbox> Node<O> {
    /// Adds a pair to the metadata of the next reply, item of a stream or failure of a task.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], and then the pair was not added; [`SendError::Ended`].
    pub fn reply_metadata(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        key: &str,
        value: &[u8],
    ) -> Result<(), SendError> {
        self.with_visits(now, |tasks, links| tasks.reply_metadata(now, task, (key, value), links))
    }

    /// Sends a whole reply of a task.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn reply(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        payload: impl Into<Encoded>,
    ) -> Result<(), SendError> {
        self.with_visits(now, |tasks, links| tasks.reply(now, task, payload.into(), links))
    }

    /// Sends the only reply of a task and ends it.
    ///
    /// # Errors
    /// [`SendError`]; then the task goes on.
    pub fn answer(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        payload: impl Into<Encoded>,
    ) -> Result<(), SendError> {
        let mut payload = payload.into();
        let refused = self.answer_each(now, [(task, &mut payload)].into_iter());
        let refusal = refused.into_iter().next().map(|(_, refusal)| refusal);
        self.let_go(payload);
        refusal.map_or(Ok(()), Err)
    }

    /// Sends the only replies of tasks and ends these. Those that leave by one connection, one
    /// behind the other, are handed to it together. Gives the tasks that go on, and why they do;
    /// their replies stay where they are.
    pub fn answer_each<'a>(
        &mut self,
        now: Timestamp,
        mut answers: impl Iterator<Item = (&'a TaskRef, &'a mut Encoded)>,
    ) -> Vec<(&'a TaskRef, SendError)> {
        let mut refused = Vec::new();
        let mut next = Answer::next(now, &mut answers, &mut self.visits, &mut self.links);
        while let Some(Answer { task, payload, way }) = next.take() {
            let is_last = answers.size_hint().1 == Some(0);
            match way {
                Ok(Some((way @ WayUp { link: Some(link), .. }, given)))
                    if link != LinkId::LOCAL && !is_last =>
                {
                    let Self { visits, links, outbox, .. } = self;
                    let to = Destination { to: way.to, link, lane: Lane::Data };
                    let mut leaving = Some((task, payload, (way, given)));
                    outbox.send_each(now, to, |hand| {
                        while let Some((task, payload, leaves)) = leaving.take() {
                            let head = sole_reply(task, &leaves);
                            // One that is not taken is lost, as any that has only this way.
                            if let Ok(Room::None) = hand(head.head(), std::mem::take(payload)) {
                                links.note_room(link, Room::None);
                            }
                            match Answer::next(now, &mut answers, visits, links) {
                                Some(Answer { task, payload, way: Ok(Some(leaves)) })
                                    if leaves.0.link == Some(link) =>
                                {
                                    leaving = Some((task, payload, leaves));
                                }
                                other => next = other,
                            }
                        }
                    });
                    continue;
                }
                Ok(Some(leaves)) => {
                    let (head, payload) = (sole_reply(task, &leaves), std::mem::take(payload));
                    let way = leaves.0;
                    if let Some(link) = way.link {
                        let to = Destination { to: way.to, link, lane: Lane::Data };
                        let _ = self.hand_over(now, to, head.head(), payload);
                    } else if let Ok(frame) = head.head().frame(payload.into_bytes()) {
                        self.send(now, Outbound { to: way.to, link: None, frame });
                    }
                }
                Ok(None) => {}
                Err(refusal) => refused.push((task, refusal)),
            }
            // What this one has left to be sent leaves before the next.
            self.pump(now);
            next = Answer::next(now, &mut answers, &mut self.visits, &mut self.links);
        }
        self.pump(now);
        refused
    }

    /// Has whoever pays for a task pay for a message of so many bytes in place of that of its
    /// request: the message came packed, or another way. It does until the task is over.
    ///
    /// # Errors
    /// The failure for the task, which did not run: its payer has its share of
    /// [`Limits::running_request_bytes_max`](super::super::limits::Limits) already.
    pub fn resize_request(&mut self, task: &TaskRef, bytes: usize) -> Result<(), TaskFailure> {
        self.visits.resize_request(task, bytes, &mut self.links)
    }

    /// The same for the largest message that there is, before it is known how long it is; a quarter
    /// of that limit at most.
    ///
    /// # Errors
    /// As [`Self::resize_request`].
    pub fn reserve_request(&mut self, task: &TaskRef) -> Result<(), TaskFailure> {
        self.visits.reserve_request(task, &mut self.links)
    }

    /// Begins a streamed reply and names it.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn stream(&mut self, now: Timestamp, task: &TaskRef) -> Result<u32, SendError> {
        self.with_visits(now, |tasks, links| tasks.stream(now, task, links))
    }

    /// Bytes that further items of a stream may have now; 0 when it takes none.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn stream_credit(&mut self, task: &TaskRef, index: u32) -> Result<u64, SendError> {
        self.visits.stream_credit(task, index)
    }

    /// Sends items of a stream. Those that there is no credit for wait. The credit that is left, as
    /// [`Self::stream_credit`] says.
    ///
    /// # Errors
    /// [`SendError`]; the items before it were sent.
    pub fn stream_items(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        index: u32,
        items: impl IntoIterator<Item: Into<Encoded>>,
    ) -> Result<u64, SendError> {
        let Self { visits, links, outbox, .. } = self;
        let mut items = items.into_iter().map(Into::into);
        let (named, mut full) = ((index, &mut items), None);
        let sent = visits.stream_items(now, task, named, links, |(link, way), reply, payload| {
            let to = Destination { to: way.to, link, lane: Lane::Data };
            // One that is not taken is lost, as any that has only this way.
            let room = outbox.send(now, to, envelope(task, way).reply(&reply).head(), payload);
            full = room.ok().filter(|room| *room == Room::None).map(|_| link);
        });
        if let Some(link) = full {
            links.note_room(link, Room::None);
        }
        if sent.is_err() {
            items.for_each(|item| self.let_go(item)); // Those behind one that was refused.
        }
        self.pump(now);
        sent
    }

    /// Ends a stream.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn stream_end(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        index: u32,
    ) -> Result<(), SendError> {
        self.with_visits(now, |tasks, links| tasks.stream_end(now, task, index, links))
    }

    /// The next item of a task's request, and small ones behind it in `ahead`. Without one,
    /// [`VisitEvent::Readable`](super::super::visits::VisitEvent::Readable) says once there is.
    ///
    /// # Errors
    /// [`ItemsFailure`] when the items have ended before their last one.
    pub fn next_item(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        ahead: Option<&mut VecDeque<Bytes>>,
    ) -> Result<Option<NextItem>, ItemsFailure> {
        self.with_visits(now, |tasks, links| tasks.next_item(task, ahead, links))
    }

    /// The handler of a task reads no further items of its request. Its caller is told.
    pub fn drop_items(&mut self, now: Timestamp, task: &TaskRef) {
        self.with_visits(now, |tasks, links| tasks.drop_items(task, links));
    }

    /// Opens a branch of a task.
    ///
    /// # Errors
    /// [`SendError`]; then no branch was opened.
    pub fn delegate(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        branch: Branch,
    ) -> Result<TaskKey, SendError> {
        self.with_visits(now, |tasks, links| tasks.delegate(now, task, branch, links))
    }

    /// Checks that a task may open a branch with a message of `size` bytes at a node now.
    ///
    /// # Errors
    /// [`SendError`] that [`Self::delegate`] would give.
    pub fn check_branch(
        &self,
        now: Timestamp,
        task: &TaskRef,
        to: NodeId,
        size: usize,
    ) -> Result<(), SendError> {
        self.visits.check_branch(now, task, (to, size, false), &self.links)
    }

    /// Checks that a task may end with a branch with a message of `size` bytes at a node now.
    ///
    /// # Errors
    /// [`SendError`] that [`Self::tail`] would give, and [`SendError::NodeDead`].
    pub fn check_tail(
        &self,
        now: Timestamp,
        task: &TaskRef,
        to: NodeId,
        size: usize,
    ) -> Result<(), SendError> {
        self.visits.check_branch(now, task, (to, size, true), &self.links)
    }

    /// Opens the last branch of a task and ends it. If it has sent nothing, its own branch goes on
    /// there, which costs no manifest and is no level. At a node that has become unreachable it
    /// fails at once, as a failure record at the initiator.
    ///
    /// # Errors
    /// [`SendError`]; then the task goes on.
    pub fn tail(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        mut branch: Branch,
    ) -> Result<(), SendError> {
        let TaskRef { call, key, .. } = *task;
        let onward = self.visits.tail(now, task, &mut branch, &mut self.links);
        if let Ok(Some(onward)) = &onward {
            let payload = std::mem::take(&mut branch.payload);
            let request = onward.terms.head((key, branch.method), &[], &branch.extensions);
            let (name, to) = ((call, onward.task.clone()), (branch.to, onward.link));
            self.send_onward(now, name, to, &request, payload);
        }
        self.let_go(branch.payload); // Of one that is refused, or is for a node that is dead.
        self.pump(now);
        onward.map(|_| ())
    }

    /// Opens a branch of a task at a node that is known to be dead: it fails at once, as a failure
    /// record at the initiator.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn delegate_to_dead(
        &mut self,
        now: Timestamp,
        task: &TaskRef,
        to: NodeId,
    ) -> Result<(), SendError> {
        self.with_visits(now, |tasks, links| tasks.delegate_to_dead(now, task, to, links))
    }

    /// The handler of a task waits for something: what is held back leaves.
    pub fn handle_yield(&mut self, now: Timestamp, task: &TaskRef) {
        self.with_visits(now, |tasks, links| tasks.handle_yield(now, task, links));
    }

    /// The handler of a task returned.
    pub fn finish(&mut self, now: Timestamp, task: &TaskRef) {
        self.with_visits(now, |tasks, links| tasks.finish(now, task, links));
    }

    /// The handler of a task failed.
    pub fn fail(&mut self, now: Timestamp, task: &TaskRef, failure: TaskFailure) {
        self.with_visits(now, |tasks, links| tasks.fail(now, task, failure, links));
    }

    /// As [`Self::fail`], and drops the replies that are not sent wholly: the failure leaves now.
    pub fn abort(&mut self, now: Timestamp, task: &TaskRef, failure: TaskFailure) {
        self.with_visits(now, |tasks, links| tasks.abort(now, task, failure, links));
    }

    fn with_visits<T>(
        &mut self,
        now: Timestamp,
        act: impl FnOnce(&mut Visits, &mut Links) -> T,
    ) -> T {
        let result = act(&mut self.visits, &mut self.links);
        self.pump(now);
        result
    }
}

/// The end of a task with its only reply, and the way that this leaves by now, if it does, with
/// what the task was given to pass on.
struct Answer<'a> {
    task: &'a TaskRef,
    payload: &'a mut Encoded,
    way: Result<Option<(WayUp, Given)>, SendError>,
}

impl<'a> Answer<'a> {
    /// Ends the next task.
    fn next(
        now: Timestamp,
        answers: &mut impl Iterator<Item = (&'a TaskRef, &'a mut Encoded)>,
        visits: &mut Visits,
        links: &mut Links,
    ) -> Option<Self> {
        let (task, payload) = answers.next()?;
        let way = visits.answer(now, task, payload, links);
        Some(Self { task, payload, way })
    }
}

/// All that a reply of a task says before its message, if it goes this way.
fn envelope<'a>(task: &'a TaskRef, way: &WayUp) -> Envelope<'a> {
    let key = way.shows_key.then_some(task.key);
    Envelope { call: task.call, task: &task.task, relayed: way.relayed, key }
}

/// The head of the only reply of a task.
fn sole_reply(task: &TaskRef, (way, given): &(WayUp, Given)) -> Scratch {
    envelope(task, way).sole_reply(given.as_ref().map_or(&[], |given| given))
}
