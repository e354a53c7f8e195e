//! Fences and cancel marks: what keeps a request that may still come from running.
//!
//! Each binds exactly the task that it names by its key (`trust.md` T8), so nobody who was not
//! given the key can keep a task from running, whatever else it knows of the call.

use std::collections::BTreeMap;

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

/// All refusals of a node.
#[derive(Debug)]
pub(super) struct Refusals {
    tasks: BTreeMap<(CallId, TaskKey, Key), Refusal>,
    timers: Timers<CallId>,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self { tasks: BTreeMap::new(), timers: Timers::new() }
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
    pub(super) fn refuse(&mut self, (call, task, key): (CallId, TaskKey, Key), refusal: Refusal) {
        let forget_at = refusal.forget_at;
        let before = self.tasks.insert((call, task, key), refusal);
        debug_assert!(before.is_none(), "whoever refuses has looked first");
        self.timers.push(forget_at, call);
        if self.timers.is_crowded(self.tasks.len()) {
            let armed = self.tasks.iter().map(|((call, _, _), of)| (of.forget_at, *call));
            self.timers.sweep(armed);
        }
    }

    /// A node asks again for what is refused: it is kept for as long as each has asked for.
    pub(super) fn refuse_again(
        &mut self,
        of: &(CallId, TaskKey, Key),
        asker: NodeLife,
        forget_at: Timestamp,
    ) {
        let Some(refusal) = self.tasks.get_mut(of) else { return };
        refusal.asker = refusal.asker.filter(|first| *first == asker);
        if forget_at > refusal.forget_at {
            refusal.forget_at = forget_at;
            self.timers.push(forget_at, of.0);
        }
    }

    /// Drops those of a call that are meant, and gives who paid for each to `act`.
    pub(super) fn drop_of_call(
        &mut self,
        call: CallId,
        is_meant: impl Fn(&TaskKey, Key, &Refusal) -> bool,
        mut act: impl FnMut(PeerIndex),
    ) {
        if self.tasks.is_empty() {
            return;
        }
        let least = (call, TaskKey { path: Path::root(), hop: 0 }, Key(0));
        let of_call = self.tasks.range(least..).take_while(|((of, _, _), _)| *of == call);
        let meant = of_call.filter(|((_, task, key), refusal)| is_meant(task, *key, refusal));
        for name in meant.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.tasks.remove(&name).into_iter().for_each(|refusal| act(refusal.payer));
        }
    }

    /// Drops those whose time has come, and gives who paid for each to `act`.
    pub(super) fn expire(&mut self, now: Timestamp, mut act: impl FnMut(PeerIndex)) {
        while let Some((_, call)) = self.timers.pop_due(now) {
            self.drop_of_call(call, |_, _, refusal| refusal.forget_at <= now, &mut act);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }
}
