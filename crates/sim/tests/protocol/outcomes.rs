//! As long as nothing is lost, how a call ends does not depend on how its frames travelled (I7),
//! nor on how many requests carry the entry of a task that ends with them (I25).

use convoke_sim::scenario::{Kind, Scenario};
use convoke_sim::trace::Trace;
use convoke_sim::world::{Outcome, World};

fn outcomes(scenario: &Scenario) -> Vec<Outcome> {
    let (result, _) = World::new(scenario.clone(), Trace::hash_only()).run();
    result.unwrap_or_else(|violation| panic!("seed {}: {violation}", scenario.seed)).outcomes
}

/// Whole trees: a quorum is decided by whoever answers first, and what a failed task takes with it
/// may have answered before or not.
fn whole_trees(seed: u64) -> Scenario {
    let mut scenario = Scenario::with_kind(Kind::Calm, seed);
    scenario.streams_requests = false; // Items rely on the order of frames.
    scenario.workload.quorum_percent = 0;
    scenario.workload.decided_percent = 0;
    scenario.shape.failure_percent = 0;
    scenario
}

#[test]
fn the_order_of_frames_does_not_change_an_outcome() {
    for seed in 0..100 {
        let calm = whole_trees(seed);
        let mut disordered = calm.clone();
        disordered.network_seed = seed + 1_000_000;
        disordered.conditions.is_fifo = false;
        disordered.conditions.copies_per_mille = 200;
        disordered.conditions.jitter_us = 10_000;
        disordered.limits.worry_min = std::time::Duration::from_secs(60);
        disordered.limits.worry_max = std::time::Duration::from_secs(60);
        assert_eq!(outcomes(&calm), outcomes(&disordered), "seed {seed}");
    }
}

#[test]
fn the_number_of_carried_copies_does_not_change_an_outcome() {
    for seed in 0..100 {
        let with_copies = |carry_copies| {
            let mut scenario = whole_trees(seed);
            scenario.limits.carry_copies = carry_copies;
            outcomes(&scenario)
        };
        let one = with_copies(1);
        assert_eq!(one, with_copies(2), "seed {seed}");
        assert_eq!(one, with_copies(4), "seed {seed}");
    }
}
