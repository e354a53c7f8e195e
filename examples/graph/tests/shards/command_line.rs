//! The program `graph` as a shell runs it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use console::assert_ends_quietly_unread;

const TRACE: [&str; 8] = ["trace", "is1", "--id", "1", "--persons", "20", "--shards", "1"];

fn graph(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_graph")).args(arguments).output().expect("it starts")
}

/// As `graph trace .. | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    assert_ends_quietly_unread(Command::new(env!("CARGO_BIN_EXE_graph")).args(TRACE));
    // Where somebody reads, the same command has something to say.
    assert!(!graph(&TRACE).stdout.is_empty());
}

#[test]
fn the_help_has_the_options_of_the_command_that_need_not_be_named() {
    let help = graph(&["--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for option in ["--runs", "--delay-ms", "--persons", "--json", "demo", "trace"] {
        assert!(text.contains(option), "{option}: {text}");
    }
    // They are those of the command, and belong to no other.
    let refused = graph(&["--runs", "5", "trace", "is1", "--id", "1"]);
    assert!(!refused.status.success());
}

#[test]
fn the_picture_of_the_page_is_what_the_command_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tree.svg");
    let output =
        graph(&["lanes", "IS6", "--id", "90", "--svg", path.to_str().expect("a plain name")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = std::fs::read_to_string(&path).expect("it was written");
    let kept = include_str!("../../../../docs/pictures/tree.svg");
    assert!(drawn == kept, "`graph lanes` draws another: see docs/graph.md");
}

#[test]
fn a_data_folder_that_is_none_is_named() {
    let refused =
        graph(&["trace", "is1", "--id", "1", "--shards", "1", "--data", "no/such/folder"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no/such/folder"), "{said}");
}

#[test]
fn a_file_that_expects_nothing_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("expected.jsonl");
    std::fs::write(&empty, "").expect("a file");
    let refused = graph(&["check", "--expected", empty.to_str().expect("a plain name")]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("has no expected answers"), "{said}");
}

/// As `graph demo --json rows.json | head -1`.
#[test]
fn rows_are_written_also_where_nobody_reads_what_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("rows.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_graph"));
    command.args(["demo", "--persons", "80", "--runs", "1", "--delay-ms", "0", "--json"]);
    let mut demo = command.arg(&json).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(demo.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says what comes");
    drop(output);
    assert!(demo.wait().expect("it ends").success());
    let rows = std::fs::read_to_string(&json).expect("it has written its rows");
    assert!(rows.contains("\"IS7\""), "{rows}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    for option in ["--json", "--svg"] {
        let refused = graph(&["demo", option, "no/such/file"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot write no/such/file"), "{said}");
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn options_without_an_end_are_refused_in_words() {
    for (arguments, words) in [
        (&["demo", "--delay-ms", "1e19"][..], "not a time from 0 to 1000 ms"),
        (&["demo", "--delay-ms", "nan"], "not a time from 0 to 1000 ms"),
        (&["demo", "--shards", "18446744073709551615"], "1 to 64 shards"),
        (&["trace", "is1", "--id", "1", "--shards", "65"], "1 to 64 shards"),
        (&["lanes", "is1", "--shards", "0"], "1 to 64 shards"),
        (&["demo", "--persons", "20001"], "20001 is not in 1..=20000"),
        (&["demo", "--persons", "0"], "0 is not in 1..=20000"),
        (&["lanes", "is1", "--delay-ms", "4294967295"], "1..=1000"),
    ] {
        let refused = graph(arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
