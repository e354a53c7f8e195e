//! A server's handling of one request: what it sends, what it holds back, and what it declares at
//! its end.
//!
//! The last output is held back until the next one, the end, or until the handler waits for
//! something (`handle_yield`), so that the entry of the common cases costs no frame of its own:
//!
//! | at the end | then |
//! |---|---|
//! | R1: no branch, no reply | MANIFEST: it is this branch's answer |
//! | R2: one reply, held | the reply says FINAL |
//! | R3: one branch, held | a *tail*: the same branch goes on at the next hop |
//! | R4: else a reply is held | the entry rides on it |
//! | R5: else requests are held | the entry rides on up to `carry_copies` of them |
//! | R6: else | MANIFEST |
//!
//! R7: entries of ancestors ride on the first output of any kind. Source: Roo's manifest
//! elimination; that output is held only while the handler runs without waiting departs from it.

mod branch;
mod intake;
mod outgoing;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::encoded::Encoded;
use crate::id::{LinkId, MethodId, NodeId, Path, TaskKey};
use crate::key::Key;
use crate::time::Timestamp;
use crate::wire::{
    Cause, Credit, Entry, Executed, Extension, Fail, Manifest, Message, Outcome, Reply, ReplyPath,
    Sealed, fit_one_frame,
};

use super::limits::Limits;
use super::{key, metadata, wire};
pub use branch::Branch;
pub(crate) use intake::Intake;
pub use intake::{ItemsFailure, NextItem};
use outgoing::Outgoing;

/// Output that a task wants sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TaskOutput {
    /// To the initiator.
    Reply(Message),
    /// To another node: opens a branch.
    Request(ChildRequest),
    /// To nobody: a payload whose owner may be called as it is dropped.
    Spent(Bytes),
}

/// A branch to be opened; floor and reply route are the node's to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChildRequest {
    pub(crate) to: NodeId,
    pub(crate) task: TaskKey,
    pub(crate) key: Key,
    pub(crate) method: MethodId,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) inherited: Vec<Sealed>,
    pub(crate) payload: Encoded,
    /// No later than this, if earlier than the task's own deadline.
    pub(crate) deadline: Timestamp,
    /// When the call ends, as far as the task knows.
    pub(crate) call_deadline: Timestamp,
}

/// The error that a handler ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// Reason.
    pub cause: Cause,
    /// Its execution, as far as known.
    pub executed: Executed,
    /// The service's code, 0 for other causes.
    pub code: u32,
    /// For people; cut to 4 KiB, at a character, with an ellipsis.
    pub text: String,
    /// The service's details; above [`Limits::details_bytes_max`] they are left out.
    pub details: Bytes,
    /// Cancel the branches it opened, too.
    pub aborts_children: bool,
}

impl TaskFailure {
    /// A failure with a cause and nothing else to say.
    pub fn new(cause: Cause, executed: Executed, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { cause, executed, code: 0, text, details: Bytes::new(), aborts_children: false }
    }

    /// Takes details out of it that are longer than they may be.
    pub(crate) fn bound_details(&mut self, limits: &Limits) -> Bytes {
        match self.details.len() > limits.details_bytes_max() {
            true => std::mem::take(&mut self.details),
            false => Bytes::new(),
        }
    }

    pub(crate) fn into_fail(self, own: Option<Entry>, inherited: Vec<Sealed>) -> Fail {
        Fail {
            cause: self.cause,
            executed: self.executed,
            code: self.code,
            node: None,
            text: wire::cut(&self.text).into_owned(),
            entry: own.map(Box::new),
            aborts_children: self.aborts_children,
            inherited,
            extensions: Vec::new(),
            details: self.details,
        }
    }
}

/// Reason why a task did not take a message: a reply, an item of a stream, or a branch. Nothing of
/// it was sent, and the task goes on, unless it has [ended](Self::Ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The task has ended: nobody waits for what it sends, and the handler may return. Of an item
    /// of a streamed request: nobody reads it, and the call says why.
    #[error("the task has ended: it was cancelled, its deadline passed, or it finished")]
    Ended,
    /// The connection that the items of a streamed request go over has ended, or its peer takes
    /// only smaller ones. The call may still be answered.
    #[error("the connection that the items go over has ended, or takes only smaller ones")]
    Lost,
    /// The node cannot be reached at the moment. Another one may be asked instead.
    #[error("the node cannot be reached at the moment")]
    NodeDead,
    /// The branch would lie deeper in the request tree than a path is long.
    #[error(
        "the request tree is as deep as a path is long, 32 levels or 64 bytes, and no limit raises \
         that: make a call in place of a branch"
    )]
    TooDeep,
    /// The task has opened `Limits::children_max` branches.
    #[error(
        "the task has as many branches as children_max allows: open fewer, or raise \
         Limits::children_max"
    )]
    TooManyBranches,
    /// The message is larger than `Limits::message_bytes_max`.
    #[error(
        "a message of {size} bytes is larger than message_bytes_max, {limit}: send less, or raise \
         Limits::message_bytes_max at both ends"
    )]
    TooLarge {
        /// The message.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The metadata of the message has more than 16,000 bytes, or a key of it more than 255.
    #[error(
        "metadata of {size} bytes is too large: a message has at most {limit}, of which a key has \
         at most 255, and no limit raises that; send it in the message"
    )]
    MetadataTooLarge {
        /// The metadata, with the pair that was to be added.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Replies to this peer already wait for credit in all the room that it may take. Send again
    /// when it has read some.
    #[error(
        "too many bytes of replies wait until they are granted: its peer has its share of \
         waiting_reply_bytes_max"
    )]
    TooMuchWaits,
}

impl SendError {
    /// The cause of a task that fails for this reason.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Ended => Cause::Cancelled,
            Self::NodeDead | Self::Lost => Cause::Unreachable,
            Self::TooDeep => Cause::PathTooDeep,
            Self::TooManyBranches => Cause::TooManyBranches,
            Self::TooLarge { .. } | Self::MetadataTooLarge { .. } | Self::TooMuchWaits => {
                Cause::Application
            }
        }
    }
}

#[derive(Debug)]
enum Held {
    Nothing,
    Reply(outgoing::Item),
    Children(VecDeque<ChildRequest>),
}

/// Node and connection that a branch went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) node: NodeId,
    /// The connection that its request left by, once it has; [`LinkId::NONE`] once it cannot leave.
    pub(crate) link: Option<LinkId>,
}

/// Bytes of replies that a task sends before others have their turn, about.
const TURN_BYTES: usize = 256 << 10;

/// One running task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskKey,
    pub(crate) key: Key,
    pub(crate) deadline: Timestamp,
    pub(crate) call_deadline: Timestamp,
    /// The extensions that its request carried, copied to its branches.
    pub(crate) extensions: Vec<Extension>,
    inherited: Vec<Sealed>,
    /// All that was given to pass on, kept for reports after a connection was lost.
    pub(crate) given: Given,
    held: Held,
    /// The branches it opened, by index.
    pub(crate) children: SmallVec<[Child; 4]>,
    /// The connection to the initiator, fixed at the first output.
    pub(crate) route: Option<LinkId>,
    outgoing: Outgoing,
    /// Metadata of the next reply, item or failure.
    metadata: Vec<Extension>,
    /// The connection for room in which its replies wait, though they have credit.
    pub(crate) granted_at: Option<LinkId>,
    carry_copies: usize,
    children_max: u32,
    message_bytes_max: usize,
    out: VecDeque<TaskOutput>,
    end: Option<Finished>,
    /// Its failure, or its last reply with its entry, behind what waits, or for room alone.
    last_word: Option<Message>,
    /// The way the first reply left.
    pub(crate) replies_by: Option<ReplyPath>,
    /// The items that follow its request, if any do, until it ends.
    pub(crate) intake: Option<Box<Intake>>,
}

/// Remains of a finished task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) entry: Entry,
    /// The branch went on at this node.
    pub(crate) tailed: bool,
    /// More that its failure said.
    pub(crate) words: Option<Box<Words>>,
}

/// Part of a failure that its entry does not say: kept to be said again when the task is asked for,
/// as the first may have been lost with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    executed: Executed,
    code: u32,
    /// The beginning.
    text: Box<str>,
    aborts_children: bool,
}

/// Bytes of a text that are kept: a record is counted as 256 bytes with them.
const KEPT_TEXT_BYTES_MAX: usize = 96;

impl Words {
    fn of(failure: &TaskFailure) -> Box<Self> {
        let TaskFailure { executed, code, aborts_children, .. } = *failure;
        let text = wire::cut_to(&failure.text, KEPT_TEXT_BYTES_MAX).into();
        Box::new(Self { executed, code, text, aborts_children })
    }
}

impl Finished {
    /// The failure of a task that said one.
    pub(crate) fn failure(&self) -> Option<Fail> {
        let Outcome::Failed(cause) = self.entry.outcome else { return None };
        let Words { executed, code, ref text, aborts_children } = **self.words.as_ref()?;
        let failure = TaskFailure::new(cause, executed, &**text);
        let failure = TaskFailure { code, aborts_children, ..failure };
        Some(failure.into_fail(Some(self.entry.clone()), Vec::new()))
    }
}

/// A branch whose request cannot leave: its name and key, and the entries that it was to carry.
pub(crate) type Unsent = ((TaskKey, Key), Vec<Sealed>);

/// Entries that a task was given to pass on, if there are any.
pub(crate) type Given = Option<Arc<Vec<Sealed>>>;

/// Inherited entries that may ride on other frames; more go out at once as a MANIFEST.
const RIDING_ENTRIES_MAX: usize = 4;
const RIDING_BYTES_MAX: usize = 256;

/// True when inherited entries may ride on other frames.
pub(crate) fn may_ride(entries: &[Sealed]) -> bool {
    let bytes: usize = entries.iter().map(|sealed| sealed.entry.encoded_len()).sum();
    entries.len() <= RIDING_ENTRIES_MAX && bytes <= RIDING_BYTES_MAX
}

impl Task {
    pub(crate) fn new(
        (id, key): (TaskKey, Key),
        (deadline, call_deadline): (Timestamp, Timestamp),
        given: Given,
        extensions: Vec<Extension>,
        limits: &Limits,
    ) -> Self {
        let inherited = given.as_ref().map_or_else(Vec::new, |given| given.to_vec());
        let mut this = Self {
            id,
            key,
            deadline,
            call_deadline,
            extensions,
            given,
            inherited,
            held: Held::Nothing,
            children: SmallVec::new(),
            route: None,
            outgoing: Outgoing::new(limits.unscheduled_bytes),
            metadata: Vec::new(),
            granted_at: None,
            carry_copies: limits.carry_copies,
            children_max: limits.children_max,
            message_bytes_max: limits.message_bytes_max,
            out: VecDeque::new(),
            end: None,
            last_word: None,
            replies_by: None,
            intake: None,
        };
        if !may_ride(&this.inherited) {
            let inherited = std::mem::take(&mut this.inherited);
            this.push(Message::Manifest(Manifest { own: None, inherited }));
        }
        this
    }

    /// Adds a pair to the metadata of the next reply, item or failure.
    pub(crate) fn reply_metadata(&mut self, key: &str, value: &[u8]) -> Result<(), SendError> {
        self.check_running()?;
        let pushed = metadata::push(&mut self.metadata, key, value);
        pushed.map_err(|(size, limit)| SendError::MetadataTooLarge { size, limit })
    }

    /// Sends a whole reply.
    pub(crate) fn reply(&mut self, payload: Encoded) -> Result<(), SendError> {
        if let Err(refusal) = self.check_message(&payload) {
            return Err(self.refused(payload, refusal));
        }
        self.flush();
        let metadata = std::mem::take(&mut self.metadata);
        self.held = Held::Reply(self.outgoing.message(metadata, payload));
        Ok(())
    }

    /// Begins a streamed reply and names it.
    pub(crate) fn stream(&mut self) -> Result<u32, SendError> {
        self.check_running()?;
        Ok(self.outgoing.open_stream())
    }

    /// Bytes that further items of a stream may have now, behind what is held: none while others
    /// wait.
    pub(crate) fn stream_credit(&self, index: u32) -> u64 {
        let held = match &self.held {
            Held::Reply(item) if item.index == index => item.piece.cost(),
            _ => 0,
        };
        self.outgoing.credit(index).saturating_sub(held)
    }

    /// Sends the next item of a stream. What was held until now goes to `leave`, where there is
    /// one, if it can leave at once and nothing waits before it.
    pub(crate) fn stream_item(
        &mut self,
        index: u32,
        payload: Encoded,
        leave: Option<&mut dyn FnMut(Reply, Encoded)>,
    ) -> Result<(), SendError> {
        if let Err(refusal) = self.check_message(&payload).and_then(|()| self.check_stream(index)) {
            return Err(self.refused(payload, refusal));
        }
        match (leave, std::mem::replace(&mut self.held, Held::Nothing)) {
            (Some(leave), Held::Reply(item))
                if self.out.is_empty() && self.outgoing.can_leave_whole(&item) =>
            {
                let inherited = std::mem::take(&mut self.inherited);
                let (reply, message) = self.outgoing.send_whole(item);
                leave(Reply { inherited, ..reply }, message);
            }
            (_, held) => {
                self.held = held;
                self.flush();
            }
        }
        let metadata = std::mem::take(&mut self.metadata);
        self.held = Held::Reply(self.outgoing.item(index, metadata, payload));
        Ok(())
    }

    /// Ends a stream; on the last item if that is still held.
    pub(crate) fn stream_end(&mut self, index: u32) -> Result<(), SendError> {
        self.check_running()?;
        self.check_stream(index)?;
        self.outgoing.close_stream(index);
        if let Held::Reply(item) = &mut self.held
            && item.index == index
            && item.piece.mark_last()
        {
            return Ok(());
        }
        self.flush();
        if !self.outgoing.mark_last(index) {
            self.held = Held::Reply(self.outgoing.end(index));
        }
        Ok(())
    }

    /// Checks that a branch can be opened.
    pub(crate) fn check_branch(&self) -> Result<(), SendError> {
        self.check_running()?;
        self.next_path().map(|_| ())
    }

    /// Checks that the task can end with a branch.
    pub(crate) fn check_tail(&self) -> Result<(), SendError> {
        self.check_running()?;
        self.last_child().map(|_| ())
    }

    /// Opens a branch at another node. Its index is consumed only when this succeeds.
    pub(crate) fn delegate(&mut self, branch: Branch) -> Result<TaskKey, SendError> {
        match self.check_message(&branch.payload).and_then(|()| self.next_child()) {
            Ok(child) => self.open(branch, child),
            Err(refusal) => Err(self.refused(branch.payload, refusal)),
        }
    }

    /// Opens the last branch and ends.
    pub(crate) fn tail(&mut self, branch: Branch) -> Result<(), SendError> {
        match self.check_message(&branch.payload).and_then(|()| self.last_child()) {
            Ok(child) => self.open(branch, child)?,
            Err(refusal) => return Err(self.refused(branch.payload, refusal)),
        };
        self.finish();
        Ok(())
    }

    fn open(&mut self, mut branch: Branch, child: (TaskKey, Key)) -> Result<TaskKey, SendError> {
        if let Err(refusal) = branch.inherit(&self.extensions) {
            return Err(self.refused(branch.payload, refusal));
        }
        if matches!(self.held, Held::Reply(_)) {
            self.flush();
        }
        self.children.push(Child { node: branch.to, link: None });
        let (task, key) = child;
        let request = ChildRequest {
            to: branch.to,
            task: task.clone(),
            key,
            method: branch.method,
            deadline: branch.deadline_within(self.deadline),
            extensions: branch.extensions,
            inherited: Vec::new(),
            payload: branch.payload,
            call_deadline: self.call_deadline,
        };
        let mut held = match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Children(held) => held,
            Held::Nothing | Held::Reply(_) => VecDeque::new(),
        };
        if held.len() == self.carry_copies {
            let oldest = held.pop_front().expect("carry_copies is not zero");
            self.push_request(oldest);
        }
        held.push_back(request);
        self.held = Held::Children(held);
        Ok(task)
    }

    /// Opens a branch at a node that cannot be asked: it only takes its index, so that the
    /// initiator can be told of it.
    pub(crate) fn delegate_to_dead(&mut self, to: NodeId) -> Result<(TaskKey, Key), SendError> {
        self.check_running()?;
        let child = self.next_child()?;
        self.flush();
        self.children.push(Child { node: to, link: None });
        Ok(child)
    }

    /// Ends with a branch at a node that cannot be asked: gives its name, its key, and the entries
    /// that its request would have carried.
    pub(crate) fn tail_to_dead(&mut self, to: NodeId) -> Result<Unsent, SendError> {
        self.check_running()?;
        let (child, is_silent) = (self.last_child()?, self.is_silent());
        self.flush();
        self.children.push(Child { node: to, link: None });
        if !is_silent {
            self.finish();
            return Ok((child, Vec::new()));
        }
        self.hand_on();
        Ok((child, std::mem::take(&mut self.inherited)))
    }

    /// Name and key of the next branch.
    fn next_child(&self) -> Result<(TaskKey, Key), SendError> {
        let (index, path) = self.next_path()?;
        Ok((key(path, 0), self.key.child(index)))
    }

    fn next_path(&self) -> Result<(u32, Path), SendError> {
        let index = self.next_index()?;
        let path = self.id.path.child(index).map_err(|_| SendError::TooDeep)?;
        Ok((index, path))
    }

    /// Name and key of the branch that the task ends with: its own at the next hop, which is no
    /// level, if it has said nothing else.
    fn last_child(&self) -> Result<(TaskKey, Key), SendError> {
        if !self.is_silent() {
            return self.next_child();
        }
        self.next_index()?;
        Ok((self.id.next_hop(), self.key))
    }

    fn next_index(&self) -> Result<u32, SendError> {
        let index = u32::try_from(self.children.len()).expect("children_max is 32 bit");
        if index < self.children_max { Ok(index) } else { Err(SendError::TooManyBranches) }
    }

    /// True when it has opened no branch and sent no reply.
    fn is_silent(&self) -> bool {
        self.children.is_empty() && self.outgoing.reply_count() == 0
    }

    /// The handler waits for something: nothing is held any longer.
    pub(crate) fn handle_yield(&mut self) {
        self.flush();
    }

    /// The initiator grants bytes of a reply, or takes none of it any more. True when it was news.
    pub(crate) fn handle_credit(&mut self, index: u32, limit_bytes: u64) -> bool {
        if limit_bytes != Credit::NO_MORE {
            return self.outgoing.grant(index, limit_bytes);
        }
        if matches!(&self.held, Held::Reply(item) if item.index == index) {
            self.forget_held_reply();
        }
        let Self { outgoing, out, .. } = self;
        outgoing.drop_reply(index, &mut |payload| spend(out, payload));
        self.say_last_word();
        true
    }

    /// The handler returned: declares what the task did, as cheaply as it can (R1 to R6).
    pub(crate) fn finish(&mut self) {
        while let Some(index) = self.outgoing.first_open_stream() {
            self.stream_end(index).expect("the task runs and the stream is open");
        }
        let (children, replies) = (self.children.len(), self.outgoing.reply_count());
        let entry = self.entry(Outcome::Finished);
        self.make_room_for(&entry);
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Reply(item) if self.outgoing.can_be_last(&item) => {
                let is_final = (children, replies) == (0, 1);
                let own = (!is_final).then(|| Box::new(entry.clone()));
                let inherited = std::mem::take(&mut self.inherited);
                let leaves = self.outgoing.can_leave_whole(&item);
                let mut let_go = |payload| spend(&mut self.out, payload);
                let item = if leaves { item } else { self.outgoing.kept(item, &mut let_go) };
                let sole = outgoing::reply_of(item.index, item.piece);
                let word = Message::Reply(Reply { is_final, own_entry: own, inherited, ..sole });
                match leaves {
                    true => self.push(word),
                    false => self.last_word = Some(word),
                }
            }
            Held::Children(mut held) if (children, replies) == (1, 0) && held.len() == 1 => {
                let mut request = held.pop_front().expect("it has one");
                request.task = self.id.next_hop();
                request.key = self.key;
                self.push_request(request);
                return self.hand_on();
            }
            Held::Children(held) => {
                let mut riding = std::mem::take(&mut self.inherited);
                riding.push(Sealed::new(entry.clone(), self.key));
                let copies = std::iter::repeat_n(riding, held.len()); // The last one is itself.
                for (mut request, riding) in held.into_iter().zip(copies) {
                    request.inherited = riding;
                    self.out.push_back(TaskOutput::Request(request));
                }
            }
            held => {
                self.held = held;
                self.flush();
                let inherited = std::mem::take(&mut self.inherited);
                self.push(Message::Manifest(Manifest { own: Some(entry.clone()), inherited }));
            }
        }
        self.end = Some(Finished { entry, tailed: false, words: None });
    }

    /// Its branch goes on elsewhere: that is all there is to declare.
    fn hand_on(&mut self) {
        let entry = Entry {
            task: self.id.clone(),
            children: 0,
            replies: 0,
            outcome: Outcome::Finished,
            holders: Vec::new(),
        };
        self.end = Some(Finished { entry, tailed: true, words: None });
    }

    /// The handler failed: what it declared until then still counts, unless it takes its branches
    /// with it. The initiator hears of it behind the replies that were sent before: it would wait
    /// for none of them, and they for credit.
    pub(crate) fn fail(&mut self, failure: TaskFailure) {
        if failure.aborts_children {
            self.forget_held_children();
        }
        self.flush();
        let entry = self.entry(Outcome::Failed(failure.cause));
        self.make_room_for(&entry);
        let words = Some(Words::of(&failure));
        let fail = failure.into_fail(Some(entry.clone()), std::mem::take(&mut self.inherited));
        let fail = Fail { extensions: std::mem::take(&mut self.metadata), ..fail };
        self.last_word = Some(Message::Fail(fail));
        self.end = Some(Finished { entry, tailed: false, words });
        self.say_last_word();
    }

    /// The node takes no such task: it fails at once, for one that waits would be one that runs.
    pub(crate) fn refuse(&mut self, failure: TaskFailure) {
        self.outgoing.has_room = true;
        self.fail(failure);
    }

    /// The connection to the initiator has room for what can wait, or has none. What waits for it
    /// is not overtaken.
    pub(crate) fn note_room(&mut self, has_room: bool) {
        self.outgoing.has_room = has_room && self.granted_at.is_none();
    }

    fn say_last_word(&mut self) {
        if self.outgoing.is_empty()
            && self.outgoing.has_room
            && let Some(word) = self.last_word.take()
        {
            self.push(word);
        }
    }

    /// Number of the last of its branches that are held back.
    pub(crate) fn held_child_count(&self) -> usize {
        match &self.held {
            Held::Children(held) => held.len(),
            Held::Nothing | Held::Reply(_) => 0,
        }
    }

    /// Branches that have not left never will: they are not declared, or the initiator would look
    /// for them.
    fn forget_held_children(&mut self) {
        let held = self.held_child_count();
        if held > 0 {
            self.children.truncate(self.children.len() - held);
            if let Held::Children(held) = std::mem::replace(&mut self.held, Held::Nothing) {
                held.into_iter().for_each(|request| spend(&mut self.out, request.payload));
            }
        }
    }

    fn forget_held_reply(&mut self) {
        if let Held::Reply(item) = std::mem::replace(&mut self.held, Held::Nothing) {
            spend(&mut self.out, item.piece.payload);
        }
    }

    fn forget_outgoing(&mut self) {
        let Self { outgoing, out, .. } = self;
        outgoing.clear(&mut |payload| spend(out, payload));
    }

    /// A message was not taken, for this reason.
    #[cold]
    fn refused(&mut self, payload: Encoded, why: SendError) -> SendError {
        spend(&mut self.out, payload);
        why
    }

    /// The task is not wanted any more: what it has not sent it never will, and its closing entry
    /// says so (`settlement.md` S4). One that has ended has said its word.
    pub(crate) fn abandon(&mut self, cause: Cause) {
        self.forget_held_children();
        self.forget_held_reply();
        self.forget_outgoing();
        match self.last_word.take() {
            Some(Message::Reply(Reply { inherited, payload, .. })) => {
                spend(&mut self.out, payload);
                let own = self.end.as_ref().map(|end| end.entry.clone());
                self.push(Message::Manifest(Manifest { own, inherited }));
            }
            Some(word) => self.push(word),
            None => {}
        }
        let own = self.end.is_none().then(|| self.entry(Outcome::Failed(cause)));
        if let Some(entry) = &own {
            self.make_room_for(entry);
            self.end = Some(Finished { entry: entry.clone(), tailed: false, words: None });
        }
        let inherited = std::mem::take(&mut self.inherited);
        if own.is_some() || !inherited.is_empty() {
            self.push(Message::Manifest(Manifest { own, inherited }));
        }
    }

    /// Nobody takes what is left to be said.
    pub(crate) fn drop_replies(&mut self) {
        self.forget_held_reply();
        self.forget_outgoing();
        let last = self.last_word.take();
        spend(&mut self.out, last.map(|mut word| word.take_payload()).unwrap_or_default());
    }

    /// Once the task has ended.
    pub(crate) fn finished(&self) -> Option<&Finished> {
        self.end.as_ref()
    }

    /// The same, of one that nothing more is asked of.
    pub(crate) fn take_finished(&mut self) -> Option<Finished> {
        self.end.take()
    }

    /// True when it has ended and everything it said has left.
    pub(crate) fn is_drained(&self) -> bool {
        let has_said_all = self.outgoing.is_empty() && self.last_word.is_none();
        self.end.is_some() && has_said_all && self.out.is_empty()
    }

    /// Bytes of the replies that have not left as a whole.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let held = match &self.held {
            Held::Reply(item) => item.piece.payload.len() as u64,
            Held::Nothing | Held::Children(_) => 0,
        };
        let last = match &self.last_word {
            Some(Message::Reply(reply)) => reply.payload.len() as u64,
            Some(Message::Fail(fail)) => fail.optional_len() as u64,
            _ => 0,
        };
        held + self.outgoing.waiting_bytes() + last
    }

    /// Bytes that its failure may do without, while that waits.
    pub(crate) fn waiting_failure_bytes(&self) -> usize {
        match &self.last_word {
            Some(Message::Fail(fail)) => fail.optional_len(),
            _ => 0,
        }
    }

    /// Has its failure do without them: gives its details.
    pub(crate) fn shorten_failure(&mut self) -> Bytes {
        let Some(Message::Fail(fail)) = &mut self.last_word else { return Bytes::new() };
        let details = std::mem::take(&mut fail.details);
        fail.shorten();
        details
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    pub(crate) fn poll_output(&mut self) -> Option<TaskOutput> {
        self.out.pop_front()
    }

    fn check_running(&self) -> Result<(), SendError> {
        if self.end.is_none() { Ok(()) } else { Err(SendError::Ended) }
    }

    fn check_stream(&self, index: u32) -> Result<(), SendError> {
        if self.outgoing.is_stream_open(index) { Ok(()) } else { Err(SendError::Ended) }
    }

    fn check_message(&self, payload: &[u8]) -> Result<(), SendError> {
        self.check_running()?;
        let (size, limit) = (payload.len(), self.message_bytes_max);
        if size > limit { Err(SendError::TooLarge { size, limit }) } else { Ok(()) }
    }

    fn entry(&self, outcome: Outcome) -> Entry {
        Entry {
            task: self.id.clone(),
            children: u32::try_from(self.children.len()).expect("children_max is 32 bit"),
            replies: self.outgoing.reply_count(),
            outcome,
            holders: self.children.iter().map(|child| Some(child.node)).collect(),
        }
    }

    /// Passes on what it was given in a frame of its own, where that and its own entry are too much
    /// for one.
    fn make_room_for(&mut self, own: &Entry) {
        if !self.inherited.is_empty() && !fit_one_frame(own, &self.inherited) {
            let inherited = std::mem::take(&mut self.inherited);
            self.push(Message::Manifest(Manifest { own: None, inherited }));
        }
    }

    fn flush(&mut self) {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => {}
            Held::Reply(item) if self.outgoing.can_leave_whole(&item) => {
                let (reply, message) = self.outgoing.send_whole(item);
                let inherited = std::mem::take(&mut self.inherited);
                self.push(Message::Reply(Reply {
                    inherited,
                    payload: message.into_bytes(),
                    ..reply
                }));
            }
            Held::Reply(item) => {
                self.outgoing.push(item, &mut |payload| spend(&mut self.out, payload));
            }
            Held::Children(held) => held.into_iter().for_each(|request| self.push_request(request)),
        }
    }

    /// Lets go of what the request carried. False when the task has grown too large to be kept for
    /// another.
    pub(crate) fn retire(&mut self) -> bool {
        self.extensions = Vec::new();
        self.out.is_empty() && self.out.capacity() <= 8
    }

    /// Becomes another task, in the same memory.
    pub(crate) fn replace(&mut self, mut task: Self) {
        let mut out = std::mem::take(&mut self.out);
        out.append(&mut task.out);
        *self = Self { out, ..task };
    }

    /// True when replies wait that have credit, or its failure for room alone.
    pub(crate) fn has_granted(&self) -> bool {
        match self.outgoing.is_empty() {
            true => self.last_word.is_some(),
            false => self.outgoing.has_granted(),
        }
    }

    /// Sends replies that have credit, as much as one task may send in its turn.
    pub(crate) fn send_granted(&mut self) {
        self.note_room(true);
        let mut left = TURN_BYTES;
        while left > 0
            && let Some(mut reply) =
                self.outgoing.poll_reply(&mut |payload| spend(&mut self.out, payload))
        {
            left = left.saturating_sub(reply.payload.len().max(1));
            reply.inherited = std::mem::take(&mut self.inherited);
            self.push(Message::Reply(reply));
        }
        self.say_last_word();
    }

    /// Marks of how far its replies have left that are not sent wholly.
    pub(crate) fn marks(&self) -> Vec<Reply> {
        self.outgoing.marks()
    }

    fn push_request(&mut self, mut request: ChildRequest) {
        request.inherited.append(&mut self.inherited);
        self.out.push_back(TaskOutput::Request(request));
    }

    fn push(&mut self, message: Message) {
        self.out.push_back(TaskOutput::Reply(message));
    }
}

/// A payload goes nowhere.
fn spend(out: &mut VecDeque<TaskOutput>, payload: impl Into<Encoded>) {
    out.extend(payload.into().into_owned().map(TaskOutput::Spent));
}

#[cfg(test)]
mod tests;
