//! A seed decides everything.

use convoke_sim::scenario::Kind;
use convoke_sim::swarm;
use convoke_sim::trace::Trace;
use convoke_sim::world::World;

#[test]
fn the_same_seed_gives_the_same_run() {
    for kind in Kind::ALL {
        for seed in 0..5 {
            let first = swarm::run(seed, Some(kind)).unwrap();
            let second = swarm::run(seed, Some(kind)).unwrap();
            assert_eq!(first, second, "seed {seed}, {}", kind.name());
        }
    }
}

#[test]
fn a_trace_with_lines_is_the_same_run() {
    let scenario = swarm::scenario(3, Some(Kind::Storm));
    let (quiet, _) = World::new(scenario.clone(), Trace::hash_only()).run();
    let (told, trace) = World::new(scenario, Trace::with_lines()).run();
    assert_eq!(quiet, told);
    assert!(trace.lines().lines().count() > 100);
}

#[test]
fn different_seeds_give_different_runs() {
    let hash = |seed| swarm::run(seed, Some(Kind::Calm)).unwrap().hash;
    assert_ne!(hash(1), hash(2));
}
