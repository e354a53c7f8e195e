//! P11 under everything at once: each seed is another run with loss, copies, reordering, cuts,
//! crashes, restarts, sites that do not read, and plans that change at different times. Then the
//! faults end, and what is owed comes.

use std::ops::Range;
use std::time::Duration;

use convoke_overlay::{Life, NodeConfig, OpId, Order, SiteSet};
use convoke_sim::random::Random;

use crate::plans::{cycle, mixed, site, spread};
use crate::world::{Conditions, Event, World, incarnation};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const FAULTS_END: Duration = Duration::from_secs(20);

fn small(config: &mut NodeConfig) {
    config.limits.payload_bytes_max = 300_000;
    config.limits.unacked_bytes_max = 600_000;
    config.limits.reorder_bytes_max = 150_000;
    config.limits.undelivered_bytes_max = 400_000;
    config.limits.relay_bytes_root_max = 100_000;
    config.limits.memory_bytes_max = 0;
    config.limits.held_bytes_max = 1_000_000;
    config.limits.fetches_max = 8;
}

fn small_in_order(config: &mut NodeConfig) {
    small(config);
    config.order = Order::SourceFifo;
}

fn world(seed: u64) -> World {
    let mut random = Random::of(seed, 1);
    let sites = 2 + random.index(5);
    let conditions = Conditions {
        sites,
        latency: random.micros(1_000..80_000),
        jitter: random.micros(0..60_000),
        uplink: random.chance(70).then(|| random.within(10_000..200_000)),
        downlink: None,
        link_bytes: 20_000 + random.index(300_000),
        loss_per_mille: if random.chance(50) { 20 } else { 0 },
        copy_per_mille: if random.chance(50) { 50 } else { 0 },
        notice: random.micros(100..3_000_000),
        drops: SiteSet::EMPTY,
        // None of the seeds that have shown something is among these.
        reading: (seed % 6 > 3).then(|| Random::of(seed, 3).within(300..30_000)),
    };
    let is_fifo = random.chance(50);
    let configure = if is_fifo { small_in_order } else { small };
    let mut world = World::new(seed, conditions, configure);
    world.oracle.is_fifo = is_fifo;
    world.oracle.may_wait = true;
    world.oracle.may_stray = true;
    let mut config = NodeConfig::new(site(0), sites, incarnation(site(0), 1));
    small(&mut config);
    world.oracle.limits = config.limits;
    world
}

fn plan_faults(world: &mut World, seed: u64) {
    let mut random = Random::of(seed, 2);
    let sites = world.conditions.sites;
    let end = u64::try_from(FAULTS_END.as_micros()).unwrap();
    for _ in 0..random.index(12) {
        let (at, a, b) =
            (random.within(0..end), site(random.index(sites)), site(random.index(sites)));
        let (at, back) = (Duration::from_micros(at), random.micros(1_000..9_000_000));
        let (fault, repair) = match random.index(4) {
            0 => (Event::Crash(a), Event::Restart(a)),
            1 if a != b => (Event::Cut(a, b), Event::Join(a, b)),
            2 => (
                Event::Take { site: a, is_taking: false },
                Event::Take { site: a, is_taking: true },
            ),
            _ => (
                Event::Read { site: a, is_reading: false },
                Event::Read { site: a, is_reading: true },
            ),
        };
        world.after(at, fault);
        world.after(at + back, repair);
    }
    for _ in 0..60 {
        let len = [0, 300, 1_100, 20_000, 66_000, 250_000][random.index(6)];
        let (from, at) = (site(random.index(sites)), random.within(0..end));
        let to = SiteSet::from_bits(u128::from(random.within(0..1 << sites)));
        let event = match random.chance(40) {
            true => Event::Bring { from, len, to },
            false => Event::Broadcast { from, len },
        };
        world.after(Duration::from_micros(at), event);
    }
    // What is fetched comes out of its order, so only where there is none.
    for _ in 0..if world.oracle.is_fifo { 0 } else { 10 } {
        let (at, place) = (site(random.index(sites)), random.index(100));
        world.after(random.micros(0..2 * end), Event::FetchAny { at, place });
    }
    for epoch in 1..4 {
        let plans =
            [cycle(sites, epoch, 30_000), spread(sites, epoch, 9_000), mixed(sites, epoch, 9_000)];
        let plan = &plans[random.index(3)];
        let at = u64::from(epoch) * end / 4;
        for index in 0..sites {
            let at = Duration::from_micros(at + random.within(0..2_000_000));
            world.after(at, Event::Plan { at: site(index), plan: plan.clone() });
        }
    }
}

fn run(seed: u64) {
    println!("seed {seed}");
    let mut world = world(seed);
    plan_faults(&mut world, seed);
    world.run_until(FAULTS_END + Duration::from_secs(10));
    world.heal();
    // What the faults have delayed is acknowledged or given up.
    world.run_until(FAULTS_END + Duration::from_secs(120));
    let healed_at = world.now;
    let all = SiteSet::first(world.conditions.sites);
    for from in world.sites().collect::<Vec<_>>() {
        for round in 0..5 {
            world.after(ms(10 * round), Event::Broadcast { from, len: 40_000 });
            let to = all.without(from).without(site(0));
            world.after(ms(10 * round), Event::Bring { from, len: 40_000, to });
        }
    }
    world.run_until(FAULTS_END + Duration::from_secs(240));
    for from in all.iter() {
        let life = Life::of(incarnation(from, world.life(from)));
        let load = world.node(from).unwrap().load();
        assert_eq!((load.unacked_bytes, load.queued, load.forward_bytes), (0, 0, 0), "seed {seed}");
        // A receiver that restarted may have had it in an earlier life.
        let stable: SiteSet = all.iter().filter(|at| world.life(*at) == 1).collect();
        assert_eq!(
            world.oracle.missing(from, life, stable),
            vec![],
            "seed {seed} {:?}",
            world.oracle.gaps
        );
        let new =
            world.oracle.ops.iter().filter(|(id, op)| id.source == from && op.at >= healed_at);
        for (id, op) in new {
            assert_eq!(op.done, Some(SiteSet::EMPTY), "seed {seed}: {id:?}");
            let delivered: SiteSet = op.delivered.keys().copied().collect();
            assert_eq!(delivered, op.to, "seed {seed}: {id:?}");
        }
    }
}

#[test]
fn nothing_comes_twice_or_changed_and_what_is_owed_comes_whatever_fails() {
    // Of the last ones one each showed operations out of order, receivers that were full and heard
    // of nothing again for long, sites that were given up, and taken for deaf, for ever, and one
    // that asked for the rest of what it had again and again; two, that a lost floor stays lost;
    // one, that what was given up in part came out of order; and one, that what had come came
    // again once its source said that it was for others.
    let shown = [104, 187, 439, 667, 781, 1029, 2990, 3050, 21194, 21504];
    seeds().chain(shown).for_each(run);
}

/// The first seeds, or those of a range such as `4000..5500`: more for a change to the data plane,
/// with a release build.
fn seeds() -> Range<u64> {
    let text = std::env::var("CONVOKE_SEEDS").unwrap_or_else(|_| "40".to_owned());
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().expect("a number of seeds, or a range of them");
    number(from)..number(to)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let mut world = world(seed);
        plan_faults(&mut world, seed);
        world.run_until(FAULTS_END);
        (world.steps, world.oracle.sent)
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// A site that restarts is another source: what is in flight of its earlier life is not taken for
/// the present one's.
#[test]
fn an_earlier_life_of_a_source_is_not_confused_with_the_present_one() {
    let mut world = World::new(1, Conditions { jitter: ms(100), ..Conditions::calm(4) }, |_| {});
    world.set_plan(&cycle(4, 1, 1_000_000));
    let restarts = 5u16;
    for life in 0..restarts {
        let start = 1_000 * u64::from(life);
        for round in 0..10 {
            world.after(
                ms(start + 300 + 15 * round),
                Event::Broadcast { from: site(0), len: 2_000 + usize::from(life) },
            );
        }
        world.after(ms(start + 450), Event::Crash(site(0)));
        world.after(ms(start + 500), Event::Restart(site(0)));
    }
    world.run_until(Duration::from_secs(30));
    // The oracle has compared every payload. Of each life something has come, under its own name.
    for life in 1..=restarts {
        let life = Life::of(incarnation(site(0), life.into()));
        let came =
            world.oracle.ops.iter().filter(|(id, op)| id.life == life && !op.delivered.is_empty());
        assert!(came.count() > 0);
    }
    // And what some have of an earlier life, the others can still ask for.
    let lives = Life::of(incarnation(site(0), 2));
    let some: Vec<OpId> = world
        .oracle
        .ops
        .iter()
        .filter(|(id, op)| id.life == lives && !op.delivered.is_empty())
        .map(|(id, _)| *id)
        .collect();
    for op in &some {
        (1..4).for_each(|at| world.handle(Event::Fetch { at: site(at), op: *op }));
    }
    world.run_until(Duration::from_secs(60));
    assert!(some.iter().all(|op| world.oracle.ops[op].delivered.len() == 3));
}
