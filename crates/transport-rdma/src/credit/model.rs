//! Two ends, their slots and the messages between them, in every order of events.
//!
//! A state is what both engines know of each other, what is in flight, what the application holds
//! and what wants to be sent; counters enter as distances, so the states are finitely many and all
//! of them are visited. Two things must never be: a message without a receive posted for it, and an
//! end that wants to send while nothing can happen any more, *even if the application never gives
//! back what it holds*. Neither is true of the obvious schemes, which are tried as well: the search
//! must find out.

mod schemes;

use std::collections::{BTreeSet, VecDeque};

use super::{CreditEngine, Limits, Purpose};
use crate::framing::{Header, Kind};
use crate::slot_ring::SlotRing;
use schemes::{CloseInControlSlot, RigidReserve, SharedWindow, UnknownReserve};

/// A credit scheme as the model needs it.
trait Scheme: Clone {
    fn new(own: Limits, peer: Limits) -> Self;
    /// Number of receives that an end has posted at first.
    fn receive_count(own: Limits) -> u32;
    fn may_send(&self, purpose: Purpose) -> bool;
    fn may_close(&self) -> bool {
        self.may_send(Purpose::Urgent)
    }
    fn wants_credit_message(&self) -> bool;
    fn send(&mut self, kind: Kind) -> Header;
    /// A message came, and if its slot is a control slot it is posted again. True when it is not.
    fn receive(&mut self, header: &Header) -> bool;
    fn post_data(&mut self);
    /// All it knows, by distances; below 16 each.
    fn distances(&self) -> [u32; 5];
    /// News that a message on its way here will tell, by distances; below 8 each.
    fn news(&self, header: &Header) -> [u32; 2];
}

#[derive(Clone)]
struct End<S> {
    scheme: S,
    lent_max: u32,
    lent: u32,
    posted: u32,
    inbox: VecDeque<Header>,
    /// Frames of the data lane, and of the control lane, wait to be sent.
    has_data: bool,
    has_control: bool,
    close: Close,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Close {
    Open,
    Wanted,
    Sent,
}

/// Habits of the two ends: what they do by themselves.
#[derive(Clone, Copy)]
struct Habits {
    /// True for each end that ever sends.
    sends: [bool; 2],
    /// True when there are frames of the control lane; without a reserve they are as any other.
    has_control: bool,
    has_close: bool,
}

type World<S> = [End<S>; 2];

impl<S: Scheme> End<S> {
    fn new(own: Limits, peer: Limits) -> Self {
        Self {
            scheme: S::new(own, peer),
            lent_max: SlotRing::new(own).lent_max(),
            lent: 0,
            posted: S::receive_count(own),
            inbox: VecDeque::new(),
            has_data: false,
            has_control: false,
            close: Close::Open,
        }
    }

    /// Kind of the message that goes out next, as `Link` decides it.
    fn next_kind(&self) -> Option<Kind> {
        let may_send = |purpose| self.scheme.may_send(purpose);
        let is_through = !self.has_data && !self.has_control;
        if (self.has_control && may_send(Purpose::Urgent))
            || (self.has_data && may_send(Purpose::Data))
        {
            Some(Kind::Frames)
        } else if is_through && self.close == Close::Wanted && self.scheme.may_close() {
            Some(Kind::Goodbye)
        } else {
            self.scheme.wants_credit_message().then_some(Kind::Credit)
        }
    }

    fn on_sent(&mut self, kind: Kind) {
        match kind {
            Kind::Frames => (self.has_data, self.has_control) = (false, false),
            Kind::Goodbye => self.close = Close::Sent,
            Kind::Credit => {}
            _ => unreachable!("the model sends no other"),
        }
    }

    fn wants_to_send(&self) -> bool {
        self.has_data || self.has_control || self.close == Close::Wanted
    }

    fn encode(&self) -> u128 {
        let mut bits = 0_u128;
        let mut put = |value: u32, width: u32| {
            assert!(value < 1 << width, "{value} takes more than {width} bits");
            bits = bits << width | u128::from(value);
        };
        self.scheme.distances().into_iter().for_each(|distance| put(distance, 4));
        put(self.lent, 4);
        put(u32::from(self.has_data), 1);
        put(u32::from(self.has_control), 1);
        put(self.close as u32, 2);
        put(u32::try_from(self.inbox.len()).unwrap(), 4);
        for header in &self.inbox {
            let kind = match header.kind {
                Kind::Credit => 0,
                Kind::Frames => 1,
                Kind::Goodbye => 2,
                _ => unreachable!("the model sends no other"),
            };
            put(kind, 2);
            let [window, ctl_ack] = self.scheme.news(header);
            put(window, 4);
            put(ctl_ack, 2);
        }
        bits
    }
}

/// A state in which nothing more happens by itself, though an end wants to send.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// Number of slots that both applications hold.
    lent: u32,
}

#[derive(Debug, Default)]
struct Findings {
    states: usize,
    stuck: Vec<Stuck>,
    has_receiver_not_ready: bool,
}

impl Findings {
    fn is_clean(&self) -> bool {
        self.stuck.is_empty() && !self.has_receiver_not_ready
    }

    /// Stuck although the applications have given everything back.
    fn is_deadlocked(&self) -> bool {
        self.stuck.iter().any(|stuck| stuck.lent == 0)
    }
}

/// Visits every state that two ends with these limits can come to.
fn search<S: Scheme>(limits: [Limits; 2], habits: Habits) -> Findings {
    let [one, two] = limits;
    let start = [End::<S>::new(one, two), End::new(two, one)];
    let is_symmetric = one == two && habits.sends[0] == habits.sends[1];
    let key = |world: &World<S>| {
        let [a, b] = [world[0].encode(), world[1].encode()];
        if is_symmetric && b < a { [b, a] } else { [a, b] }
    };
    let mut findings = Findings::default();
    let mut seen = BTreeSet::from([key(&start)]);
    let mut open = vec![start];
    let mut next = Vec::new();
    while let Some(world) = open.pop() {
        next.clear();
        findings.has_receiver_not_ready |= steps(&world, &mut next) == Step::ReceiverNotReady;
        if next.is_empty() && world.iter().any(End::wants_to_send) {
            findings.stuck.push(Stuck { lent: world.iter().map(|end| end.lent).sum() });
        }
        wishes(&world, habits, &mut next);
        open.extend(next.drain(..).filter(|world| seen.insert(key(world))));
    }
    findings.states = seen.len();
    findings
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Fine,
    ReceiverNotReady,
}

/// Steps that the two ends and the wire take without anybody's help.
fn steps<S: Scheme>(world: &World<S>, next: &mut Vec<World<S>>) -> Step {
    for at in 0..2 {
        if let Some(kind) = world[at].next_kind() {
            let mut after = world.clone();
            let header = after[at].scheme.send(kind);
            after[at].on_sent(kind);
            after[1 - at].inbox.push_back(header);
            next.push(after);
        }
        if let Some(header) = world[at].inbox.front() {
            if world[at].posted == 0 {
                return Step::ReceiverNotReady;
            }
            let mut after = world.clone();
            let end = &mut after[at];
            end.inbox.pop_front();
            if !end.scheme.receive(header) {
                next.push(after);
                continue;
            }
            if end.lent < end.lent_max {
                let mut lending = after.clone();
                lending[at].posted -= 1;
                lending[at].lent += 1;
                next.push(lending);
            }
            after[at].scheme.post_data();
            next.push(after);
        }
    }
    Step::Fine
}

/// Steps that the applications may take, or never take.
fn wishes<S: Scheme>(world: &World<S>, habits: Habits, next: &mut Vec<World<S>>) {
    for at in 0..2 {
        let end = &world[at];
        let mut wish = |is_possible: bool, change: &dyn Fn(&mut End<S>)| {
            if is_possible {
                let mut after = world.clone();
                change(&mut after[at]);
                next.push(after);
            }
        };
        let is_open = end.close == Close::Open && habits.sends[at];
        wish(is_open && !end.has_data, &|end| end.has_data = true);
        wish(is_open && !end.has_control && habits.has_control, &|end| end.has_control = true);
        wish(is_open && habits.has_close, &|end| end.close = Close::Wanted);
        wish(end.lent > 0, &|end| {
            end.lent -= 1;
            end.posted += 1;
            end.scheme.post_data();
        });
    }
}

fn limits(slot_count: u32, control_slot_count: u8, reserve: u32) -> Limits {
    Limits { slot_count, control_slot_count, reserve }
}

/// Both ends send and close.
const DUPLEX: Habits = Habits { sends: [true, true], has_control: false, has_close: true };
/// Both ends send on both lanes and close.
const DUPLEX_LANES: Habits = Habits { has_control: true, ..DUPLEX };
/// One end sends on both lanes and closes; the other only gives credit.
const ONE_WAY: Habits = Habits { sends: [true, false], ..DUPLEX_LANES };

fn assert_clean(limits: [Limits; 2], habits: Habits) {
    let findings = search::<CreditEngine>(limits, habits);
    assert!(findings.is_clean(), "{limits:?}: {findings:?}");
    assert!(findings.states > 100, "{limits:?}: the search went nowhere");
}

#[test]
fn no_order_of_events_stops_two_ends_with_one_or_two_slots() {
    for (n, r) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        assert_clean([limits(n, r, 0); 2], DUPLEX);
    }
}

#[test]
fn no_order_of_events_stops_two_ends_with_three_slots() {
    assert_clean([limits(3, 1, 0); 2], DUPLEX);
    assert_clean([limits(3, 2, 0); 2], DUPLEX);
}

#[test]
fn no_order_of_events_stops_ends_that_differ() {
    assert_clean([limits(1, 1, 0), limits(2, 2, 0)], DUPLEX);
    assert_clean([limits(2, 1, 1), limits(1, 2, 0)], DUPLEX_LANES);
}

#[test]
fn no_order_of_events_stops_an_end_that_keeps_a_reserve() {
    for (n, r) in [(2, 1), (2, 2)] {
        assert_clean([limits(n, r, 1); 2], DUPLEX_LANES);
    }
    for (n, r, reserve) in [(3, 1, 1), (3, 2, 2), (4, 1, 1), (4, 2, 1), (8, 1, 2), (8, 2, 2)] {
        assert_clean([limits(n, r, reserve); 2], ONE_WAY);
    }
}

#[test]
fn a_shared_window_deadlocks() {
    for n in 1..=3 {
        let findings = search::<SharedWindow>([limits(n, 1, 0); 2], DUPLEX);
        assert!(findings.is_deadlocked(), "N = {n}: {findings:?}");
    }
}

#[test]
fn a_close_in_a_control_slot_deadlocks() {
    for (n, r) in [(1, 1), (2, 1), (2, 2)] {
        let findings = search::<CloseInControlSlot>([limits(n, r, 0); 2], DUPLEX);
        assert!(findings.is_deadlocked(), "N = {n}, R = {r}: {findings:?}");
    }
}

#[test]
fn a_reserve_that_never_yields_deadlocks() {
    for (n, r, reserve) in [(2, 1, 1), (3, 1, 1), (3, 1, 2), (3, 2, 2)] {
        let findings = search::<RigidReserve>([limits(n, r, reserve); 2], ONE_WAY);
        assert!(findings.is_deadlocked(), "N = {n}, R = {r}, reserve {reserve}: {findings:?}");
    }
}

#[test]
fn a_reserve_unknown_to_the_receiver_waits_for_the_application() {
    let findings = search::<UnknownReserve>([limits(4, 1, 1); 2], ONE_WAY);
    assert!(!findings.is_clean() && findings.stuck.iter().all(|stuck| stuck.lent > 0));
}
