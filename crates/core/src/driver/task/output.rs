//! Output of a task: its replies, items, branches and metadata, and what it waits for between them.

use std::task::{Context, Poll, ready};

use convoke_proto::encoded::Encoded;
use convoke_proto::id::NodeId;
use convoke_proto::task::{Branch, SendError};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_proto::wire::Extension;

use crate::coop::poll_in_budget;
use crate::method::Request;
use crate::packing::LastPacked;
use crate::peer::Peer;

use super::super::ahead::Ahead;
use super::super::cores::Core;
use super::super::{Node, Part, RoomWait};
use super::TaskHandle;
use super::branches::{NewBranch, NewBranches};

/// Branches that a fan-out opens before others have their turn at the node.
const BRANCHES_A_LOCK: usize = 64;

impl TaskHandle {
    /// Carries out an output of the task. One that comes from beside the handler, from a part of it
    /// that was spawned, is not held back: no end of a poll would let it go.
    pub(crate) fn output<T>(&self, act: impl FnOnce(&mut Node, Timestamp) -> T) -> T {
        self.driver().with_node(self.origin(), |node, now| {
            self.hand_over(node, now);
            let result = act(node, now);
            self.let_go_beside_poll(node, now);
            result
        })
    }

    /// Gives the node the items that are ahead of it: before anything else that the task says. One
    /// that was stopped has nobody to send them to.
    pub(super) fn hand_over(&self, node: &mut Node, now: Timestamp) {
        self.hand_over_of(&mut self.ahead.lock(), node, now);
    }

    fn hand_over_of(&self, ahead: &mut Ahead, node: &mut Node, now: Timestamp) {
        let sent = ahead.drain().map(|(index, items)| {
            (index, node.stream_items(now, self.task(), index, items).unwrap_or(0))
        });
        if let Some((index, credit)) = sent {
            ahead.note_credit(index, credit);
        }
    }

    /// After an output: lets go what is held back, if no end of a poll would.
    fn let_go_beside_poll(&self, node: &mut Node, now: Timestamp) {
        if self.hold.on_output() {
            self.release_held(node, now);
        }
    }

    /// Lets go all that is held back.
    pub(super) fn release_held(&self, node: &mut Node, now: Timestamp) {
        self.hand_over(node, now);
        node.handle_yield(now, self.task());
    }

    /// A reply as it travels. In process it travels as it is.
    pub(crate) fn packed(&self, payload: Encoded) -> Encoded {
        if self.start.origin == self.driver().identity.node {
            return payload;
        }
        self.driver().packing.pack_reply(&self.start.extensions, payload)
    }

    pub(crate) fn reply(&self, payload: Encoded) -> Result<(), SendError> {
        let payload = self.packed(payload);
        self.output(|node, now| node.reply(now, self.task(), payload))
    }

    /// A branch with a request to a peer, as it travels, behind the `last` of the same task.
    pub(crate) fn branch<Resp>(
        &self,
        request: &Request<Resp>,
        peer: Peer,
        last: &mut LastPacked,
    ) -> Result<NewBranch, SendError> {
        if let Some((size, limit)) = request.oversize {
            return Err(SendError::MetadataTooLarge { size, limit });
        }
        let mut payload = request.root.payload.clone();
        self.driver().packing.pack_request(peer.node(), &mut payload, last);
        let branch = Branch {
            to: peer.node(),
            method: request.root.method,
            payload,
            extensions: with_epoch(self.probe.extensions_of(&request.root.extensions), peer),
            deadline: None,
        };
        Ok(NewBranch { branch, budget: request.root.budget })
    }

    /// Opens a branch once the connection to its node has room.
    pub(crate) fn poll_delegate(
        &self,
        branch: &mut NewBranch,
        room: &mut RoomWait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        loop {
            ready!(room.poll(cx));
            let opened = self.driver().with_core(self.core_index(), |core, now, _| {
                // Under one lock: of all that are told only some have room.
                if self.has_to_wait(core, branch.branch.to, room) {
                    return None;
                }
                self.hand_over(&mut core.node, now);
                let opened = core.node.delegate(now, self.task(), branch.take(now));
                self.let_go_beside_poll(&mut core.node, now);
                Some(opened.map(|_| ()))
            });
            if let Some(opened) = opened {
                return Poll::Ready(opened);
            }
        }
    }

    /// Opens branches, the first few of them under one lock. Those of a node whose connection has
    /// no room are passed over, and opened in their order once it has: the others do not wait for
    /// them. One at a node that is known to be dead is a failure record.
    pub(crate) fn poll_fan_out(
        &self,
        branches: &mut NewBranches,
        room: &mut RoomWait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        if branches.waits_for_room() {
            ready!(room.poll(cx));
            branches.look_again();
        }
        self.driver().with_core(self.core_index(), |core, now, _| {
            self.hand_over(&mut core.node, now);
            for _ in 0..BRANCHES_A_LOCK {
                let next = branches.next(|to| !self.has_to_wait(core, to, room));
                let Some(mut branch) = next else { break };
                let (to, node) = (branch.branch.to, &mut core.node);
                match node.delegate(now, self.task(), branch.take(now)) {
                    Ok(_) => {}
                    Err(SendError::NodeDead) => node.delegate_to_dead(now, self.task(), to)?,
                    Err(refusal) => return Poll::Ready(Err(refusal)),
                }
                self.let_go_beside_poll(node, now);
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Gives the branch that the task ends with, once the connection to its node has room.
    pub(crate) fn poll_tail(
        &self,
        branch: &mut NewBranch,
        room: &mut RoomWait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Branch, SendError>> {
        let now = self.driver().now();
        let Branch { to, ref payload, .. } = branch.branch;
        ready!(self.poll_room(to, room, cx));
        let core = self.driver().cores.lock(self.core_index());
        core.node.check_tail(now, self.task(), to, payload.len())?;
        Poll::Ready(Ok(branch.take(now)))
    }

    fn core_index(&self) -> usize {
        self.driver().cores.routes.of(self.origin())
    }

    /// Ready while the connection to a node has room for requests, and when the task is over: a
    /// part of it that was spawned waits no longer than that.
    fn poll_room(&self, to: NodeId, room: &mut RoomWait, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(room.poll(cx));
            if self.driver().full.is_empty() {
                return Poll::Ready(());
            }
            let mut core = self.driver().cores.lock(self.core_index());
            if !self.has_to_wait(&mut core, to, room) {
                return Poll::Ready(());
            }
        }
    }

    /// True when the connection to a node has no room for requests and the task is not over: then
    /// it is waited for, and for the end of the task.
    fn has_to_wait(&self, core: &mut Core, to: NodeId, room: &mut RoomWait) -> bool {
        let told = core.full_at(to).filter(|_| core.node.is_running(self.task()));
        let Some(told) = told else { return false };
        if room.is_over() {
            self.note_kept();
            room.add(core.until_over(self.task()));
        }
        room.add(told);
        true
    }

    /// Polls for what a part of the task waits for; `Ok(None)` while there is nothing.
    pub(crate) fn poll_stream<T, E>(
        &self,
        part: Part,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Node, Timestamp, &TaskRef) -> Result<Option<T>, E>,
    ) -> Poll<Result<T, E>> {
        self.driver().poll_stream((self.task(), part), cx.waker(), |node, now| {
            let polled = poll(node, now, self.task()).transpose();
            if polled.is_none() {
                // Before the lock is let go of: the end of the task comes after it.
                self.note_kept();
            }
            polled.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// Sends an item of a streamed reply once there is credit for it. A small one is left to go to
    /// the node with others, at the latest when the poll of the handler is over.
    pub(crate) fn poll_item(
        &self,
        cx: &mut Context<'_>,
        index: u32,
        item: &mut Encoded,
    ) -> Poll<Result<(), SendError>> {
        if self.ahead.lock().take(index, item) {
            if self.hold.on_output() {
                self.driver().with_node(self.origin(), |node, now| self.release_held(node, now));
            }
            return Poll::Ready(Ok(()));
        }
        let send = |node: &mut Node, now, task: &TaskRef| {
            let mut ahead = self.ahead.lock();
            if !ahead.leads_to(index) {
                self.hand_over_of(&mut ahead, node, now);
                if node.stream_credit(task, index)? == 0 {
                    return Ok(None);
                }
            }
            let before = ahead.drain().into_iter().flat_map(|(_, items)| items);
            let items = before.chain([std::mem::take(item)]);
            let left = node.stream_items(now, task, index, items)?;
            ahead.note_credit(index, left);
            drop(ahead);
            self.let_go_beside_poll(node, now);
            Ok(Some(()))
        };
        poll_in_budget(cx, |cx| self.poll_stream(Part::Stream(index), cx, send))
    }

    /// Ends a streamed reply. A task that was stopped or has returned has ended it already.
    pub(crate) fn end_stream(&self, index: u32) {
        self.driver().let_part_go((self.task(), Part::Stream(index)), |node, now| {
            self.hand_over(node, now);
            let _ = node.stream_end(now, self.task(), index);
            self.let_go_beside_poll(node, now);
        });
    }

    /// Adds metadata to the next reply, item of a stream or failure.
    pub(crate) fn reply_metadata(&self, key: &str, value: &[u8]) -> Result<(), SendError> {
        self.driver().with_node(self.origin(), |node, now| {
            self.hand_over(node, now);
            node.reply_metadata(now, self.task(), key, value)
        })
    }

    /// Takes no further items of its request.
    pub(crate) fn drop_items(&self) {
        self.driver().let_part_go((self.task(), Part::Items), |node, now| {
            node.drop_items(now, self.task());
        });
    }
}

/// The extensions of a request to a peer, which may be asked as a member of a configuration.
/// Without an epoch of its own a branch inherits that of its task.
fn with_epoch(mut extensions: Vec<Extension>, peer: Peer) -> Vec<Extension> {
    if peer.epoch() != 0 {
        extensions.push(Extension::epoch(peer.epoch()));
    }
    extensions
}
