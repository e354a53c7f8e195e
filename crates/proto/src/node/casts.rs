//! Casts: which mailbox they are for, and what their readers may know of other members.

use crate::id::{CallId, Incarnation, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{About, Cast, Header, Message};

use super::super::Outbound;
use super::super::links::Way;
use super::super::mailbox::{CallName, MailKey, Mailboxes, Tag};
use super::super::outbox::Outbox;
use super::Node;

/// State of the way to a node, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// There is no connection, and none is being made: it was lost, dialling failed, or nobody
    /// knows where the node is.
    pub is_down: bool,
    /// Life of the node that there is a connection to.
    pub life: Option<Incarnation>,
    /// The turn before which all that was sent to it may be lost: a connection that it went by, or
    /// one after that, has ended. [`Node::send_casts`] tells in which turn it sends. It changes
    /// with each connection that ends, also where the node had another all the time.
    pub lost_before: u64,
}

impl<O: Outbox> Node<O> {
    /// A cast of `from` came.
    pub fn handle_cast(&mut self, now: Timestamp, from: NodeId, call: CallId, cast: Cast) {
        let key = MailKey::of(call, cast.about);
        if self.is_settled(key) {
            return self.mailboxes.note_late();
        }
        let is_known = self.may_vote(from);
        self.mailboxes.handle_cast(now, (from, is_known), key, cast, self.visits.epoch());
    }

    /// True when a cast of `from` would be kept, as far as can be told before its value is here.
    /// One that would not is counted.
    pub fn would_keep_cast(&mut self, from: NodeId, call: CallId, cast: &Cast) -> bool {
        let key = MailKey::of(call, cast.about);
        if self.is_settled(key) {
            self.mailboxes.note_late();
            return false;
        }
        let is_known = self.may_vote(from);
        self.mailboxes.would_keep((from, is_known), key, cast, self.visits.epoch())
    }

    /// True of a call on which nobody votes any more.
    fn is_settled(&self, key: MailKey) -> bool {
        let MailKey::Call(CallName { origin, seq }) = key else { return false };
        self.visits.is_call_settled(origin, seq)
    }

    /// False of a stranger. Who was told of nobody cannot tell strangers apart.
    fn may_vote(&self, node: NodeId) -> bool {
        let knows_some = self.knows_others || self.mailboxes.knows_any();
        !knows_some
            || node == self.identity.node
            || self.mailboxes.knows(node)
            || self.links.is_configured(node)
    }

    /// The way to a node has changed. That of a stranger, such as a client, concerns readers that
    /// have named it alone.
    pub(super) fn tell_readers_of(&mut self, node: NodeId) {
        let may_vote = self.may_vote(node);
        self.mailboxes.tell_readers_of(node, may_vote);
    }

    /// The reader of casts about a call or tag is gone; see [`Mailboxes::close`].
    pub fn close_mail(&mut self, now: Timestamp, key: MailKey, has_voted: bool) {
        self.mailboxes.close(now, key, has_voted);
        self.sweep_closed_calls(now);
    }

    /// Forgets the closed calls that are settled here, or whose requests are remembered no more.
    pub(super) fn sweep_closed_calls(&mut self, now: Timestamp) {
        if self.mailboxes.is_sweep_due(now) {
            let visits = &self.visits;
            let is_over = |CallName { origin, seq }: CallName| !visits.remembers_call(origin, seq);
            self.mailboxes.sweep_calls(now, is_over);
        }
    }

    /// Sends a cast to each of these nodes. Returns the turn in which it does:
    /// [`Reach::lost_before`] tells later what of it may be lost.
    pub fn send_casts(
        &mut self,
        now: Timestamp,
        key: MailKey,
        to: impl IntoIterator<Item = NodeId>,
        mut cast: Cast,
    ) -> u64 {
        let turn = self.links.turn();
        let (call, about) = match key {
            MailKey::Call(CallName { origin, seq }) => {
                let about = About::Call { initiator: origin.node };
                (CallId { origin: origin.life, seq }, about)
            }
            MailKey::Tag(Tag { space, view, sequence }) => {
                (CallId { origin: Incarnation(space), seq: sequence }, About::Tag { view })
            }
        };
        cast.about = about;
        let header = Header { call, task: TaskKey { path: Path::root(), hop: 0 } };
        for to in to {
            let message = Message::Cast(cast.clone());
            self.send(now, Outbound::new(to, header.clone(), message));
        }
        self.let_go(cast.payload);
        self.pump(now);
        turn
    }

    /// A cast of this node was not sent.
    pub(super) fn note_unsent_cast(&mut self, to: NodeId, call: CallId, about: About) {
        let key = MailKey::of(call, about);
        self.mailboxes.note_unsent(key, to);
    }

    /// Its mailboxes, to be read. Nothing is sent by that.
    pub fn mailboxes_mut(&mut self) -> &mut Mailboxes {
        &mut self.mailboxes
    }

    /// Asks for connections to those of these nodes that have none and can be dialled.
    pub fn dial_all(&mut self, now: Timestamp, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            let can_dial = match self.links.way(now, node) {
                Way::Up(_) => false,
                Way::Dialable => true,
                Way::Dead => self.links.is_resolvable(now, node),
            };
            if can_dial {
                self.links.dial_ahead(node);
            }
        }
    }

    /// Reachability of a node at the moment.
    pub fn reach(&self, node: NodeId) -> Reach {
        let is_connected = self.links.current(node).is_some();
        let life = self.links.life(node).filter(|_| is_connected).map(|(life, _)| life);
        let is_down = !is_connected && !self.links.is_dialling(node);
        Reach { is_down, life, lost_before: self.links.lost_before(node) }
    }
}
