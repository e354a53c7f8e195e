//! The demonstration with real processes: killed, started again, and nothing is lost.

use std::process::{Command, Stdio};

fn play(arguments: &[&str]) {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_paxos"));
    let demo = demo.args(["demo", "--clients", "4"]).args(arguments);
    let output = demo.stderr(Stdio::inherit()).output().expect("it is built");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains(" under load: ") && first.contains("It takes "), "{text}");
    let last = text.lines().next_back().unwrap_or_default();
    assert!(output.status.success() && last.starts_with("verified: "), "{text}");
    let acknowledged = last.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
    assert!(acknowledged.is_some_and(|count| count > 0), "{text}");
}

#[test]
fn nothing_is_lost_when_processes_are_killed() {
    play(&["--seconds", "0.5"]);
}

#[test]
fn nothing_is_lost_where_clients_count_votes() {
    play(&["--seconds", "0.2", "--shape", "direct"]);
}
