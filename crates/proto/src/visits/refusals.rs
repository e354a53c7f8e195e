//! Fences and cancel marks: what keeps a request that may still come from running.
//!
//! Each binds exactly the task that it names by its key (`trust.md` T8), so nobody who was not
//! given the key can keep a task from running, whatever else it knows of the call.

use std::collections::BTreeMap;

use crate::id::{CallId, Path, TaskKey};
use crate::key::Key;
use crate::mutant::{self, Mutant};
use crate::share::PeerIndex;
use crate::time::Timestamp;
use crate::timers::Timers;
use crate::wire::Cause;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// `Cancelled`, or `Lost` for a fence.
    cause: Cause,
    forget_at: Timestamp,
    payer: PeerIndex,
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
    pub(super) fn refuse(
        &mut self,
        (call, task, key): (CallId, TaskKey, Key),
        cause: Cause,
        forget_at: Timestamp,
        payer: PeerIndex,
    ) {
        let refusal = Refusal { cause, forget_at, payer };
        let before = self.tasks.insert((call, task, key), refusal);
        debug_assert!(before.is_none(), "whoever refuses has looked first");
        self.timers.push(forget_at, call);
        if self.timers.is_crowded(self.tasks.len()) {
            let armed = self.tasks.iter().map(|((call, _, _), of)| (of.forget_at, *call));
            self.timers.sweep(armed);
        }
    }

    /// Drops those of a call that are forgotten at such a time, and gives who paid for each to
    /// `act`.
    pub(super) fn drop_of_call(
        &mut self,
        call: CallId,
        is_meant: impl Fn(Timestamp) -> bool,
        mut act: impl FnMut(PeerIndex),
    ) {
        if self.tasks.is_empty() {
            return;
        }
        let least = (call, TaskKey { path: Path::root(), hop: 0 }, Key(0));
        let of_call = self.tasks.range(least..).take_while(|((of, _, _), _)| *of == call);
        let meant = of_call.filter(|(_, refusal)| is_meant(refusal.forget_at));
        for name in meant.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.tasks.remove(&name).into_iter().for_each(|refusal| act(refusal.payer));
        }
    }

    /// Drops those whose time has come, and gives who paid for each to `act`.
    pub(super) fn expire(&mut self, now: Timestamp, mut act: impl FnMut(PeerIndex)) {
        while let Some((_, call)) = self.timers.pop_due(now) {
            self.drop_of_call(call, |forget_at| forget_at <= now, &mut act);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }
}
