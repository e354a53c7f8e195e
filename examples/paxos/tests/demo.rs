//! The demonstration with real processes: killed, started again, and nothing is lost.

use std::process::{Command, Stdio};

#[test]
fn nothing_is_lost_when_processes_are_killed() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_paxos"));
    let demo = demo.args(["demo", "--seconds", "0.5", "--clients", "4"]);
    let output = demo.stderr(Stdio::inherit()).output().expect("it is built");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let last = text.lines().next_back().unwrap_or_default();
    assert!(output.status.success() && last.starts_with("verified: "), "{text}");
    let acknowledged = last.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
    assert!(acknowledged.is_some_and(|count| count > 0), "{text}");
}
