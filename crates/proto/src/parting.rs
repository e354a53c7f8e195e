//! The end of a node without a request in doubt.
//!
//! ```text
//!   who stops                                   a peer
//!      │ LEAVING ────────────────────────────────▶ │ sends no request any more: new ones fail
//!      │ ◀──── requests that had left, refused ─── │ here, as they would there
//!      │ ◀──────────────────────── SENT: n in all ─│
//!      └─ n have come: nothing is on its way, and the connection may end
//! ```
//! Both ends count the requests of a connection, so that the answer holds whatever overtakes what:
//! the lanes of a connection keep no order among each other. A core counts its own, and the sums
//! over the cores of a node are compared. When both ends stop, each says and answers as if it were
//! alone.
//!
//! A peer that never answers, says more than it has sent, or has much under way, is waited for no
//! longer than whoever stops allows for all: an endpoint of `convoke-core` a second. One that says
//! less has its last requests lost with the connection.

use std::collections::BTreeMap;

use crate::id::{LinkNonce, NodeId};

/// Name of a connection, the same in all cores.
pub type LinkName = (NodeId, LinkNonce);

/// Connections by which LEAVING was said, until all has come by each that was on its way.
#[derive(Clone, Debug, Default)]
pub struct Partings(BTreeMap<LinkName, Option<u64>>);

impl Partings {
    /// LEAVING was said by a connection.
    pub fn begin(&mut self, link: LinkName) {
        self.0.insert(link, None);
    }

    /// The peer of a connection has said how many requests it has sent by it. Its first word
    /// counts, and none that it was not asked for.
    pub fn handle_sent(&mut self, link: LinkName, requests: u64) {
        if let Some(sent) = self.0.get_mut(&link) {
            sent.get_or_insert(requests);
        }
    }

    /// True while the peer of a connection has answered, and something may be on its way.
    pub fn is_awaited(&self, link: LinkName) -> bool {
        matches!(self.0.get(&link), Some(Some(_)))
    }

    /// So many requests have come by a connection.
    pub fn handle_come(&mut self, link: LinkName, requests: u64) {
        if let Some(Some(sent)) = self.0.get(&link)
            && *sent <= requests
        {
            self.0.remove(&link);
        }
    }

    /// A connection has ended.
    pub fn end(&mut self, link: LinkName) {
        self.0.remove(&link);
    }

    /// True when nothing is on its way by any of them.
    pub fn are_over(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkName = (NodeId::new(2), LinkNonce(1));
    const OTHER: LinkName = (NodeId::new(2), LinkNonce(2));

    fn begun() -> Partings {
        let mut partings = Partings::default();
        partings.begin(LINK);
        partings
    }

    #[test]
    fn a_connection_is_over_once_as_many_have_come_as_were_sent() {
        for sent_first in [false, true] {
            let mut partings = begun();
            let mut words = [
                |of: &mut Partings| of.handle_sent(LINK, 3),
                |of: &mut Partings| {
                    of.handle_come(LINK, 2);
                },
            ];
            if !sent_first {
                words.reverse();
            }
            words.iter().for_each(|word| word(&mut partings));
            assert!(!partings.are_over(), "one is on its way");
            partings.handle_come(LINK, 3);
            assert!(partings.are_over());
        }
    }

    #[test]
    fn a_connection_is_over_when_it_ends() {
        let mut partings = begun();
        partings.begin(OTHER);
        partings.end(LINK);
        partings.handle_sent(OTHER, 0);
        assert!(partings.is_awaited(OTHER) && !partings.are_over());
        partings.handle_come(OTHER, 0);
        assert!(partings.are_over());
    }

    #[test]
    fn the_first_word_of_a_peer_counts_and_none_that_it_was_not_asked_for() {
        let mut partings = begun();
        partings.handle_sent(OTHER, 0);
        assert!(!partings.is_awaited(OTHER), "nothing is kept of it");
        for sent in [u64::MAX, 0, 5] {
            partings.handle_sent(LINK, sent);
        }
        partings.handle_come(LINK, 5);
        assert!(!partings.are_over(), "it has said more");
        partings.handle_come(LINK, u64::MAX);
        partings.handle_sent(LINK, 7);
        assert!(partings.are_over(), "what comes behind is not asked for");
    }
}
