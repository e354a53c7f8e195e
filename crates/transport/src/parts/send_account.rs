//! Account of what a connection has to send: the bounds of its lanes, of its frames, and its share
//! in the room for all connections.

use super::lanes::index;
use super::send_pool::SendShare;
use crate::{Appended, Lane, NotWritable};

/// Bounds of one lane, in bytes that wait.
#[derive(Clone, Copy, Debug)]
pub struct LaneLimits {
    /// From here on the lane is not writable.
    pub soft_bytes: usize,
    /// Frames that would go beyond are not taken, unless the lane is empty.
    pub hard_bytes: usize,
}

/// Bounds of what a connection takes.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// The largest frame.
    pub frame_bytes_max: usize,
    /// Of the control lane and of the data lane.
    pub lanes: [LaneLimits; 2],
}

/// Bytes that wait in the lanes of a connection and that are being written; frames are asked for
/// here before they are taken.
#[derive(Debug)]
pub struct SendAccount {
    limits: SendLimits,
    queued: [usize; 2],
    /// Bytes that have left the lanes and are not written.
    leaving: usize,
    share: SendShare,
    is_closed: bool,
}

impl SendAccount {
    /// An account of nothing. What is above 16 KiB is taken from `share`.
    pub fn new(limits: SendLimits, share: SendShare) -> Self {
        Self { limits, queued: [0; 2], leaving: 0, share, is_closed: false }
    }

    /// Asks for room for a frame of `len` bytes, which are `bytes` with what the transport adds. It
    /// counts from [`add`](Self::add) on.
    ///
    /// # Errors
    /// [`NotWritable`]. A lane that is empty takes any frame.
    #[inline]
    pub fn admit(&mut self, lane: Lane, len: usize, bytes: usize) -> Result<(), NotWritable> {
        if self.is_closed {
            return Err(NotWritable::Closed);
        }
        let limit = self.limits.frame_bytes_max;
        if len > limit {
            return Err(NotWritable::TooLarge { size: len, limit });
        }
        let queued = self.queued[index(lane)];
        let is_full = queued + bytes > self.limits.lanes[index(lane)].hard_bytes;
        if is_full && queued > 0 {
            return Err(NotWritable::Full);
        }
        if self.share.grow(self.bytes() + bytes) { Ok(()) } else { Err(NotWritable::Full) }
    }

    /// Bytes wait in the lane: of a frame that was admitted, or the transport's own.
    #[inline]
    pub fn add(&mut self, lane: Lane, bytes: usize) {
        self.queued[index(lane)] += bytes;
    }

    /// Answer to an append that was taken.
    #[inline]
    pub fn appended(&self, lane: Lane) -> Appended {
        if self.is_writable(lane) { Appended::Writable } else { Appended::Full }
    }

    /// Bytes leave the lane, to be written.
    pub fn leave(&mut self, lane: Lane, bytes: usize) {
        self.queued[index(lane)] -= bytes;
        self.leaving += bytes;
    }

    /// Bytes that had left are written, and give their room back.
    pub fn written(&mut self, bytes: usize) {
        self.leaving = self.leaving.saturating_sub(bytes);
        self.share.shrink(self.bytes());
    }

    /// Bytes leave the lane and need no more room: they have a place of their own, such as a
    /// registered buffer.
    #[inline]
    pub fn sent(&mut self, lane: Lane, bytes: usize) {
        self.queued[index(lane)] -= bytes;
        self.share.shrink(self.bytes());
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        self.queued = [0; 2];
        self.share.shrink(self.bytes());
    }

    /// Drops what waits, and nothing is being written any more.
    pub fn abandon(&mut self) {
        self.leaving = 0;
        self.is_closed = true;
        self.clear();
    }

    /// Takes no more frames.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// True when it takes no more frames.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Bytes that wait in the lane.
    #[inline]
    pub fn queued(&self, lane: Lane) -> usize {
        self.queued[index(lane)]
    }

    /// True when nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued == [0; 2]
    }

    /// True when the lane is below its soft bound, and the connection not near its share of the
    /// room for all. What it has itself is what makes it wait: so it is woken as that leaves.
    #[inline]
    pub fn is_writable(&self, lane: Lane) -> bool {
        self.queued[index(lane)] < self.limits.lanes[index(lane)].soft_bytes
            && self.share.has_room(self.bytes())
    }

    /// True when those who wait for the lane should be woken: at half the soft bound, so that they
    /// do not come for every frame.
    #[inline]
    pub fn is_worth_waking(&self, lane: Lane) -> bool {
        self.queued[index(lane)] <= self.limits.lanes[index(lane)].soft_bytes / 2
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.queued[0] + self.queued[1] + self.leaving
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::SendPool;
    use super::super::lanes::LANES;
    use super::*;
    use crate::PeerName;

    const LANE: LaneLimits = LaneLimits { soft_bytes: 10_000, hard_bytes: 60_000 };
    const LIMITS: SendLimits = SendLimits { frame_bytes_max: 100_000, lanes: [LANE; 2] };

    fn account(pool: &Arc<SendPool>) -> SendAccount {
        SendAccount::new(LIMITS, pool.open(PeerName::Place("here".into())))
    }

    fn take(account: &mut SendAccount, lane: Lane, len: usize) -> Result<(), NotWritable> {
        account.admit(lane, len, len + 4)?;
        account.add(lane, len + 4);
        Ok(())
    }

    #[test]
    fn the_bounds_come_one_after_the_other_and_an_empty_lane_takes_any_frame() {
        let mut account = account(&SendPool::new(usize::MAX));
        take(&mut account, Lane::Data, 9_000).unwrap();
        assert_eq!(account.appended(Lane::Data), Appended::Writable);
        take(&mut account, Lane::Data, 1_000).unwrap();
        assert_eq!(account.appended(Lane::Data), Appended::Full);
        take(&mut account, Lane::Data, 49_000).unwrap();
        assert_eq!(take(&mut account, Lane::Data, 2_000), Err(NotWritable::Full));
        assert_eq!(take(&mut account, Lane::Control, 90_000), Ok(()), "it is empty");
        let refused = NotWritable::TooLarge { size: 100_001, limit: 100_000 };
        assert_eq!(take(&mut account, Lane::Data, 100_001), Err(refused));
        account.leave(Lane::Data, 55_000);
        assert!(account.is_worth_waking(Lane::Data) && !account.is_worth_waking(Lane::Control));
        account.close();
        assert_eq!(take(&mut account, Lane::Data, 1), Err(NotWritable::Closed));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Admit(Lane, usize),
        Leave(Lane, usize),
        Sent(Lane, usize),
        Written(usize),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let lane = || prop_oneof![Just(Lane::Control), Just(Lane::Data)];
        prop_oneof![
            4 => (lane(), 0_usize..50_000).prop_map(|(lane, len)| Step::Admit(lane, len)),
            3 => (lane(), 0_usize..50_000).prop_map(|(lane, len)| Step::Leave(lane, len)),
            2 => (lane(), 0_usize..50_000).prop_map(|(lane, len)| Step::Sent(lane, len)),
            2 => (0_usize..90_000).prop_map(Step::Written),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        /// The pool knows what two connections have, to its unit, in any history.
        #[test]
        fn the_pool_is_charged_what_the_connections_have(
            steps in prop::collection::vec((any::<bool>(), step()), 1..80),
        ) {
            let pool = SendPool::new(400_000);
            let mut both = [account(&pool), account(&pool)];
            for (is_second, step) in steps {
                let account = &mut both[usize::from(is_second)];
                let before = account.bytes();
                match step {
                    Step::Admit(lane, len) => {
                        let grown = take(account, lane, len).map_or(0, |()| len + 4);
                        prop_assert_eq!(account.bytes(), before + grown);
                    }
                    Step::Leave(lane, len) => {
                        account.leave(lane, len.min(account.queued(lane)));
                        prop_assert_eq!(account.bytes(), before);
                    }
                    Step::Sent(lane, len) => {
                        let len = len.min(account.queued(lane));
                        account.sent(lane, len);
                        prop_assert_eq!(account.bytes(), before - len);
                    }
                    Step::Written(len) => account.written(len),
                    Step::Clear => account.clear(),
                }
                let had: usize = both.iter().map(SendAccount::bytes).sum();
                prop_assert!(pool.used() <= had + 2 * (16 << 10) && pool.used() <= 400_000);
                prop_assert!(had <= pool.used() + 2 * (16 << 10));
            }
            both.iter_mut().for_each(SendAccount::abandon);
            prop_assert_eq!(pool.used(), 0);
            prop_assert!(LANES.iter().all(|lane| both[0].queued(*lane) == 0));
        }
    }
}
