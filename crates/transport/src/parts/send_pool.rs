//! Room in all send buffers of a transport together, and what a connection and a peer may have of
//! it.
//!
//! A connection may have a quarter of what is free, and one that has nothing a first frame as large
//! as what is free; all connections of one peer together as much as is free. So a peer that never
//! reads, over however many connections, leaves three eighths of the room to others, and the
//! largest frame leaves though others have much queued. What a connection has up to [`FREE_BYTES`]
//! does not count: small frames always find room, and cost no access to what is shared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::parts::Mutex;

use crate::PeerName;

/// Room of each connection besides, and the unit in which the rest is counted. A batch of 64 small
/// calls fits.
const FREE_BYTES: usize = 16 << 10;

/// Part of the free room that one connection may have beyond its first frame: one in so many.
const CONNECTION_PART: usize = 4;

/// A bounded number of bytes, shared by the send buffers of connections.
#[derive(Debug)]
pub struct SendPool {
    max: usize,
    used: AtomicUsize,
    peers: Mutex<BTreeMap<PeerName, OfPeer>>,
}

/// Part of a peer in a pool.
#[derive(Debug, Default)]
struct OfPeer {
    /// Number of its shares.
    shares: usize,
    /// Charge of all of them.
    charged: Arc<AtomicUsize>,
}

/// Share of one connection in a pool, or of one of its flows; given back when it is dropped.
#[derive(Debug)]
pub struct SendShare {
    pool: Arc<SendPool>,
    name: PeerName,
    of_peer: Arc<AtomicUsize>,
    /// Charge of all flows of the connection, where it has several.
    of_connection: Option<Arc<AtomicUsize>>,
    charged: usize,
}

impl SendPool {
    /// A pool of `max` bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicUsize::new(0), peers: Mutex::default() })
    }

    /// The share of a new connection of a peer.
    pub fn open(self: &Arc<Self>, name: PeerName) -> SendShare {
        self.open_within(name, None)
    }

    /// The shares of so many flows of a new connection of a peer: all have what one may have.
    pub fn open_flows(
        self: &Arc<Self>,
        name: PeerName,
        count: usize,
    ) -> impl Iterator<Item = SendShare> {
        let of_connection = Arc::default();
        (0..count).map(move |_| self.open_within(name.clone(), Some(Arc::clone(&of_connection))))
    }

    fn open_within(
        self: &Arc<Self>,
        name: PeerName,
        of_connection: Option<Arc<AtomicUsize>>,
    ) -> SendShare {
        let mut peers = self.peers.lock();
        let OfPeer { shares, charged } = peers.entry(name.clone()).or_default();
        *shares += 1;
        let of_peer = Arc::clone(charged);
        drop(peers);
        SendShare { pool: Arc::clone(self), name, of_peer, of_connection, charged: 0 }
    }

    /// Bytes that count now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl SendShare {
    /// Asks for room, so that the connection has `bytes` in all. False when that is above its
    /// share; then nothing has changed.
    #[must_use]
    #[inline]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let charge = charge_of(bytes);
        let Some(more) = charge.checked_sub(self.charged).filter(|more| *more > 0) else {
            return true;
        };
        // Taken before it is looked at, so that two at once cannot both have the last of it.
        let used = self.pool.used.fetch_add(more, Ordering::Relaxed);
        let of_peer = self.of_peer.fetch_add(more, Ordering::Relaxed);
        let of_connection = self.of_connection.as_ref();
        let before =
            of_connection.map_or(self.charged, |all| all.fetch_add(more, Ordering::Relaxed));
        let free = self.pool.max.saturating_sub(used);
        let is_within = before == 0 || before + more <= free / CONNECTION_PART;
        let fits = is_within && of_peer + more <= free;
        if fits {
            self.charged = charge;
        } else {
            self.give_back(more);
        }
        fits
    }

    /// Gives room back: the connection has `bytes` in all, no more than before.
    #[inline]
    pub fn shrink(&mut self, bytes: usize) {
        let charge = charge_of(bytes);
        if charge < self.charged {
            self.give_back(self.charged - charge);
            self.charged = charge;
        }
    }

    /// True when the connection, which has `bytes` here, has less than half of what it may have:
    /// below that whoever can wait need not.
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        if bytes < FREE_BYTES / 2 {
            return true;
        }
        let free = self.pool.max.saturating_sub(self.pool.used());
        let left_to_peer = free.saturating_sub(self.of_peer.load(Ordering::Relaxed));
        let of_connection = self.of_connection.as_ref();
        let charged = of_connection.map_or(self.charged, |all| all.load(Ordering::Relaxed));
        let elsewhere = charged.saturating_sub(self.charged);
        bytes + elsewhere < (free / CONNECTION_PART).min(charged + left_to_peer) / 2
    }

    fn give_back(&self, bytes: usize) {
        self.pool.used.fetch_sub(bytes, Ordering::Relaxed);
        self.of_peer.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(all) = &self.of_connection {
            all.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for SendShare {
    fn drop(&mut self) {
        self.give_back(self.charged);
        let mut peers = self.pool.peers.lock();
        let of_peer = peers.get_mut(&self.name).expect("it has this share");
        of_peer.shares -= 1;
        if of_peer.shares == 0 {
            peers.remove(&self.name);
        }
    }
}

/// Charge for so many bytes.
const fn charge_of(bytes: usize) -> usize {
    if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(FREE_BYTES) }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const MAX: usize = 256 << 20;

    fn place(name: u32) -> PeerName {
        PeerName::Place(name.to_string().into())
    }

    /// Fills a connection up by frames of this size. How much it then has.
    fn fill(share: &mut SendShare, frame: usize) -> usize {
        let mut bytes = 0;
        while share.grow(bytes + frame) {
            bytes += frame;
        }
        bytes
    }

    #[test]
    fn a_connection_gets_a_fifth_and_all_of_one_peer_a_half() {
        let pool = SendPool::new(MAX);
        let mut shares: Vec<SendShare> = (0..4_096).map(|_| pool.open(place(1))).collect();
        let first = fill(&mut shares[0], FREE_BYTES);
        assert!(first.abs_diff(MAX / 5) <= 2 * FREE_BYTES, "{first}");
        for share in &mut shares[1..] {
            fill(share, FREE_BYTES);
        }
        assert!(pool.used() <= MAX / 2 && pool.used() > MAX / 2 - (1 << 20), "{}", pool.used());
        let other = fill(&mut pool.open(place(2)), FREE_BYTES);
        assert!(other > MAX / 12, "half of the half that is left, and a quarter of that: {other}");
        drop(shares);
        assert_eq!(pool.used(), 0);
        assert!(pool.peers.lock().is_empty());
    }

    #[test]
    fn a_peer_whose_last_shares_go_at_once_is_not_remembered() {
        let (pool, both) = (SendPool::new(MAX), Barrier::new(2));
        let open_and_drop = || {
            for peer in 0..10_000 {
                let share = pool.open(place(peer));
                both.wait();
                drop(share);
            }
        };
        std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(open_and_drop)));
        assert!(pool.peers.lock().is_empty());
    }

    #[test]
    fn a_connection_of_many_flows_gets_what_one_of_one_flow_does() {
        let pool = SendPool::new(MAX);
        let alone = fill(&mut pool.open(place(1)), FREE_BYTES);
        let mut flows: Vec<SendShare> = pool.open_flows(place(1), 32).collect();
        let filled: usize = flows.iter_mut().map(|flow| fill(flow, FREE_BYTES)).sum();
        assert!(filled.abs_diff(alone) <= 34 * FREE_BYTES, "{filled}, and {alone} alone");
        assert!(!flows[1].has_room(FREE_BYTES) && flows[1].has_room(FREE_BYTES / 2 - 1));
        flows[0].shrink(0);
        assert!(flows[1].has_room(FREE_BYTES), "what another flow had is free for all of them");
        drop(flows);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn no_number_of_peers_takes_more_than_there_is_and_small_frames_always_fit() {
        let pool = SendPool::new(MAX);
        let mut shares: Vec<SendShare> = (0..4_096).map(|peer| pool.open(place(peer))).collect();
        for share in &mut shares {
            fill(share, 64 << 10);
        }
        assert!(pool.used() <= MAX, "{}", pool.used());
        let mut late = pool.open(place(9_999));
        assert!(late.grow(FREE_BYTES) && late.has_room(FREE_BYTES / 2 - 1));
        assert!(!late.grow(4 << 20));
    }

    /// The largest frame that the settings allow is a quarter of the pool.
    #[test]
    fn the_largest_frame_finds_room_whatever_others_have_up_to_half() {
        let pool = SendPool::new(MAX);
        let mut first = pool.open(place(1));
        assert!(first.grow(MAX / 4 + 1_000), "with the words of its chunks");
        assert!(!first.grow(MAX / 4 + 1_000 + FREE_BYTES), "it has more than a quarter");
        let mut flows: Vec<SendShare> = pool.open_flows(place(2), 2).collect();
        assert!(flows[0].grow(MAX / 4), "a connection of a slow reader is another's");
        assert!(!flows[1].grow(MAX / 8), "its flows have what one connection may have");
        assert!(!pool.open(place(2)).grow(MAX / 4), "a peer leaves half of what is free to others");
        assert!(pool.open(place(3)).grow(MAX / 4));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let pool = SendPool::new(MAX);
        let mut share = pool.open(place(1));
        let most = fill(&mut share, FREE_BYTES);
        assert!(!share.has_room(most) && share.has_room(most / 4));
        share.shrink(FREE_BYTES + 1);
        assert_eq!(pool.used(), 2 * FREE_BYTES);
        share.shrink(FREE_BYTES);
        assert_eq!(pool.used(), 0);
        assert_eq!(fill(&mut share, FREE_BYTES), most);
    }
}
