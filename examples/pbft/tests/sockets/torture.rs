//! Real processes that are killed, stopped and cut off at random moments: nothing is lost.

use std::process::{Command, Stdio};

#[test]
fn nothing_is_lost_under_random_faults() {
    let mut torture = Command::new(env!("CARGO_BIN_EXE_pbft"));
    let torture = torture.args(["torture", "--seconds", "10", "--seed", "41", "--clients", "4"]);
    let output = torture.stderr(Stdio::inherit()).output().expect("it is built");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let last = text.lines().next_back().unwrap_or_default();
    assert!(output.status.success() && last.starts_with("verified: "), "{text}");
}
