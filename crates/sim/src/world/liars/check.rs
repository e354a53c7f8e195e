//! Checks of what passes between liars and correct nodes. Frames that a liar sends are compared
//! with the state that they must not change, one by one: the calls that it has no part in, the
//! branches beside its own, and the tasks that correct nodes were asked for by correct nodes (I34,
//! I35). All else is for the invariants, which leave out its own branches and what is below them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use convoke_proto::call::End;
use convoke_proto::id::{CallId, LinkNonce, NodeId, Path};
use convoke_proto::link::Lane;
use convoke_proto::wire::{Frame, Header, Message};

use crate::network::Place;
use crate::oracle::TaskName;
use crate::world::World;

use super::{carried, keys_in};

impl World {
    /// Checks what a correct node sends to a liar: no key of a branch that is not its own (I40),
    /// and no reply of a task that it did not ask for (I37).
    pub(in crate::world) fn check_for_liars(&mut self, from: Place, to: NodeId, frame: &Frame) {
        if !self.oracle.liars.contains(&to) {
            return;
        }
        let call = frame.header.call;
        let Some(secret) = self.oracle.secret(call) else { return };
        let told = keys_in(frame).into_iter().find(|(path, key)| {
            secret.branch(call, path) == Some(*key) && !self.oracle.is_tainted(call, path)
        });
        let from = self.hosts[from].id;
        if let Some((path, _)) = told {
            let message = format!("{from} shows {to} the key of {call:?} {path}: {frame:?}");
            return self
                .violate("I40: keys are for those who hold the branch or one above", message);
        }
        let name = TaskName::of(call, frame.header.task.clone());
        let Some(truth) = self.oracle.tasks.get(&name).filter(|_| self.oracle.is_sound(&name))
        else {
            return;
        };
        if let Message::Reply(reply) = &frame.message
            && reply.payload.len() >= 8
            && truth.replies.iter().any(|sent| sent.messages.contains(&reply.payload))
        {
            let message = format!("{from} sends {to} a reply of {name:?}");
            self.violate("I37: replies go to the initiator of their own request", message);
        }
    }

    /// A liar's frame has come. What it has no right to say must change nothing.
    pub(in crate::world) fn take_lie(
        &mut self,
        to: Place,
        link: LinkNonce,
        lane: Lane,
        bytes: &Bytes,
    ) {
        let Ok(frame) = Frame::decode(bytes.clone()) else {
            return self.hang_up(to, link);
        };
        if self.scenario.liars.contains(&to) {
            return;
        }
        if !self.hosts[to].links.contains_key(&link) {
            return;
        }
        let before = self.untouchable(to, &frame);
        let result = self.take_bytes(to, link, bytes);
        let after = self.untouchable(to, &frame);
        // With its last branch settled a call may be forgotten whole; and carried entries are true.
        let call = frame.header.call;
        let may_change = self.brings_word(&frame)
            || self.is_part_of(call, &frame) && self.is_exhausted(to, &frame.header)
            || self.is_part_of(call, &frame)
                && !self.hosts[to].core_of(call).is_some_and(|node| node.initiator().is_kept(call));
        let changed = before.iter().try_for_each(|((of, what), state)| {
            match after.get(&(*of, what.clone())) {
                Some(now) if now == state => ControlFlow::Continue(()),
                _ if may_change && *of == call => ControlFlow::Continue(()),
                // What is over here of this node's own calls goes with the call before it that held
                // the floor, which a liar may end where it holds a branch.
                Some(now) if now == "[]" && self.is_own_and_settled(to, *of) => {
                    ControlFlow::Continue(())
                }
                now => ControlFlow::Break(format!("{of:?} {what} was {state}, is {now:?}")),
            }
        });
        if let ControlFlow::Break(message) = changed {
            let message = format!("by {frame:?} over {lane:?}: {message}");
            self.violate("I34, I35: what a liar has no right to say changes nothing", message);
        }
        self.settle(to);
        self.look_at_settled(to);
        if result.is_err() {
            self.hang_up(to, link);
        }
    }

    /// True when a call is of the node's present life, and settled as that itself says.
    fn is_own_and_settled(&self, place: Place, call: CallId) -> bool {
        let host = &self.hosts[place];
        host.core_of(call).is_some_and(|node| node.initiator().is_settled(call))
    }

    fn hang_up(&mut self, place: Place, link: LinkNonce) {
        if self.hosts[place].links.contains_key(&link) {
            self.reset(place, link);
            self.tell_link_down(place, link);
            self.settle(place);
        }
    }

    /// State that a frame of a liar must leave as it is, as text.
    fn untouchable(&self, at: Place, frame: &Frame) -> BTreeMap<(CallId, String), String> {
        let host = &self.hosts[at];
        let mut all = BTreeMap::new();
        for id in &host.watched {
            let Some(node) = host.core_of(*id) else { return all };
            if self.is_part_of(*id, frame) {
                for (path, branch) in node.call(*id).into_iter().flat_map(|c| c.tree().iter()) {
                    if self.is_beside(*id, path) {
                        all.insert((*id, format!("branch {path}")), format!("{branch:?}"));
                    }
                }
            } else {
                all.insert((*id, String::new()), node.initiator().snapshot(*id));
            }
        }
        // What a task passes on for one below it takes the way that its own replies will.
        let passes_on = |name: &TaskName| {
            let Header { call, task } = &frame.header;
            frame.relayed.is_some() && name.call == *call && name.task.path.is_prefix_of(&task.path)
        };
        for (name, truth) in &self.oracle.tasks {
            if truth.runs.iter().any(|(node, _)| *node == host.id)
                && truth.is_honest
                && self.oracle.is_sound(name)
                && !passes_on(name)
            {
                let secret = self.oracle.secret(name.call);
                let key = secret.and_then(|secret| secret.branch(name.call, &name.task.path));
                let Some(key) = key else { continue };
                let Some(node) = host.core_of(name.call) else { return all };
                let record = node.visits().snapshot(name.call, &name.task, key);
                all.insert((name.call, format!("task {}", name.task)), record);
            }
        }
        all
    }

    /// True when a frame speaks of a branch of this call that is a liar's.
    fn is_part_of(&self, call: CallId, frame: &Frame) -> bool {
        let is_theirs = |path: &Path| self.oracle.is_tainted(call, path);
        let lists = match &frame.message {
            Message::Status(status) => {
                status.tasks.iter().any(|(asked, _)| is_theirs(&asked.task.path))
            }
            _ => false,
        };
        frame.header.call == call && (lists || is_theirs(&frame.header.task.path))
    }

    /// True when a frame carries an entry that a correct node has sealed, which is true whoever
    /// brings it; or has a task of the initiator's own node say so.
    fn brings_word(&self, frame: &Frame) -> bool {
        let call = frame.header.call;
        let orders = matches!(
            frame.message,
            Message::Request(_) | Message::Cancel(_) | Message::Credit(_) | Message::Probe(_)
        );
        if orders && self.is_part_of(call, frame) {
            return true;
        }
        let Some(secret) = self.oracle.secret(call) else { return false };
        let mut message = frame.message.clone();
        let entries = carried(&mut message).map(std::mem::take).unwrap_or_default();
        entries.iter().any(|sealed| {
            let path = &sealed.entry.task.path;
            secret.branch(call, path).is_some_and(|key| sealed.is_of(key))
                && !self.oracle.is_tainted(call, path)
        })
    }

    /// True when a root branch has used up what it may have of a call: then a branch of it for
    /// which there is no room gives up what is beside it (`trust.md` section 8).
    fn is_exhausted(&self, at: Place, header: &Header) -> bool {
        let call = self.hosts[at].core_of(header.call).and_then(|node| node.call(header.call));
        let root = header.task.path.indices().next();
        call.zip(root).is_some_and(|(call, root)| {
            call.end() == Some(End::Exhausted) || !call.tree().has_room(root)
        })
    }

    /// True when a branch is neither a liar's nor above one of a liar's.
    fn is_beside(&self, call: CallId, path: &Path) -> bool {
        let mut theirs = self.oracle.tainted.iter().filter(|(of, _)| *of == call);
        !theirs.any(|(_, top)| top.is_prefix_of(path) || path.is_prefix_of(top))
    }

    /// A node takes a frame of a correct one: which of its calls have a quorum without any liar.
    pub(in crate::world) fn note_heard(&mut self, at: Place, via: NodeId, frame: &Frame) {
        if self.scenario.liars.is_empty() {
            return;
        }
        let Message::Reply(reply) = &frame.message else { return };
        let call = frame.header.call;
        let name = TaskName::of(call, frame.header.task.clone());
        let (node, now) = (self.hosts[at].id, self.now);
        let is_whole = reply.is_final && reply.part.is_none() && frame.relayed.is_none();
        let is_sound = self.oracle.is_sound(&name);
        let is_sent = self.oracle.tasks.get(&name).is_some_and(|truth| truth.sent_to == via);
        let secret = self.oracle.secret(call);
        let own = secret.and_then(|secret| secret.branch(call, &name.task.path));
        let Some(truth) = self.oracle.calls.get_mut(&call) else { return };
        let shows = frame.key.is_none() || frame.key == own;
        if truth.is_flat && truth.node == node && is_whole && is_sound && is_sent && shows {
            truth.heard.insert(via);
            if truth.quorum.is_some_and(|k| truth.heard.len() >= k) {
                truth.quorum_at.get_or_insert(now);
            }
        }
    }
}
