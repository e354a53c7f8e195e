//! Casts: which mailbox they are for, and what their readers may know of other members.

use crate::id::{CallId, Incarnation, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cast, Header, Message};

use super::super::Outbound;
use super::super::mailbox::{MailKey, Mailboxes, Tag};
use super::super::outbox::Outbox;
use super::Node;

/// State of the way to a node, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// There is no connection, and none is being made: it was lost, dialling failed, or nobody
    /// knows where the node is.
    pub is_down: bool,
    /// Which life of the node there is a connection to.
    pub life: Option<Incarnation>,
}

impl<O: Outbox> Node<O> {
    /// A cast of `from` came.
    pub fn handle_cast(&mut self, now: Timestamp, from: NodeId, call: CallId, cast: Cast) {
        let key = match cast.view {
            None => MailKey::Call(call),
            Some(view) => MailKey::Tag(Tag { space: call.origin.0, view, sequence: call.seq }),
        };
        self.mailboxes.handle_cast(now, from, key, cast, self.visits.epoch());
    }

    /// Sends a cast to each of these nodes.
    pub fn send_casts(
        &mut self,
        now: Timestamp,
        key: MailKey,
        to: impl IntoIterator<Item = NodeId>,
        mut cast: Cast,
    ) {
        let call = match key {
            MailKey::Call(call) => call,
            MailKey::Tag(Tag { space, view, sequence }) => {
                cast.view = Some(view);
                CallId { origin: Incarnation(space), seq: sequence }
            }
        };
        let header = Header { call, task: TaskKey { path: Path::root(), hop: 0 } };
        for to in to {
            let message = Message::Cast(cast.clone());
            self.send(now, Outbound::new(to, header.clone(), message));
        }
        self.pump(now);
    }

    /// Its mailboxes, to be read. Nothing is sent by that.
    pub fn mailboxes_mut(&mut self) -> &mut Mailboxes {
        &mut self.mailboxes
    }

    /// Reachability of a node at the moment.
    pub fn reach(&self, node: NodeId) -> Reach {
        let is_connected = self.links.current(node).is_some();
        let life = self.links.life(node).filter(|_| is_connected).map(|(life, _)| life);
        Reach { is_down: !is_connected && !self.links.is_dialling(node), life }
    }
}
