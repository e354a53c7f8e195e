//! The command of the README, which gives the rows that are kept.

use compare::plan::{Case, select};
use compare::report::{Report, Row};

/// Cases that `--only` selects in the command above the tables of the README.
fn selected() -> Vec<Case> {
    let readme = include_str!("../../../../README.md");
    let mut commands = readme.lines().filter(|line| line.contains("-p compare -- --seconds"));
    let command = commands.next().expect("it has the command");
    assert_eq!(commands.next(), None, "one command gives all of them");
    let words: Vec<&str> = command.split_whitespace().collect();
    let filters = words.windows(2).filter(|pair| pair[0] == "--only");
    let only: Vec<String> = filters.map(|pair| pair[1].to_owned()).collect();
    select(&only).expect("its filters fit something")
}

fn is_of(case: &Case, row: &Row) -> bool {
    let form = case.bench.has_forms().then_some(case.form);
    row.bench == case.bench.to_string()
        && (row.system, row.form, row.runtime) == (case.system, form, case.flavour)
}

#[test]
fn the_command_of_the_readme_gives_exactly_the_rows_that_are_kept() {
    let kept = include_str!("../../../../docs/benchmarks/rows.json");
    let Report { run, rows } = Report::read(kept).expect("it has rows");
    let cases = selected();
    for row in &rows {
        assert!(cases.iter().any(|case| is_of(case, row)), "it does not give {row:?}");
    }
    // Rows without a header are of a time when fewer systems and benches were measured.
    if run.is_some() {
        for case in &cases {
            assert!(rows.iter().any(|row| is_of(case, row)), "{case:?} is not kept");
        }
    }
}
