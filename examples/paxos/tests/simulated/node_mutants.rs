//! The simulation of whole nodes finds what breaks their promises.

use node_kit::mutant::{Mutant, set};
use paxos::simulation::run;

const SEEDS: u64 = 200;

/// A seed that finds it, tried first. After a change of the node it is another.
const FOUND_BY: u64 = 3;

#[test]
fn replies_before_the_sync_are_found() {
    set(Some(Mutant::ReplyBeforeFsync));
    let mut seeds = [FOUND_BY].into_iter().chain(0..SEEDS);
    let found = seeds.find_map(|seed| run(seed).err().map(|violation| (seed, violation)));
    set(None);
    let (seed, violation) = found.expect("a lost write is found");
    println!("seed {seed}: {violation}");
}
