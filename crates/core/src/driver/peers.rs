//! Reachability of peers, for those who watch them.
//!
//! Only opening, closing and dialling come by here. Of the two locks the watches' is taken first,
//! and the state is read within it, so that watchers see states in the order in which they came.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use convoke_proto::id::NodeId;
use convoke_transport::parts::Mutex;
use tokio::sync::watch;

use super::Driver;

/// Reachability of a peer, as this endpoint sees it; see
/// [`Endpoint::watch_peer`](crate::Endpoint::watch_peer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerState {
    /// There is a connection to it.
    Connected,
    /// It is being dialled.
    Connecting,
    /// There is no connection, and none is being made: it was not needed yet, it was lost, or
    /// dialling failed.
    Down,
}

/// Peers that are watched or being dialled, if the endpoint is not closed.
#[derive(Debug)]
pub(super) struct Peers(Mutex<Option<All>>);

/// Peers that are watched or being dialled, and up to as many again that were watched.
#[derive(Debug, Default)]
struct All {
    peers: BTreeMap<NodeId, Watched>,
    /// Number of those that were needed when all were looked at last.
    needed: usize,
}

/// Fewer are not worth a look.
const SWEPT_MIN: usize = 32;

impl All {
    /// A place for one that is watched. Who watched another may be gone, and nothing tells of it.
    fn place(&mut self, node: NodeId) -> &mut Watched {
        if self.peers.len() >= SWEPT_MIN.max(2 * self.needed) {
            self.peers.retain(|_, watched| watched.is_needed());
            self.needed = self.peers.len();
        }
        self.peers.entry(node).or_default()
    }
}

#[derive(Debug, Default)]
struct Watched {
    dials: usize,
    state: Option<watch::Sender<PeerState>>,
}

impl Watched {
    fn is_needed(&self) -> bool {
        self.dials > 0 || self.state.as_ref().is_some_and(|state| state.receiver_count() > 0)
    }
}

impl Peers {
    /// Tells those who watch that nothing changes any more.
    pub(super) fn close(&self) {
        let _dropped_unlocked = self.0.lock().take();
    }
}

impl Default for Peers {
    fn default() -> Self {
        Self(Mutex::new(Some(All::default())))
    }
}

impl Driver {
    /// The state of a peer, from now on. Once the endpoint is closed it never changes, and says so.
    pub(crate) fn watch_peer(&self, node: NodeId) -> watch::Receiver<PeerState> {
        let mut peers = self.peers.0.lock();
        let Some(all) = peers.as_mut() else { return watch::channel(PeerState::Down).1 };
        let watched = all.place(node);
        let now = self.peer_state(node, watched.dials);
        match &watched.state {
            Some(state) => state.subscribe(),
            None => {
                let (sender, receiver) = watch::channel(now);
                watched.state = Some(sender);
                receiver
            }
        }
    }

    /// A connection to a peer has opened or closed.
    pub(super) fn peer_changed(&self, node: NodeId) {
        self.change_peer(node, |_| {});
    }

    /// A peer is being dialled until the guard is dropped.
    pub(super) fn dialling(self: &Arc<Self>, node: NodeId) -> Dialling {
        self.change_peer(node, |peer| peer.or_default().dials += 1);
        Dialling { driver: self.clone(), node }
    }

    fn change_peer(&self, node: NodeId, change: impl FnOnce(Entry<'_, NodeId, Watched>)) {
        let mut peers = self.peers.0.lock();
        let Some(All { peers, .. }) = peers.as_mut() else { return };
        change(peers.entry(node));
        let Some(watched) = peers.get_mut(&node) else { return };
        let now = self.peer_state(node, watched.dials);
        watched.state = watched.state.take().filter(|state| state.receiver_count() > 0);
        match &watched.state {
            Some(state) => {
                state.send_if_modified(|state| std::mem::replace(state, now) != now);
            }
            None if watched.dials == 0 => {
                peers.remove(&node);
            }
            None => {}
        }
    }

    fn peer_state(&self, node: NodeId, dials: usize) -> PeerState {
        if node == self.identity.node || self.connection_to(node).is_some() {
            PeerState::Connected
        } else if dials > 0 {
            PeerState::Connecting
        } else {
            PeerState::Down
        }
    }
}

/// While it lives, a peer is being dialled.
pub(super) struct Dialling {
    driver: Arc<Driver>,
    node: NodeId,
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.driver.change_peer(self.node, |peer| {
            peer.and_modify(|watched| watched.dials -= 1);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    const PEER: NodeId = NodeId::new(2);

    async fn endpoint() -> Endpoint {
        Endpoint::builder().start().await.expect("nothing to bind")
    }

    #[tokio::test]
    async fn dials_that_begin_and_end_at_once_are_all_counted() {
        let endpoint = endpoint().await;
        let driver = endpoint.driver();
        let dial = || (0..100_000).for_each(|_| drop(driver.dialling(PEER)));
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(dial)));
        let dialling = driver.dialling(PEER);
        assert_eq!(*driver.watch_peer(PEER).borrow(), PeerState::Connecting);
        drop(dialling);
        assert_eq!(*driver.watch_peer(PEER).borrow(), PeerState::Down);
    }

    #[tokio::test]
    async fn peers_that_nobody_watches_any_more_are_forgotten() {
        let endpoint = endpoint().await;
        let driver = endpoint.driver();
        let _kept: Vec<_> = (1..=100).map(|n| driver.watch_peer(NodeId::new(n))).collect();
        (101..10_000).for_each(|n| drop(driver.watch_peer(NodeId::new(n))));
        let count = driver.peers.0.lock().as_ref().map(|all| all.peers.len());
        assert!((100..=200).contains(&count.expect("it is open")), "{count:?}");
    }

    /// It has found the endpoint open.
    #[tokio::test]
    async fn who_watches_a_peer_while_the_endpoint_closes_is_told() {
        let endpoint = endpoint().await;
        let driver = endpoint.driver();
        let dialling = driver.dialling(PEER);
        driver.peers.close();
        let mut state = driver.watch_peer(PEER);
        drop(dialling);
        assert_eq!(*state.borrow_and_update(), PeerState::Down);
        let changed = tokio::time::timeout(std::time::Duration::from_secs(60), state.changed());
        assert!(changed.await.expect("it is told").is_err(), "nothing changes any more");
    }
}
