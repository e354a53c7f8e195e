//! Names that are closed: so that nobody votes twice about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::intervals::{INTERVALS_MAX, Intervals};
use crate::mutant::{self, Mutant};
use crate::time::Timestamp;

use super::CallName;

/// Calls whose round has ended here. They are remembered until no request of them can start
/// another: the requests themselves are remembered as long.
#[derive(Debug, Default)]
pub(super) struct ClosedCalls {
    calls: BTreeSet<CallName>,
    /// Number of them that the last sweep left.
    left: usize,
    sweep_at: Option<Timestamp>,
}

/// Pause between two looks at which calls are over, while there are few more than at the last.
const SWEEP: Duration = Duration::from_millis(250);

impl ClosedCalls {
    pub(super) fn contains(&self, call: CallName) -> bool {
        self.calls.contains(&call) && !mutant::is(Mutant::ClosedCallForgotten)
    }

    pub(super) fn insert(&mut self, now: Timestamp, call: CallName) {
        self.calls.insert(call);
        self.sweep_at.get_or_insert(now + SWEEP);
    }

    /// True once there are twice as many as the last sweep left, or time has passed.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.calls.len() > 64 + 2 * self.left || self.sweep_at.is_some_and(|at| at <= now)
    }

    pub(super) fn sweep(&mut self, now: Timestamp, is_over: impl Fn(CallName) -> bool) {
        self.calls.retain(|call| !is_over(*call));
        self.left = self.calls.len();
        self.sweep_at = (!self.calls.is_empty()).then(|| now + SWEEP);
    }

    pub(super) fn sweep_at(&self) -> Option<Timestamp> {
        self.sweep_at
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

/// Tags of a space that are closed: all below the floor, and others as intervals of each view. None
/// is forgotten in silence; when there are too many, no more are opened.
#[derive(Debug, Default)]
pub(super) struct ClosedTags {
    floor: (u64, u64),
    above: BTreeMap<u64, Intervals>,
    /// Intervals of all views.
    count: usize,
}

impl ClosedTags {
    pub(super) fn floor(&self) -> (u64, u64) {
        self.floor
    }

    pub(super) fn is_below(&self, tag: (u64, u64)) -> bool {
        tag < self.floor && !mutant::is(Mutant::FloorForgotten)
    }

    pub(super) fn contains(&self, tag: (u64, u64)) -> bool {
        let (view, sequence) = tag;
        self.is_below(tag) || self.above.get(&view).is_some_and(|of| of.contains(sequence))
    }

    /// True when a tag can be remembered, beside `open` others that are open now.
    pub(super) fn has_room(&self, (_, sequence): (u64, u64), open: usize) -> bool {
        self.count + open < INTERVALS_MAX && sequence < u64::MAX
    }

    pub(super) fn insert(&mut self, tag: (u64, u64)) {
        let (view, sequence) = tag;
        if self.is_below(tag) {
            return;
        }
        let of_view = self.above.entry(view).or_default();
        let before = of_view.len();
        of_view.add(sequence, sequence.saturating_add(1));
        self.count = self.count - before + of_view.len();
    }

    /// Closes all below. False when they were.
    pub(super) fn raise_floor(&mut self, floor: (u64, u64)) -> bool {
        if floor <= self.floor {
            return false;
        }
        self.floor = floor;
        let (view, sequence) = floor;
        self.above = self.above.split_off(&view);
        if let Some(of_view) = self.above.get_mut(&view) {
            of_view.forget_below(sequence);
            if of_view.len() == 0 {
                self.above.remove(&view);
            }
        }
        self.count = self.above.values().map(Intervals::len).sum();
        true
    }

    /// Intervals that are remembered.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// True when nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.floor == (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A tag that was closed stays so, and no other is.
        #[test]
        fn closed_tags_are_those_that_were_closed(
            steps in prop::collection::vec((0..3_u64, 0..20_u64, any::<bool>()), 0..60),
        ) {
            let (mut closed, mut set, mut floor) = (ClosedTags::default(), BTreeSet::new(), (0, 0));
            for (view, sequence, is_floor) in steps {
                if is_floor && sequence % 5 == 0 {
                    closed.raise_floor((view, sequence));
                    floor = floor.max((view, sequence));
                } else {
                    closed.insert((view, sequence));
                    set.insert((view, sequence));
                }
                prop_assert_eq!(closed.floor(), floor);
                for tag in (0..3).flat_map(|view| (0..22).map(move |sequence| (view, sequence))) {
                    prop_assert_eq!(closed.contains(tag), tag < floor || set.contains(&tag));
                }
                let starts = set.iter().filter(|(view, sequence)| {
                    (*view, *sequence) >= floor
                        && ((*view, *sequence) == floor
                            || *sequence == 0
                            || !set.contains(&(*view, sequence - 1)))
                });
                prop_assert_eq!(closed.len(), starts.count());
            }
        }
    }
}
