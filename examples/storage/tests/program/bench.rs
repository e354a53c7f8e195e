//! `storage bench`, short: rows of every case, figures, and no write that failed.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs it with these arguments and reads its rows.
fn bench(folder: &Path, args: &[&str]) -> Vec<Value> {
    let json = folder.join("rows.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    command.args(["bench", "--seconds", "0.05", "--runs", "2", "--json"]).arg(&json);
    let status = command.arg("--svg").arg(folder).args(args).status().expect("the bench runs");
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(json).expect("it has written its rows");
    serde_json::from_str(&text).expect("they are JSON")
}

fn assert_sound(row: &Value) {
    assert_eq!(row["failed"], 0, "{row}");
    assert!(row["operations"].as_u64().is_some_and(|count| count > 0), "{row}");
    let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"));
    assert!(0.0 < number("median_us") && number("median_us") <= number("p99_us"), "{row}");
    for positive in ["per_second", "cpu_us_per_op", "per_second_ci95", "frames_per_op"] {
        assert!(number(positive) > 0.0, "{positive} of {row}");
    }
    assert_eq!(row["runs"].as_array().map(Vec::len), Some(2), "{row}");
}

#[test]
fn a_closed_loop_has_a_row_for_every_write_in_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = bench(folder.path(), &["--only", "n=4", "--only", "loop=closed"]);
    let mut seen: Vec<String> = Vec::new();
    for row in &rows {
        assert_sound(row);
        assert_eq!((&row["n"], &row["loop"]), (&4.into(), &"closed".into()));
        seen.push(format!("{} {} {}", row["phases"], row["form"], row["in_flight"]));
        let is_nested = row["form"] == "nested";
        assert_eq!(row["per_second_to_nested"].is_null(), is_nested, "{row}");
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 18, "{seen:#?}");
    for (figure, is_there) in [("figure4", true), ("figure5", false), ("figure6", true)] {
        assert_eq!(folder.path().join(format!("{figure}.svg")).exists(), is_there, "{figure}");
    }
}

#[test]
fn an_open_loop_offers_a_part_of_what_the_replicas_bear() {
    let folder = tempfile::tempdir().expect("a folder");
    let only = ["n=7", "phases=1", "share=0.2"].map(|only| ["--only", only]).concat();
    let rows = bench(folder.path(), &only);
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_sound(row);
        assert!(row["in_flight"].is_null() && row["loop"] == "open", "{row}");
        assert!(row["offered_per_second"].as_f64().is_some_and(|offered| offered > 0.0), "{row}");
    }
}

/// As `storage bench --json rows.json | head -1`.
#[test]
fn rows_are_written_also_where_nobody_reads_what_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("rows.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    command.args(["bench", "--seconds", "0.05", "--runs", "2", "--json"]).arg(&json);
    command.args(
        ["n=4", "phases=0", "form=echo", "in_flight=1"].map(|only| ["--only", only]).concat(),
    );
    let mut bench = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(bench.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says what comes");
    drop(output);
    assert!(bench.wait().expect("it ends").success());
    let rows = std::fs::read_to_string(&json).expect("it has written its rows");
    let rows: Vec<Value> = serde_json::from_str(&rows).expect("they are JSON");
    assert_eq!(rows.len(), 1);
    assert_sound(&rows[0]);
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    let refused = command.args(["bench", "--json", "no/such/rows.json"]).output();
    let refused = refused.expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write no/such/rows.json"), "{said}");
    assert!(refused.stdout.is_empty());
}

#[test]
fn a_property_that_no_case_has_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    let output = command.args(["bench", "--only", "form=tree"]).output().expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("form=echo"));
}

#[test]
fn a_run_that_never_ends_is_refused() {
    for seconds in ["1e19", "86401", "nan"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
        let refused = command.args(["bench", "--seconds", seconds]).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{seconds}: {said}");
        assert!(said.contains("is not a time from 0 s to a day"), "{seconds}: {said}");
    }
}
