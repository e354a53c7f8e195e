//! One run: nodes with scripted applications on a simulated network, in virtual time.
//!
//! Everything that happens is an event in one queue, ordered by time and then by number, so a seed
//! replays exactly. After each event the node it happened at is drained and the invariants look.

mod callers;
mod event;
mod faults;
mod handlers;
mod host;
mod liars;
mod links;
mod stops;
mod streams;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use convoke_proto::id::CallId;
use convoke_proto::node::{Node, NodeEvent};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::VisitEvent;
use convoke_proto::wire::Cause;

use crate::invariants::{Invariant, Observation, all_invariants};
use crate::network::{End, Network, Place};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::Trace;

pub use callers::Outcome;
use event::Event;
use host::Host;
use liars::Liars;

/// A run in progress.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    now: Timestamp,
    queue: BTreeMap<(Timestamp, u64), Event>,
    next_event: u64,
    event_count: u64,
    burst: u64,
    network: Network,
    hosts: Vec<Host>,
    random: Random,
    /// Decides which of the ways handlers take that come to the same.
    ways: Random,
    oracle: Oracle,
    liars: Liars,
    invariants: Vec<Box<dyn Invariant>>,
    trace: Trace,
    violation: Option<Violation>,
    blocked_since: BTreeMap<(Place, Place), Timestamp>,
    last_deadline: Timestamp,
    is_healed: bool,
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {message}")]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: String,
    /// Breach, in words.
    pub message: String,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Calls opened.
    pub calls: u64,
    /// Tasks that ran.
    pub tasks: u64,
    /// Frames sent between nodes, by name.
    pub frames: BTreeMap<&'static str, u64>,
    /// Events of the queue.
    pub events: u64,
    /// Names this run: equal for equal seeds.
    pub hash: u64,
    /// Ends of the calls for their users, in order.
    pub outcomes: Vec<Outcome>,
}

/// Events at one instant, and steps of cores, after which the nodes are said to chase their tails.
const BURST_MAX: u64 = 200_000;
/// Events after which a run is said to be a storm. Runs have some 1,100 on average.
const EVENTS_MAX: u64 = 1_000_000;

impl World {
    /// A run that has not begun.
    pub fn new(scenario: Scenario, trace: Trace) -> Self {
        let network =
            Network::new(scenario.conditions.clone(), scenario.servers, scenario.network_seed);
        Self {
            now: Timestamp::from_nanos(1_000_000),
            queue: BTreeMap::new(),
            next_event: 0,
            event_count: 0,
            burst: 0,
            network,
            hosts: Vec::new(),
            random: Random::of(scenario.seed, 4),
            ways: Random::of(scenario.seed, 19),
            oracle: Oracle::default(),
            liars: Liars::new(scenario.seed),
            invariants: all_invariants(&scenario),
            trace,
            violation: None,
            blocked_since: BTreeMap::new(),
            last_deadline: Timestamp::ZERO,
            is_healed: false,
            scenario,
        }
    }

    /// Runs to the end: until everything has ended and is forgotten.
    ///
    /// # Errors
    /// The first [`Violation`]; a panic in the run is one, too.
    pub fn run(mut self) -> (Result<Report, Violation>, Trace) {
        // Of a world in which something has panicked, the trace alone is still used.
        let ended = catch_unwind(AssertUnwindSafe(|| self.run_to_end()));
        let result = ended.unwrap_or_else(|panic| {
            Err(self.violation.take().unwrap_or_else(|| violation_of(&*panic)))
        });
        (result, self.trace)
    }

    fn run_to_end(&mut self) -> Result<Report, Violation> {
        self.start();
        while self.violation.is_none() && self.step() {}
        if self.violation.is_none() {
            self.finish();
        }
        match self.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(self.report()),
        }
    }

    fn start(&mut self) {
        for place in 0..self.scenario.servers + self.scenario.clients {
            self.hosts.push(Host::new(place, &self.scenario, self.now));
            self.note_life(place);
        }
        (0..self.hosts.len()).for_each(|place| self.settle(place));
        self.plan_faults();
        self.plan_lies();
        self.plan_calls();
    }

    /// Handles the next event. False at the end of the run.
    fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.queue.pop_first() else { return false };
        if at > self.ends_at() {
            return false;
        }
        if at > self.now {
            self.burst = 0;
        }
        self.count_step();
        if self.event_count == EVENTS_MAX {
            self.violate("storm", format!("more than {EVENTS_MAX} events in a run"));
        }
        self.now = at;
        self.oracle.now = at;
        self.event_count += 1;
        self.handle(event);
        true
    }

    /// Counts a step at this instant. False after too many.
    fn count_step(&mut self) -> bool {
        self.burst += 1;
        if self.burst > BURST_MAX {
            self.violate("livelock", format!("{BURST_MAX} steps without time passing"));
        }
        self.burst <= BURST_MAX
    }

    /// When nothing that a correct node knows should be left.
    fn ends_at(&self) -> Timestamp {
        let healed = Timestamp::ZERO + self.scenario.heal_at;
        // A liar may give its tasks as much time as anybody may.
        let longest = match self.scenario.liars.is_empty() {
            true => Duration::ZERO,
            false => self.scenario.limits.deadline_max * 2,
        };
        // A late copy of a fence is kept for the time that it was given, from when it comes.
        let copies = match self.scenario.conditions.late_per_mille {
            0 => Duration::ZERO,
            _ => Duration::from_micros(self.scenario.workload.budget_us.end) * 2,
        };
        // A node that was paused takes a request by as much later, and stubs go by whole seconds.
        let late = Duration::from_secs(4);
        self.last_deadline.max(healed + longest)
            + copies
            + self.scenario.limits.keep_alive_timeout
            + late
    }

    fn finish(&mut self) {
        let honest = self.hosts.iter().filter(|host| !self.oracle.liars.contains(&host.id));
        let nodes: Vec<&Node> = honest.flat_map(|host| &host.cores).collect();
        let seen = Observation::Quiet { nodes: &nodes };
        observe(&mut self.invariants, &seen, &self.oracle, &mut self.violation);
    }

    fn report(&self) -> Report {
        Report {
            calls: self.oracle.calls.len() as u64,
            tasks: self.oracle.tasks.values().map(|task| task.runs.len() as u64).sum(),
            frames: self.oracle.frames.clone(),
            events: self.event_count,
            hash: self.trace.hash(),
            outcomes: callers::outcomes(&self.oracle),
        }
    }

    /// Tells the oracle what it must know of the present life of a node.
    fn note_life(&mut self, place: Place) {
        let host = &self.hosts[place];
        if self.scenario.liars.contains(&place) {
            self.oracle.liars.insert(host.id);
        } else {
            self.oracle.secrets.insert(host.incarnation(), host.secret(&self.scenario));
        }
    }

    fn schedule(&mut self, at: Timestamp, event: Event) {
        self.queue.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    fn schedule_in(&mut self, delay: Duration, event: Event) {
        self.schedule(self.now + delay, event);
    }

    fn handle(&mut self, event: Event) {
        if let Some(end) = event.end() {
            let host = &mut self.hosts[end.place];
            if host.life != end.life || !host.is_up() {
                return;
            }
            if host.is_paused {
                host.backlog.push_back(event);
                return;
            }
        }
        match event {
            Event::Frame { to, link, lane, frame } => self.on_frame(to, link, lane, frame),
            Event::Accept { from, to, back, succeeds } => self.on_accept(from, to, back, succeeds),
            Event::LinkUp { end, link } => self.on_link_up(end, link),
            Event::LinkDown { end, link } => self.on_link_down(end, link),
            Event::Room { end, core, link } => self.on_room(end.place, core, link),
            Event::DialFailed { end, peer } => self.on_dial_failed(end, peer),
            Event::Wake { end } => self.on_wake(end),
            Event::Step { end, task } => self.run_handler(end.place, &task),
            Event::Answers { end } => self.end_tasks(end.place),
            Event::Open { end, spec } => self.open_call(end.place, &spec),
            Event::Cancel { end, call } => self.cancel_call(end.place, call),
            Event::Drop { end, call } => self.drop_call(end.place, call),
            Event::Read { end, call } => self.read_call(end.place, call),
            Event::Write { end, call } => self.write_items(end.place, call),
            Event::Lie { end, about } => self.lie(end.place, about),
            Event::Meet { end, node } => self.meet(end.place, node),
            Event::Close { end } => self.on_close(end.place),
            Event::Fault(fault) => self.on_fault(&fault),
            Event::Restart(place) => self.restart(place),
            Event::Resume(place, since) => self.end_pause(place, since),
            Event::Unblock(from, to, since) => self.unblock(from, to, since),
            Event::KeepAlive { link, to, since } => self.on_keep_alive(link, to, since),
            Event::Heal => self.heal(),
        }
    }

    /// One input of the core of a call, and all that follows from it at once.
    fn drive<T>(
        &mut self,
        place: Place,
        call: CallId,
        act: impl FnOnce(&mut Node, Timestamp) -> T,
    ) -> Option<T> {
        let now = self.now;
        let result = act(self.hosts[place].core_of_mut(call)?, now);
        self.settle(place);
        Some(result)
    }

    /// The same input for each core of a node, one after the other.
    fn drive_each(&mut self, place: Place, mut act: impl FnMut(&mut Node, Timestamp)) {
        for core in 0..self.hosts[place].cores.len() {
            let now = self.now;
            act(&mut self.hosts[place].cores[core], now);
            self.settle(place);
        }
    }

    /// Drains a node's outputs, sets its timer and lets the invariants look.
    fn settle(&mut self, place: Place) {
        // Reading a call may have left something, as it may under a driver.
        for core in &mut self.hosts[place].cores {
            core.flush(self.now);
        }
        let settled = self.note_ends(place);
        let cores = 0..self.hosts[place].cores.len();
        while cores.clone().any(|core| self.settle_core(place, core)) && self.count_step() {}
        self.hosts[place].tell();
        // Now that tasks of its own have been stopped.
        for call in settled {
            self.observe(&Observation::Settled { call });
        }
        self.set_timer(place);
        self.look(place);
        self.close_if_parted(place);
    }

    /// Carries out one thing that a core wants. False when there was none.
    fn settle_core(&mut self, place: Place, core: usize) -> bool {
        let Some(node) = self.hosts[place].cores.get_mut(core) else { return false };
        if let Some(transmit) = node.poll_transmit(self.now) {
            self.transmit(place, core, transmit);
            return true;
        }
        let mut starts = Vec::new();
        node.take_starts(&mut starts);
        if !starts.is_empty() {
            starts.into_iter().for_each(|start| self.start_handler(place, start));
        } else if let Some(event) = node.poll_event() {
            self.on_node_event(place, core, event);
        } else if let Some(call) = node.poll_ready() {
            self.on_ready(place, call);
        } else {
            return false;
        }
        true
    }

    fn set_timer(&mut self, place: Place) {
        let host = &mut self.hosts[place];
        let Some(at) = host.cores.iter().map(Node::poll_timeout).min() else { return };
        let at = at.max(self.now);
        if host.wake_at.is_none_or(|wake_at| at < wake_at) {
            host.wake_at = Some(at);
            let end = host.end();
            self.schedule(at, Event::Wake { end });
        }
    }

    fn on_wake(&mut self, end: End) {
        let host = &mut self.hosts[end.place];
        if host.wake_at.is_none_or(|at| at > self.now) {
            return; // An earlier timer took its place.
        }
        host.wake_at = None;
        self.drive_each(end.place, |node, now| {
            if node.poll_timeout() <= now {
                node.handle_timeout(now);
            }
        });
        self.set_timer(end.place);
    }

    /// Writes down which calls have ended, before what follows from it is seen. Those that are
    /// settled with it.
    fn note_ends(&mut self, place: Place) -> Vec<CallId> {
        let mut settled = Vec::new();
        let host = &self.hosts[place];
        for id in &host.watched {
            let Some(node) = host.core_of(*id) else { return settled };
            let Some(truth) = self.oracle.calls.get_mut(id) else { continue };
            if let Some(end) = node.initiator().end(*id) {
                truth.end.get_or_insert((self.now, end));
            }
            if truth.settled_at.is_none() && node.initiator().is_settled(*id) {
                truth.settled_at = Some(self.now);
                settled.push(*id);
            }
            let failures = node.call(*id).into_iter().flat_map(|call| call.failures());
            let exhausted = failures.filter(|f| f.cause == Cause::ResourceExhausted);
            truth.exhausted.extend(exhausted.map(|failure| failure.task.path.clone()));
        }
        settled
    }

    fn look(&mut self, place: Place) {
        let host = &mut self.hosts[place];
        let mut watched = std::mem::take(&mut host.watched);
        watched.retain(|id| host.core_of(*id).is_some_and(|node| node.initiator().is_kept(*id)));
        host.watched = watched;
        let (host, oracle) = (&self.hosts[place], &self.oracle);
        for (id, call) in
            host.watched.iter().filter_map(|id| Some((id, host.core_of(*id)?.call(*id)?)))
        {
            let seen = Observation::Call { id: *id, call };
            observe(&mut self.invariants, &seen, oracle, &mut self.violation);
        }
        if !oracle.liars.contains(&host.id) {
            let limits = &self.scenario.limits;
            let seen = Observation::Cores { cores: &host.cores, limits };
            observe(&mut self.invariants, &seen, oracle, &mut self.violation);
            for node in &host.cores {
                let seen = Observation::Node { node, limits };
                observe(&mut self.invariants, &seen, oracle, &mut self.violation);
            }
        }
    }

    fn observe(&mut self, seen: &Observation<'_>) {
        observe(&mut self.invariants, seen, &self.oracle, &mut self.violation);
    }

    fn on_node_event(&mut self, place: Place, core: usize, event: NodeEvent) {
        match event {
            NodeEvent::Dial { node, addresses } => {
                // One that is made for another core is for this one, too.
                if self.hosts[place].dialling.insert(node) {
                    self.dial(place, node, &addresses);
                }
            }
            NodeEvent::Reset { link, .. } => {
                if let Some(nonce) = self.hosts[place].nonce_of(core, link) {
                    self.reset(place, nonce);
                    self.tell_link_down(place, nonce);
                }
            }
            // A node that a liar has asked in another's name speaks for that without its knowing.
            NodeEvent::Ignored { .. } if !self.scenario.liars.is_empty() => {}
            NodeEvent::Ignored { node, why, .. } => {
                self.violate(
                    "T9: nothing of a correct node is ignored",
                    format!("of {node}: {why}"),
                );
            }
            NodeEvent::Task(VisitEvent::Stop { task, cause }) => {
                self.stop_handler(place, &task, cause);
            }
            NodeEvent::Task(VisitEvent::Writable(task) | VisitEvent::Readable(task)) => {
                self.unblock_handler(place, &task);
            }
            NodeEvent::ItemsWritable(call) => self.write_items(place, call),
        }
    }

    fn violate(&mut self, invariant: &str, message: String) {
        let violation = Violation { invariant: invariant.to_owned(), message };
        self.violation.get_or_insert(violation);
    }
}

fn violation_of(panic: &(dyn Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
    Violation { invariant: "no panic".to_owned(), message: text.to_owned() }
}

fn observe(
    invariants: &mut [Box<dyn Invariant>],
    seen: &Observation<'_>,
    oracle: &Oracle,
    violation: &mut Option<Violation>,
) {
    for invariant in invariants {
        if let Err(message) = invariant.observe(seen, oracle) {
            let invariant = invariant.name().to_owned();
            violation.get_or_insert(Violation { invariant, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Kind;

    fn world(trace: Trace) -> World {
        World::new(Scenario::with_kind(Kind::Calm, 1), trace)
    }

    #[derive(Debug)]
    struct PanicsAtFirstTask;

    impl Invariant for PanicsAtFirstTask {
        fn name(&self) -> &'static str {
            "no task starts"
        }

        fn observe(&mut self, seen: &Observation<'_>, _: &Oracle) -> Result<(), String> {
            assert!(!matches!(seen, Observation::Started { .. }), "a task starts");
            Ok(())
        }
    }

    #[test]
    fn a_run_that_panics_has_a_trace_up_to_there() {
        let mut world = world(Trace::with_lines());
        world.invariants.push(Box::new(PanicsAtFirstTask));
        let (result, trace) = world.run();
        let violation = Violation { invariant: "no panic".into(), message: "a task starts".into() };
        assert_eq!(result, Err(violation));
        assert!(trace.lines().contains("take"), "{}", trace.lines());
    }

    /// A core that never stops would not leave the event in which it began.
    #[test]
    fn steps_of_a_core_count_as_a_livelock() {
        let mut world = world(Trace::hash_only());
        world.start();
        let first_call = loop {
            let (_, event) = world.queue.pop_first().expect("there are calls");
            if matches!(event, Event::Open { .. }) {
                break event;
            }
        };
        world.burst = BURST_MAX;
        world.handle(first_call);
        let violation = world.violation.expect("it sends its requests at one instant");
        assert_eq!(violation.invariant, "livelock");
    }
}
