//! Each rule is needed: without it, a simulation fails within 2,000 seeds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pbft::mutant::{Mutant, set};
use pbft::world::{Report, Violation, run, run_channels, run_members};

const SEEDS: u64 = 2_000;

/// Seeds that find them; tried first, so that the test is quick. After a change of the protocol
/// they are others.
const FOUND_BY: &[u64] = &[0, 3, 9, 8, 1, 0, 246, 7, 2, 198, 0, 0, 2, 8, 18, 0];

/// Those where connections prove names.
const FOUND_BY_CHANNELS: &[u64] = &[2, 2, 67, 6, 2];

/// Those where members change.
const FOUND_BY_MEMBERS: &[u64] = &[24, 1, 8];

type Run = fn(u64) -> Result<Report, Violation>;

/// A mutant, the seed that finds it, and the world in which it does.
#[derive(Clone, Copy)]
struct Case {
    mutant: Mutant,
    first: u64,
    run: Run,
}

impl Case {
    fn all(mutants: &[Mutant], firsts: &[u64], run: Run) -> Vec<Self> {
        assert_eq!(firsts.len(), mutants.len());
        let case = |(&mutant, &first)| Self { mutant, first, run };
        mutants.iter().zip(firsts).map(case).collect()
    }

    fn is_found(self) -> bool {
        let Self { mutant, first, run } = self;
        set(Some(mutant));
        let mut seeds = [first].into_iter().chain(0..SEEDS);
        let found = seeds.find_map(|seed| run(seed).err().map(|violation| (seed, violation)));
        set(None);
        if let Some((seed, violation)) = &found {
            println!("{mutant:?}: seed {seed}: {violation}");
        }
        found.is_some()
    }
}

#[test]
fn each_mutant_is_found() {
    let cases = [
        Case::all(Mutant::BY_SEEDS, FOUND_BY, run),
        Case::all(Mutant::BY_CHANNEL_SEEDS, FOUND_BY_CHANNELS, run_channels),
        Case::all(Mutant::BY_MEMBER_SEEDS, FOUND_BY_MEMBERS, run_members),
    ]
    .concat();
    // A mutant is one of its thread.
    let next = AtomicUsize::new(0);
    let look = || {
        let taken = std::iter::from_fn(|| cases.get(next.fetch_add(1, Ordering::Relaxed)));
        taken.filter(|case| !case.is_found()).map(|case| case.mutant).collect::<Vec<_>>()
    };
    let alive = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let looking: Vec<_> = (0..threads).map(|_| scope.spawn(look)).collect();
        looking.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(alive.is_empty(), "not found: {alive:?}");
}
