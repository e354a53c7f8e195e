//! P12: a relay that crashes at any moment, and a source that does.

use std::time::Duration;

use convoke_core::time::Timestamp;
use convoke_overlay::{Life, NodeConfig, OpId, Plan, Site, SiteSet};

use crate::plans::{cycle, direct, mixed, spread, through};
use crate::world::{Conditions, Event, World, incarnation};

const ROOT: Site = Site(0);
const RELAY: Site = Site(1);
const TIMER: Duration = Duration::from_millis(300);
const LATENCY: Duration = Duration::from_millis(20);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn live() -> SiteSet {
    SiteSet::first(4).without(RELAY)
}

fn configure(config: &mut NodeConfig) {
    config.limits.relay_timer_initial = TIMER;
}

/// The root broadcasts a little of everything by way of relays, over uplinks that take some time.
fn start(plan: &Plan, notice: Duration) -> World {
    let uplink = Some(200_000);
    let conditions = Conditions { uplink, notice, ..Conditions::calm(4) };
    let mut world = World::new(5, conditions, configure);
    world.set_plan(plan);
    for (round, len) in [5_000, 80_000, 500, 30_000, 60_000, 2_000].into_iter().enumerate() {
        world.after(ms(50 + 8 * round as u64), Event::Broadcast { from: ROOT, len });
        let from = Site(2);
        world.after(ms(53 + 8 * round as u64), Event::Broadcast { from, len: len / 2 });
    }
    world
}

/// Payload bytes that those who are alive have not acknowledged.
fn unacked(world: &World, dead: SiteSet) -> u64 {
    let of = |(id, op): (&OpId, &crate::oracle::Op)| {
        let owed = SiteSet::first(4).without(id.source).difference(op.acked).difference(dead);
        (op.payload.len() * owed.len()) as u64
    };
    world.oracle.ops.iter().map(of).sum()
}

/// Crashes the relay before one step. Whether the run has so many.
fn crash_at(step: u64, plan: &Plan, notice: Duration) -> bool {
    let mut world = start(plan, notice);
    while world.steps < step {
        if world.oracle.ops.len() == 12 && world.oracle.ops.values().all(|op| op.done.is_some()) {
            return false;
        }
        if !world.step() {
            return false;
        }
    }
    let dead = SiteSet::EMPTY.with(RELAY);
    let (crashed_at, before) = (world.now, unacked(&world, dead));
    let known = world.oracle.ops.len();
    world.crash(RELAY);
    world.run_until(Duration::from_secs(16));
    // Everything comes, and in time.
    for (id, op) in &world.oracle.ops {
        let life = Life::of(incarnation(id.source, 1));
        assert_eq!(world.oracle.missing(id.source, life, live()), vec![], "step {step}");
        let last = *op.delivered.values().max().unwrap();
        // The uplink needs 20 ms for all there is, and a timer that was measured has its margin.
        let queue = ms(60);
        let due = op.at.max(crashed_at) + TIMER + LATENCY + queue;
        assert!(last <= due, "step {step}: {id:?} came {:?} late", last - due);
        assert!(op.done.is_some(), "step {step}: {id:?} has no end");
    }
    // And not more is sent again than was unacknowledged, or sent since.
    let new: u64 = world
        .oracle
        .ops
        .values()
        .filter(|op| op.at >= crashed_at)
        .map(|op| op.payload.len() as u64 * 2)
        .sum();
    let resent = world.oracle.resent_to(live());
    assert!(resent <= before + new, "step {step} of {known}: {resent} of {before} + {new}");
    true
}

fn crash_at_every_step(plan: &Plan, notice: Duration) {
    let steps = (0..).take_while(|step| crash_at(*step, plan, notice)).count();
    assert!(steps > 100, "{steps} steps");
}

#[test]
fn a_relay_may_crash_at_any_step_when_its_links_say_so_at_once() {
    crash_at_every_step(&cycle(4, 1, 1_000_000), ms(1));
}

#[test]
fn a_relay_may_crash_at_any_step_without_a_word() {
    crash_at_every_step(&cycle(4, 1, 1_000_000), Duration::from_secs(8));
}

#[test]
fn a_relay_of_many_may_crash_at_any_step() {
    crash_at_every_step(&spread(4, 1, 300_000), Duration::from_secs(8));
    crash_at_every_step(&mixed(4, 1, 300_000), ms(40));
}

/// The relay acknowledges, and dies before it has forwarded. The thesis' root would believe that
/// all have it.
#[test]
fn what_a_relay_has_acknowledged_and_not_forwarded_is_sent_again() {
    let mut world =
        World::new(1, Conditions { uplink: Some(8_000), ..Conditions::calm(4) }, configure);
    world.set_plan(&cycle(4, 1, 1_000_000));
    world.after(ms(100), Event::Broadcast { from: ROOT, len: 50_000 });
    let is_acked = |world: &World| world.oracle.ops.values().any(|op| op.acked.contains(RELAY));
    while !is_acked(&world) {
        assert!(world.step());
    }
    let delivered = world.oracle.ops.values().next().unwrap().delivered.len();
    assert_eq!(delivered, 1, "the relay alone has it");
    world.crash(RELAY);
    world.run_until(Duration::from_secs(10));
    let op = world.oracle.ops.values().next().unwrap();
    assert!(op.delivered.contains_key(&Site(2)) && op.delivered.contains_key(&Site(3)));
    assert_eq!(world.oracle.sent.repair_payload, 100_000);
}

#[test]
fn a_silent_relay_is_suspected_avoided_and_trusted_again_when_it_is_back() {
    let conditions = Conditions { notice: Duration::from_secs(100), ..Conditions::calm(4) };
    let mut world = World::new(1, conditions, configure);
    world.set_plan(&cycle(4, 1, 1_000_000));
    world.set_contingency(RELAY, &without_relay());
    for round in 0..1_000 {
        world.after(ms(100 + 10 * round), Event::Broadcast { from: ROOT, len: 5_000 });
    }
    world.after(ms(1_000), Event::Read { site: RELAY, is_reading: false });
    world.after(ms(4_000), Event::Read { site: RELAY, is_reading: true });
    world.run_until(ms(3_900));
    assert_eq!(world.node(ROOT).unwrap().suspects(), SiteSet::EMPTY.with(RELAY));
    let (suspected_at, ..) = world.oracle.suspects[0];
    let since = suspected_at - (Timestamp::ZERO + ms(1_000));
    assert!(since < TIMER, "the timer follows what was measured: {since:?}");
    // All but the relay itself go on meanwhile, by the contingency plan.
    let third = |op: &&crate::oracle::Op| op.delivered.contains_key(&Site(3));
    assert!(world.oracle.ops.values().filter(third).count() > 370);
    world.run_until(Duration::from_secs(20));
    assert_eq!(world.node(ROOT).unwrap().suspects(), SiteSet::EMPTY);
    assert_eq!(world.oracle.trusted.len(), 1);
    let life = Life::of(incarnation(ROOT, 1));
    assert_eq!(world.oracle.missing(ROOT, life, SiteSet::first(4)), vec![]);
}

fn without_relay() -> Plan {
    let mut trees: Vec<Vec<_>> = (0..4).map(|root| vec![through(4, root, 3, 1_000_000)]).collect();
    trees[3] = vec![direct(1_000_000)];
    Plan::fixed(1, trees).unwrap()
}

/// A receiver that says nothing is not its relay's fault.
#[test]
fn a_silent_receiver_makes_nobody_suspect_its_relay() {
    let conditions = Conditions { notice: Duration::from_secs(100), ..Conditions::calm(4) };
    let mut world = World::new(1, conditions, configure);
    world.set_plan(&cycle(4, 1, 1_000_000));
    for round in 0..300 {
        world.after(ms(100 + 10 * round), Event::Broadcast { from: ROOT, len: 5_000 });
    }
    world.after(ms(1_000), Event::Read { site: Site(3), is_reading: false });
    world.run_until(ms(3_000));
    assert_eq!(world.oracle.suspects, vec![]);
    world.handle(Event::Read { site: Site(3), is_reading: true });
    world.run_until(Duration::from_secs(20));
    let life = Life::of(incarnation(ROOT, 1));
    assert_eq!(world.oracle.missing(ROOT, life, SiteSet::first(4)), vec![]);
}

/// The source dies with an operation half sent: whoever is told of it gets it from whoever has it.
#[test]
fn what_a_dead_source_sent_to_some_is_pulled_by_the_others() {
    for is_told in [false, true] {
        let mut world =
            World::new(1, Conditions { uplink: Some(8_000), ..Conditions::calm(4) }, |_| {});
        world.after(ms(100), Event::Broadcast { from: ROOT, len: 20_000 });
        world.after(ms(105), Event::Broadcast { from: ROOT, len: 200 });
        // 60 KB need 60 ms: the first copy leaves, the others do not.
        world.after(ms(150), Event::Crash(ROOT));
        world.run_until(ms(400));
        let op = *world.oracle.ops.keys().next().unwrap();
        assert_eq!(op, OpId { source: ROOT, life: Life::of(incarnation(ROOT, 1)), seq: 0 });
        let has = world.oracle.ops[&op].delivered.len();
        assert!((1..3).contains(&has), "{has} have it");
        if is_told {
            world.sites().skip(1).collect::<Vec<_>>().into_iter().for_each(|at| {
                world.handle(Event::Fetch { at, op });
            });
        }
        world.run_until(Duration::from_secs(10));
        let has = world.oracle.ops[&op].delivered.len();
        assert!(if is_told { has == 3 } else { has >= 1 }, "{has} have it");
    }
}

/// A hole in the stream of a dead source shows by itself.
#[test]
fn a_hole_in_the_stream_of_a_dead_source_is_pulled_without_being_told() {
    let mut world = World::new(1, Conditions::calm(4), |config| {
        config.order = convoke_overlay::Order::SourceFifo;
    });
    world.oracle.is_fifo = true;
    world.oracle.may_wait = true;
    for peer in [0, 1, 2] {
        world.after(ms(100), Event::Cut(Site(peer), Site(3)));
        world.after(ms(300), Event::Join(Site(peer), Site(3)));
    }
    world.after(ms(200), Event::Broadcast { from: ROOT, len: 150_000 });
    // The second, which is small, comes to all; the first to the third site only in part.
    world.after(ms(295), Event::Broadcast { from: ROOT, len: 800 });
    world.after(ms(330), Event::Crash(ROOT));
    world.run_until(ms(298));
    world.conditions.uplink = Some(20_000);
    world.run_until(ms(400));
    let (first, second) = {
        let mut ids = world.oracle.ops.keys().copied();
        (ids.next().unwrap(), ids.next().unwrap())
    };
    assert!(!world.oracle.has(Site(3), first) && !world.oracle.has(Site(3), second));
    world.run_until(Duration::from_secs(10));
    assert!(world.oracle.has(Site(3), first) && world.oracle.has(Site(3), second));
}

#[test]
fn what_nobody_has_is_said_to_be_unavailable() {
    let mut world = World::new(1, Conditions::calm(3), |_| {});
    let op = OpId { source: Site(2), life: Life(99), seq: 5 };
    world.after(ms(100), Event::Fetch { at: ROOT, op });
    world.run_until(Duration::from_secs(20));
    assert_eq!(world.oracle.unavailable, vec![(ROOT, op)]);
}
