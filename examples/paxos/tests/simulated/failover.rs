//! A killed leader: requests are taken again within a few election timeouts.

use paxos::simulation::failover;

/// Seeds: as many as the promise is about, and some of them in a debug build, which is slow.
const SEEDS: u64 = if cfg!(debug_assertions) { 40 } else { 1_000 };

#[test]
fn service_resumes_within_three_election_timeouts_nearly_always_and_within_six_always() {
    let mut timeouts: Vec<(f64, u64)> = Vec::new();
    for seed in 0..SEEDS {
        let failover = failover(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        timeouts.push((failover.timeouts(), seed));
    }
    timeouts.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let at = |percent: usize| timeouts[(timeouts.len() - 1) * percent / 100];
    println!("timeouts and seeds: {:?}", [0, 50, 90, 99, 100].map(at));
    assert!(at(99).0 <= 3.0, "one in a hundred takes longer: {:?}", at(99));
    assert!(at(100).0 <= 6.0, "the longest: {:?}", at(100));
    // It is missed only an election timeout after it was heard last: else nothing was killed.
    assert!(at(0).0 >= 0.8, "the shortest: {:?}", at(0));
}
