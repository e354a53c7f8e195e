//! Reachability of peers, for those who watch them.
//!
//! Only opening, closing and dialling come by here. Of the two locks the watches' is taken first,
//! and the state is read within it, so that watchers see states in the order in which they came.

use std::collections::BTreeMap;
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

/// Peers that are watched or being dialled. Bounded by both.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<BTreeMap<NodeId, Watched>>);

#[derive(Debug, Default)]
struct Watched {
    dials: usize,
    state: Option<watch::Sender<PeerState>>,
}

impl Peers {
    /// Tells those who watch that nothing changes any more.
    pub(super) fn close(&self) {
        let _dropped_unlocked = std::mem::take(&mut *self.0.lock());
    }
}

impl Driver {
    /// The state of a peer, from now on. Once the endpoint is closed it never changes, and says so.
    pub(crate) fn watch_peer(&self, node: NodeId) -> watch::Receiver<PeerState> {
        if self.is_closed() {
            return watch::channel(PeerState::Down).1;
        }
        let mut peers = self.peers.0.lock();
        let watched = peers.entry(node).or_default();
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
        self.peers.0.lock().entry(node).or_default();
        self.change_peer(node, |dials| *dials += 1);
        Dialling { driver: self.clone(), node }
    }

    fn change_peer(&self, node: NodeId, change: impl FnOnce(&mut usize)) {
        let mut peers = self.peers.0.lock();
        let Some(watched) = peers.get_mut(&node) else { return };
        change(&mut watched.dials);
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
        self.driver.change_peer(self.node, |dials| *dials -= 1);
    }
}
