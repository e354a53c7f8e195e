//! P13: with every queue at its bound nothing stops for good, and nothing grows. The bounds
//! themselves are checked after every event, by the oracle.

use std::time::Duration;

use convoke_overlay::{BroadcastError, OverlayNode};
use convoke_overlay::{Life, Limits, LinkEvent, NodeConfig, Order, Site, SiteSet};

use crate::plans::{cycle, mixed, spread};
use crate::world::{Conditions, Event, World, incarnation};

const SECOND: Duration = Duration::from_secs(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Everything is as small as it may be.
fn tight(config: &mut NodeConfig) {
    let limits = &mut config.limits;
    limits.payload_bytes_max = 200_000;
    limits.unacked_bytes_max = 200_000;
    limits.reorder_bytes_max = 40_000;
    limits.undelivered_bytes_max = 200_000;
    limits.relay_bytes_root_max = 66_000;
    limits.memory_bytes_max = 0;
    limits.held_bytes_max = 200_000;
    limits.fetches_max = 4;
    limits.repairs_queued_max = 4;
}

fn tight_limits() -> Limits {
    let mut config = NodeConfig::new(Site(0), 1, incarnation(Site(0), 1));
    tight(&mut config);
    config.limits
}

fn tight_world(seed: u64, sites: usize, configure: fn(&mut NodeConfig)) -> World {
    let conditions = Conditions {
        uplink: Some(50_000),
        link_bytes: 40_000,
        jitter: ms(15),
        ..Conditions::calm(sites)
    };
    let mut world = World::new(seed, conditions, configure);
    world.oracle.limits = tight_limits();
    world
}

/// Every site has more to send than it may, from the start.
fn load_all(world: &mut World, operations: usize) {
    for from in world.sites().collect::<Vec<_>>() {
        for round in 0..operations {
            let len = [70_000, 3_000, 200_000, 900, 30_000][round % 5];
            world.after(ms(50), Event::Broadcast { from, len });
        }
    }
}

fn assert_drained(world: &World, operations: usize, receivers: SiteSet) {
    let all = SiteSet::first(world.conditions.sites);
    assert_eq!(world.oracle.ops.len(), operations * world.conditions.sites);
    for from in all.iter() {
        let life = Life::of(incarnation(from, 1));
        assert_eq!(world.oracle.missing(from, life, receivers), vec![]);
        let load = world.node(from).unwrap().load();
        assert_eq!((load.unacked_bytes, load.forward_bytes, load.queued), (0, 0, 0), "{from:?}");
    }
}

#[test]
fn a_cycle_of_relays_drains_with_every_queue_at_its_bound() {
    let configures: [fn(&mut NodeConfig); 2] = [tight, |config| {
        tight(config);
        config.order = Order::SourceFifo;
    }];
    for (seed, plan) in
        [cycle(5, 1, 40_000), spread(5, 1, 8_000), mixed(5, 1, 8_000)].iter().enumerate()
    {
        for configure in configures {
            let mut world = tight_world(seed as u64, 5, configure);
            world.oracle.may_wait = true;
            world.set_plan(plan);
            load_all(&mut world, 20);
            world.run_until(120 * SECOND);
            assert_drained(&world, 20, SiteSet::first(5));
            assert_eq!(world.oracle.gaps.len(), 0);
            let nodes = world.sites().map(|site| world.node(site).unwrap().counters());
            assert!(nodes.into_iter().all(|counters| counters.relay_overruns == 0));
        }
    }
}

/// The sender fills its bounds, but loses no time to the one that does not read: nobody else waits
/// for it.
#[test]
fn a_site_that_does_not_read_stops_neither_those_behind_it_nor_the_others_for_good() {
    let mut world = tight_world(3, 5, tight);
    world.set_plan(&cycle(5, 1, 40_000));
    let slow = Site(1);
    // It relays for the first, and is a receiver of all.
    world.after(ms(200), Event::Read { site: slow, is_reading: false });
    load_all(&mut world, 20);
    world.run_until(1_000 * SECOND);
    let others = SiteSet::first(5).without(slow);
    for from in others.iter() {
        let life = Life::of(incarnation(from, 1));
        assert_eq!(world.oracle.missing(from, life, others), vec![], "but for what it is not owed");
        assert_eq!(world.node(from).unwrap().load().unacked_bytes, 0, "it is given up in time");
    }
    let missed = world.oracle.ops.values().filter(|op| op.done.is_some_and(|it| it.contains(slow)));
    assert!(missed.count() > 0);
    // It reads again, is told what it missed, and takes part again.
    world.handle(Event::Read { site: slow, is_reading: true });
    world.run_until(1_030 * SECOND);
    assert!(!world.oracle.gaps.is_empty());
    // It has heard no acknowledgement either.
    let concerned = |(at, source, _): &(Site, Site, Life)| [*at, *source].contains(&slow);
    assert!(world.oracle.gaps.keys().all(concerned), "{:?}", world.oracle.gaps);
    load_all(&mut world, 2);
    world.run_until(1_100 * SECOND);
    let last =
        |op: &&crate::oracle::Op| op.at.since(convoke_core::time::Timestamp::ZERO) > 1_029 * SECOND;
    let mut last = world.oracle.ops.values().filter(last);
    assert!(last.all(|op| op.done == Some(SiteSet::EMPTY)));
}

#[test]
fn a_slow_reader_slows_and_stops_nothing() {
    let mut world = tight_world(4, 4, tight);
    world.set_plan(&spread(4, 1, 8_000));
    load_all(&mut world, 20);
    for round in 0..300 {
        let is_reading = round % 2 == 1;
        world.after(ms(100 + 90 * round), Event::Read { site: Site(2), is_reading });
    }
    world.run_until(200 * SECOND);
    assert_drained(&world, 20, SiteSet::first(4));
}

/// A source that may have 200 kB unacknowledged waits for nobody who takes less than that in the 30
/// s that an operation waits: 53 kbit/s.
fn throttled_world(seed: u64, downlink: Option<(Site, u64)>) -> World {
    let mut world = tight_world(seed, 5, tight);
    world.conditions.downlink = downlink;
    world.conditions.link_bytes = 8_000;
    world.set_plan(&cycle(5, 1, 40_000));
    world
}

fn load_one(world: &mut World, operations: usize) {
    (0..operations)
        .for_each(|_| world.after(ms(50), Event::Broadcast { from: Site(0), len: 3_000 }));
}

/// All but one have the whole load of the first site.
fn expect_all_but(world: &World, slow: Site, seed: u64) {
    let others = SiteSet::first(5).without(Site(0)).without(slow);
    let life = Life::of(incarnation(Site(0), 1));
    assert_eq!(world.oracle.ops.len(), 2_000, "seed {seed}");
    assert_eq!(world.oracle.missing(Site(0), life, others), vec![], "seed {seed}");
}

#[test]
fn a_receiver_that_takes_a_little_now_and_then_holds_up_the_others_as_briefly_as_a_silent_one() {
    for seed in 0..4 {
        let slow = Site(1 + u16::try_from(seed).unwrap());
        let mut world = throttled_world(seed, Some((slow, 6)));
        world.oracle.may_wait = true;
        load_one(&mut world, 2_000);
        world.run_until(60 * SECOND);
        expect_all_but(&world, slow, seed);
    }
}

#[test]
fn a_receiver_that_acknowledges_floors_alone_holds_up_nobody_again() {
    for seed in 0..4 {
        let slow = Site(1 + u16::try_from(seed).unwrap());
        let mut world = throttled_world(seed, None);
        world.oracle.may_wait = true;
        world.after(ms(10), Event::Take { site: slow, is_taking: false });
        load_one(&mut world, 2_000);
        world.run_until(60 * SECOND);
        expect_all_but(&world, slow, seed);
        // It takes part again once it takes what it has.
        world.handle(Event::Take { site: slow, is_taking: true });
        world.run_until(100 * SECOND);
        load_one(&mut world, 100);
        world.run_until(200 * SECOND);
        let last = world.oracle.ops.values().rev().take(100);
        assert!(last.into_iter().all(|op| op.done == Some(SiteSet::EMPTY)), "seed {seed}");
    }
}

#[test]
fn a_receiver_that_is_slow_and_takes_what_it_is_sent_in_time_misses_nothing() {
    for seed in 0..4 {
        let slow = Site(1 + u16::try_from(seed).unwrap());
        let mut world = throttled_world(seed, Some((slow, 120)));
        load_one(&mut world, 600);
        world.run_until(300 * SECOND);
        assert_eq!(world.oracle.ops.len(), 600);
        let missed = world.oracle.ops.values().filter(|op| op.done != Some(SiteSet::EMPTY));
        assert_eq!(missed.count(), 0, "seed {seed}");
        assert!(world.oracle.gaps.is_empty());
    }
}

/// Frames that wait for one that is stuck do not take the credit that serves the others.
#[test]
fn a_receiver_that_is_stuck_does_not_stop_its_relays() {
    let mut world = tight_world(8, 5, |config| {
        config.limits.relay_bytes_root_max = 66_000;
        config.limits.memory_bytes_max = 0;
    });
    world.oracle.limits = Limits::default();
    world.set_plan(&cycle(5, 1, 40_000));
    world.after(ms(10), Event::Read { site: Site(4), is_reading: false });
    for round in 0..300 {
        world.after(ms(50 + 20 * round), Event::Broadcast { from: Site(0), len: 3_000 });
    }
    // Its link is found stuck after a second; afterwards nothing waits at the relay.
    world.run_until(8 * SECOND);
    let relayed = world.oracle.sent.relayed;
    assert_eq!(world.node(Site(1)).unwrap().load().forward_bytes, 0);
    assert!(relayed > 200, "{relayed} of 300 went by the relay");
    world.handle(Event::Read { site: Site(4), is_reading: true });
    world.run_until(60 * SECOND);
    for op in world.oracle.ops.values() {
        assert_eq!(op.done, Some(SiteSet::EMPTY));
    }
}

/// An application that takes nothing stops its own site only: that site goes on to relay.
#[test]
fn an_application_that_takes_nothing_harms_no_other_site() {
    let mut world = tight_world(5, 4, tight);
    world.oracle.may_wait = true;
    world.set_plan(&cycle(4, 1, 40_000));
    world.after(ms(10), Event::Take { site: Site(1), is_taking: false });
    load_all(&mut world, 10);
    world.run_until(20 * SECOND);
    let others = SiteSet::first(4).without(Site(1));
    let given = world.oracle.ops.values().filter(|op| op.delivered.contains_key(&Site(2)));
    assert!(given.count() >= 5, "what fits in the bounds has come to the others");
    assert!(world.oracle.ops.values().all(|op| !op.delivered.contains_key(&Site(1))));
    world.run_until(600 * SECOND);
    for from in others.iter() {
        let life = Life::of(incarnation(from, 1));
        assert_eq!(world.oracle.missing(from, life, others), vec![]);
    }
    // It takes again: its own broadcasts had waited for their acknowledgements to be taken.
    world.handle(Event::Take { site: Site(1), is_taking: true });
    world.run_until(700 * SECOND);
    load_all(&mut world, 1);
    world.run_until(800 * SECOND);
    assert!(world.oracle.ops.values().all(|op| op.done.is_some()));
}

#[test]
fn a_site_that_is_down_holds_nobody_up() {
    let mut world = tight_world(6, 4, tight);
    world.set_plan(&cycle(4, 1, 40_000));
    world.after(ms(20), Event::Crash(Site(3)));
    load_all(&mut world, 20);
    world.run_until(30 * SECOND);
    let live = SiteSet::first(4).without(Site(3));
    for from in live.iter() {
        let life = Life::of(incarnation(from, 1));
        assert_eq!(world.oracle.missing(from, life, live), vec![]);
        assert_eq!(world.node(from).unwrap().load().unacked_bytes, 0);
    }
}

#[test]
fn what_a_source_owes_to_a_site_that_others_reach_comes_by_them_at_once() {
    let mut world = World::new(1, Conditions::calm(4), |_| {});
    world.after(ms(100), Event::Cut(Site(0), Site(3)));
    for round in 0..20 {
        world.after(ms(200 + 500 * round), Event::Broadcast { from: Site(0), len: 50_000 });
        world.after(ms(200 + 500 * round), Event::Broadcast { from: Site(3), len: 500 });
    }
    world.after(ms(9_000), Event::Join(Site(0), Site(3)));
    world.run_until(20 * SECOND);
    for op in world.oracle.ops.values() {
        assert_eq!(op.done, Some(SiteSet::EMPTY), "nobody missed it");
        let last = op.delivered.values().max().unwrap().since(op.at);
        assert!(last <= ms(60), "two hops of 20 ms: {last:?}");
    }
    assert!(world.oracle.gaps.is_empty());
}

/// Two sites have lost their link, and one of the others brings nothing of theirs.
#[test]
fn one_that_passes_nothing_on_does_not_keep_two_apart() {
    for liar in [1, 2, 4] {
        let drops = SiteSet::EMPTY.with(Site(liar));
        let mut world = World::new(1, Conditions { drops, ..Conditions::calm(5) }, |_| {});
        world.after(ms(100), Event::Cut(Site(0), Site(3)));
        for round in 0..20 {
            world.after(ms(200 + 500 * round), Event::Broadcast { from: Site(0), len: 50_000 });
            world.after(ms(200 + 500 * round), Event::Broadcast { from: Site(3), len: 500 });
        }
        world.run_until(60 * SECOND);
        for (id, op) in &world.oracle.ops {
            assert_eq!(op.done, Some(SiteSet::EMPTY), "{id:?} with {liar}: nobody missed it");
            let last = op.delivered.values().max().unwrap().since(op.at);
            assert!(last <= ms(1_500), "{id:?} with {liar}: {last:?}");
        }
    }
}

#[test]
fn what_a_site_without_any_link_misses_comes_when_it_is_back_also_late() {
    for (away, is_in_time) in [(ms(4_000), true), (ms(8_000), false), (ms(30_000), false)] {
        let conditions = Conditions { uplink: Some(20_000), ..Conditions::calm(4) };
        let answer_at_once = |config: &mut NodeConfig| config.limits.repair_rate_min = 20_000;
        let mut world = World::new(1, conditions, answer_at_once);
        for peer in [0, 1, 2] {
            world.after(ms(100), Event::Cut(Site(peer), Site(3)));
            world.after(ms(100) + away, Event::Join(Site(peer), Site(3)));
        }
        // Of the first a part has come by the time that the links are lost.
        world.after(ms(30), Event::Broadcast { from: Site(0), len: 150_000 });
        for round in 0..20 {
            world.after(ms(200 + 10 * round), Event::Broadcast { from: Site(0), len: 50_000 });
        }
        world.run_until(20 * SECOND + away);
        let has = world.oracle.ops.values().filter(|op| op.delivered.contains_key(&Site(3)));
        assert_eq!(has.count(), 21);
        assert!(world.oracle.gaps.is_empty());
        // Its source had ceased to owe it, but still kept it.
        let missed = if is_in_time { SiteSet::EMPTY } else { SiteSet::EMPTY.with(Site(3)) };
        assert!(world.oracle.ops.values().all(|op| op.done == Some(missed)));
    }
}

/// Without a plan answers come at 1 Mbit/s, and what is asked for last is sent after all else.
#[test]
fn what_a_site_missed_comes_however_long_the_others_take_to_send_it() {
    for seed in 0..4 {
        let mut world =
            World::new(seed, Conditions { jitter: ms(5), ..Conditions::calm(4) }, |_| {});
        for peer in [0, 1, 2] {
            world.after(ms(100), Event::Cut(Site(peer), Site(3)));
            world.after(ms(30_100), Event::Join(Site(peer), Site(3)));
        }
        for round in 0..100 {
            for from in [0, 1] {
                world.after(
                    ms(200 + 10 * round),
                    Event::Broadcast { from: Site(from), len: 50_000 },
                );
            }
        }
        world.run_until(200 * SECOND);
        let has = world.oracle.ops.values().filter(|op| op.delivered.contains_key(&Site(3)));
        assert_eq!(has.count(), 200, "seed {seed}: {:?}", world.oracle.gaps);
        assert!(world.oracle.gaps.is_empty());
    }
}

/// Bad input: an error that says what to do, and nothing else.
#[test]
fn what_cannot_be_broadcast_is_refused_by_name() {
    let (now, mut config) =
        (Default::default(), NodeConfig::new(Site(0), 2, incarnation(Site(0), 1)));
    tight(&mut config);
    let mut node = OverlayNode::new(now, config).unwrap();
    node.handle_link(now, Site(1), LinkEvent::Up { incarnation: incarnation(Site(1), 1) });
    let too_large = BroadcastError::TooLarge { size: 200_001, limit: 200_000 };
    assert_eq!(node.broadcast(now, vec![0; 200_001].into()), Err(too_large));
    assert!(node.broadcast(now, vec![0; 150_000].into()).is_ok());
    assert!(!node.is_ready(60_000) && node.is_ready(50_000));
    assert_eq!(node.broadcast(now, vec![0; 60_000].into()), Err(BroadcastError::NotReady));
    // Without a link the other is not waited for.
    node.handle_link(now, Site(1), LinkEvent::Down);
    assert!(node.broadcast(now, vec![0; 60_000].into()).is_ok());
}
