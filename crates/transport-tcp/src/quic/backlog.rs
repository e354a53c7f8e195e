//! Frames of the data lane that must wait for a large one before them, without I/O.
//!
//! A large frame is announced at its place on the lane, and its bytes come on a stream of their
//! own. A frame that follows on the lane is delivered at once when the sink says that its order to
//! the large one does not matter ([`Order`]); otherwise it waits here. With nothing announced and
//! incomplete, a frame passes without being looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use convoke_transport::Order;

/// Most frames that wait; then the lane is not read until a large frame is complete.
const WAITING_MAX: usize = 1024;

/// Frames that wait, in the order of the lane.
#[derive(Debug)]
pub(crate) struct Backlog {
    entries: VecDeque<Entry>,
    /// Number of entries of each group.
    groups: BTreeMap<u64, usize>,
    /// Number of entries that keep the order with all.
    barriers: usize,
    /// Bytes of the frames that are here whole.
    held_bytes: usize,
    held_bytes_max: usize,
    announced_count: u64,
}

#[derive(Debug)]
struct Entry {
    order: Order,
    frame: State,
}

#[derive(Debug)]
enum State {
    /// The large frame of this number is not complete.
    Announced(u64),
    Whole(Bytes),
}

impl Backlog {
    /// Asks for no more of the lane once frames of `held_bytes_max` are here.
    pub(crate) fn new(held_bytes_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            groups: BTreeMap::new(),
            barriers: 0,
            held_bytes: 0,
            held_bytes_max,
            announced_count: 0,
        }
    }

    /// True when every frame passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True when the lane should not be read for now. It ends when a large frame is complete.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= WAITING_MAX || self.held_bytes >= self.held_bytes_max
    }

    /// Bytes of the frames that are here whole.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A large frame has its place here. Answers its number, from 0.
    pub(crate) fn announce(&mut self, order: Order) -> u64 {
        let number = self.announced_count;
        self.announced_count += 1;
        self.push(order, State::Announced(number));
        number
    }

    /// A whole frame of the lane: returned when it may be delivered now.
    pub(crate) fn offer(
        &mut self,
        frame: Bytes,
        order: impl FnOnce(&[u8]) -> Order,
    ) -> Option<Bytes> {
        if self.entries.is_empty() {
            return Some(frame);
        }
        let order = order(&frame);
        let must_wait = match order {
            Order::Lane => true,
            Order::Group(group) => self.barriers > 0 || self.groups.contains_key(&group),
        };
        if !must_wait {
            return Some(frame);
        }
        // Its own copy, since a slice would keep the datagrams it came in.
        let frame = Bytes::copy_from_slice(&frame);
        self.held_bytes += frame.len();
        self.push(order, State::Whole(frame));
        None
    }

    /// A large frame is complete. Answers what may be delivered now, in order.
    pub(crate) fn complete(&mut self, number: u64, frame: Bytes) -> Vec<Bytes> {
        let is_it = |entry: &&mut Entry| matches!(entry.frame, State::Announced(n) if n == number);
        if let Some(entry) = self.entries.iter_mut().find(is_it) {
            self.held_bytes += frame.len();
            entry.frame = State::Whole(frame);
        }
        self.release()
    }

    fn release(&mut self) -> Vec<Bytes> {
        let (mut free, mut kept) = (Vec::new(), VecDeque::new());
        let (mut groups, mut is_barred) = (BTreeSet::new(), false);
        for entry in std::mem::take(&mut self.entries) {
            let must_wait = match entry.order {
                Order::Lane => !kept.is_empty(),
                Order::Group(group) => is_barred || groups.contains(&group),
            };
            match entry {
                Entry { order, frame: State::Whole(frame) } if !must_wait => {
                    self.uncount(order, frame.len());
                    free.push(frame);
                }
                entry => {
                    match entry.order {
                        Order::Lane => is_barred = true,
                        Order::Group(group) => _ = groups.insert(group),
                    }
                    kept.push_back(entry);
                }
            }
        }
        self.entries = kept;
        free
    }

    fn push(&mut self, order: Order, frame: State) {
        match order {
            Order::Lane => self.barriers += 1,
            Order::Group(group) => *self.groups.entry(group).or_default() += 1,
        }
        self.entries.push_back(Entry { order, frame });
    }

    fn uncount(&mut self, order: Order, len: usize) {
        self.held_bytes -= len;
        match order {
            Order::Lane => self.barriers -= 1,
            Order::Group(group) => {
                let count = self.groups.get_mut(&group).expect("its entry was counted");
                *count -= 1;
                if *count == 0 {
                    self.groups.remove(&group);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first byte is the group; 0 is the whole lane.
    fn order(frame: &[u8]) -> Order {
        match frame[0] {
            0 => Order::Lane,
            group => Order::Group(group.into()),
        }
    }

    fn frame(group: u8, number: u8) -> Bytes {
        Bytes::copy_from_slice(&[group, number])
    }

    #[test]
    fn another_group_passes_and_the_same_waits() {
        let mut backlog = Backlog::new(1_000);
        let large = backlog.announce(Order::Group(1));
        assert_eq!(backlog.offer(frame(2, 0), order), Some(frame(2, 0)));
        assert_eq!(backlog.offer(frame(1, 1), order), None);
        assert_eq!(backlog.offer(frame(2, 2), order), Some(frame(2, 2)));
        assert_eq!(backlog.complete(large, frame(1, 0)), [frame(1, 0), frame(1, 1)]);
        assert!(backlog.is_empty());
        assert_eq!(backlog.held_bytes(), 0);
    }

    #[test]
    fn what_keeps_order_with_all_waits_and_is_waited_for() {
        let mut backlog = Backlog::new(1_000);
        let large = backlog.announce(Order::Group(1));
        assert_eq!(backlog.offer(frame(0, 1), order), None);
        assert_eq!(backlog.offer(frame(2, 2), order), None, "it would pass the frame before it");
        let all = [frame(1, 0), frame(0, 1), frame(2, 2)];
        assert_eq!(backlog.complete(large, frame(1, 0)), all);
    }

    #[test]
    fn it_is_full_by_bytes_and_by_count() {
        let mut backlog = Backlog::new(10);
        backlog.announce(Order::Lane);
        let sizes = (0..5).map(|number| {
            assert!(!backlog.is_full());
            backlog.offer(frame(1, number), order)
        });
        assert!(sizes.into_iter().all(|passed| passed.is_none()));
        assert!(backlog.is_full());
        let mut backlog = Backlog::new(1 << 30);
        (0..WAITING_MAX).for_each(|_| _ = backlog.announce(Order::Lane));
        assert!(backlog.is_full());
    }

    proptest! {
        /// Against the plain rule: within a group, and around frames of the whole lane, what comes
        /// out has the order of what went in, and all of it comes out.
        #[test]
        fn order_holds_within_groups_and_around_barriers(
            frames in prop::collection::vec((0..4_u8, any::<bool>()), 1..60),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 60),
            eager in 0..10_usize,
        ) {
            let mut backlog = Backlog::new(usize::MAX);
            let (mut out, mut open) = (Vec::new(), Vec::new());
            for (number, (group, is_large)) in frames.iter().enumerate() {
                let bytes = frame(*group, u8::try_from(number).unwrap());
                if *is_large {
                    open.push((backlog.announce(order(&bytes)), bytes));
                } else {
                    out.extend(backlog.offer(bytes, order));
                }
                if open.len() > eager {
                    let (number, bytes) = open.swap_remove(picks[number].index(open.len()));
                    out.extend(backlog.complete(number, bytes));
                }
            }
            while !open.is_empty() {
                let (number, bytes) = open.swap_remove(picks[open.len() % 60].index(open.len()));
                out.extend(backlog.complete(number, bytes));
            }
            prop_assert!(backlog.is_empty() && backlog.groups.is_empty());
            prop_assert_eq!((backlog.barriers, backlog.held_bytes()), (0, 0));
            prop_assert_eq!(out.len(), frames.len());
            for (at, earlier) in out.iter().enumerate() {
                for later in &out[at + 1..] {
                    let is_tied = earlier[0] == later[0] || earlier[0] == 0 || later[0] == 0;
                    prop_assert!(!is_tied || earlier[1] < later[1]);
                }
            }
        }
    }
}
