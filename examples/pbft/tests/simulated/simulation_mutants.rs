//! The simulation of whole nodes finds what breaks their promises.

use pbft::mutant::{Mutant, set};
use pbft::simulation::run;

const SEEDS: u64 = 20;

/// A seed that finds it, tried first. After a change of the node it is another.
const FOUND_BY: u64 = 0;

#[test]
fn views_that_forget_what_was_prepared_are_found() {
    set(Some(Mutant::ProofsDropped));
    let mut seeds = [FOUND_BY].into_iter().chain(0..SEEDS);
    let found = seeds.find_map(|seed| run(seed).err().map(|violation| (seed, violation)));
    set(None);
    let (seed, violation) = found.expect("nodes that forget get stuck, or differ");
    println!("seed {seed}: {violation}");
}
