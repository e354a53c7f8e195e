//! What of a queue pair is posted and has not come back.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::provider::{Direction, Tag, WorkId};

/// Counts the work requests of a queue pair. The device is given numbers in the order of the posts: the number of a
/// completed send says how many before it, signalled or not, are done as well.
///
/// One thread posts at a time, and one takes completions; they may be two.
#[derive(Debug)]
pub(super) struct Posted {
    /// How the device is told of this queue pair; unlike a tag never used twice.
    key: Tag,
    sends_max: u32,
    receives_max: u32,
    sent: AtomicU32,
    done: AtomicU32,
    receives: AtomicU32,
    /// What the engine wants back with a send, by its number modulo the length, a power of two.
    slots: Box<[AtomicU32]>,
}

impl Posted {
    pub(super) fn new(key: Tag, sends_max: u32, receives_max: u32) -> Self {
        let length = sends_max.max(1).next_power_of_two();
        Self {
            key,
            sends_max,
            receives_max,
            sent: AtomicU32::new(0),
            done: AtomicU32::new(0),
            receives: AtomicU32::new(0),
            slots: (0..length).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(super) fn key(&self) -> Tag {
        self.key
    }

    /// How many sends may be posted now.
    pub(super) fn sends_room(&self) -> usize {
        // The load pairs with the store in `complete_send`, after which an entry of `slots` may be overwritten.
        let done = self.done.load(Ordering::Acquire);
        let posted = self.sent.load(Ordering::Relaxed).wrapping_sub(done);
        self.sends_max.saturating_sub(posted) as usize
    }

    /// How many receives may be posted now.
    pub(super) fn receives_room(&self) -> usize {
        self.receives_max.saturating_sub(self.receives.load(Ordering::Relaxed)) as usize
    }

    /// Sends with these ids are going to be posted, within the [room](Self::sends_room); answers the number of the first. Before
    /// the device is told, since they may complete at once.
    pub(super) fn begin_sends(&self, ids: impl Iterator<Item = WorkId>) -> u32 {
        let first = self.sent.load(Ordering::Relaxed);
        let mut number = first;
        for id in ids {
            self.slots[self.index(number)].store(id.slot(), Ordering::Relaxed);
            number = number.wrapping_add(1);
        }
        self.sent.store(number, Ordering::Release);
        first
    }

    /// The id that tells the device of the `i`-th of those that begin with number `first`.
    pub(super) fn send_id(&self, first: u32, i: usize, id: WorkId) -> u64 {
        let i = u32::try_from(i).expect("no more than the room");
        let number = first.wrapping_add(i);
        match id.direction() {
            Direction::Probe => WorkId::probe_of(self.key, number),
            Direction::Send | Direction::Receive => WorkId::send(self.key, number),
        }
        .to_u64()
    }

    /// The last `count` of them were refused.
    pub(super) fn take_back_sends(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than were posted");
        self.sent.fetch_sub(count, Ordering::Release);
    }

    /// The id that tells the device of the receive into a slot.
    pub(super) fn receive_id(&self, slot: u32) -> u64 {
        WorkId::receive(self.key, slot).to_u64()
    }

    pub(super) fn begin_receives(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than the room");
        self.receives.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn take_back_receives(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than were posted");
        self.receives.fetch_sub(count, Ordering::Relaxed);
    }

    /// The id the engine gave the work request that has come back from the device as `id`.
    pub(super) fn complete(&self, tag: Tag, id: WorkId) -> WorkId {
        match id.direction() {
            Direction::Receive => {
                self.receives.fetch_sub(1, Ordering::Relaxed);
                WorkId::receive(tag, id.slot())
            }
            Direction::Send => WorkId::send(tag, self.complete_send(id.slot())),
            Direction::Probe => {
                self.complete_send(id.slot());
                WorkId::probe(tag)
            }
        }
    }

    fn complete_send(&self, number: u32) -> u32 {
        let slot = self.slots[self.index(number)].load(Ordering::Relaxed);
        self.done.store(number.wrapping_add(1), Ordering::Release);
        slot
    }

    fn index(&self, number: u32) -> usize {
        number as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn tag(number: u32) -> Tag {
        Tag::new(number).unwrap()
    }

    /// Posts what there is room for, and gives back the ids as the device has them.
    fn post(posted: &Posted, slots: &[u32]) -> Vec<u64> {
        let ids: Vec<_> = slots.iter().map(|slot| WorkId::send(tag(7), *slot)).collect();
        let first = posted.begin_sends(ids.iter().copied());
        ids.iter().enumerate().map(|(i, id)| posted.send_id(first, i, *id)).collect()
    }

    #[test]
    fn a_signalled_send_frees_those_before_it() {
        let posted = Posted::new(tag(1), 4, 1);
        let ids = post(&posted, &[10, 11, 12]);
        assert_eq!(posted.sends_room(), 1);
        let last = WorkId::from_u64(ids[2]).unwrap();
        assert_eq!(posted.complete(tag(7), last), WorkId::send(tag(7), 12));
        assert_eq!(posted.sends_room(), 4);
    }

    #[test]
    fn what_was_refused_takes_no_room() {
        let posted = Posted::new(tag(1), 4, 2);
        post(&posted, &[1, 2, 3]);
        posted.take_back_sends(2);
        assert_eq!(posted.sends_room(), 3);
        posted.begin_receives(2);
        posted.take_back_receives(1);
        assert_eq!(posted.receives_room(), 1);
    }

    proptest! {
        /// Whatever is posted in whatever bursts, and whichever of it is signalled, ids come back as they were given, in
        /// order, and the room is what was not posted since the last that came back.
        #[test]
        fn ids_come_back_as_they_were_given(
            sends_max in 1_u32..9,
            bursts in prop::collection::vec((0_usize..9, any::<bool>()), 1..200),
        ) {
            let posted = Posted::new(tag(3), sends_max, 0);
            let mut under_way = VecDeque::new();
            let mut next = 0;
            for (wanted, is_completed) in bursts {
                let count = wanted.min(posted.sends_room());
                let slots: Vec<u32> = (next..).take(count).collect();
                next += u32::try_from(count).unwrap();
                under_way.extend(post(&posted, &slots).into_iter().zip(slots));
                if is_completed {
                    // The last of what is under way was signalled.
                    if let Some((id, slot)) = under_way.drain(..).next_back() {
                        let back = posted.complete(tag(9), WorkId::from_u64(id).unwrap());
                        prop_assert_eq!(back, WorkId::send(tag(9), slot));
                    }
                }
                prop_assert_eq!(posted.sends_room(), sends_max as usize - under_way.len());
            }
        }
    }
}
