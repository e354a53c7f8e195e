//! Choosing one of several nodes that serve the same.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};

use tokio::sync::watch;

use crate::driver::{Driver, KeepConnected, PeerState};
use crate::endpoint::Endpoint;
use crate::peer::Peer;

/// A pool of peers that serve the same, of which each call asks one. Cheap to clone; clones share
/// the peers and the turn.
///
/// The pool stays connected to its peers as long as it lives, as [`Endpoint::keep_connected`] does,
/// so that one which is [`PeerState::Down`] is one that cannot be reached. It does not keep the
/// endpoint open.
///
/// ```
/// # use convoke_core::{CallError, Endpoint, Method, NoPeers, OneOf, Peer};
/// # const FIND: Method<String, String> = Method::new("catalogue.Catalogue/Find");
/// # type Result = std::result::Result<(), Box<dyn std::error::Error>>;
/// # async fn find(endpoint: &Endpoint, catalogues: &[Peer]) -> Result {
/// let catalogue = OneOf::least_loaded(endpoint, catalogues)?;
/// let found = endpoint.call(FIND, "heron".into()).to(catalogue.pick()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OneOf(Arc<Pool>);

/// A pool was given no peer. A pool that has some keeps those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pool needs at least one peer")]
pub struct NoPeers;

struct Pool {
    driver: Weak<Driver>,
    choice: Choice,
    /// Never empty.
    members: RwLock<Vec<Member>>,
    /// Picks so far, from a random number on.
    turn: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    RoundRobin,
    LeastLoaded,
}

struct Member {
    peer: Peer,
    state: watch::Receiver<PeerState>,
    _kept: KeepConnected,
}

impl OneOf {
    /// A pool whose peers are asked in turn.
    ///
    /// # Errors
    /// [`NoPeers`] without any.
    pub fn round_robin<P: Into<Peer>>(
        endpoint: &Endpoint,
        peers: impl IntoIterator<Item = P>,
    ) -> Result<Self, NoPeers> {
        Self::new(endpoint, Choice::RoundRobin, peers)
    }

    /// A pool of which the less busy of two peers drawn at random is asked: the one at which this
    /// endpoint has fewer open branches. Better than taking turns where calls differ much, or one
    /// of the peers is slow.
    ///
    /// # Errors
    /// [`NoPeers`] without any.
    pub fn least_loaded<P: Into<Peer>>(
        endpoint: &Endpoint,
        peers: impl IntoIterator<Item = P>,
    ) -> Result<Self, NoPeers> {
        Self::new(endpoint, Choice::LeastLoaded, peers)
    }

    fn new<P: Into<Peer>>(
        endpoint: &Endpoint,
        choice: Choice,
        peers: impl IntoIterator<Item = P>,
    ) -> Result<Self, NoPeers> {
        let driver = Arc::downgrade(endpoint.driver());
        let turn = AtomicU64::new(endpoint.driver().identity().incarnation.0);
        let pool = Self(Arc::new(Pool { driver, choice, members: RwLock::default(), turn }));
        pool.replace(peers)?;
        Ok(pool)
    }

    /// The peer to ask next: a connected one, else one that is being dialled, else one that is
    /// down, and a call to it fails or finds it back. One that shuts down is asked only where all
    /// do.
    pub fn pick(&self) -> Peer {
        let members = self.0.members();
        let states = [PeerState::Connected, PeerState::Connecting, PeerState::Down];
        let best = states.into_iter().find(|state| members.iter().any(|of| of.is(*state)));
        let usable = || members.iter().filter(|of| best.is_none_or(|state| of.is(state)));
        let count = usable().count().max(1);
        // States may have changed since.
        let nth = |index: usize| usable().nth(index % count).unwrap_or(&members[0]).peer;
        let turn = self.0.turn.fetch_add(1, Ordering::Relaxed);
        match self.0.choice {
            Choice::RoundRobin => nth(index_of(turn)),
            Choice::LeastLoaded => {
                let one = index_of(mixed(turn)) % count;
                // Another one, where there is another.
                let step = 1 + index_of(mixed(turn) >> 32) % count.saturating_sub(1).max(1);
                self.0.less_loaded(nth(one), nth(one + step))
            }
        }
    }

    /// Replaces the peers, as discovery finds them. Those that are in both lists stay connected;
    /// calls that are under way go on.
    ///
    /// # Errors
    /// [`NoPeers`] when there is none; the pool keeps those it has.
    pub fn replace<P: Into<Peer>>(
        &self,
        peers: impl IntoIterator<Item = P>,
    ) -> Result<(), NoPeers> {
        let mut peers: Vec<Peer> = peers.into_iter().map(Into::into).collect();
        peers.sort();
        peers.dedup();
        if peers.is_empty() {
            return Err(NoPeers);
        }
        // Of an endpoint that has stopped nothing is asked any more.
        let Some(driver) = self.0.driver.upgrade() else { return Ok(()) };
        let mut members = self.0.members.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *members);
        members.extend(peers.into_iter().map(|peer| {
            match before.iter().position(|of| of.peer == peer) {
                Some(index) => Member { peer, ..before.swap_remove(index) },
                None => Member {
                    peer,
                    state: driver.watch_peer(peer.node()),
                    _kept: driver.keep_connected(peer.node()),
                },
            }
        }));
        Ok(())
    }
}

impl Pool {
    /// The members, to be read: calls pick beside each other.
    fn members(&self) -> RwLockReadGuard<'_, Vec<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one of two at which fewer branches are open; the first of equals. One whose connection
    /// has no room comes last: calls wait for that, and are not open until then.
    fn less_loaded(&self, one: Peer, other: Peer) -> Peer {
        let Some(driver) = self.driver.upgrade().filter(|_| one != other) else { return one };
        let [one_load, other_load] =
            [one, other].map(|peer| (driver.is_full(peer.node()), driver.open_at(peer.node())));
        if other_load < one_load { other } else { one }
    }
}

impl Member {
    fn is(&self, state: PeerState) -> bool {
        *self.state.borrow() == state
    }
}

/// The low bits of a number, which is taken modulo a few.
fn index_of(number: u64) -> usize {
    usize::try_from(number & 0xffff_ffff).unwrap_or(0)
}

/// splitmix64 of the turn: the same picks in every run of a simulation, and as good as random.
fn mixed(turn: u64) -> u64 {
    let mut mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl fmt::Debug for OneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.0.members();
        let peers: Vec<Peer> = members.iter().map(|member| member.peer).collect();
        f.debug_struct("OneOf").field("choice", &self.0.choice).field("peers", &peers).finish()
    }
}
