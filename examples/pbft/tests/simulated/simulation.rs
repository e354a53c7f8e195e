//! Whole nodes and clients under seeded faults and lies: histories are linearizable, and all goes
//! on once the faults have ended.

use pbft::simulation::{Plan, Report, Violation, run, run_plan};

fn many(seeds: std::ops::Range<u64>) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        let report = run(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        println!("seed {seed}: {report:?}");
        sum.run.add(&report.run);
        sum.views += report.views;
        sum.liars += report.liars;
        sum.lies += report.lies;
    }
    sum
}

#[test]
fn histories_are_linearizable_under_faults_and_lies() {
    let sum = many(6..11);
    println!("{sum:?}");
    let run = &sum.run;
    assert!(run.answered > 200 && run.crashes > 10 && run.snapshots > 0, "{sum:?}");
    assert!(sum.views > 5 && sum.liars > 1 && sum.lies > 0, "{sum:?}");
}

#[test]
fn a_seed_is_one_run() {
    assert_eq!(run(9), run(9));
}

#[test]
fn without_faults_all_is_answered_in_the_first_view() -> Result<(), Violation> {
    for nodes in [4, 7] {
        let report = run_plan(7, &Plan::calm(nodes), false)?;
        let run = &report.run;
        assert_eq!((run.answered, run.crashes), (run.calls, 0), "{report:?}");
        assert!(report.views == 0 && run.calls > 10, "{report:?}");
    }
    Ok(())
}
