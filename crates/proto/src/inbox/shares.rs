//! Shares of the root branches in the bytes that one call may hold (`trust.md` T10).
//!
//! Half of these bytes are for the root branches in equal parts, whatever the others take: or more,
//! so that a reply of each can begin. Streams run ahead of their readers by half of them at most,
//! and so others can begin. The rest is a pool, for what goes beyond these parts:
//!
//! - Three quarters of it at most, or the largest message if that is more, are *granted*. A message
//!   is granted whole: with a part of it a root branch would keep others from theirs and yet not
//!   come to its end. Who was granted nothing of the pool may have what fits; who was gets more
//!   while that is less than half of what is free (see [`share`](crate::share)) and the largest
//!   message stays free for others.
//! - Of these, streams may run *ahead* by what leaves two of the largest messages.
//!   A stream that has sent a part of a larger item keeps what it ran ahead by until the rest has
//!   come, so were all granted for this, none would get the rest. What was granted for a whole
//!   message comes back by itself.
//! - What is *brought* without a grant has the last quarter, so that replies can begin when all
//!   else is granted, and more while two of the largest messages stay free: those that have begun
//!   wait for grants. One brings no more than it leaves free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::InboxLimits;

/// Reason for which a reply is granted bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// The rest of a message, or of an item, that has begun. Once it is granted, it needs nothing
    /// more to come, and to be read.
    Whole,
    /// A stream should have a window ahead of what was read of it.
    #[default]
    Ahead,
}

impl Reason {
    pub(super) const ALL: [Self; 2] = [Self::Whole, Self::Ahead];
}

/// Place among those that wait to be granted something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    /// Power of two of the bytes.
    size: u32,
    /// Number of those that waited before it did.
    since: u64,
    bytes: u64,
}

impl Turn {
    /// The turn of who waits for so many bytes, which are not 0.
    pub(super) fn of(bytes: u64, since: u64) -> Self {
        Self { size: bytes.ilog2(), since, bytes }
    }
}

/// Bytes of messages that are here, or may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Granted for whole messages.
    pub(super) whole: u64,
    /// Granted to streams ahead of what was read.
    pub(super) ahead: u64,
    /// Small messages, and the beginnings of larger ones and of streams.
    pub(super) brought: u64,
}

impl Held {
    /// Bytes of one reply, of which so many need no grant.
    pub(super) fn of(bytes: u64, unscheduled: u64, reason: Reason) -> Self {
        let brought = bytes.min(unscheduled);
        let granted = bytes - brought;
        match reason {
            Reason::Whole => Self { whole: granted, ahead: 0, brought },
            Reason::Ahead => Self { whole: 0, ahead: granted, brought },
        }
    }

    /// The same once part of it has changed.
    pub(super) fn with(self, before: Self, now: Self) -> Self {
        Self {
            whole: self.whole + now.whole - before.whole,
            ahead: self.ahead + now.ahead - before.ahead,
            brought: self.brought + now.brought - before.brought,
        }
    }

    /// The same without so many bytes. Room for what is brought is made first, for without it a
    /// root branch fails; what runs ahead needs it least.
    pub(super) fn less(self, bytes: u64) -> Self {
        let brought = self.brought.min(bytes);
        let whole = self.whole.min(bytes - brought);
        let ahead = self.ahead.min(bytes - brought - whole);
        self.without(Self { whole, ahead, brought })
    }

    /// The same without these bytes, as far as it has them.
    fn without(self, bytes: Self) -> Self {
        Self {
            whole: self.whole.saturating_sub(bytes.whole),
            ahead: self.ahead.saturating_sub(bytes.ahead),
            brought: self.brought.saturating_sub(bytes.brought),
        }
    }

    pub(super) fn all(self) -> u64 {
        self.whole + self.ahead + self.brought
    }

    fn granted_for(self, reason: Reason) -> u64 {
        match reason {
            Reason::Whole => self.whole,
            Reason::Ahead => self.ahead,
        }
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
    /// Those of them that are beyond its own, and so of the pool.
    beyond: Held,
}

impl Part {
    /// The same once what it holds has changed. What it is granted or brings takes of its own bytes
    /// what is left of them; what runs ahead, half of them at most.
    fn with(self, before: Held, now: Held, own: u64) -> Self {
        let held = self.held.with(before, now);
        let beyond = held.all().saturating_sub(own).max(held.ahead.saturating_sub(own / 2));
        if beyond == 0 {
            return Self { held, beyond: Held::default() };
        }
        let mut kept = self.beyond.without(self.held.without(held));
        match beyond.checked_sub(kept.all()) {
            None => kept = kept.less(kept.all() - beyond),
            Some(more) if held.whole > self.held.whole => kept.whole += more,
            Some(more) if held.ahead > self.held.ahead => kept.ahead += more,
            Some(more) => kept.brought += more,
        }
        Self { held, beyond: kept }
    }
}

/// A root branch.
#[derive(Debug, Default)]
struct OfRoot {
    part: Part,
    /// Memory besides the bytes of messages.
    beside: u64,
    /// Its turn, if it needs bytes of the pool, for what it should be granted next for each reason.
    needs: [Option<Turn>; 2],
}

/// All root branches of a call that has several.
#[derive(Debug)]
pub(super) struct Shares {
    of: BTreeMap<u32, OfRoot>,
    /// Those that need bytes of the pool, in their turn.
    needing: BTreeSet<(Reason, Turn, u32)>,
    /// Bytes that each may have by all means, and all of them together.
    own: u64,
    owned: u64,
    /// Bytes besides, those of them that are granted at most, and those that root branches have.
    pool: u64,
    granted_max: u64,
    taken: Held,
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
            taken: Held::default(),
            two_messages: limits.message.saturating_mul(2),
            has_freed: false,
            unscheduled: limits.unscheduled,
        }
    }

    /// Window of a stream. It may make no use of it for long, so what it runs ahead is no more than
    /// [may](Part::with) be of its root branch's own, and leaves room there for another reply to
    /// begin: each that has one stream has its window.
    pub(super) fn stream_window(&self, of_all: u64) -> u64 {
        let half = self.own / 2 + self.unscheduled;
        of_all.min(half.min(self.own.saturating_sub(self.unscheduled)).max(self.unscheduled))
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
        let last = std::mem::replace(&mut of.part, part).beyond;
        self.taken = self.taken.with(last, part.beyond);
        self.has_freed |= last.without(part.beyond) != Held::default();
    }

    /// Memory that a root branch takes besides the bytes of messages.
    pub(super) fn beside(&self, root: u32) -> u64 {
        self.of.get(&root).map_or(0, |of| of.beside)
    }

    fn part(&self, root: u32) -> Part {
        self.of.get(&root).map_or_else(Part::default, |of| of.part)
    }

    /// True when a root branch may bring so many bytes that it was not granted. All may begin.
    pub(super) fn may_bring(&self, root: u32, bytes: u64) -> bool {
        let has = self.part(root);
        let brings = Held { brought: bytes, ..Held::default() };
        let with = has.with(Held::default(), brings, self.own);
        let need = with.beyond.brought - has.beyond.brought;
        let Held { whole, ahead, brought } = self.taken;
        let rest = self.pool.saturating_sub(whole + ahead).saturating_sub(self.two_messages);
        let room = rest.max(self.pool - self.granted_max).saturating_sub(brought);
        has.held.all() == 0 || need == 0 || (need <= room && has.beyond.brought < self.free())
    }

    /// Bytes of the pool that a root branch lacks for a reply to hold others than before, granted
    /// for this reason; 0 when it may have them.
    pub(super) fn lacks(&self, root: u32, before: Held, now: Held, reason: Reason) -> u64 {
        let has = self.part(root);
        let with = has.with(before, now, self.own).beyond.granted_for(reason);
        let has = has.beyond.granted_for(reason);
        let (need, free) = (with.saturating_sub(has), self.free_for(reason));
        let is_modest = match reason {
            Reason::Whole => has == 0 || (2 * has < free && need + self.reserve() <= free),
            Reason::Ahead => has < free,
        };
        let may_have = need == 0 || (need <= free && is_modest);
        if may_have { 0 } else { need }
    }

    /// Bytes that stay free for others than who was granted some. Of room for one message alone,
    /// none could be taken if one were to stay free.
    fn reserve(&self) -> u64 {
        if self.granted_max < self.two_messages { 0 } else { self.two_messages / 2 }
    }

    /// Bytes of the pool that nobody has.
    fn free(&self) -> u64 {
        self.pool.saturating_sub(self.taken.all())
    }

    /// Bytes of the pool that may be granted for a reason. Where so many root branches have begun
    /// that they outgrow it, what is granted beyond ends the call, but none waits for ever.
    fn free_for(&self, reason: Reason) -> u64 {
        let Held { whole, ahead, brought } = self.taken;
        match reason {
            Reason::Whole => {
                let rest = self.pool.saturating_sub(brought + ahead).max(self.two_messages);
                rest.min(self.granted_max - ahead).saturating_sub(whole)
            }
            Reason::Ahead => {
                let rest = self.pool.saturating_sub(brought).min(self.granted_max);
                rest.saturating_sub(whole.max(self.two_messages) + ahead)
            }
        }
    }

    /// True when a root branch needs bytes of the pool.
    pub(super) fn is_needed(&self) -> bool {
        !self.needing.is_empty()
    }

    /// Notes the turn of a root branch for what it should be granted next for a reason, if it needs
    /// bytes of the pool for that.
    pub(super) fn note_need(&mut self, root: u32, reason: Reason, need: Option<Turn>) {
        let of = self.of.entry(root).or_default();
        let before = std::mem::replace(&mut of.needs[reason as usize], need);
        if before != need {
            let entry = |turn| (reason, turn, root);
            before.map(entry).inspect(|of| _ = self.needing.remove(of));
            self.needing.extend(need.map(entry));
        }
    }

    /// True once when some of the pool has come back since it was last asked.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.has_freed)
    }

    /// The root branch to look at behind another one, as what it needs for a reason is no more than
    /// is free.
    pub(super) fn next_needing(&self, reason: Reason, after: (Turn, u32)) -> Option<(Turn, u32)> {
        let free = self.free_for(reason);
        let largest = free.checked_ilog2()?;
        let behind = (Excluded((reason, after.0, after.1)), Unbounded);
        let small = |(of, turn, _): &&(Reason, Turn, u32)| *of == reason && turn.size <= largest;
        let mut fitting = self.needing.range(behind).take_while(small);
        let next = fitting.find(|(_, turn, _)| turn.bytes <= free);
        next.map(|(_, turn, root)| (*turn, *root))
    }
}

#[cfg(test)]
impl Shares {
    /// Checks the sums over root branches against what the call holds.
    pub(super) fn check(&self, call: Amounts) {
        let sum = |amount: fn(&OfRoot) -> u64| self.of.values().map(amount).sum::<u64>();
        let held = Held {
            whole: sum(|of| of.part.held.whole),
            ahead: sum(|of| of.part.held.ahead),
            brought: sum(|of| of.part.held.brought),
        };
        assert_eq!(Amounts { held, beside: sum(|of| of.beside) }, call);
        for OfRoot { part, .. } in self.of.values() {
            let ahead = part.held.ahead - part.beyond.ahead;
            assert!(ahead <= self.own / 2, "{part:?}");
            assert!(part.held.all() - part.beyond.all() <= self.own, "{part:?}");
            assert_eq!(part.beyond.without(part.held), Held::default(), "{part:?}");
        }
        let taken = Held {
            whole: sum(|of| of.part.beyond.whole),
            ahead: sum(|of| of.part.beyond.ahead),
            brought: sum(|of| of.part.beyond.brought),
        };
        assert_eq!(self.taken, taken);
        assert!(taken.whole + taken.ahead <= self.granted_max, "{self:?}");
        let ahead_max = self.granted_max.saturating_sub(self.two_messages);
        assert!(taken.ahead <= ahead_max, "{self:?}");
        let needing = self.of.iter().flat_map(|(root, of)| {
            let turn = |reason: Reason| Some((reason, of.needs[reason as usize]?, *root));
            Reason::ALL.into_iter().filter_map(turn)
        });
        let needing: BTreeSet<_> = needing.collect();
        assert_eq!(self.needing, needing);
    }
}
