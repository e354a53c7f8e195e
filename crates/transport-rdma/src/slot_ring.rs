//! The receive slots of a connection: which are posted, filled, lent to the application, or free.
//!
//! ```text
//!  free ─(post)─▶ posted ─(fill)─▶ filled ─(release)─▶ free
//!                                    └─(lend)─▶ lent ─(take_back)─▶ free
//! ```
//!
//! There are N + R of them, of one size; which are for data and which for control is a matter of
//! counting, see [`credit`](crate::credit). They are used in order: the one that has been free for
//! longest is posted next, and a queue pair fills what it was given first. A lent slot is never
//! posted, whatever the application does with it.
//!
//! This is the bookkeeping only; the memory is another's. In tests and debug builds the ring keeps
//! the state of each slot as well and panics when the order is wrong. A release build relies on the
//! [slab](crate::ffi::slab): a step of a slot there fails unless it is in the state that the step
//! begins with, so a slot that somebody reads is never posted, whatever the ring gives out.

use crate::credit::Limits;

/// The index of a slot, below N + R.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

/// Use of a slot before it was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A data message.
    Data,
    /// A control message.
    Control,
}

/// Receives that were posted again, by what they had been used for. The first receives of a
/// connection are none of these: the peer counts on them from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reposted {
    pub(crate) data: u32,
    pub(crate) control: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Posted,
    Filled,
    Lent,
}

/// An eighth of the slots may wait for others to be posted with. Of the quarter that is never lent
/// more than half are then posted at any time, so the peer always gets credit beyond its reserve.
const SLOTS_PER_GROUP: u32 = 8;
/// More share the cost of a post hardly better.
const GROUP_MAX: u32 = 3;

/// The slots of one connection.
#[derive(Debug)]
pub(crate) struct SlotRing {
    states: States,
    /// Posted all at once, so that it begins anew.
    free: Vec<u32>,
    /// Uses of the free slots that are not new.
    used: Reposted,
    /// So many free slots are posted together.
    group: usize,
    lent_count: u32,
    lent_max: u32,
    kept_count: u32,
}

impl SlotRing {
    /// N + R free slots, of which the application may hold some for as long as it likes.
    ///
    /// A quarter of the N stays, and at least one more than the peer's reserve: with these alone
    /// the connection goes on, so an application that holds all it gets slows itself and stops
    /// nothing.
    pub(crate) fn new(limits: Limits) -> Self {
        let slot_count = limits.slot_count + u32::from(limits.control_slot_count);
        let kept = (limits.slot_count / 4).max(limits.reserve + 1);
        Self {
            states: States::new(slot_count),
            free: (0..slot_count).collect(),
            used: Reposted::default(),
            group: (limits.slot_count / SLOTS_PER_GROUP).clamp(1, GROUP_MAX) as usize,
            lent_count: 0,
            lent_max: limits.slot_count - kept,
            kept_count: kept,
        }
    }

    /// True when the free slots are to be posted. They wait until enough are free to share the cost
    /// of a post; not with one that a control message has used, for without it nothing is sent.
    #[inline]
    pub(crate) fn is_time_to_post(&self) -> bool {
        self.used.control > 0 || self.free.len() >= self.group
    }

    /// Adds the free slots to `slots`, in order; from here on they count as posted.
    pub(crate) fn post(&mut self, slots: &mut Vec<u32>) -> Reposted {
        for slot in &self.free {
            self.states.change(Slot(*slot), State::Free, State::Posted);
        }
        slots.append(&mut self.free);
        std::mem::take(&mut self.used)
    }

    /// A message is in `slot`.
    ///
    /// # Panics
    /// When no receive was posted for it, where states are checked.
    #[inline]
    pub(crate) fn fill(&mut self, slot: Slot) {
        self.states.change(slot, State::Posted, State::Filled);
    }

    /// True when the application may have one more slot; else it gets a copy.
    pub(crate) fn may_lend(&self) -> bool {
        self.lent_count < self.lent_max
    }

    /// The application has the message until it comes back.
    pub(crate) fn lend(&mut self, slot: Slot) {
        debug_assert!(self.may_lend());
        self.states.change(slot, State::Filled, State::Lent);
        self.lent_count += 1;
    }

    /// The message in `slot` was copied, or needs no delivery.
    ///
    /// # Panics
    /// When no message is in it, where states are checked.
    #[inline]
    pub(crate) fn release(&mut self, slot: Slot, used: Use) {
        self.states.change(slot, State::Filled, State::Free);
        match used {
            Use::Data => self.used.data += 1,
            Use::Control => self.used.control += 1,
        }
        self.free.push(slot.0);
    }

    /// The application gave `slot` back.
    ///
    /// # Panics
    /// When it did not have it, where states are checked.
    pub(crate) fn take_back(&mut self, slot: Slot) {
        self.states.change(slot, State::Lent, State::Free);
        self.lent_count -= 1;
        self.used.data += 1;
        self.free.push(slot.0);
    }

    /// Number of slots that the application has.
    pub(crate) fn lent_count(&self) -> u32 {
        self.lent_count
    }

    /// Number of data slots that are never lent.
    pub(crate) fn kept_count(&self) -> u32 {
        self.kept_count
    }

    /// Number of slots that the application may hold.
    #[cfg(test)]
    pub(crate) fn lent_max(&self) -> u32 {
        self.lent_max
    }

    /// Number of receives that are posted and not used.
    #[cfg(test)]
    pub(crate) fn posted_count(&self) -> usize {
        self.states.0.iter().filter(|state| **state == State::Posted).count()
    }
}

/// State of each slot, in tests and debug builds; elsewhere nothing is kept.
#[derive(Debug)]
struct States(Vec<State>);

impl States {
    const ARE_CHECKED: bool = cfg!(any(test, debug_assertions));

    fn new(slot_count: u32) -> Self {
        let kept = if Self::ARE_CHECKED { slot_count } else { 0 };
        Self(vec![State::Free; kept as usize])
    }

    /// Panics where the owner of the memory got the order wrong.
    #[inline]
    fn change(&mut self, slot: Slot, from: State, to: State) {
        if Self::ARE_CHECKED {
            let state = self.0.get_mut(slot.0 as usize).expect("slots are below N + R");
            assert_eq!(*state, from, "{slot:?} cannot become {to:?}");
            *state = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    fn limits(slot_count: u32, control_slot_count: u8, reserve: u32) -> Limits {
        Limits { slot_count, control_slot_count, reserve }
    }

    fn post_all(ring: &mut SlotRing) -> Reposted {
        if ring.is_time_to_post() { ring.post(&mut Vec::new()) } else { Reposted::default() }
    }

    #[test]
    fn slots_wait_for_others_to_be_posted_with() {
        let mut ring = SlotRing::new(limits(32, 2, 2));
        post_all(&mut ring);
        assert_eq!(ring.posted_count(), 34, "the peer counts on them from the start");
        for slot in 0..3 {
            assert_eq!(post_all(&mut ring), Reposted::default());
            ring.fill(Slot(slot));
            ring.release(Slot(slot), Use::Data);
        }
        assert_eq!(post_all(&mut ring), Reposted { data: 3, control: 0 });
    }

    #[test]
    fn the_slot_of_a_control_message_waits_for_nothing() {
        let mut ring = SlotRing::new(limits(32, 2, 2));
        post_all(&mut ring);
        ring.fill(Slot(0));
        ring.release(Slot(0), Use::Data);
        ring.fill(Slot(1));
        ring.release(Slot(1), Use::Control);
        assert_eq!(post_all(&mut ring), Reposted { data: 1, control: 1 });
        assert_eq!(ring.posted_count(), 34);
    }

    #[test]
    fn what_is_kept_and_posted_exceeds_the_reserve_for_all_counts() {
        for slot_count in 1..=1024 {
            let terms = crate::hello::Terms {
                slot_count,
                control_slot_count: 1,
                slot_bytes: 1024,
                frame_bytes_max: 1024,
            };
            let limits = Limits::of(&terms);
            let ring = SlotRing::new(limits);
            let waiting_max = u32::try_from(ring.group - 1).unwrap();
            assert!(ring.kept_count() - waiting_max > limits.reserve, "N = {slot_count}");
        }
    }

    #[test]
    fn the_first_receives_are_no_news_to_the_peer() {
        let mut ring = SlotRing::new(limits(3, 2, 0));
        assert_eq!(post_all(&mut ring), Reposted::default());
        assert_eq!(ring.posted_count(), 5);
    }

    #[test]
    fn a_slot_is_posted_again_for_what_it_was_used_for() {
        let mut ring = SlotRing::new(limits(3, 2, 0));
        post_all(&mut ring);
        for (slot, used) in [(0, Use::Control), (1, Use::Data), (2, Use::Data)] {
            ring.fill(Slot(slot));
            ring.release(Slot(slot), used);
        }
        let mut slots = Vec::new();
        assert_eq!(ring.post(&mut slots), Reposted { data: 2, control: 1 });
        assert_eq!(slots, [0, 1, 2], "used in order");
    }

    #[test]
    fn a_part_of_the_slots_is_never_lent() {
        let lent_max = |n, reserve| SlotRing::new(limits(n, 1, reserve)).lent_max();
        assert_eq!([lent_max(1, 0), lent_max(2, 0), lent_max(3, 0)], [0, 1, 2]);
        assert_eq!([lent_max(4, 1), lent_max(8, 2), lent_max(32, 2)], [2, 5, 24]);
    }

    #[test]
    #[should_panic(expected = "cannot become Filled")]
    fn a_completion_of_what_was_not_posted_is_a_bug() {
        let mut ring = SlotRing::new(limits(2, 1, 0));
        post_all(&mut ring);
        ring.fill(Slot(1));
        ring.fill(Slot(1));
    }

    #[test]
    #[should_panic(expected = "cannot become Free")]
    fn a_slot_comes_back_once() {
        let mut ring = SlotRing::new(limits(2, 1, 0));
        post_all(&mut ring);
        ring.fill(Slot(0));
        ring.lend(Slot(0));
        ring.take_back(Slot(0));
        ring.take_back(Slot(0));
    }

    proptest! {
        #[test]
        fn no_slot_is_posted_while_somebody_has_it(
            n in 1..10_u32,
            r in 1..4_u8,
            ops in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 0..300),
        ) {
            let mut ring = SlotRing::new(limits(n, r, 0));
            let mut posted = VecDeque::new();
            let mut lent: Vec<Slot> = Vec::new();
            let mut freed: VecDeque<Slot> = (0..n + u32::from(r)).map(Slot).collect();
            for (op, index) in ops {
                match op {
                    0 => {
                        let mut slots = Vec::new();
                        ring.post(&mut slots);
                        prop_assert_eq!(slots.len(), freed.len(), "all of them");
                        for slot in slots {
                            prop_assert_eq!(Some(Slot(slot)), freed.pop_front(), "used in order");
                            posted.push_back(Slot(slot));
                        }
                    }
                    1 => {
                        let Some(slot) = posted.pop_front() else { continue };
                        ring.fill(slot);
                        if ring.may_lend() && index.index(2) == 0 {
                            ring.lend(slot);
                            lent.push(slot);
                        } else {
                            ring.release(slot, Use::Data);
                            freed.push_back(slot);
                        }
                    }
                    _ if lent.is_empty() => {}
                    _ => {
                        let slot = lent.swap_remove(index.index(lent.len()));
                        ring.take_back(slot);
                        freed.push_back(slot);
                    }
                }
                prop_assert_eq!(ring.posted_count(), posted.len());
                prop_assert_eq!(ring.lent_count() as usize, lent.len());
                let count = freed.len() + posted.len() + lent.len();
                prop_assert_eq!(count, ring.states.0.len());
                prop_assert!(lent.len() < n as usize, "one data slot stays");
            }
        }
    }
}
