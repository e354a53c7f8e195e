//! Shares of the root branches in the bytes that one call may hold (`trust.md` T10).
//!
//! Half of these bytes are for the root branches in equal parts, whatever the others take. Of the
//! rest three quarters are granted: to one that has as much of it as half of what is free nothing
//! more (see [`share`](crate::share)). What is granted is whole: with a part of a message a root
//! branch would keep others from theirs and yet not come to its end. So there is room for the
//! largest message at least. The last quarter is for what comes without a grant, so that replies
//! can begin when all else is granted: of it one has no more than it leaves free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::InboxLimits;

/// Amounts that a call holds, or one root branch of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// Bytes of messages, here and granted.
    pub(super) bytes: u64,
    /// Memory besides these.
    pub(super) beside: u64,
    /// Replies that should be granted something.
    pub(super) wanting: u64,
    /// Bytes of messages that came, or may come, without a grant: small ones that are here, and the
    /// beginnings of those that are not whole.
    pub(super) brought: u64,
}

/// A root branch.
#[derive(Debug, Default)]
struct OfRoot {
    has: Amounts,
    /// Bytes of the pool that it needs for what it should be granted next, or 0.
    need: u64,
}

/// All root branches of a call that has several.
#[derive(Debug)]
pub(super) struct Shares {
    of: BTreeMap<u32, OfRoot>,
    /// Those that need bytes of the pool, the fewest first.
    needing: BTreeSet<(u64, u32)>,
    /// Bytes that each may have by all means.
    own: u64,
    /// Bytes besides, and how many of them are granted at most.
    pool: u64,
    granted_max: u64,
    /// Bytes of the pool that they have.
    taken: u64,
    /// Bytes have come back to the pool, and nobody was asked since.
    has_freed: bool,
    /// Bytes that a reply begins with.
    unscheduled: u64,
}

impl Shares {
    pub(super) fn new(root_count: usize, limits: &InboxLimits) -> Self {
        let quarter = limits.total / 8;
        let granted_max = (limits.total / 2 - quarter).max(limits.message);
        Self {
            of: BTreeMap::new(),
            needing: BTreeSet::new(),
            own: limits.total / 2 / root_count as u64,
            pool: granted_max.saturating_add(quarter),
            granted_max,
            taken: 0,
            has_freed: false,
            unscheduled: limits.unscheduled,
        }
    }

    /// Bytes that each root branch may have by all means.
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    /// Bytes that they take from, one after the other.
    pub(super) fn pool(&self) -> u64 {
        self.pool
    }

    /// A root branch has changed what the call holds.
    pub(super) fn count(&mut self, root: u32, before: Amounts, now: Amounts) {
        let has = &mut self.of.entry(root).or_default().has;
        let taken_before = has.bytes.saturating_sub(self.own);
        let moved = |has: u64, before: u64, now: u64| (has + now).saturating_sub(before);
        has.bytes = moved(has.bytes, before.bytes, now.bytes);
        has.beside = moved(has.beside, before.beside, now.beside);
        has.wanting = moved(has.wanting, before.wanting, now.wanting);
        has.brought = moved(has.brought, before.brought, now.brought);
        let taken = has.bytes.saturating_sub(self.own);
        self.taken = self.taken + taken - taken_before;
        self.has_freed |= taken < taken_before;
    }

    /// Amounts of a root branch.
    pub(super) fn of(&self, root: u32) -> Amounts {
        self.of.get(&root).map_or_else(Amounts::default, |of| of.has)
    }

    /// True when a root branch may bring so many bytes that it was not granted. All may begin. What
    /// it was granted counts for nothing here, or others that are granted theirs would end it.
    pub(super) fn may_bring(&self, root: u32, bytes: u64) -> bool {
        let (has, need) = (self.of(root), self.need(root, bytes));
        let free = self.pool.saturating_sub(self.taken);
        let beyond = has.brought.saturating_sub(self.own);
        has.bytes == 0 || need == 0 || (need <= free && beyond < free)
    }

    /// True when a root branch may be granted what needs so many bytes of the pool. What waits for
    /// a grant counts for nothing here, or those that have begun much could get no further.
    pub(super) fn may_have(&self, root: u32, need: u64) -> bool {
        let (has, free) = (self.of(root), self.free());
        let begun = has.wanting.saturating_mul(self.unscheduled);
        let taken = has.bytes.saturating_sub(begun).saturating_sub(self.own);
        need == 0 || (need <= free && 2 * taken < free)
    }

    /// Bytes of the pool that may be granted.
    fn free(&self) -> u64 {
        self.granted_max.saturating_sub(self.taken)
    }

    /// Bytes of the pool that a root branch needs for so many more.
    pub(super) fn need(&self, root: u32, more: u64) -> u64 {
        let has = self.of(root).bytes;
        (has + more).saturating_sub(self.own.max(has))
    }

    /// True when a root branch needs bytes of the pool.
    pub(super) fn is_needed(&self) -> bool {
        !self.needing.is_empty()
    }

    /// Notes what a root branch needs for what it should be granted next.
    pub(super) fn note_need(&mut self, root: u32, need: u64) {
        let of = self.of.entry(root).or_default();
        let before = std::mem::replace(&mut of.need, need);
        if before != need {
            self.needing.remove(&(before, root));
            if need > 0 {
                self.needing.insert((need, root));
            }
        }
    }

    /// The root branches to look at again, one behind the other: those that need no more than is
    /// free, once some of the pool has come back.
    pub(super) fn next_needing(&mut self, after: Option<(u64, u32)>) -> Option<(u64, u32)> {
        if after.is_none() && !std::mem::take(&mut self.has_freed) {
            return None;
        }
        let next = self.needing.range((after.map_or(Unbounded, Excluded), Unbounded)).next();
        next.copied().filter(|(need, _)| *need <= self.free())
    }
}

#[cfg(test)]
impl Shares {
    /// Checks the sums over root branches against what the call holds.
    pub(super) fn check(&self, held: Amounts) {
        let sum = |amount: fn(&Amounts) -> u64| self.of.values().map(|of| amount(&of.has)).sum();
        let sums = Amounts {
            bytes: sum(|has| has.bytes),
            beside: sum(|has| has.beside),
            wanting: sum(|has| has.wanting),
            brought: sum(|has| has.brought),
        };
        assert_eq!(sums, held);
        let taken = self.of.values().map(|of| of.has.bytes.saturating_sub(self.own)).sum();
        assert_eq!(self.taken, taken);
        let needing = self.of.iter().filter(|(_, of)| of.need > 0);
        let needing: BTreeSet<_> = needing.map(|(root, of)| (of.need, *root)).collect();
        assert_eq!(self.needing, needing);
    }
}
