//! Seats for connections: how many there may be, and how many of them one peer may have.
//!
//! A peer may take as many as are still free (Choudhury and Hahne, *Dynamic queue length thresholds
//! for shared-memory packet switches*, 1998). So one peer alone gets half of them, the second half
//! of what is left, and whoever comes next always finds some.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parts::Mutex;

use crate::PeerName;

/// A bounded number of seats, shared by peers.
#[derive(Debug)]
pub struct Seats {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by: BTreeMap<PeerName, usize>,
}

/// One seat of a peer, free again when this is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    name: PeerName,
}

/// A peer has its share of the seats.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{taken} of {max} are taken, {of_peer} of them by {name}, which is its share")]
pub struct NoSeat {
    name: PeerName,
    of_peer: usize,
    taken: usize,
    max: usize,
}

impl Seats {
    /// `max` seats, none of them taken.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Takes a seat for a peer.
    ///
    /// # Errors
    /// [`NoSeat`] when the peer has as many as are free.
    pub fn take(self: &Arc<Self>, name: PeerName) -> Result<Seat, NoSeat> {
        let mut all = self.taken.lock();
        let of_peer = all.by.get(&name).copied().unwrap_or(0);
        let (taken, max) = (all.count, self.max);
        if of_peer >= max - taken {
            return Err(NoSeat { name, of_peer, taken, max });
        }
        all.count += 1;
        all.by.insert(name.clone(), of_peer + 1);
        Ok(Seat { seats: Arc::clone(self), name })
    }

    /// True while a seat is free.
    pub(super) fn has_room(&self) -> bool {
        self.taken.lock().count < self.max
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.seats.taken.lock();
        all.count -= 1;
        let of_peer = all.by.get_mut(&self.name).expect("it has this seat");
        *of_peer -= 1;
        if *of_peer == 0 {
            all.by.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: u32) -> PeerName {
        PeerName::Place(name.to_string().into())
    }

    fn take_all(seats: &Arc<Seats>, name: &PeerName) -> Vec<Seat> {
        std::iter::from_fn(|| seats.take(name.clone()).ok()).collect()
    }

    #[test]
    fn each_peer_gets_half_of_what_those_before_it_left() {
        let seats = Seats::new(4_096);
        let mut held = Vec::new();
        for (peer, count) in (0..).zip([2_048, 1_024, 512, 256, 128]) {
            held.push(take_all(&seats, &place(peer)));
            assert_eq!(held.last().map(Vec::len), Some(count));
        }
        drop(held);
        assert!(seats.taken.lock().by.is_empty(), "who has none is not remembered");
        assert_eq!(take_all(&seats, &place(9)).len(), 2_048);
    }

    #[test]
    fn a_peer_without_one_gets_the_last_and_a_refusal_says_whose_share_is_used_up() {
        let seats = Seats::new(2);
        let _first = seats.take(place(1)).expect("there are two");
        let refused = seats.take(place(1)).expect_err("the other is not for it").to_string();
        assert_eq!(refused, "1 of 2 are taken, 1 of them by 1, which is its share");
        let _last = seats.take(place(2)).expect("it has none");
        assert!(seats.take(place(3)).is_err(), "there is none left");
    }
}
