//! The users of calls: they open, read, decide, cancel and drop them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use convoke_proto::call::{
    CallEvent, CallOptions, Delivered, End, RootBranch, RootRequest, root_path,
};
use convoke_proto::id::{CallId, LinkId, NodeId, TaskKey};
use convoke_proto::mutant::{self, Mutant};
use convoke_proto::node::Opening;
use convoke_proto::time::Timestamp;

use crate::invariants::Observation;
use crate::network::Place;
use crate::oracle::{CallTruth, Oracle, TaskName};
use crate::plan::{FLAT, TREE, encoded};
use crate::random::Random;

use super::World;
use super::event::Event;
use super::host::{node_id, place_of};

/// A call to be opened.
#[derive(Clone, Debug)]
pub(super) struct CallSpec {
    /// Nodes to call, and the time for each if that is less than the call has.
    roots: Vec<(NodeId, Option<Duration>)>,
    budget: Duration,
    enough: Option<Enough>,
    is_flat: bool,
    cancels_late: bool,
    cancel_after: Option<Duration>,
    drop_after: Option<Duration>,
    reader: Reader,
    is_after_faults: bool,
    /// Asks for what no flat call can tell.
    traces: bool,
    /// The sizes of the items that follow its request.
    items: Option<Vec<usize>>,
}

/// When a user has enough.
#[derive(Clone, Copy, Debug)]
enum Enough {
    /// With so many replies.
    Replies(usize),
    /// With replies of so many distinct nodes.
    Nodes(usize),
}

/// Manner in which a user reads.
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
    /// Replies that were there when it was last handed one.
    ahead: VecDeque<Delivered>,
    /// The end that it was handed with the last reply: its node knows the call no more.
    last: Option<End>,
    enough: Option<Enough>,
    /// Nodes that replied, each with what its connection says: true when it is authenticated.
    voices: Vec<(NodeId, bool)>,
}

impl Caller {
    fn has_enough(&mut self, reply: &Delivered) -> bool {
        self.voices.push((reply.from, reply.is_authenticated));
        match self.enough {
            None => false,
            Some(Enough::Replies(count)) => self.voices.len() >= count,
            // The mutant counts branches: two that went to the same node are one voice.
            Some(Enough::Nodes(k)) if mutant::is(Mutant::QuorumByPath) => self.voices.len() >= k,
            Some(Enough::Nodes(k)) => {
                let voices = self.voices.iter().filter(|(_, is_authenticated)| *is_authenticated);
                voices.map(|(node, _)| node).collect::<BTreeSet<_>>().len() >= k
            }
        }
    }
}

/// End of a call for its user: what must not depend on the network.
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
        if self.scenario.liars.contains(&place) {
            return;
        }
        let mut spec = self.spec(random, place, is_after_faults);
        if spec.enough.is_none()
            && let Some(sizes) = self.item_sizes(random)
        {
            spec.roots.truncate(1);
            spec.items = Some(sizes);
        }
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
        let budget = match is_after_faults {
            true => Duration::from_secs(10),
            false if w.mixes_budgets => {
                let range = w.budget_us.clone();
                let doublings = (range.end / range.start.max(1)).max(1).ilog2();
                let start = range.start << random.within(0..u64::from(doublings) + 1);
                random.micros(start..(2 * start).min(range.end))
            }
            false => random.micros(w.budget_us.clone()),
        };
        let short_percent =
            if is_after_faults { 0 } else { self.scenario.shape.short_deadline_percent };
        let root = |random: &mut Random| {
            let short = random.chance(short_percent).then(|| random.micros(1..200_000));
            (node_id(random.index(targets)), short)
        };
        let mut roots: Vec<_> = (0..root_count).map(|_| root(random)).collect();
        let enough = match random.chance(w.quorum_percent) {
            true if self.scenario.tolerates > 0 => {
                roots = (0..targets).map(|place| (node_id(place), None)).collect();
                Some(Enough::Nodes(targets - self.scenario.tolerates))
            }
            true => Some(Enough::Nodes(1 + random.index(targets.min(4)))),
            false => {
                let decides = random.chance(w.decided_percent);
                decides.then(|| Enough::Replies(1 + random.index(3)))
            }
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
            enough,
            is_flat: matches!(enough, Some(Enough::Nodes(_))) && random.chance(70),
            cancels_late: random.chance(30),
            cancel_after,
            drop_after,
            reader,
            is_after_faults,
            traces: random.chance(50),
            items: None,
        }
    }

    pub(super) fn open_call(&mut self, place: Place, spec: &CallSpec) {
        let now = self.now;
        if !self.hosts[place].is_up() || self.hosts[place].stopping.is_some() {
            return;
        }
        let method = if spec.is_flat { FLAT } else { TREE };
        let branches = spec.roots.iter().map(|(to, budget)| {
            let (extensions, payload) = (Vec::new(), encoded(b"root"));
            let request = RootRequest { method, extensions, payload, budget: *budget };
            RootBranch { to: *to, request }
        });
        let options = CallOptions {
            is_flat: spec.is_flat,
            traces: spec.traces,
            sends_items: spec.items.is_some(),
            ..CallOptions::default()
        };
        let (budget, branches) = (Some(spec.budget), &mut branches.collect::<Vec<_>>());
        // In each in turn.
        let host = &mut self.hosts[place];
        let core = self.oracle.calls.len() % host.cores.len();
        host.hear(core, LinkId::LOCAL);
        let opened = host.cores[core].open(now, &mut Opening { budget, options, branches });
        let Ok(call) = opened else { return };
        self.note_open(place, call, spec);
        self.settle(place);
        if let Some(sizes) = &spec.items {
            self.begin_items(place, call, sizes);
        }
        self.plan_end(place, call, spec);
    }

    fn note_open(&mut self, place: Place, call: CallId, spec: &CallSpec) {
        let now = self.now;
        let early = (0..).zip(&spec.roots).filter_map(|(index, (_, own))| Some((index, (*own)?)));
        let truth = CallTruth {
            node: self.hosts[place].id,
            opened_at: now,
            deadline: now + spec.budget,
            early: early.map(|(index, own)| (index, now + own.min(spec.budget))).collect(),
            quorum: match spec.enough {
                Some(Enough::Nodes(k)) => Some(k),
                Some(Enough::Replies(_)) | None => None,
            },
            is_flat: spec.is_flat,
            heard: BTreeSet::new(),
            quorum_at: None,
            cancels_late: spec.cancels_late,
            cancelled_at: None,
            settled_at: None,
            end: None,
            exhausted: BTreeSet::new(),
            is_orphan: false,
            is_after_faults: spec.is_after_faults,
            delivered: BTreeMap::new(),
            failures: Vec::new(),
            told_end: None,
            is_dropped: false,
            items: Vec::new(),
            has_finished_items: false,
        };
        // Later than planned, where its node was paused.
        self.last_deadline = self.last_deadline.max(truth.deadline);
        self.oracle.calls.insert(call, truth);
        for (index, (to, _)) in (0..).zip(&spec.roots) {
            let task = TaskName::of(call, TaskKey { path: root_path(index), hop: 0 });
            self.oracle.open(task.clone(), *to, None);
            self.tempt_liars(task, *to);
            self.oracle.cost.branches += u64::from(place_of(*to) != place);
        }
        let host = &mut self.hosts[place];
        self.trace.note(now, || format!("{} opens {call:?}: {spec:?}", host.id));
        host.watched.insert(call);
        let caller = Caller {
            reader: spec.reader,
            is_reading: false,
            ahead: VecDeque::new(),
            last: None,
            enough: spec.enough,
            voices: Vec::new(),
        };
        host.callers.insert(call, caller);
    }

    fn plan_end(&mut self, place: Place, call: CallId, spec: &CallSpec) {
        let end = self.hosts[place].end();
        if let Some(after) = spec.cancel_after {
            self.schedule_in(after, Event::Cancel { end, call });
        }
        let gone_after = spec.drop_after.unwrap_or(spec.budget + Duration::from_millis(50));
        self.schedule_in(gone_after, Event::Drop { end, call });
    }

    pub(super) fn cancel_call(&mut self, place: Place, call: CallId) {
        self.note_cancel(call);
        self.drive(place, call, |node, now| node.cancel_call(now, call));
    }

    /// The user holds the call no longer.
    pub(super) fn drop_call(&mut self, place: Place, call: CallId) {
        let Some(caller) = self.hosts[place].callers.remove(&call) else { return };
        self.note_cancel(call);
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.is_dropped = truth.told_end.is_none();
        }
        if caller.last.is_none() {
            self.drive(place, call, |node, now| node.detach_call(now, call));
        }
    }

    /// The user has enough, and holds the call no longer.
    fn decide_call(&mut self, place: Place, call: CallId) {
        let (now, caller) = (self.now, self.hosts[place].callers.remove(&call));
        let Some((caller, truth)) = caller.zip(self.oracle.calls.get_mut(&call)) else { return };
        truth.end.get_or_insert((now, End::Decided));
        let cancels_late = truth.cancels_late;
        self.tell(place, call, &CallEvent::Ended(End::Decided));
        if caller.last.is_none() {
            self.drive(place, call, |node, now| node.decide_call(now, call, cancels_late));
        }
    }

    pub(super) fn note_cancel(&mut self, call: CallId) {
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
            let reader = caller.reader;
            let event = self.next_event(place, call);
            let Some(caller) = self.hosts[place].callers.get_mut(&call) else { return };
            let Some(event) = event else {
                caller.is_reading = false;
                return;
            };
            if let Reader::Stops(left) = &mut caller.reader {
                *left -= 1;
            }
            let has_enough = matches!(&event, CallEvent::Reply(reply) if caller.has_enough(reply));
            self.tell(place, call, &event);
            if has_enough {
                return self.decide_call(place, call);
            }
            if matches!(event, CallEvent::Ended(_)) {
                return self.drop_call(place, call);
            }
            self.settle(place);
            if let Reader::Slow(pause) = reader {
                let end = self.hosts[place].end();
                return self.schedule_in(pause, Event::Read { end, call });
            }
        }
    }

    /// The next event of a call for its user, as an endpoint has it: first what was handed out
    /// ahead.
    fn next_event(&mut self, place: Place, call: CallId) -> Option<CallEvent> {
        let host = &mut self.hosts[place];
        let caller = host.callers.get_mut(&call)?;
        let next = caller.ahead.pop_front().map(CallEvent::Reply);
        if let Some(event) = next.or_else(|| caller.last.map(CallEvent::Ended)) {
            return Some(event);
        }
        let mut ahead = std::mem::take(&mut caller.ahead);
        let (event, last) = host.core_of_mut(call)?.poll_last(call, &mut ahead)?;
        let caller = host.callers.get_mut(&call)?;
        (caller.ahead, caller.last) = (ahead, last);
        Some(event)
    }

    fn tell(&mut self, place: Place, call: CallId, event: &CallEvent) {
        self.trace.note(self.now, || {
            let what = match event {
                CallEvent::Reply(d) => {
                    format!("reply {} #{} {:?} of {}", d.path, d.index, d.item, d.from)
                }
                CallEvent::Failure(failure) => failure.to_string(),
                CallEvent::Ended(end) => format!("{end:?}"),
                CallEvent::Sent(path) => format!("sent {path}"),
                CallEvent::Silent { path, .. } => format!("silent {path}"),
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
