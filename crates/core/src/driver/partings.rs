//! Partings: an endpoint that shuts down waits until no request is on its way to it, and who hears
//! that it does sends it none. See [`convoke_proto::parting`].

use std::sync::Arc;
use std::time::Duration;

use convoke_proto::parting::LinkName;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::Parting;
use convoke_transport::parts::WAKER;

use super::Driver;
use super::cores::Core;
use super::drain::Aftermath;

/// Longest wait for peers to answer LEAVING, and for what they have sent before.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// Words that frames of one read say about their connection. What is said again changes nothing.
#[derive(Debug, Default)]
pub(super) struct Words {
    is_leaving: bool,
    sent: Option<u64>,
}

impl Words {
    pub(super) fn add(&mut self, word: Parting) {
        match word {
            Parting::Leaving => self.is_leaving = true,
            Parting::Sent(requests) => self.sent = self.sent.or(Some(requests)),
        }
    }
}

impl Driver {
    /// A core takes no requests any more. The first says so by its connections, which are waited
    /// for from then on.
    pub(super) fn stop_core(&self, core: &mut Core, now: Timestamp) {
        // Held until all are noted: an answer may come before that, by another thread.
        let mut partings = self.partings.lock();
        if core.node.begin_shutdown(now) && core.index == 0 {
            core.connections().names().for_each(|link| partings.begin(link));
        }
    }

    /// Hears what a peer says about its connection.
    pub(super) fn hear(self: &Arc<Self>, link: LinkName, words: &Words) {
        if words.is_leaving {
            self.hear_leaving(link);
        }
        if let Some(requests) = words.sent {
            self.partings.lock().handle_sent(link, requests);
            self.note_come(link);
            WAKER.call(|| self.idle.notify_waiters());
        }
    }

    fn hear_leaving(self: &Arc<Self>, (peer, nonce): LinkName) {
        let (mut aftermath, mut sent) = (Aftermath::default(), 0);
        // The first core last: it answers for all.
        for index in (0..self.cores.routes.len()).rev() {
            self.visit(index, &mut aftermath, |core, now, _| {
                if let Some(id) = core.connections().id(peer, nonce) {
                    sent = core.node.handle_leaving(now, id, sent);
                }
            });
        }
        self.finish(&mut aftermath);
        self.full.tell((peer, nonce));
        self.peer_changed(peer);
    }

    /// Compares what has come by a connection with what its peer says that it has sent, if it has
    /// said so.
    pub(super) fn note_come(&self, link: LinkName) {
        if !self.partings.lock().is_awaited(link) {
            return;
        }
        let (peer, nonce) = link;
        let of_core = |core: &Core| {
            let id = core.connections().id(peer, nonce);
            id.map_or(0, |id| core.node.requests_by(id))
        };
        let come = self.cores.each().map(|core| of_core(&core)).sum::<u64>();
        self.partings.lock().handle_come(link, come);
    }

    /// Waits until nothing is on its way to an endpoint that shuts down, and what it has refused or
    /// handed on has left: what is lost with its connections may have run, for all that a caller
    /// knows. Not longer than a second, for peers that do not answer.
    pub(crate) async fn until_parted(&self) {
        let has_parted = |driver: &Self| {
            // No core is locked with it.
            let are_over = driver.partings.lock().are_over();
            let waits = |core: &Core| core.node.waits_for_dial();
            are_over && driver.is_idle() && driver.cores.find(waits).is_none()
        };
        let _ = self.within(PARTING_MAX, self.until(has_parted)).await;
    }
}
