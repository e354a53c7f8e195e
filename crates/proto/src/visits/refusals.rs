//! Fences and cancel marks: what keeps a request that may still come from running.
//!
//! Each binds exactly the task that it names by its key (`trust.md` T8), so nobody who was not
//! given the key can keep a task from running, whatever else it knows of the call.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{CallId, NodeLife, Path, TaskKey};
use crate::key::Key;
use crate::mutant::{self, Mutant};
use crate::share::PeerIndex;
use crate::time::Timestamp;
use crate::timers::Timers;
use crate::wire::Cause;

#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// `Cancelled`, or `Lost` for a fence.
    pub(super) cause: Cause,
    pub(super) forget_at: Timestamp,
    /// The node that asked for it, and its life, unless another has asked for it again.
    pub(super) asker: Option<NodeLife>,
    pub(super) payer: PeerIndex,
}

/// A task that is refused: its call, its name and its key.
type Name = (CallId, TaskKey, Key);

/// All refusals of a node.
#[derive(Debug)]
pub(super) struct Refusals {
    tasks: BTreeMap<Name, Refusal>,
    /// Those that one node alone has asked for, of each call by that node.
    by_asker: BTreeSet<(CallId, NodeLife, TaskKey, Key)>,
    /// Each with a time that is not later than that at which it is forgotten.
    timers: Timers<Name>,
}

impl Refusals {
    pub(super) fn new() -> Self {
        let (tasks, by_asker) = (BTreeMap::new(), BTreeSet::new());
        Self { tasks, by_asker, timers: Timers::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Peers that pay, one for each.
    pub(super) fn payers(&self) -> impl Iterator<Item = PeerIndex> {
        self.tasks.values().map(|refusal| refusal.payer)
    }

    /// Reason why a task must not run, if it must not.
    #[inline]
    pub(super) fn cause(&self, call: CallId, task: &TaskKey, key: Key) -> Option<Cause> {
        // Most often there are none.
        if self.tasks.is_empty() { None } else { self.cause_among_some(call, task, key) }
    }

    fn cause_among_some(&self, call: CallId, task: &TaskKey, key: Key) -> Option<Cause> {
        if mutant::is(Mutant::FenceWithoutKey) {
            let from = (call, task.clone(), Key(0));
            let mut of_task = self.tasks.range(from..);
            let first = of_task.next().filter(|((of, at, _), _)| (of, at) == (&call, task));
            return first.map(|(_, refusal)| refusal.cause);
        }
        self.tasks.get(&(call, task.clone(), key)).map(|refusal| refusal.cause)
    }

    /// Keeps that a task must not run. It is not refused yet.
    pub(super) fn refuse(&mut self, name: Name, refusal: Refusal) {
        if let Some(asker) = refusal.asker {
            self.by_asker.insert(asked_by(&name, asker));
        }
        self.timers.push(refusal.forget_at, name.clone());
        let before = self.tasks.insert(name, refusal);
        debug_assert!(before.is_none(), "whoever refuses has looked first");
        if self.timers.is_crowded(self.tasks.len()) {
            let armed = self.tasks.iter().map(|(name, of)| (of.forget_at, name.clone()));
            self.timers.sweep(armed);
        }
    }

    /// A node asks again for what is refused: it is kept for as long as each has asked for.
    pub(super) fn refuse_again(&mut self, name: &Name, asker: NodeLife, forget_at: Timestamp) {
        let Some(refusal) = self.tasks.get_mut(name) else { return };
        refusal.forget_at = refusal.forget_at.max(forget_at);
        if let Some(first) = refusal.asker.take_if(|first| *first != asker) {
            self.by_asker.remove(&asked_by(name, first));
        }
    }

    /// Drops those of a call that this node alone has asked for, and gives who paid for each to
    /// `act`.
    pub(super) fn drop_of_asker(
        &mut self,
        call: CallId,
        asker: NodeLife,
        act: impl FnMut(PeerIndex),
    ) {
        let least = (call, asker, TaskKey { path: Path::root(), hop: 0 }, Key(0));
        let of_asker = self.by_asker.range(least..);
        let of_asker = of_asker.take_while(|(of, by, ..)| (*of, *by) == (call, asker));
        let names: Vec<Name> =
            of_asker.map(|(call, _, task, key)| (*call, task.clone(), *key)).collect();
        names.iter().filter_map(|name| self.remove(name)).for_each(act);
    }

    /// Drops that of a task, if this node alone has asked for it. Gives who paid for it.
    pub(super) fn drop_one(&mut self, name: &Name, asker: NodeLife) -> Option<PeerIndex> {
        let refusal = self.tasks.get(name)?;
        if refusal.asker == Some(asker) { self.remove(name) } else { None }
    }

    fn remove(&mut self, name: &Name) -> Option<PeerIndex> {
        let Refusal { asker, payer, .. } = self.tasks.remove(name)?;
        if let Some(asker) = asker {
            self.by_asker.remove(&asked_by(name, asker));
        }
        Some(payer)
    }

    /// Drops those whose time has come, and gives who paid for each to `act`.
    pub(super) fn expire(&mut self, now: Timestamp, mut act: impl FnMut(PeerIndex)) {
        while let Some((_, name)) = self.timers.pop_due(now) {
            let Some(refusal) = self.tasks.get(&name) else { continue };
            match refusal.forget_at {
                // It was asked for again meanwhile.
                later if later > now => self.timers.push(later, name),
                _ => self.remove(&name).into_iter().for_each(&mut act),
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }
}

fn asked_by((call, task, key): &Name, asker: NodeLife) -> (CallId, NodeLife, TaskKey, Key) {
    (*call, asker, task.clone(), *key)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::id::{Incarnation, NodeId};
    use crate::limits::Limits;
    use crate::link::PeerName;
    use crate::share::Shares;

    use super::*;

    fn name(at: u32) -> Name {
        let call = CallId { origin: Incarnation::of_random(0x900), seq: 1 };
        let path = Path::from_indices(&[at]).expect("it is short");
        (call, TaskKey { path, hop: 0 }, Key(7))
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(second)
    }

    fn asker(node: u64) -> NodeLife {
        NodeLife { node: NodeId::new(node), life: Incarnation::of_random(node << 8) }
    }

    fn refusal(node: u64, forget_at: Timestamp) -> Refusal {
        let name = PeerName::Node(NodeId::new(node));
        let payer = Shares::new(&Limits::default(), 1).connect(name);
        Refusal { cause: Cause::Lost, forget_at, asker: Some(asker(node)), payer }
    }

    #[test]
    fn a_fence_that_is_asked_for_again_takes_no_more_and_goes_with_the_last_who_asked() {
        let mut refusals = Refusals::new();
        refusals.refuse(name(0), refusal(1, at(10)));
        for second in 0..10_000 {
            refusals.refuse_again(&name(0), asker(1), at(10 + second % 20));
        }
        assert_eq!(refusals.timers.len(), 1);
        for (now, left) in [(10, 1), (28, 1), (29, 0)] {
            refusals.expire(at(now), |_| ());
            assert_eq!(refusals.len(), left, "after {now} s");
        }
        assert_eq!((refusals.poll_timeout(), refusals.by_asker.len()), (None, 0));
    }

    #[test]
    fn refusals_are_dropped_by_the_only_one_who_has_asked_for_them() {
        let mut refusals = Refusals::new();
        for (task, node) in [(0, 1), (1, 2), (2, 1), (3, 1)] {
            refusals.refuse(name(task), refusal(node, at(10)));
        }
        refusals.refuse_again(&name(2), asker(2), at(5));
        let mut count = 0;
        refusals.drop_of_asker(name(0).0, asker(1), |_| count += 1);
        assert_eq!((count, refusals.len()), (2, 2), "not of what two have asked for");
        assert_eq!(refusals.drop_one(&name(1), asker(1)), None);
        assert!(refusals.drop_one(&name(1), asker(2)).is_some());
        assert_eq!(refusals.cause(name(2).0, &name(2).1, Key(7)), Some(Cause::Lost));
        assert!(refusals.by_asker.is_empty());
    }
}
