//! Each rule is needed: without it, a simulation fails within 2,000 seeds.

use pbft::mutant::{Mutant, set};
use pbft::world::{Report, Violation, run, run_channels, run_members};

const SEEDS: u64 = 2_000;

/// Seeds that find them; tried first, so that the test is quick. After a change of the protocol they
/// are others.
const FOUND_BY: &[u64] = &[0, 2, 15, 8, 1, 13, 43, 23, 2, 226, 0, 0, 2, 8, 8, 15];

/// Those where connections prove names.
const FOUND_BY_CHANNELS: &[u64] = &[3, 2, 67, 2, 2];

/// Those where members change.
const FOUND_BY_MEMBERS: &[u64] = &[69, 1, 1];

type Run = fn(u64) -> Result<Report, Violation>;

/// Mutants that no seed finds.
fn alive(mutants: &'static [Mutant], firsts: &[u64], run: Run) -> Vec<&'static Mutant> {
    assert_eq!(firsts.len(), mutants.len());
    let mut alive = Vec::new();
    for (mutant, first) in mutants.iter().zip(firsts) {
        set(Some(*mutant));
        let mut seeds = [*first].into_iter().chain(0..SEEDS);
        let found = seeds.find_map(|seed| run(seed).err().map(|violation| (seed, violation)));
        set(None);
        match found {
            Some((seed, violation)) => println!("{mutant:?}: seed {seed}: {violation}"),
            None => alive.push(mutant),
        }
    }
    alive
}

#[test]
fn each_mutant_is_found() {
    // One after the other: a mutant is one of the process.
    let mut alive = alive(Mutant::BY_SEEDS, FOUND_BY, run);
    alive.extend(self::alive(Mutant::BY_CHANNEL_SEEDS, FOUND_BY_CHANNELS, run_channels));
    alive.extend(self::alive(Mutant::BY_MEMBER_SEEDS, FOUND_BY_MEMBERS, run_members));
    assert!(alive.is_empty(), "not found: {alive:?}");
}
