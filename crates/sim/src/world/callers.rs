//! The users of calls: they open, seal, read, cancel and drop them.

use std::time::Duration;

use bytes::Bytes;
use convoke_proto::call::{CallEvent, CallOptions, Delivered, End, RootBranch};
use convoke_proto::id::{CallId, LinkNonce, NodeId, Path, TaskKey};
use convoke_proto::initiator::SlotPoll;
use convoke_proto::node::Node;
use convoke_proto::participant::TaskRef;
use convoke_proto::time::Timestamp;

use crate::invariants::Observation;
use crate::network::Place;
use crate::oracle::{CallTruth, Oracle, QuorumTruth};
use crate::plan::{FLAT, TREE};
use crate::quorum::{QuorumLog, predicate};
use crate::random::Random;

use super::World;
use super::event::Event;
use super::host::{node_id, place_of};

/// A call to be opened.
#[derive(Clone, Debug)]
pub(super) struct CallSpec {
    roots: Vec<NodeId>,
    budget: Duration,
    /// Replies of this many nodes decide.
    quorum: Option<usize>,
    is_flat: bool,
    cancels_late: bool,
    keeps_late: bool,
    seal_after: Option<Duration>,
    cancel_after: Option<Duration>,
    drop_after: Option<Duration>,
    reader: Reader,
    is_after_faults: bool,
    /// In a slot of its node, if it can.
    begins_flat: bool,
    /// Its user has enough when it has read this many replies.
    decides_after: Option<usize>,
}

impl CallSpec {
    /// In a slot for the end only.
    fn can_begin_flat(&self) -> bool {
        let is_read_at_once = self.reader == Reader::Eager && self.decides_after.is_none();
        self.can_begin_as_fan() && self.roots.len() == 1 && !self.cancels_late && is_read_at_once
    }

    fn can_begin_as_fan(&self) -> bool {
        let asks_for_nothing = self.quorum.is_none() && !self.keeps_late;
        self.begins_flat && self.seal_after.is_none() && asks_for_nothing
    }
}

/// How a user reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Eager,
    /// One event at a time, with this pause after each.
    Slow(Duration),
    /// Stops after so many events.
    Stops(u32),
}

/// The user of a call.
#[derive(Debug)]
pub(super) struct Caller {
    reader: Reader,
    is_reading: bool,
    keeps_late: bool,
    /// Has enough after so many more replies.
    decides_after: Option<usize>,
}

/// How a call ended for its user: what must not depend on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The end, if the user read that far.
    pub end: Option<End>,
    /// Names of the messages it was given, in order of name.
    pub replies: Vec<String>,
    /// The failures, in order of branch.
    pub failures: Vec<String>,
}

impl World {
    pub(super) fn plan_calls(&mut self) {
        let count = self.scenario.workload.calls;
        for index in 0..count {
            let mut random = Random::of(self.scenario.seed, 1000 + index as u64);
            let at = random.micros(self.scenario.workload.open_us.clone());
            self.plan_call(&mut random, Timestamp::from_nanos(2_000_000) + at, false);
        }
    }

    pub(super) fn plan_calls_after(&mut self) {
        // What the faults broke may be noticed a keep-alive later, and dialled after the backoff.
        let limits = &self.scenario.limits;
        let mut at = self.now + limits.keep_alive_timeout * 2 + limits.backoff_max * 3;
        for index in 0..self.scenario.workload.calls_after {
            let mut random = Random::of(self.scenario.seed, 5000 + index as u64);
            self.plan_call(&mut random, at, true);
            at = at + Duration::from_millis(10);
        }
    }

    fn plan_call(&mut self, random: &mut Random, at: Timestamp, is_after_faults: bool) {
        let nodes = self.hosts.len();
        // Mostly clients open calls, sometimes servers do.
        let place = match random.chance(80) {
            true => self.scenario.servers + random.index(self.scenario.clients),
            false => random.index(nodes),
        };
        let spec = self.spec(random, place, is_after_faults);
        self.last_deadline = self.last_deadline.max(at + spec.budget);
        let end = self.hosts[place].end();
        self.schedule(at, Event::Open { end, spec: Box::new(spec) });
    }

    fn spec(&self, random: &mut Random, place: Place, is_after_faults: bool) -> CallSpec {
        let w = &self.scenario.workload;
        let is_server = place < self.scenario.servers;
        let known = if is_server { usize::MAX } else { self.scenario.servers_known };
        let targets = self.scenario.servers.min(known);
        let root_count = 1 + random.within(0..w.roots_max);
        let roots: Vec<NodeId> = (0..root_count).map(|_| node_id(random.index(targets))).collect();
        let quorum = random.chance(w.quorum_percent).then(|| 1 + random.index(targets.min(4)));
        let budget = match is_after_faults {
            true => Duration::from_secs(10),
            false => random.micros(w.budget_us.clone()),
        };
        let micros = u64::try_from(budget.as_micros()).unwrap_or(u64::MAX);
        let mut sometime = |percent: u32| {
            let happens = random.chance(percent) && !is_after_faults;
            let latest = if random.chance(70) { micros.min(60_000) } else { micros };
            let after = random.micros(0..latest);
            happens.then_some(after)
        };
        let cancel_after = sometime(w.cancel_percent);
        let drop_after = sometime(w.drop_percent);
        let seal_after = sometime(w.late_seal_percent);
        let reader = match random.within(0..100) {
            _ if is_after_faults => Reader::Eager,
            roll if roll < u64::from(w.stopped_reader_percent) => {
                Reader::Stops(u32::try_from(random.within(0..6)).unwrap_or(0))
            }
            roll if roll < u64::from(w.stopped_reader_percent + w.slow_reader_percent) => {
                Reader::Slow(random.micros(10..5_000))
            }
            _ => Reader::Eager,
        };
        CallSpec {
            roots,
            budget,
            quorum,
            is_flat: quorum.is_some() && random.chance(70),
            cancels_late: random.chance(30),
            keeps_late: random.chance(30),
            seal_after,
            cancel_after,
            drop_after,
            reader,
            is_after_faults,
            begins_flat: random.chance(50),
            decides_after: (quorum.is_none() && random.chance(w.decided_percent))
                .then(|| 1 + random.index(3)),
        }
    }

    pub(super) fn open_call(&mut self, place: Place, spec: CallSpec) {
        let budget = Some(spec.budget);
        let node = self.hosts[place].node.as_ref();
        match node
            .filter(|_| spec.can_begin_flat())
            .and_then(|n| n.slot_link(spec.roots[0], budget))
        {
            Some(link) => self.open_flat_call(place, &spec, link),
            None => self.open_read_call(place, spec),
        }
    }

    fn open_read_call(&mut self, place: Place, spec: CallSpec) {
        let budget = Some(spec.budget);
        let node = self.hosts[place].node.as_ref();
        let suits = |node: &Node| node.fan_suits(budget, spec.roots.iter().copied());
        match node.is_some_and(|node| spec.can_begin_as_fan() && suits(node)) {
            true => self.open_fan(place, &spec),
            false => self.open_full_call(place, spec),
        }
    }

    /// A call of several branches that begins in a slot of its node.
    fn open_fan(&mut self, place: Place, spec: &CallSpec) {
        let now = self.now;
        let Some(node) = self.hosts[place].node.as_mut() else { return };
        let options = CallOptions { cancels_late: spec.cancels_late, ..CallOptions::default() };
        let branches = spec.roots.iter().map(|to| RootBranch {
            to: *to,
            method: TREE,
            extensions: Vec::new(),
            payload: Bytes::from_static(b"root"),
        });
        let Ok(call) = node.open_fan(now, Some(spec.budget), options, branches) else { return };
        self.note_open(place, call, spec, QuorumLog::default());
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.is_sealed = true;
        }
        self.hosts[place].fans.insert(call);
        for (index, to) in (0..).zip(&spec.roots) {
            let path = Path::root().child(index).expect("one level fits");
            let task = TaskRef { call, task: TaskKey { path, hop: 0 } };
            self.oracle.open(task, *to, None);
            self.oracle.cost.branches += u64::from(place_of(*to) != place);
        }
        self.settle(place);
        self.plan_end(place, call, spec);
    }

    /// Writes down which of them have ended, and has the invariants look at those that are flat no longer.
    pub(super) fn look_at_fans(&mut self, place: Place) {
        let host = &mut self.hosts[place];
        let Some(node) = &host.node else { return };
        let (oracle, watched, now) = (&mut self.oracle, &mut host.watched, self.now);
        host.fans.retain(|call| {
            let flat = node.initiator().flat_end(*call);
            if let (Some(Some(end)), Some(truth)) = (flat, oracle.calls.get_mut(call)) {
                truth.end.get_or_insert((now, end));
            }
            if flat.is_none() && node.call(*call).is_some() {
                watched.insert(*call);
            }
            flat.is_some()
        });
    }

    /// A call that begins in a slot of its node.
    fn open_flat_call(&mut self, place: Place, spec: &CallSpec, link: LinkNonce) {
        let (now, to) = (self.now, spec.roots[0]);
        let Some(node) = self.hosts[place].node.as_mut() else { return };
        let request = (TREE, Vec::new(), Bytes::from_static(b"root"));
        let opened = node.open_slot(now, Some(spec.budget), (to, link), request);
        let Ok(transmit) = opened else { return };
        let (call, task) = (transmit.frame.header.call, transmit.frame.header.task.clone());
        let log = QuorumLog::default();
        self.note_open(place, call, spec, log);
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.is_sealed = true;
        }
        self.hosts[place].flat.insert(call);
        self.oracle.open(TaskRef { call, task }, to, None);
        self.oracle.cost.branches += u64::from(place_of(to) != place);
        self.transmit(place, transmit);
        self.settle(place);
        self.plan_end(place, call, spec);
    }

    /// Tells the users of flat calls what these have.
    pub(super) fn poll_flat_calls(&mut self, place: Place) {
        for call in self.hosts[place].flat.clone() {
            let Some(node) = self.hosts[place].node.as_mut() else { return };
            let polled = node.poll_slot(call);
            if polled != SlotPoll::Pending {
                self.hosts[place].flat.remove(&call);
            }
            match polled {
                SlotPoll::Pending => {}
                SlotPoll::Grown => {
                    self.hosts[place].watched.insert(call);
                    self.on_ready(place, call);
                }
                SlotPoll::Answered { from, payload } => {
                    self.end_flat_call(place, call, from, payload)
                }
            }
        }
    }

    fn end_flat_call(&mut self, place: Place, call: CallId, from: NodeId, payload: Bytes) {
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.end.get_or_insert((self.now, End::Complete));
        }
        if self.hosts[place].callers.remove(&call).is_none() {
            return;
        }
        let path = Path::root().child(0).expect("one level fits");
        let reply = Delivered { path, index: 0, item: None, from, is_authenticated: true, payload };
        self.tell(place, call, &CallEvent::Reply(reply));
        self.tell(place, call, &CallEvent::Ended(End::Complete));
    }

    fn open_full_call(&mut self, place: Place, spec: CallSpec) {
        let log = QuorumLog::default();
        let options = CallOptions {
            predicate: spec.quorum.map(|k| predicate(k, log.clone())),
            is_flat: spec.is_flat,
            cancels_late: spec.cancels_late,
            keeps_late: spec.keeps_late,
            ..CallOptions::default()
        };
        let budget = Some(spec.budget);
        let now = self.now;
        let Some(node) = self.hosts[place].node.as_mut() else { return };
        let Ok(call) = node.open_call(now, budget, options) else { return };
        self.note_open(place, call, &spec, log);
        self.hosts[place].watched.insert(call);
        self.open_roots(place, call, &spec);
        match spec.seal_after {
            Some(after) => {
                let end = self.hosts[place].end();
                self.schedule_in(after, Event::Seal { end, call });
            }
            None => self.seal_call(place, call),
        }
        self.plan_end(place, call, &spec);
    }

    fn note_open(&mut self, place: Place, call: CallId, spec: &CallSpec, log: QuorumLog) {
        let now = self.now;
        let truth = CallTruth {
            node: self.hosts[place].id,
            opened_at: now,
            deadline: now + spec.budget,
            is_sealed: false,
            quorum: spec.quorum.map(|k| QuorumTruth { k, is_flat: spec.is_flat, log }),
            cancels_late: spec.cancels_late,
            keeps_late: spec.keeps_late,
            cancelled_at: None,
            end: None,
            is_orphan: false,
            is_after_faults: spec.is_after_faults,
            delivered: std::collections::BTreeMap::new(),
            failures: Vec::new(),
            told_end: None,
            is_dropped: false,
        };
        self.oracle.calls.insert(call, truth);
        let id = self.hosts[place].id;
        self.trace.note(now, || format!("{id} opens {call:?}: {spec:?}"));
        let caller = Caller {
            reader: spec.reader,
            is_reading: false,
            keeps_late: spec.keeps_late,
            decides_after: spec.decides_after,
        };
        self.hosts[place].callers.insert(call, caller);
    }

    fn plan_end(&mut self, place: Place, call: CallId, spec: &CallSpec) {
        let end = self.hosts[place].end();
        if let Some(after) = spec.cancel_after {
            self.schedule_in(after, Event::Cancel { end, call });
        }
        let gone_after = spec.drop_after.unwrap_or(spec.budget + Duration::from_millis(50));
        self.schedule_in(gone_after, Event::Drop { end, call });
    }

    fn open_roots(&mut self, place: Place, call: CallId, spec: &CallSpec) {
        let method = if spec.is_flat { FLAT } else { TREE };
        for to in &spec.roots {
            let now = self.now;
            let Some(node) = self.hosts[place].node.as_mut() else { return };
            let payload = Bytes::from_static(b"root");
            let Ok(path) = node.open_branch(now, call, *to, method, Vec::new(), payload) else {
                continue;
            };
            let task = TaskRef { call, task: TaskKey { path, hop: 0 } };
            self.oracle.open(task, *to, None);
            self.oracle.cost.branches += u64::from(place_of(*to) != place);
            self.settle(place);
        }
    }

    pub(super) fn seal_call(&mut self, place: Place, call: CallId) {
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.is_sealed = true;
        }
        self.drive(place, |node, now| node.seal_call(now, call));
    }

    pub(super) fn cancel_call(&mut self, place: Place, call: CallId) {
        self.note_cancel(call);
        self.drive(place, |node, now| node.cancel_call(now, call));
    }

    /// The user holds the call no longer.
    pub(super) fn drop_call(&mut self, place: Place, call: CallId) {
        if self.hosts[place].callers.remove(&call).is_none() {
            return;
        }
        self.note_cancel(call);
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.is_dropped = truth.told_end.is_none();
        }
        self.drive(place, |node, now| node.detach_call(now, call));
    }

    fn has_enough(&mut self, place: Place, call: CallId) -> bool {
        let Some(caller) = self.hosts[place].callers.get_mut(&call) else { return false };
        caller.decides_after = caller.decides_after.map(|left| left.saturating_sub(1));
        caller.decides_after == Some(0)
    }

    /// The user has enough, and holds the call no longer.
    fn decide_call(&mut self, place: Place, call: CallId) {
        let (now, is_held) = (self.now, self.hosts[place].callers.remove(&call).is_some());
        let Some(truth) = self.oracle.calls.get_mut(&call).filter(|_| is_held) else { return };
        truth.end.get_or_insert((now, End::Decided));
        let cancels_late = truth.cancels_late;
        self.tell(place, call, &CallEvent::Ended(End::Decided));
        self.drive(place, |node, now| node.decide_call(now, call, cancels_late));
    }

    fn note_cancel(&mut self, call: CallId) {
        let now = self.now;
        if let Some(truth) = self.oracle.calls.get_mut(&call)
            && truth.end.is_none()
        {
            self.trace.note(now, || format!("{call:?} is cancelled"));
            truth.cancelled_at.get_or_insert(now);
        }
    }

    pub(super) fn on_ready(&mut self, place: Place, call: CallId) {
        let end = self.hosts[place].end();
        let Some(caller) = self.hosts[place].callers.get_mut(&call) else { return };
        if !caller.is_reading && caller.reader != Reader::Stops(0) {
            caller.is_reading = true;
            self.schedule_in(Duration::ZERO, Event::Read { end, call });
        }
    }

    /// Reads as far as the user cares to.
    pub(super) fn read_call(&mut self, place: Place, call: CallId) {
        loop {
            let Some(caller) = self.hosts[place].callers.get_mut(&call) else { return };
            if caller.reader == Reader::Stops(0) {
                return;
            }
            let (reader, keeps_late) = (caller.reader, caller.keeps_late);
            let now = self.now;
            let Some(node) = self.hosts[place].node.as_mut() else { return };
            let event = node.poll_call(now, call);
            let Some(caller) = self.hosts[place].callers.get_mut(&call) else { return };
            let Some(event) = event else {
                caller.is_reading = false;
                return;
            };
            if let Reader::Stops(left) = &mut caller.reader {
                *left -= 1;
            }
            self.tell(place, call, &event);
            if matches!(event, CallEvent::Reply(_)) && self.has_enough(place, call) {
                return self.decide_call(place, call);
            }
            if matches!(event, CallEvent::Ended(_)) && !keeps_late {
                return self.drop_call(place, call);
            }
            self.settle(place);
            if let Reader::Slow(pause) = reader {
                let end = self.hosts[place].end();
                return self.schedule_in(pause, Event::Read { end, call });
            }
        }
    }

    fn tell(&mut self, place: Place, call: CallId, event: &CallEvent) {
        self.trace.note(self.now, || {
            let what = match event {
                CallEvent::Reply(d) | CallEvent::Late(d) => {
                    format!("reply {} #{} {:?} of {}", d.path, d.index, d.item, d.from)
                }
                CallEvent::Failure(failure) => failure.to_string(),
                CallEvent::Ended(end) => format!("{end:?}"),
                CallEvent::Sent(path) => format!("sent {path}"),
                CallEvent::Silent(path) => format!("silent {path}"),
            };
            format!("{} learns of {call:?}: {what}", self.hosts[place].id)
        });
        self.observe(&Observation::Learned { call, event });
        self.oracle.tell(call, event);
    }
}

pub(super) fn outcomes(oracle: &Oracle) -> Vec<Outcome> {
    let outcome = |truth: &CallTruth| {
        let mut failures: Vec<String> =
            truth.failures.iter().map(|failure| failure.to_string()).collect();
        failures.sort_unstable();
        let name = |(path, index, item): &(_, u32, Option<u64>)| format!("{path} {index} {item:?}");
        Outcome {
            end: truth.told_end,
            replies: truth.delivered.keys().map(name).collect(),
            failures,
        }
    };
    oracle.calls.values().map(outcome).collect()
}
