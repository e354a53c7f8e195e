//! The handlers of tasks: they follow their plans, and the oracle writes down what they do.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::flow::cost;
use convoke_proto::id::{MethodId, NodeId, TaskKey};
use convoke_proto::node::Node;
use convoke_proto::task::{Branch, SendError, TaskFailure};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Start, TaskRef};
use convoke_proto::wire::{Cause, Executed};

use crate::invariants::Observation;
use crate::network::Place;
use crate::oracle::{ReplyTruth, TaskEnd, TaskName, TaskTruth};
use crate::plan::{self, Step, encoded, payload, tag};

use super::World;
use super::event::Event;
use super::host::node_id;
use super::streams::ItemReader;

/// The code of a handler that fails as planned.
const ABORTED: u32 = 10;

/// A handler that runs.
#[derive(Debug)]
pub(super) struct Handler {
    steps: VecDeque<Step>,
    method: MethodId,
    origin: NodeId,
    stream: Option<Stream>,
    held: Held,
    /// Metadata that the next message takes.
    tag: Option<Bytes>,
    /// It waits for credit of its stream, or for an item.
    pub(super) is_blocked: bool,
    /// It reads the items of its request first.
    pub(super) reader: Option<ItemReader>,
}

#[derive(Debug)]
struct Stream {
    index: u32,
    items: VecDeque<usize>,
    next: u64,
    ends_itself: bool,
}

/// The only message of a task from its handler's end on, as it returns with it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) task: TaskRef,
    message: Bytes,
    tag: Option<Bytes>,
    /// It goes to another node.
    leaves: bool,
}

/// Most items that an endpoint hands over together.
const LOT_MAX: usize = 32;

/// Frames that the node should hold back now, by the rules of completion.md section 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    Reply,
    Requests,
}

/// Next step of a handler.
pub(super) enum Next {
    GoOn,
    Wait,
    Over,
}

impl World {
    pub(super) fn start_handler(&mut self, place: Place, start: Start) {
        let node = self.hosts[place].id;
        let (now, task) = (self.now, start.task.clone());
        self.trace.note(now, || format!("{node} starts {:?} {}", task.call, task.task));
        let seen = Observation::Started { start: &start, node };
        self.observe(&seen);
        let name = self.oracle.name(&task);
        if !self.oracle.tasks.contains_key(&name) {
            self.oracle.open_by_liar(name.clone(), node);
        }
        if let Some(truth) = self.oracle.tasks.get_mut(&name) {
            truth.runs.push((node, now));
            truth.deadline = start.deadline;
        }
        let servers: Vec<NodeId> = (0..self.scenario.servers).map(node_id).collect();
        let steps = plan::plan(
            self.scenario.seed,
            &self.scenario.shape,
            task.call,
            &task.task,
            start.method,
            &servers,
        );
        let handler = Handler {
            steps: steps.into(),
            method: start.method,
            origin: start.origin,
            stream: None,
            held: Held::Nothing,
            tag: None,
            is_blocked: false,
            reader: start.has_items.then(|| self.item_reader(&task)),
        };
        let host = &mut self.hosts[place];
        host.handlers.insert(task.clone(), handler);
        let end = host.end();
        let delay =
            if self.random.chance(50) { self.random.micros(0..200) } else { Duration::ZERO };
        self.schedule_in(delay, Event::Step { end, task });
    }

    pub(super) fn stop_handler(&mut self, place: Place, task: &TaskRef, cause: Cause) {
        let node = self.hosts[place].id;
        self.trace
            .note(self.now, || format!("{node} stops {:?} {}: {cause}", task.call, task.task));
        self.hosts[place].handlers.remove(task);
        let was_running = self.oracle.truth(task).is_some_and(|truth| truth.end.is_none());
        let name = self.oracle.name(task);
        self.observe(&Observation::Stopped { task: &name, cause, node, was_running });
        self.oracle.end(&name, TaskEnd::Stopped(cause));
        if self.hosts[place].is_up() {
            let refused = self.try_after_stop(place, task);
            self.observe(&Observation::TriedAfterStop { task: &name, refused });
        }
    }

    /// A handler that has not noticed yet that it was stopped: it must be refused.
    fn try_after_stop(&mut self, place: Place, task: &TaskRef) -> bool {
        let branch = Branch {
            to: node_id(0),
            method: plan::TREE,
            payload: encoded(b""),
            extensions: Vec::new(),
            deadline: None,
        };
        let now = self.now;
        let Some(node) = self.hosts[place].core_of_mut(task.call) else { return true };
        node.delegate(now, task, branch).is_err() && node.reply(now, task, Bytes::new()).is_err()
    }

    pub(super) fn unblock_handler(&mut self, place: Place, task: &TaskRef) {
        let end = self.hosts[place].end();
        // One that is not in the table is in the middle of a step, about to wait for this.
        let waits = self.hosts[place]
            .handlers
            .get_mut(task)
            .is_none_or(|handler| std::mem::replace(&mut handler.is_blocked, false));
        if waits {
            self.schedule_in(Duration::ZERO, Event::Step { end, task: task.clone() });
        }
    }

    /// Lets a handler go on until it waits or ends.
    pub(super) fn run_handler(&mut self, place: Place, task: &TaskRef) {
        // It leaves the table while it runs, and comes back unless it ended.
        while let Some(mut handler) = self.hosts[place].handlers.remove(task) {
            match self.run_step(place, task, &mut handler) {
                Ok(Next::Over) | Err(SendError::Ended) => return,
                Ok(Next::GoOn) | Err(_) => self.keep_handler(place, task, handler),
                Ok(Next::Wait) => return self.keep_handler(place, task, handler),
            }
        }
    }

    /// Unless it was stopped by what its own step led to.
    fn keep_handler(&mut self, place: Place, task: &TaskRef, handler: Handler) {
        let has_ended = self.oracle.truth(task).is_none_or(|truth| truth.end.is_some());
        if !has_ended {
            self.hosts[place].handlers.insert(task.clone(), handler);
        }
    }

    fn run_step(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
    ) -> Result<Next, SendError> {
        if handler.reader.is_some() {
            return self.read_on(place, task, handler);
        }
        if handler.stream.is_some() {
            return self.stream_on(place, task, handler);
        }
        match handler.steps.pop_front() {
            Some(Step::Reply(len)) if handler.steps.is_empty() => {
                return self.last_reply(place, task, handler, len);
            }
            Some(Step::Reply(len)) => self.send_reply(place, task, handler, len)?,
            Some(Step::Stream(items, ends_itself)) => {
                let index = self.call_node(place, task, |node, now| node.stream(now, task))?;
                let reply = ReplyTruth { is_stream: true, ..ReplyTruth::default() };
                self.push_reply(task, reply);
                let items = items.into();
                handler.stream = Some(Stream { index, items, next: 0, ends_itself });
            }
            Some(Step::Delegate(to, budget)) if self.is_tail_in_one(task, handler) => {
                self.tail_handler(place, task, handler, to, budget)?;
                return Ok(Next::Over);
            }
            Some(Step::Delegate(to, budget)) => {
                self.open_branch(place, task, handler, to, budget)?
            }
            Some(Step::Wait(time)) => {
                self.yield_handler(place, task, handler);
                let end = self.hosts[place].end();
                self.schedule_in(time, Event::Step { end, task: task.clone() });
                return Ok(Next::Wait);
            }
            Some(Step::Fail { panics, aborts }) => {
                self.fail_handler(place, task, panics, aborts);
                return Ok(Next::Over);
            }
            None => {
                self.finish_handler(place, task, handler);
                return Ok(Next::Over);
            }
        }
        Ok(Next::GoOn)
    }

    /// An act of a handler. Nobody sees what comes of it before [`Self::settle`]: the oracle is to
    /// know of it by then.
    fn act<T>(
        &mut self,
        place: Place,
        task: &TaskRef,
        act: impl FnOnce(&mut Node, Timestamp) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        let now = self.now;
        act(self.hosts[place].core_of_mut(task.call).ok_or(SendError::Ended)?, now)
    }

    fn call_node<T>(
        &mut self,
        place: Place,
        task: &TaskRef,
        act: impl FnOnce(&mut Node, Timestamp) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        self.drive(place, task.call, act).unwrap_or(Err(SendError::Ended))
    }

    fn send_reply(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
        len: usize,
    ) -> Result<(), SendError> {
        let message = self.next_reply(place, task, handler, len)?;
        let sent = self.act(place, task, |node, now| node.reply(now, task, encoded(&message)));
        if sent.is_ok() {
            self.push_reply(task, ReplyTruth::whole(message, handler.tag.take()));
            let is_whole = len as u64 <= self.scenario.limits.unscheduled_bytes;
            handler.held = if is_whole { Held::Reply } else { Held::Nothing };
            self.count_messages(place, handler, 1);
        }
        self.settle(place);
        sent
    }

    /// The message of the next reply of a task, whose node has its metadata.
    fn next_reply(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
        len: usize,
    ) -> Result<Bytes, SendError> {
        let index = self.oracle.truth(task).map_or(0, |truth| truth.replies.len());
        let index = u32::try_from(index).expect("few replies");
        self.set_metadata(place, task, handler, index, 0)?;
        Ok(payload(&self.oracle.name(task), index, 0, len))
    }

    /// A reply that the handler does nothing after: it returns with it, and its task ends at once
    /// or with others, or it returns when it has sent it.
    fn last_reply(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
        len: usize,
    ) -> Result<Next, SendError> {
        let way = self.ways.index(4);
        if way == 0 {
            self.send_reply(place, task, handler, len)?;
            return Ok(Next::GoOn);
        }
        let message = self.next_reply(place, task, handler, len)?;
        let leaves = handler.origin != self.hosts[place].id;
        let answer = Answer { task: task.clone(), message, tag: handler.tag.take(), leaves };
        if way == 1 {
            let message = encoded(&answer.message);
            let refused = self.act(place, task, |node, now| node.answer(now, task, message)).err();
            self.note_answers(place, &[answer], refused.map(|refusal| (task.clone(), refusal)));
            return Ok(Next::Over);
        }
        let waiting = &mut self.hosts[place].answers;
        waiting.push(answer);
        if waiting.len() == 1 {
            // It takes the thread that it runs on as long as this to start what came together.
            let delay =
                if self.ways.chance(50) { self.ways.micros(0..100) } else { Duration::ZERO };
            let end = self.hosts[place].end();
            self.schedule_in(delay, Event::Answers { end });
        }
        Ok(Next::Over)
    }

    /// Ends the tasks whose handlers have returned with their answers, those of one core together.
    pub(super) fn end_tasks(&mut self, place: Place) {
        let (now, routes) = (self.now, self.hosts[place].routes());
        let answers = std::mem::take(&mut self.hosts[place].answers);
        let core_of = |answer: &Answer| routes.of(answer.task.call.origin);
        for of_core in answers.chunk_by(|one, next| core_of(one) == core_of(next)) {
            let Some(node) = self.hosts[place].core_of_mut(of_core[0].task.call) else { return };
            let mut messages: Vec<_> =
                of_core.iter().map(|answer| encoded(&answer.message)).collect();
            let each = of_core.iter().map(|answer| &answer.task).zip(&mut messages);
            let refused = node.answer_each(now, each).into_iter();
            let refused: Vec<_> = refused.map(|(task, why)| (task.clone(), why)).collect();
            self.note_answers(place, of_core, refused);
        }
    }

    /// Writes down that tasks have ended with their answers. Those that were refused fail, as those
    /// of an endpoint do.
    fn note_answers(
        &mut self,
        place: Place,
        answers: &[Answer],
        refused: impl IntoIterator<Item = (TaskRef, SendError)>,
    ) {
        let refused: BTreeMap<TaskRef, SendError> = refused.into_iter().collect();
        for Answer { task, message, tag, leaves } in answers {
            if refused.contains_key(task) {
                continue;
            }
            self.push_reply(task, ReplyTruth::whole(message.clone(), tag.clone()));
            self.oracle.cost.messages += u64::from(*leaves);
            self.end_replies(task);
            let name = self.oracle.name(task);
            self.oracle.end(&name, TaskEnd::Finished);
        }
        for (task, why) in refused {
            if why != SendError::Ended {
                self.fail_handler(place, &task, false, false);
            }
        }
        self.settle(place);
    }

    fn stream_on(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
    ) -> Result<Next, SendError> {
        let stream = handler.stream.as_mut().expect("the caller looked");
        let (index, first) = (stream.index, stream.next);
        if stream.items.is_empty() {
            let ends_itself = stream.ends_itself;
            handler.stream = None;
            if ends_itself {
                self.end_stream(place, task, handler, index)?;
            }
            return Ok(Next::GoOn);
        }
        let credit = self.call_node(place, task, |node, _| node.stream_credit(task, index))?;
        if credit == 0 {
            handler.is_blocked = true;
            self.yield_handler(place, task, handler);
            return Ok(Next::Wait);
        }
        let most = if self.ways.chance(50) { 1 } else { 1 + self.ways.index(LOT_MAX) };
        let lot = stream.take_lot(&self.oracle.name(task), credit, most);
        self.set_metadata(place, task, handler, index, first)?;
        let mut taken = 0_usize;
        let items = lot.iter().map(|message| {
            taken += 1;
            encoded(message)
        });
        let sent = self.act(place, task, |node, now| node.stream_items(now, task, index, items));
        // The items before the one that was refused were sent.
        let sent_count = if sent.is_ok() { taken } else { taken.saturating_sub(1) };
        for message in lot.into_iter().take(sent_count) {
            self.push_item(task, index, message, handler.tag.take());
            handler.held = Held::Reply;
        }
        self.count_messages(place, handler, sent_count as u64);
        self.settle(place);
        sent.map(|_| Next::GoOn)
    }

    fn end_stream(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
        index: u32,
    ) -> Result<(), SendError> {
        self.call_node(place, task, |node, now| node.stream_end(now, task, index))?;
        handler.held = Held::Reply;
        if let Some(reply) =
            self.oracle.truth_mut(task).and_then(|t| t.replies.get_mut(index as usize))
        {
            reply.is_over = true;
        }
        Ok(())
    }

    fn open_branch(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
        to: NodeId,
        budget: Option<Duration>,
    ) -> Result<(), SendError> {
        let (now, branch) = (self.now, self.branch(handler, to, budget));
        let Some(node) = self.hosts[place].core_of_mut(task.call) else {
            return Err(SendError::Ended);
        };
        let child = node.delegate(now, task, branch)?;
        self.note_branch(place, task, child, to);
        handler.held = Held::Requests;
        self.settle(place);
        Ok(())
    }

    fn branch(&self, handler: &Handler, to: NodeId, budget: Option<Duration>) -> Branch {
        Branch {
            to,
            method: handler.method,
            payload: encoded(b"grow"),
            extensions: Vec::new(),
            deadline: budget.map(|budget| self.now + budget),
        }
    }

    fn note_branch(&mut self, place: Place, task: &TaskRef, child: TaskKey, to: NodeId) {
        let child = self.oracle.name(task).child(child);
        self.oracle.open(child.clone(), to, Some(task.task.clone()));
        self.tempt_liars(child.clone(), to);
        if let Some(truth) = self.oracle.truth_mut(task) {
            truth.children.push(child.task);
        }
        self.oracle.cost.branches += u64::from(to != self.hosts[place].id);
    }

    /// True when all that a task has left to do is to open a branch, and it has done nothing yet:
    /// half of these do it in one act with their end.
    fn is_tail_in_one(&self, task: &TaskRef, handler: &Handler) -> bool {
        let has_said = |truth: &TaskTruth| !truth.children.is_empty() || !truth.replies.is_empty();
        handler.steps.is_empty()
            && task.key().0.is_multiple_of(2)
            && self.oracle.truth(task).is_some_and(|truth| !has_said(truth))
    }

    fn tail_handler(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &Handler,
        to: NodeId,
        budget: Option<Duration>,
    ) -> Result<(), SendError> {
        let (now, branch) = (self.now, self.branch(handler, to, budget));
        let Some(node) = self.hosts[place].core_of(task.call) else { return Err(SendError::Ended) };
        node.check_tail(now, task, to, branch.payload.len())?;
        // The oracle knows first: a branch at the node itself starts before this returns.
        let path = task.task.path.child(0).map_err(|_| SendError::TooDeep)?;
        let child = TaskKey { path, hop: 0 };
        self.note_branch(place, task, child, to);
        let name = self.oracle.name(task);
        self.oracle.tail(&name);
        self.call_node(place, task, |node, now| node.tail(now, task, branch))
    }

    pub(super) fn yield_handler(&mut self, place: Place, task: &TaskRef, handler: &mut Handler) {
        handler.held = Held::Nothing;
        self.drive(place, task.call, |node, now| node.handle_yield(now, task));
    }

    fn finish_handler(&mut self, place: Place, task: &TaskRef, handler: &mut Handler) {
        let id = self.hosts[place].id;
        let Some(truth) = self.oracle.truth_mut(task) else { return };
        if truth.replies.iter().any(|reply| !reply.is_over) {
            handler.held = Held::Reply;
        }
        let is_tail = (truth.children.len(), truth.replies.len()) == (1, 0);
        self.end_replies(task);
        if is_tail && handler.held == Held::Requests {
            let name = self.oracle.name(task);
            self.oracle.tail(&name);
        } else {
            let is_silent = handler.held == Held::Nothing && handler.origin != id;
            self.oracle.cost.silent_tasks += u64::from(is_silent);
            let name = self.oracle.name(task);
            self.oracle.end(&name, TaskEnd::Finished);
        }
        self.drive(place, task.call, |node, now| node.finish(now, task));
    }

    fn fail_handler(&mut self, place: Place, task: &TaskRef, panics: bool, aborts: bool) {
        let cause = if panics { Cause::Panicked } else { Cause::Application };
        let mut failure = TaskFailure::new(cause, Executed::Yes, "as planned");
        failure.aborts_children = aborts;
        failure.code = if panics { 0 } else { ABORTED };
        let name = self.oracle.name(task);
        self.oracle.end(&name, TaskEnd::Failed { cause, aborts });
        self.drive(place, task.call, |node, now| node.fail(now, task, failure));
    }

    fn push_reply(&mut self, task: &TaskRef, reply: ReplyTruth) {
        if let Some(truth) = self.oracle.truth_mut(task) {
            truth.replies.push(reply);
        }
    }

    /// Nothing more comes of any reply of a task.
    fn end_replies(&mut self, task: &TaskRef) {
        if let Some(truth) = self.oracle.truth_mut(task) {
            truth.replies.iter_mut().for_each(|reply| reply.is_over = true);
        }
    }

    /// Gives metadata to some messages. One that was not taken leaves its own to the next.
    fn set_metadata(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
        index: u32,
        item: u64,
    ) -> Result<(), SendError> {
        if handler.tag.is_none()
            && let Some(tag) = tag(&self.oracle.name(task), index, item)
        {
            self.call_node(place, task, |node, now| node.reply_metadata(now, task, "tag", &tag))?;
            handler.tag = Some(tag);
        }
        Ok(())
    }

    fn push_item(&mut self, task: &TaskRef, index: u32, bytes: Bytes, tag: Option<Bytes>) {
        let replies = self.oracle.truth_mut(task).map(|truth| &mut truth.replies);
        if let Some(reply) = replies.and_then(|replies| replies.get_mut(index as usize)) {
            reply.tags.extend(tag.map(|tag| (reply.messages.len(), tag)));
            reply.messages.push(bytes);
        }
    }

    fn count_messages(&mut self, place: Place, handler: &Handler, count: u64) {
        if handler.origin != self.hosts[place].id {
            self.oracle.cost.messages += count;
        }
    }
}

impl Stream {
    /// Takes the next items for which there is credit, as an endpoint hands them over: only the
    /// last may have too little, and only the first may have metadata.
    fn take_lot(&mut self, task: &TaskName, mut credit: u64, most: usize) -> Vec<Bytes> {
        let mut lot = Vec::new();
        while lot.len() < most
            && credit > 0
            && (lot.is_empty() || tag(task, self.index, self.next).is_none())
            && let Some(len) = self.items.pop_front()
        {
            lot.push(payload(task, self.index, self.next, len));
            credit = credit.saturating_sub(cost(len));
            self.next += 1;
        }
        lot
    }
}
