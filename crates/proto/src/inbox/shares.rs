//! Shares of the root branches in the bytes that one call may hold (`trust.md` T10).
//!
//! Half of these bytes are for the root branches in equal parts, whatever the others take: or more,
//! so that a reply of each can begin. The rest is a pool, for what goes beyond these parts:
//!
//! - Three quarters of it at most, or the largest message if that is more, are *granted*. A reply
//!   is granted whole: with a part of it a root branch would keep others from theirs and yet not
//!   come to its end. Who was granted nothing of the pool may have what fits; who was gets more
//!   while that is less than half of what is free (see [`share`](crate::share)) and the largest
//!   message stays free for others.
//! - What is *brought* without a grant has the last quarter, so that replies can begin when all
//!   else is granted, and more while two of the largest messages stay free: those that have begun
//!   wait for grants. One brings no more than it leaves free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::InboxLimits;

/// Bytes of messages that are here, or may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Of replies that were granted more than they begin with.
    granted: u64,
    /// Of others: small messages, and the beginnings of larger ones.
    brought: u64,
}

impl Held {
    /// Bytes of one reply.
    pub(super) fn of(bytes: u64, unscheduled: u64) -> Self {
        match bytes > unscheduled {
            true => Self { granted: bytes, brought: 0 },
            false => Self { granted: 0, brought: bytes },
        }
    }

    /// The same once part of it has changed.
    pub(super) fn with(self, before: Self, now: Self) -> Self {
        Self {
            granted: self.granted + now.granted - before.granted,
            brought: self.brought + now.brought - before.brought,
        }
    }

    /// So many bytes instead of these of one reply, which came as these did.
    pub(super) fn only(self, bytes: u64) -> Self {
        match self.granted > 0 {
            true => Self { granted: bytes, brought: 0 },
            false => Self { granted: 0, brought: bytes },
        }
    }

    /// The same without so many bytes, first of those that were granted.
    pub(super) fn less(self, bytes: u64) -> Self {
        let brought = bytes.saturating_sub(self.granted);
        Self {
            granted: self.granted.saturating_sub(bytes),
            brought: self.brought.saturating_sub(brought),
        }
    }

    pub(super) fn all(self) -> u64 {
        self.granted + self.brought
    }
}

/// Amounts that a call holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) held: Held,
    /// Memory besides the bytes of messages.
    pub(super) beside: u64,
}

/// Bytes of a root branch.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    held: Held,
    /// Bytes beyond its own, and those of them that it brought. The rest was granted.
    beyond: u64,
    brought: u64,
}

impl Part {
    /// The same once what it holds has changed. What it brings or is granted takes of its own bytes
    /// what is left of them.
    fn with(self, before: Held, now: Held, own: u64) -> Self {
        let held = self.held.with(before, now);
        let beyond = held.all().saturating_sub(own);
        let brought = match held.brought > self.held.brought {
            true => self.brought + beyond.saturating_sub(self.beyond),
            false => self.brought.saturating_sub(self.held.brought - held.brought),
        };
        Self { held, beyond, brought: brought.min(beyond) }
    }

    /// Bytes beyond its own that it was granted.
    fn granted(self) -> u64 {
        self.beyond - self.brought
    }
}

/// A root branch.
#[derive(Debug, Default)]
struct OfRoot {
    part: Part,
    /// Memory besides the bytes of messages.
    beside: u64,
    /// Bytes of the pool that it needs for what it should be granted next, or 0.
    need: u64,
}

/// All root branches of a call that has several.
#[derive(Debug)]
pub(super) struct Shares {
    of: BTreeMap<u32, OfRoot>,
    /// Those that need bytes of the pool, the fewest first.
    needing: BTreeSet<(u64, u32)>,
    /// Bytes that each may have by all means, and all of them together.
    own: u64,
    owned: u64,
    /// Bytes besides, those of them that are granted at most, and those that were.
    pool: u64,
    granted_max: u64,
    granted: u64,
    /// Bytes of the pool that were brought.
    brought: u64,
    /// Bytes of two of the largest messages.
    two_messages: u64,
    /// Bytes have come back to the pool, and nobody was asked since.
    has_freed: bool,
    /// Bytes that a reply begins with.
    unscheduled: u64,
}

impl Shares {
    pub(super) fn new(root_count: usize, limits: &InboxLimits) -> Self {
        let (total, root_count) = (limits.total, root_count as u64);
        let beginnings = limits.unscheduled.saturating_mul(root_count);
        let owned = beginnings.min(total).max(total / 2);
        let quarter = (total - owned) / 4;
        let granted_max = (total - owned - quarter).max(limits.message);
        Self {
            of: BTreeMap::new(),
            needing: BTreeSet::new(),
            own: owned / root_count,
            owned,
            pool: granted_max.saturating_add(quarter),
            granted_max,
            granted: 0,
            brought: 0,
            two_messages: limits.message.saturating_mul(2),
            has_freed: false,
            unscheduled: limits.unscheduled,
        }
    }

    /// Bytes that each root branch may have by all means.
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    /// Bytes that all may have together.
    pub(super) fn bytes_max(&self) -> u64 {
        self.owned.saturating_add(self.pool)
    }

    /// A root branch has changed what the call holds.
    pub(super) fn count(&mut self, root: u32, before: Amounts, now: Amounts) {
        let of = self.of.entry(root).or_default();
        of.beside = of.beside + now.beside - before.beside;
        let part = of.part.with(before.held, now.held, self.own);
        let last = std::mem::replace(&mut of.part, part);
        self.granted = self.granted + part.granted() - last.granted();
        self.brought = self.brought + part.brought - last.brought;
        self.has_freed |= part.granted() < last.granted() || part.brought < last.brought;
    }

    /// Memory that a root branch takes besides the bytes of messages.
    pub(super) fn beside(&self, root: u32) -> u64 {
        self.of.get(&root).map_or(0, |of| of.beside)
    }

    fn part(&self, root: u32) -> Part {
        self.of.get(&root).map_or_else(Part::default, |of| of.part)
    }

    /// The part of a root branch once a reply of it holds other bytes.
    fn part_with(&self, root: u32, before: u64, now: u64) -> Part {
        let of = |bytes| Held::of(bytes, self.unscheduled);
        self.part(root).with(of(before), of(now), self.own)
    }

    /// True when a root branch may bring so many bytes that it was not granted. All may begin.
    pub(super) fn may_bring(&self, root: u32, bytes: u64) -> bool {
        let has = self.part(root);
        let need = self.part_with(root, 0, bytes).brought - has.brought;
        let rest = self.pool.saturating_sub(self.granted).saturating_sub(self.two_messages);
        let room = rest.max(self.pool - self.granted_max).saturating_sub(self.brought);
        has.held.all() == 0 || need == 0 || (need <= room && has.brought < self.free())
    }

    /// True when a root branch may be granted what needs so many bytes of the pool.
    pub(super) fn may_have(&self, root: u32, need: u64) -> bool {
        let (has, free) = (self.part(root).granted(), self.free_to_grant());
        // Of room for one message alone, none could be taken if one were to stay free.
        let reserve = if self.granted_max < self.two_messages { 0 } else { self.two_messages / 2 };
        let is_modest = has == 0 || (2 * has < free && need + reserve <= free);
        need == 0 || (need <= free && is_modest)
    }

    /// Bytes of the pool that nobody has.
    fn free(&self) -> u64 {
        self.pool.saturating_sub(self.granted).saturating_sub(self.brought)
    }

    /// Bytes of the pool that may be granted. Where so many root branches have begun that they
    /// outgrow it, what is granted beyond ends the call, but none waits for ever.
    fn free_to_grant(&self) -> u64 {
        let rest = self.pool.saturating_sub(self.brought).max(self.two_messages);
        rest.min(self.granted_max).saturating_sub(self.granted)
    }

    /// Bytes of the pool that a root branch needs for a reply to hold more than before.
    pub(super) fn need(&self, root: u32, before: u64, now: u64) -> u64 {
        let has = self.part(root).granted();
        self.part_with(root, before, now).granted().saturating_sub(has)
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
        next.copied().filter(|(need, _)| *need <= self.free_to_grant())
    }
}

#[cfg(test)]
impl Shares {
    /// Checks the sums over root branches against what the call holds.
    pub(super) fn check(&self, call: Amounts) {
        let sum = |amount: fn(&OfRoot) -> u64| self.of.values().map(amount).sum::<u64>();
        let held = Held {
            granted: sum(|of| of.part.held.granted),
            brought: sum(|of| of.part.held.brought),
        };
        assert_eq!(Amounts { held, beside: sum(|of| of.beside) }, call);
        for of in self.of.values() {
            assert_eq!(of.part.beyond, of.part.held.all().saturating_sub(self.own));
            assert!(of.part.brought <= of.part.beyond, "{of:?}");
        }
        assert_eq!(self.granted, sum(|of| of.part.granted()));
        assert_eq!(self.brought, sum(|of| of.part.brought));
        assert!(self.granted <= self.granted_max, "{self:?}");
        let needing = self.of.iter().filter(|(_, of)| of.need > 0);
        let needing: BTreeSet<_> = needing.map(|(root, of)| (of.need, *root)).collect();
        assert_eq!(self.needing, needing);
    }
}
