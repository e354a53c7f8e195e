//! The core under seeded faults and lies: safety after every event, progress after all has healed.

use pbft::world::{Menu, Report, Violation, run, run_menu};

fn many(seeds: std::ops::Range<u64>) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        let report = run(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        sum.asked += report.asked;
        sum.accepted += report.accepted;
        sum.view += report.view;
        sum.crashes += report.crashes;
        sum.lies += report.lies;
        for (cause, count) in report.refused {
            *sum.refused.entry(cause).or_default() += count;
        }
    }
    sum
}

#[test]
fn holds_under_faults_and_lies() {
    let count = 10;
    let sum = many(0..count);
    assert_eq!(sum.asked, sum.accepted);
    assert!(sum.accepted > 20 * count && sum.view > count && sum.crashes > count, "{sum:?}");
    assert!(sum.lies > 0 && sum.refused.len() == 3, "{sum:?}");
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..2 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn real_signatures_make_no_difference() -> Result<(), Violation> {
    let menu = Menu { is_signed: true, ..Menu::draw(3) };
    let report = run_menu(3, menu, false)?;
    assert_eq!(report.asked, report.accepted);
    Ok(())
}

#[test]
fn without_faults_the_first_view_stays() -> Result<(), Violation> {
    for nodes in [1, 4, 6, 7] {
        let report = run_menu(7, Menu::calm(nodes), false)?;
        assert_eq!((report.view, report.asked), (0, report.accepted), "{report:?}");
        assert!(report.accepted > 50, "{report:?}");
    }
    Ok(())
}
