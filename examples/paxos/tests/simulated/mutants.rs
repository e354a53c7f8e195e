//! Each rule is needed: without it, the simulation fails within 2,000 seeds.

use paxos::mutant::{Mutant, set};
use paxos::world::run;

const SEEDS: u64 = 2_000;

/// The first seeds that find them; tried first, so that the test is quick. After a change of the
/// protocol they are others.
const FOUND_BY: [u64; 14] = [119, 0, 86, 86, 14, 273, 1, 93, 31, 14, 52, 42, 1_982, 1];

#[test]
fn each_mutant_is_found() {
    let mut alive = Vec::new();
    for (mutant, first) in Mutant::BY_SEEDS.into_iter().zip(FOUND_BY) {
        set(Some(mutant));
        let mut seeds = [first].into_iter().chain(0..SEEDS);
        let found = seeds.find_map(|seed| run(seed).err().map(|violation| (seed, violation)));
        set(None);
        match found {
            Some((seed, violation)) => println!("{mutant:?}: seed {seed}: {violation}"),
            None => alive.push(mutant),
        }
    }
    assert!(alive.is_empty(), "not found: {alive:?}");
}
