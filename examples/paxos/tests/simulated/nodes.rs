//! Whole nodes and clients under seeded faults: histories are linearizable, and all goes on once
//! the faults have ended.

use paxos::client::Shape;
use paxos::simulation::{Plan, Report, Violation, run, run_plan};

fn many(seeds: std::ops::Range<u64>) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        let report = run(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        sum.run.add(&report.run);
        sum.changes += report.changes;
        sum.by_votes += report.by_votes;
    }
    sum
}

#[test]
fn histories_are_linearizable_under_faults() {
    let sum = many(0..8);
    println!("{sum:?}");
    let run = &sum.run;
    assert!(run.answered > 500 && run.crashes > 10 && run.snapshots > 0, "{sum:?}");
    assert!(sum.changes > 5 && sum.by_votes > 20, "{sum:?}");
}

#[test]
fn a_seed_is_one_run() {
    for seed in 3..4 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn without_faults_all_is_answered() -> Result<(), Violation> {
    for nodes in [1, 3, 5] {
        for shape in [Shape::Gather, Shape::Direct] {
            let report = run_plan(7, &Plan::calm(nodes, shape), false)?;
            let run = &report.run;
            assert_eq!((run.answered, run.crashes), (run.calls, 0), "{report:?}");
            assert_eq!(report.by_votes > 10, shape == Shape::Direct, "{report:?}");
        }
    }
    Ok(())
}
