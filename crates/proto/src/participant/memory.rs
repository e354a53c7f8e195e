//! What a node remembers of calls, for how long, and how it lets go.
//!
//! Everything that is known of a call here is its [`Visit`], or its brief task while it has done next to
//! nothing. It goes when the initiator says that the call is settled, at the latest when nothing of the
//! call can come any more.

use std::collections::BTreeMap;

use crate::id::{CallId, Incarnation, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cause, TaskStatus};

use super::super::links::Links;
use super::super::visit::Visit;
use super::brief::Briefs;
use super::{Participant, TaskRef};

/// What is remembered of the calls of one initiator.
#[derive(Debug, Default)]
pub(super) struct Origin {
    pub(super) floor: u64,
    pub(super) briefs: Briefs,
    pub(super) visits: BTreeMap<u64, Visit>,
}

impl Origin {
    pub(super) fn knows(&self, seq: u64) -> bool {
        self.visits.contains_key(&seq) || self.briefs.contains(seq)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.visits.is_empty() && self.briefs.is_empty()
    }
}

impl Participant {
    pub(super) fn visit_mut(&mut self, call: CallId) -> Option<&mut Visit> {
        self.grow(call);
        self.origins.get_mut(&call.origin)?.visits.get_mut(&call.seq)
    }

    /// The visit, made if need be, that is remembered at least until `deadline` and the time that a
    /// connection may be paused without being noticed.
    pub(super) fn visit(
        &mut self,
        call: CallId,
        origin: NodeId,
        deadline: Timestamp,
    ) -> &mut Visit {
        self.grow(call);
        let Origin { visits, .. } = self.origins.entry(call.origin).or_default();
        let visit = visits.entry(call.seq).or_insert_with(|| {
            self.visit_count += 1;
            Visit::new(origin)
        });
        visit.deadline = visit.deadline.max(deadline);
        visit.forget_at = visit.deadline + self.limits.keep_alive_timeout;
        visit
    }

    pub(super) fn origin(&mut self, origin: Incarnation) -> &mut Origin {
        self.origins.entry(origin).or_default()
    }

    /// The initiator says that all its calls below `floor` are settled: what is remembered of them goes.
    pub(super) fn raise_floor(&mut self, call: CallId, floor: u64) {
        let Some(origin) = self.origins.get_mut(&call.origin) else { return };
        if floor <= origin.floor {
            return;
        }
        origin.floor = floor;
        self.settle_briefs(call.origin, floor, None);
        let settled: Vec<u64> = self
            .origin(call.origin)
            .visits
            .range(..floor)
            .filter(|(_, visit)| visit.running_count() == 0)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in settled {
            self.drop_visit(CallId { origin: call.origin, seq });
        }
    }

    pub(super) fn drop_visit(&mut self, call: CallId) {
        let Some(origin) = self.origins.get_mut(&call.origin) else { return };
        let Some(visit) = origin.visits.remove(&call.seq) else { return };
        self.remembered -= visit.remembered_count();
        self.visit_count -= 1;
        visit.branch_nodes().for_each(|node| lower(&mut self.branch_visits, node, 1));
        visit
            .fenced_by()
            .iter()
            .for_each(|(peer, count)| lower(&mut self.fences_of, *peer, *count));
    }

    pub(super) fn forget(&mut self, call: CallId) {
        self.drop_visit(call);
        // The floor alone protects against nothing that could still come: no visit, no budget left.
        if self.origins.get(&call.origin).is_some_and(Origin::is_empty) {
            self.origins.remove(&call.origin);
        }
    }

    pub(super) fn arm(&mut self, call: CallId) {
        let Some(visit) = self.visit_mut(call) else { return };
        let at = visit.next_timeout();
        if visit.armed_at.is_some_and(|armed_at| armed_at <= at) {
            return;
        }
        visit.armed_at = Some(at);
        self.timers.push(at, call);
        if self.timers.is_crowded(self.visit_count) {
            self.timers.sweep(armed(&self.origins));
        }
    }

    /// Keeps that a cancelled task came, for who asks: until then the cancel may be a stranger's.
    pub(super) fn remember_refused(&mut self, call: CallId, task: &TaskKey) {
        let has_room = self.remembered + self.running < self.limits.remembered_max;
        let Some(visit) = self.visit_mut(call) else { return };
        if has_room && visit.status(task) == TaskStatus::Unknown {
            visit.fences.insert(task.clone());
            self.remembered += 1;
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &mut Links) {
        self.grow_aged(now);
        while let Some((at, call)) = self.timers.pop_due(now) {
            let visit = self.visit_mut(call).filter(|visit| visit.armed_at == Some(at));
            if let Some(visit) = visit {
                visit.armed_at = None;
                self.expire(now, call, links);
            }
        }
    }

    fn expire(&mut self, now: Timestamp, call: CallId, links: &mut Links) {
        let Some(visit) = self.visit_mut(call) else { return };
        if visit.next_timeout() > now {
            self.arm(call);
            return;
        }
        while let Some(task) = self.visit_mut(call).and_then(|visit| visit.pop_late(now)) {
            self.stop(now, &TaskRef { call, task }, Cause::Deadline, links);
        }
        self.give_up_dial(now, call, links);
        let is_over = self
            .visit_mut(call)
            .is_some_and(|visit| visit.forget_at <= now && visit.running_count() == 0);
        if is_over {
            self.forget(call);
        } else {
            self.arm(call);
        }
    }
}

pub(super) fn lower(counts: &mut BTreeMap<NodeId, usize>, node: NodeId, by: usize) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= by;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}

fn armed(
    origins: &BTreeMap<Incarnation, Origin>,
) -> impl Iterator<Item = (Timestamp, CallId)> + '_ {
    origins.iter().flat_map(|(origin, of_origin)| {
        let visits = of_origin.visits.iter();
        visits.filter_map(|(seq, visit)| {
            Some((visit.armed_at?, CallId { origin: *origin, seq: *seq }))
        })
    })
}
