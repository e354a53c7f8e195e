//! Frames and other news for the calls of a stream, each for the right one.

use crate::Arrival;
use crate::call::{Call, LinkView};
use crate::flat::Flat;
use crate::id::{CallId, Incarnation, LinkId, NodeId, Path, TaskKey};
use crate::mutant::{self, Mutant};
use crate::time::Timestamp;
use crate::tree::Holder;
use crate::wire::{Cause, Frame, Header, Message, Probe, Reply};

use super::{Armed, Initiator};

impl Initiator {
    pub(crate) fn handle_sent(
        &mut self,
        call: CallId,
        path: &Path,
        link: LinkId,
        life: Option<Incarnation>,
    ) {
        let mut has_granted = false;
        self.with(call.seq, |call| {
            call.handle_sent(path, link, life);
            has_granted = call.granted_items_link().is_some();
        });
        if has_granted {
            self.note_granted(call.seq); // They leave behind the request.
        }
    }

    pub(crate) fn handle_unsent(
        &mut self,
        now: Timestamp,
        call: CallId,
        path: &Path,
        why: (Cause, &str),
    ) {
        self.with(call.seq, |call| call.handle_unsent(now, path, why));
    }

    /// A frame for one of the calls. False when it does not count, and so changes nothing. Late
    /// frames of forgotten calls are normal.
    pub(crate) fn handle_frame(
        &mut self,
        now: Timestamp,
        by: Arrival,
        frame: &mut Frame,
        links: &dyn LinkView,
    ) -> bool {
        if let Message::Reply(reply) = &mut frame.message {
            return self.handle_reply(now, by, &frame.header, reply);
        }
        let (seq, task) = (frame.header.call.seq, frame.header.task.clone());
        if let Some(flat) = self.flat.get(seq) {
            let call = CallId { origin: self.origin, seq };
            let counts = match &frame.message {
                Message::Status(status) => flat.admits_any(call, status, &self.secret),
                _ => flat.admits(&by, (call, &task), &self.secret),
            };
            if !counts && !self.forgives(now, call, &task) {
                return false;
            }
        }
        if let Some(Armed { call, .. }) = self.calls.get(&seq) {
            let counts = match &frame.message {
                Message::Status(status) => call.admits_any(status),
                _ => call.admits(&by, &task),
            };
            if !counts && !self.forgives(now, CallId { origin: self.origin, seq }, &task) {
                return false;
            }
        }
        let message = frame.take().message;
        self.with(seq, |call| match message {
            Message::Manifest(manifest) => call.handle_manifest(now, by, &task, &manifest),
            Message::Fail(fail) => call.handle_fail(now, by, &task, fail),
            Message::LinkDown(report) => call.handle_link_down_report(now, by, &task, &report),
            Message::Status(status) => call.handle_status(now, by, &status, links),
            _ => debug_assert!(false, "the node routes only frames for initiators here"),
        });
        true
    }

    /// A REPLY for one of the calls, whose message is taken out of it. False when it does not
    /// count.
    pub(crate) fn handle_reply(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: &Header,
        reply: &mut Reply,
    ) -> bool {
        if let Some(counts) = self.handle_flat_reply(now, by, header, reply) {
            return counts;
        }
        let Header { call: CallId { seq, .. }, task } = header;
        if let Some(Armed { call, .. }) = self.calls.get(seq)
            && !call.admits(&by, task)
            && !self.forgives(now, CallId { origin: self.origin, seq: *seq }, task)
        {
            return false;
        }
        if mutant::is(Mutant::GrowingForgetsInherited) && self.flat.get(*seq).is_some() {
            reply.inherited.clear();
        }
        let taken = std::mem::replace(reply, Reply::blank());
        if by.link == LinkId::LOCAL {
            // Its owner may be called as it is dropped, which is for who has the frame.
            reply.payload = taken.payload.clone();
        }
        self.with(*seq, |call| call.handle_reply(now, by, task, taken));
        true
    }

    /// A reply for a call that is flat: true or false when that takes it or it does not count.
    /// `None` when there is no such call, or it must grow before it hears of it.
    fn handle_flat_reply(
        &mut self,
        now: Timestamp,
        by: Arrival,
        Header { call, task }: &Header,
        reply: &mut Reply,
    ) -> Option<bool> {
        let (seq, call) = (call.seq, CallId { origin: self.origin, ..*call });
        let flat = self.flat.get_mut(seq)?;
        // Before it grows: who may not speak must not cost more than this.
        if !flat.admits(&by, (call, task), &self.secret) {
            return if self.forgives(now, call, task) { None } else { Some(false) };
        }
        if !flat.answer(now, by, task, reply, self.limits.whole_bytes_max()) {
            return None;
        }
        if flat.is_complete() && flat.is_decided {
            self.discard_flat(seq);
        } else if flat.is_worth_waking() {
            self.ready.push_back(seq);
        }
        Some(true)
    }

    /// True when what does not count is taken all the same, or a branch fails for it: only mutants
    /// do so.
    fn forgives(&mut self, now: Timestamp, call: CallId, task: &TaskKey) -> bool {
        if mutant::is(Mutant::NoKeys) {
            return true;
        }
        if mutant::is(Mutant::UnaskedFailsBranch) {
            self.handle_unsent(now, call, &task.path, (Cause::Unreachable, ""));
        }
        false
    }

    /// A PROBE for tasks of a call found no way to their holder.
    pub(crate) fn handle_unasked(
        &mut self,
        now: Timestamp,
        call: CallId,
        asked: Holder,
        probe: &Probe,
        links: &dyn LinkView,
    ) {
        self.with(call.seq, |call| call.handle_unasked(now, asked, probe, links));
    }

    /// A PROBE for tasks of a call has not left.
    pub(crate) fn forget_unasked(&mut self, call: CallId, asked: Holder, probe: &Probe) {
        self.with(call.seq, |call| call.forget_unasked(asked, probe));
    }

    /// A connection to `node` ended. The cost is that of the calls which have anything there.
    pub(crate) fn handle_link_down(
        &mut self,
        now: Timestamp,
        (node, link): (NodeId, LinkId),
        links: &dyn LinkView,
    ) {
        if self.flat_at.get(link.index()).is_some_and(|count| *count > 0) {
            let is_there = |flat: &Flat| flat.legs.iter().any(|leg| leg.link == link);
            let affected = self.flat.iter().filter(|(_, flat)| is_there(flat)).map(|(seq, _)| seq);
            affected.collect::<Vec<u64>>().into_iter().for_each(|seq| self.grow(seq));
        }
        self.with_each_at(node, |call| call.handle_peer_down(now, node, links));
    }

    /// There is a connection to `node` again, after none.
    pub(crate) fn handle_link_again(&mut self, now: Timestamp, node: NodeId) {
        self.with_each_at(node, |call| call.say_again(now, node));
    }

    /// Acts on the full calls that have anything at a node.
    fn with_each_at(&mut self, node: NodeId, mut act: impl FnMut(&mut Call)) {
        let there = self.at_node.range((node, 0)..=(node, u64::MAX)).map(|(_, seq)| *seq);
        for seq in there.collect::<Vec<u64>>() {
            self.with(seq, &mut act);
        }
    }
}
