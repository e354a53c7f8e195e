//! `compare scale` with small numbers: that all of it is opened, counted, cancelled and forgotten.

use std::process::{Command, Output, Stdio};

use compare::lab::{Held, PerOne};
use compare::scale::Scale;

fn scale(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.arg("scale").args(arguments).output().expect("the program starts")
}

fn is_known(each: PerOne) -> bool {
    each.client.is_some() && each.server.is_some()
}

#[test]
fn connections_and_calls_are_opened_counted_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("scale.json");
    // A deadline that passes while they are still being opened would fail the run.
    let deadline = ["--deadline-s", "8"];
    let counts = ["--connections", "20", "--calls", "300", "--chains", "2000"];
    let output = scale(&[&counts[..], &deadline, &["--json", json.to_str().unwrap()]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("open calls on one connection"), "{table}");

    let text = std::fs::read_to_string(json).unwrap();
    let Scale { connections, calls, chains } = serde_json::from_str(&text).unwrap();
    assert_eq!(connections.iter().map(|row| row.count).collect::<Vec<_>>(), [2, 20]);
    for row in &connections {
        assert_eq!(is_known(row.resident_bytes_each), cfg!(target_os = "linux"), "{row:?}");
    }
    assert_eq!(calls.iter().map(|row| row.count).collect::<Vec<_>>(), [30, 300]);
    for row in &calls {
        assert_eq!((row.open.client.calls, row.open.server.tasks), (row.count, row.count));
        assert_eq!((row.cancelled.client.calls, row.cancelled.server.tasks), (0, 0), "{row:?}");
        // Long before their deadline each task has said that it was stopped.
        assert_eq!(row.cancelled.client.unsettled, 0, "{row:?}");
        let connected = Held { connections: 1, ..Held::default() };
        assert_eq!((row.settled.client, row.settled.server), (connected, connected));
        assert!(row.small_per_second_alone > 0.0 && row.small_per_second_beside > 0.0, "{row:?}");
        assert_eq!(is_known(row.resident_bytes_each), cfg!(target_os = "linux"), "{row:?}");
    }

    assert_eq!(
        chains.iter().map(|row| (row.count, row.connected)).collect::<Vec<_>>(),
        [(2_000, 5), (2_000, 1)]
    );
    for row in &chains {
        for (index, held) in row.held.iter().enumerate() {
            // The first 200 chains warmed up.
            assert!(held.remembered <= 64, "{row:?}");
            let stubs = if index < row.connected { 0..=0 } else { 2_136..=2_200 };
            assert!(stubs.contains(&held.stubs), "server {index}: {row:?}");
        }
        assert_eq!(row.resident_bytes_grown.is_some(), cfg!(target_os = "linux"));
    }
}

/// The first of them have ended before the last are open, on whatever machine.
#[test]
fn calls_that_end_while_others_are_opened_fail_the_run() {
    let few = ["--connections", "1", "--chains", "1"];
    let output = scale(&[&few[..], &["--calls", "2000000", "--deadline-s", "1"]].concat());
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("raise --deadline-s"), "{said}");
}

/// A part that would take hours, with nobody left to be told.
#[test]
fn a_part_ends_with_its_parent() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(["scale-part", "chains", "1000000000", "600"]).stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the parent has ended"));
}

#[test]
fn a_deadline_that_is_none_is_refused_in_words() {
    let output = scale(&["--deadline-s", "0"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("deadline-s"));
}
