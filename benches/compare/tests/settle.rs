//! `compare settle` with few calls: that every phase is measured with each system that has what it
//! needs, and that servers remember no more than they may.

use std::process::{Command, Output};

use compare::settle::{Phase, SettleRow};

fn settle(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.arg("settle").args(arguments).output().expect("the program starts")
}

fn rows_of(system: &str) -> Vec<SettleRow> {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("settle.json");
    let ends = ["--seconds", "100", "--calls", "3000", "--system", system];
    let output = settle(&[&ends[..], &["--json", json.to_str().unwrap()]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}\n{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<SettleRow> =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    for row in &rows {
        assert!(row.per_second > 0.0, "{row:?}");
        assert_eq!(row.ratio.is_some(), row.phase != Phase::Calm, "{row:?}");
        // A server that is away fails what it has, and what comes meanwhile.
        assert!(row.failed == 0 || row.phase == Phase::Restarted, "{row:?}");
        assert_eq!(row.away_s.is_some(), row.phase == Phase::Restarted, "{row:?}");
        assert!(table.contains(row.phase.name()), "{table}");
    }
    rows
}

fn phases(rows: &[SettleRow]) -> Vec<Phase> {
    rows.iter().map(|row| row.phase).filter(|phase| *phase != Phase::Calm).collect()
}

#[test]
fn every_phase_of_convoke_is_measured_and_what_is_remembered_is_known() {
    let rows = rows_of("convoke");
    assert_eq!(phases(&rows), Phase::TROUBLED);
    for row in &rows {
        assert!(
            row.looks.iter().all(|look| look.allowed.is_some_and(|most| most >= 64)),
            "{row:?}"
        );
        assert!(row.above_allowed.is_some(), "{row:?}");
    }
}

#[test]
fn rivals_are_measured_as_far_as_they_can_do_the_same() {
    let rows = rows_of("tonic");
    assert_eq!(phases(&rows), Phase::TROUBLED);
    assert!(rows.iter().all(|row| row.remembered_max.is_none()), "it does not say");
    let rows = rows_of("tarpc");
    assert_eq!(phases(&rows), Phase::TROUBLED[..4], "its client does not connect again");
}

#[test]
fn a_phase_that_outlasts_its_open_call_is_refused_in_words() {
    let output = settle(&["--seconds", "600"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("570 s at most"));
}
