//! Work requests of a queue pair that are posted and have not come back.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::provider::{Direction, Tag, WorkId};

/// Counts the work requests of a queue pair. The number of a completed send says that those before
/// it, signalled or not, are done as well.
///
/// One thread posts at a time, and one takes completions; they may be two.
#[derive(Debug)]
pub(super) struct Posted {
    /// Key by which the device is told of this queue pair; unlike a tag never used twice.
    key: Tag,
    sends_max: u32,
    receives_max: u32,
    sent: AtomicU32,
    done: AtomicU32,
    receives: AtomicU32,
}

impl Posted {
    pub(super) fn new(key: Tag, sends_max: u32, receives_max: u32) -> Self {
        Self {
            key,
            sends_max,
            receives_max,
            sent: AtomicU32::new(0),
            done: AtomicU32::new(0),
            receives: AtomicU32::new(0),
        }
    }

    pub(super) fn key(&self) -> Tag {
        self.key
    }

    /// Number of sends that may be posted now.
    #[inline]
    pub(super) fn sends_room(&self) -> usize {
        let done = self.done.load(Ordering::Relaxed);
        let posted = self.sent.load(Ordering::Relaxed).wrapping_sub(done);
        self.sends_max.saturating_sub(posted) as usize
    }

    /// Number of receives that may be posted now.
    #[inline]
    pub(super) fn receives_room(&self) -> usize {
        self.receives_max.saturating_sub(self.receives.load(Ordering::Relaxed)) as usize
    }

    /// So many sends are going to be posted, within the [room](Self::sends_room); answers the
    /// number of the first.
    #[inline]
    pub(super) fn begin_sends(&self, count: usize) -> u32 {
        let count = u32::try_from(count).expect("no more than the room");
        let first = self.sent.load(Ordering::Relaxed);
        self.sent.store(first.wrapping_add(count), Ordering::Relaxed);
        first
    }

    /// The last `count` of them were refused.
    pub(super) fn take_back_sends(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than were posted");
        self.sent.fetch_sub(count, Ordering::Relaxed);
    }

    /// The id that tells the device of the `i`-th of those that begin with number `first`.
    #[inline]
    pub(super) fn send_id(&self, first: u32, i: usize) -> u64 {
        let i = u32::try_from(i).expect("no more than the room");
        WorkId::send(self.key, first.wrapping_add(i)).to_u64()
    }

    /// The id that tells the device of the receive into a slot.
    #[inline]
    pub(super) fn receive_id(&self, slot: u32) -> u64 {
        WorkId::receive(self.key, slot).to_u64()
    }

    #[inline]
    pub(super) fn begin_receives(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than the room");
        self.receives.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn take_back_receives(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than were posted");
        self.receives.fetch_sub(count, Ordering::Relaxed);
    }

    /// Counts a work request that has come back from the device as `id`; answers what the engine
    /// calls it.
    #[inline]
    pub(super) fn complete(&self, tag: Tag, id: WorkId) -> WorkId {
        match id.direction() {
            Direction::Receive => {
                self.receives.fetch_sub(1, Ordering::Relaxed);
                WorkId::receive(tag, id.index())
            }
            Direction::Send => {
                self.done.store(id.index().wrapping_add(1), Ordering::Relaxed);
                WorkId::send(tag, id.index())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(number: u32) -> Tag {
        Tag::new(number).unwrap()
    }

    /// Posts so many sends; answers the ids as the device has them.
    fn post(posted: &Posted, count: usize) -> Vec<u64> {
        let first = posted.begin_sends(count);
        (0..count).map(|i| posted.send_id(first, i)).collect()
    }

    #[test]
    fn a_signalled_send_frees_those_before_it() {
        let posted = Posted::new(tag(1), 4, 1);
        let ids = post(&posted, 3);
        assert_eq!(posted.sends_room(), 1);
        let last = WorkId::from_u64(ids[2]).unwrap();
        assert_eq!(posted.complete(tag(7), last), WorkId::send(tag(7), 2));
        assert_eq!(posted.sends_room(), 4);
    }

    #[test]
    fn what_was_refused_takes_no_room() {
        let posted = Posted::new(tag(1), 4, 2);
        post(&posted, 3);
        posted.take_back_sends(2);
        assert_eq!(posted.sends_room(), 3);
        posted.begin_receives(2);
        posted.take_back_receives(1);
        assert_eq!(posted.receives_room(), 1);
    }

    proptest! {
        /// Sends come back by their order, and the room is what was not posted since the last that
        /// came back: with any bursts, also across the end of the numbers, and any of them
        /// signalled.
        #[test]
        fn sends_come_back_by_their_order(
            sends_max in 1_u32..9,
            before in prop_oneof![Just(0), Just(u32::MAX - 3)],
            bursts in prop::collection::vec((0_usize..9, any::<bool>()), 1..200),
        ) {
            let posted = Posted::new(tag(3), sends_max, 0);
            posted.sent.store(before, Ordering::Relaxed);
            posted.done.store(before, Ordering::Relaxed);
            let (mut number, mut under_way) = (before, Vec::new());
            for (wanted, is_completed) in bursts {
                let ids = post(&posted, wanted.min(posted.sends_room()));
                number = number.wrapping_add(u32::try_from(ids.len()).unwrap());
                under_way.extend(ids);
                // The last of what is under way was signalled.
                if let (true, Some(id)) = (is_completed, under_way.last()) {
                    let back = posted.complete(tag(9), WorkId::from_u64(*id).unwrap());
                    prop_assert_eq!(back, WorkId::send(tag(9), number.wrapping_sub(1)));
                    under_way.clear();
                }
                prop_assert_eq!(posted.sends_room(), sends_max as usize - under_way.len());
            }
        }
    }
}
