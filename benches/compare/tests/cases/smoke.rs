//! Every case, for a few operations: that each system does each bench in full, and that the rows
//! say so. Nothing here looks at a clock.

use std::path::Path;
use std::process::{Command, Output};

use compare::bench::Bench;
use compare::flavour::Flavour;
use compare::pin::Pin;
use compare::plan::{Case, select};
use compare::report::{Report, Row};
use compare::roo::{RooRow, cases as roo_cases};
use compare::system::System;
use console::assert_ends_quietly_unread;

/// Enough to have one after another. More would show no more, and what moves a megabyte is slow in
/// a debug build.
const OPERATIONS: u64 = 4;

fn compare(arguments: &[&str]) -> Output {
    start(env!("CARGO_BIN_EXE_compare"), arguments)
}

fn start(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect("the program starts")
}

/// Measures what these filters leave, on these processors, and compares the rows with the cases.
fn every_case_of(only: &[&str], pin: Pin) {
    let dir = tempfile::tempdir().unwrap();
    let (json, svg) = (dir.path().join("rows.json"), dir.path().join("chart.svg"));
    let operations = OPERATIONS.to_string();
    let mut arguments = vec!["--seconds", "100", "--rounds", "1", "--operations", &operations];
    arguments.extend(["--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap()]);
    let pinned = pin.to_string();
    arguments.extend(["--pin", &pinned]);
    arguments.extend(only.iter().flat_map(|filter| ["--only", *filter]));
    let output = compare(&arguments);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}\n{}", String::from_utf8_lossy(&output.stderr));

    let Report { run, rows } = report(&json);
    let run = run.expect("it says how it came to be");
    assert_eq!((run.seconds, run.warm_up_seconds, run.rounds), (100.0, 25.0, 1));
    let only: Vec<String> = only.iter().map(|&filter| filter.to_owned()).collect();
    let cases = select(&only).unwrap();
    assert_eq!(rows.len(), cases.len());
    for (row, case) in rows.iter().zip(&cases) {
        check(row, case, pin);
        assert!(table.contains(&row.bench), "{table}");
    }
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg "));
    // What is drawn later from the rows has the same rows: a number may have lost its last bit.
    let output = compare(&["draw", json.to_str().unwrap(), "--svg", svg.to_str().unwrap()]);
    let again = std::fs::read_to_string(&svg).unwrap();
    assert_eq!(again.matches("<text").count(), drawn.matches("<text").count());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end().lines().count(), table.trim_end().lines().count());
}

#[test]
fn rows_that_are_not_there_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let refused = |arguments: &[&str]| {
        let output = compare(&[&["draw", json.to_str().unwrap()], arguments].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&[]).contains("rows.json"));
    std::fs::write(&json, "{}").unwrap();
    assert!(refused(&[]).contains("has no rows of `compare`"));
    std::fs::write(&json, r#"{ "rows": [] }"#).unwrap();
    assert!(refused(&["--only", "unary"]).contains("no such bench"));
    // As older runs have written them.
    std::fs::write(&json, "[]").unwrap();
    assert!(refused(&["--only", "unary"]).contains("no such bench"));
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn report(path: &Path) -> Report {
    Report::read(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn check(row: &Row, case: &Case, pin: Pin) {
    assert_eq!(row.bench, case.bench.to_string());
    assert_eq!((row.system, row.runtime), (case.system, case.flavour), "{row:?}");
    assert_eq!(row.pin, pin.of(case.flavour), "{row:?}");
    assert_eq!(row.form, case.bench.has_forms().then_some(case.form), "{row:?}");
    assert_eq!((row.in_flight, row.rounds), (case.bench.in_flight(), 1), "{row:?}");
    // Callers end after equal parts, and a window does not end before it was full once.
    let in_flight = case.bench.in_flight() as u64;
    let expected = in_flight * OPERATIONS.div_ceil(in_flight);
    assert_eq!(row.operations + row.failed, expected, "{row:?}");
    // With tonic the late calls of a quorum may take a connection down.
    let may_fail = case.system == System::Tonic && case.bench == Bench::Quorum;
    assert!(row.failed == 0 || may_fail, "{row:?}");
    assert!(row.median_us > Some(0.0) && row.p99_us >= row.median_us, "{row:?}");
    assert!(row.per_second > Some(0.0) && row.cpu_us_per_op >= Some(0.0), "{row:?}");
    // Counting would cost those more who allocate more.
    assert_eq!(row.allocs_per_op, None, "{row:?}");
}

#[test]
fn every_case_with_one_server_is_measured() {
    every_case_of(&["unary_", "large_", "stream_"], Pin::usual());
}

#[test]
fn allocations_of_both_sides_are_counted_by_a_program_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let path = json.to_str().unwrap();
    let mut arguments = vec!["--seconds", "100", "--rounds", "1", "--operations", "2000"];
    arguments.extend(["--only", "unary_latency", "--only", "ct", "--json", path]);
    let output = start(env!("CARGO_BIN_EXE_compare-counted"), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for row in report(&json).rows {
        let count = row.allocs_per_op.expect("it counts");
        // A floor has its buffers from before, as have the messages of Convoke.
        let expected = match row.system {
            System::Tonic | System::Tarpc => 2.0..1_000.0,
            System::ConvokeTcp => 0.0..0.5,
            _ => 0.0..1_000.0,
        };
        assert!(expected.contains(&count), "{row:?}");
    }
}

#[test]
fn every_case_of_hops_is_measured() {
    every_case_of(&["hops_"], Pin::None);
}

#[test]
fn every_case_of_fanout_and_quorum_is_measured() {
    every_case_of(&["fanout_", "quorum_"], Pin::None);
}

#[test]
fn trees_are_compared_with_other_forms_over_a_distance() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let path = json.to_str().unwrap();
    let arguments = ["roo", "--delay-ms", "0.5", "--runs", "3", "--rounds", "1", "--json", path];
    let output = compare(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<RooRow> = read(&json);
    let cases = roo_cases(System::ConvokeTcp, Flavour::Ct);
    assert_eq!(rows.len(), cases.len());
    for (row, case) in rows.iter().zip(&cases) {
        assert_eq!((row.row.operations, row.row.failed), (3, 0), "{row:?}");
        assert_eq!(row.trips, case.bench.trips(case.form));
        // No trip is faster than the delay of its one frame at least.
        assert!(row.row.median_us >= Some(500.0 * row.trips as f64), "{row:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none/rows");
    let path = path.to_str().unwrap();
    let tree = ["--only", "convoke-tcp", "--only", "tree"];
    for (file, arguments) in [
        ("--json", &tree[..]),
        ("--svg", &tree[..]),
        ("--json", &["roo"][..]),
        ("--svg", &["roo"][..]),
        ("--json", &["scale"][..]),
        ("--json", &["settle"][..]),
        ("--json", &["attack"][..]),
    ] {
        // Long enough that who measures first is seen to.
        let long = match arguments {
            ["scale"] => ["--chains", "100000000"],
            ["roo"] => ["--runs", "100000000"],
            ["settle"] => ["--seconds", "570"],
            _ => ["--seconds", "80000"],
        };
        let output = compare(&[arguments, &long, &[file, path]].concat());
        assert!(!output.status.success(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("cannot write"), "{arguments:?}: {said}");
    }
}

/// As `compare --json rows.json | head -0`.
#[test]
fn a_reader_that_goes_away_costs_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let only = ["--only", "unary_latency", "--only", "convoke-tcp", "--only", "ct"];
    let few = ["--seconds", "100", "--rounds", "1", "--operations", "4", "--pin", "none"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(only).args(few).args(["--json", json.to_str().unwrap()]);
    assert_ends_quietly_unread(&mut command);
    assert_eq!(report(&json).rows.len(), 1);
}

/// As `compare .. | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let only = ["--only", "unary_latency", "--only", "convoke-tcp", "--only", "ct"];
    let few = ["--seconds", "100", "--rounds", "1", "--operations", "4"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    assert_ends_quietly_unread(command.args(only).args(few).args(["--pin", "none"]));
}

#[test]
fn what_cannot_be_measured_is_refused_in_words() {
    let output = compare(&["--only", "carrier-pigeon"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    for name in ["carrier-pigeon", "unary_latency", "convoke-tcp", "tonic", "tree", "ct"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert!(!compare(&["--pin", "two"]).status.success());
    assert!(!compare(&["--rounds", "0"]).status.success());
    for seconds in ["-1", "0", "NaN", "inf", "1e18", "x"] {
        for command in [&[][..], &["attack"], &["settle"]] {
            let seconds = format!("--seconds={seconds}");
            let output = compare(&[command, &[seconds.as_str()]].concat());
            assert!(!output.status.success(), "{command:?} {seconds}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("takes some time"), "{command:?} {seconds}: {said}");
        }
    }
    // Servers with workers of their own are about one server.
    assert!(!compare(&["roo", "--runtime", "2w"]).status.success());
}
