//! Reachability of peers, for those who watch them.
//!
//! Only opening, closing and dialling come by here. Of the two locks the watches' is taken first,
//! and the state is read within it. Watchers are told without either, and each time what is so
//! then: they see states in the order in which they came, and the last one always.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use convoke_proto::id::NodeId;
use convoke_transport::parts::{Mutex, WAKER};
use tokio::sync::watch;

use super::Driver;

/// Reachability of a peer, as this endpoint sees it; see
/// [`Endpoint::watch_peer`](crate::Endpoint::watch_peer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerState {
    /// There is a connection to it.
    Connected,
    /// There is a connection to it, and it shuts down: what was begun there goes on, and requests
    /// fail as not run. It is [`Down`](Self::Down) next, or back in its next life.
    Leaving,
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
    watch: Option<Arc<Watch>>,
}

impl Watched {
    fn is_needed(&self) -> bool {
        self.dials > 0 || self.watch.as_ref().is_some_and(|watch| watch.is_needed())
    }
}

/// The state of a peer that is watched.
#[derive(Debug)]
struct Watch {
    now: Mutex<PeerState>,
    told: watch::Sender<PeerState>,
}

impl Watch {
    fn new(now: PeerState) -> Arc<Self> {
        Arc::new(Self { now: Mutex::new(now), told: watch::Sender::new(now) })
    }

    fn is_needed(&self) -> bool {
        self.told.receiver_count() > 0
    }

    /// Tells those who watch, if they have not been. To be called without any lock.
    fn tell(&self) {
        WAKER.call(|| {
            self.told.send_if_modified(|told| {
                let now = *self.now.lock();
                std::mem::replace(told, now) != now
            })
        });
    }
}

impl Peers {
    /// Tells those who watch that nothing changes any more.
    pub(super) fn close(&self) {
        let all = self.0.lock().take();
        for watched in all.into_iter().flat_map(|all| all.peers.into_values()) {
            WAKER.call(|| drop(watched));
        }
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
        watched.watch.get_or_insert_with(|| Watch::new(now)).told.subscribe()
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
        let Some(All { peers: all, .. }) = peers.as_mut() else { return };
        change(all.entry(node));
        let Some(watched) = all.get_mut(&node) else { return };
        watched.watch = watched.watch.take().filter(|watch| watch.is_needed());
        let watch = watched.watch.clone();
        if let Some(watch) = &watch {
            *watch.now.lock() = self.peer_state(node, watched.dials);
        } else if watched.dials == 0 {
            all.remove(&node);
        }
        drop(peers);
        if let Some(watch) = watch {
            watch.tell();
        }
    }

    fn peer_state(&self, node: NodeId, dials: usize) -> PeerState {
        if node == self.identity.node {
            return PeerState::Connected;
        }
        let is_leaving = self.ask_any_node(|core| {
            let links = core.links();
            links.current(node).map(|link| links.is_leaving(link))
        });
        match is_leaving {
            Some(true) => PeerState::Leaving,
            Some(false) => PeerState::Connected,
            None if dials > 0 => PeerState::Connecting,
            None => PeerState::Down,
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
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

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

    /// Asks about the peer that it is woken for.
    struct Asks(Endpoint);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            let state = self.0.driver().watch_peer(PEER);
            assert_eq!(*state.borrow(), PeerState::Connecting);
        }
    }

    #[tokio::test]
    async fn who_is_told_of_a_peer_may_ask_about_it() {
        let endpoint = endpoint().await;
        let mut state = endpoint.driver().watch_peer(PEER);
        let (waker, mut changed) =
            (Waker::from(Arc::new(Asks(endpoint.clone()))), Box::pin(state.changed()));
        assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let _dialling = endpoint.driver().dialling(PEER);
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("it does not wait for itself");
        changed.await.expect("the endpoint is open");
    }
}
