//! `compare attack`, each class by count: no call of an honest client fails beside it, nobody takes
//! more than a share, and nothing is left of it.

use std::process::Command;
use std::thread;

use compare::attack::{AttackRow, Class};

/// Frames or connections of each attack, and connections that a crowd has at a time.
const COUNTS: (u64, u64) = (3_000, 100);

fn rows_of(class: Class, (count, connections): (u64, u64)) -> Vec<AttackRow> {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("attack.json");
    let path = json.to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    // The time is not what ends it.
    command.args(["attack", "--seconds", "100", "--frames", &count.to_string()]);
    command.args(["--connections", &connections.to_string(), "--json", path]);
    // What is remembered goes the sooner.
    command.args(["--deadline-s", "10"]);
    command.args(["--class", &class.name()]);
    let output = command.output().expect("the program starts");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

/// The rows of these classes. What is sent honestly before them does no harm either.
fn does_no_harm(classes: &[Class]) -> Vec<AttackRow> {
    is_harmless(classes, COUNTS)
}

/// Each class beside the others, since most of its time is waiting for what is left of it.
fn is_harmless(classes: &[Class], counts: (u64, u64)) -> Vec<AttackRow> {
    let mut rows = thread::scope(|scope| {
        let start = |&class: &Class| scope.spawn(move || rows_of(class, counts));
        let all: Vec<_> = classes.iter().map(start).collect();
        all.into_iter().flat_map(|rows| rows.join().unwrap()).collect::<Vec<_>>()
    });
    for row in &rows {
        assert!(row.sent > 0 && row.calls > 0, "{row:?}");
        assert_eq!((row.failed, &row.complaint), (0, &None), "{row:?}");
        assert!(row.back_s.is_some(), "something is left of it: {row:?}");
    }
    rows.retain(|row| classes.contains(&row.class));
    assert_eq!(rows.iter().map(|row| row.class).collect::<Vec<_>>(), classes);
    rows
}

#[test]
fn who_speaks_for_others_does_no_harm() {
    does_no_harm(&[Class::SpeaksFirst, Class::ClaimsLife, Class::AsksFirst]);
}

#[test]
fn who_fills_the_tables_does_no_harm() {
    let classes = [Class::Records, Class::Running, Class::Marks, Class::Fences];
    let rows = does_no_harm(&classes);
    // The attack is one: at some look there was much of it.
    assert!(rows[0].held_max.remembered > 100, "{:?}", rows[0]);
    assert!(rows[1].held_max.tasks > 100, "{:?}", rows[1]);
    assert!(rows[2].held_max.remembered > 100, "{:?}", rows[2]);
    assert!(rows[3].held_max.remembered > 100, "{:?}", rows[3]);
}

#[test]
fn who_fills_what_is_beside_the_tables_does_no_harm() {
    let rows = does_no_harm(&[Class::Casts, Class::NeverGrants, Class::Dials]);
    assert!(rows[0].held_max.mailboxes > 100, "{:?}", rows[0]);
}

#[test]
fn a_crowd_does_no_harm() {
    let rows = does_no_harm(&[Class::Connections, Class::Handshakes, Class::NeverReads]);
    assert!(rows[0].held_max.connections > 50, "{:?}", rows[0]);
    // Those that do not read are closed, and so do not add up.
    assert!(rows[2].held_max.remembered > 100, "{:?}", rows[2]);
}

/// The room for what waits to be sent is a total, however many share it.
#[test]
fn five_hundred_peers_that_never_read_do_no_harm() {
    let rows = is_harmless(&[Class::NobodyReads], (550, 500));
    assert!(rows[0].held_max.connections > 20, "the others are closed: {:?}", rows[0]);
    if let Some(most) = rows[0].resident_bytes_max {
        assert!(most < 400 << 20, "more than the stated room, and what is beside it: {most}");
    }
}
