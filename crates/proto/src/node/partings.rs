//! Words of a node about its connections: that it takes no requests any more, and the answer. See
//! [`parting`](super::super::parting).

use crate::Outbound;
use crate::id::LinkId;
use crate::time::Timestamp;
use crate::wire::{Header, Message, Parting};

use super::super::outbox::Outbox;
use super::Node;

impl<O: Outbox> Node<O> {
    /// Refuses requests from now on; what runs goes on. The first core says LEAVING by each
    /// connection, also by those that come up later. False when it refuses them already.
    pub fn begin_shutdown(&mut self, now: Timestamp) -> bool {
        let is_new = self.visits.begin_shutdown();
        if is_new {
            let up: Vec<LinkId> = self.links.up().map(|(_, link)| link).collect();
            up.into_iter().for_each(|link| self.say_leaving(now, link));
        }
        is_new
    }

    /// The peer of a connection has said LEAVING: no request is sent by it from now on. To be told
    /// to each core, the first one last, with the number of requests that those before it have
    /// sent; gives that with its own. The first answers, once.
    pub fn handle_leaving(&mut self, now: Timestamp, link: LinkId, by_others: u64) -> u64 {
        let Some(own) = self.links.note_leaving(link) else { return by_others };
        let sent = own + by_others;
        if self.is_first {
            self.say(now, link, Parting::Sent(sent));
        }
        sent
    }

    /// Number of requests that have come to this core by a connection that is up.
    pub fn requests_by(&self, link: LinkId) -> u64 {
        self.links.requests_by(link)
    }

    /// True while something that calls and tasks have said waits for a dial, to be sent by what
    /// that gives.
    pub fn waits_for_dial(&self) -> bool {
        self.links.has_waiting() || self.visits.waits_for_dial()
    }

    pub(super) fn say_leaving(&mut self, now: Timestamp, link: LinkId) {
        if self.is_first {
            self.say(now, link, Parting::Leaving);
        }
    }

    fn say(&mut self, now: Timestamp, link: LinkId, word: Parting) {
        let Some(peer) = self.links.arrival(link).map(|by| by.via) else { return };
        let mut outbound = Outbound::new(peer, Header::without_call(), Message::Parting(word));
        outbound.link = Some(link);
        self.send(now, outbound);
    }
}
