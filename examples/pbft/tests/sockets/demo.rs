//! The demonstration with real processes: killed, silent, liars, and nothing is lost or told apart.

use std::process::{Command, Stdio};

#[test]
fn nothing_is_lost_when_replicas_are_killed_silent_and_lie() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_pbft"));
    let demo = demo.args(["demo", "--seconds", "0.2", "--clients", "4", "--timeout", "1000"]);
    let output = demo.stderr(Stdio::inherit()).output().expect("it is built");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains(" under load: ") && first.contains("It takes "), "{text}");
    let last = text.lines().next_back().unwrap_or_default();
    assert!(output.status.success() && last.starts_with("verified: "), "{text}");
    let executed = last.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
    assert!(executed.is_some_and(|count| count > 0), "{text}");
    // Of the silent primary and of the lying one.
    let views = last.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    assert!(views.is_some_and(|views| views >= 2), "{text}");
}
