//! Real processes that are killed, stopped and cut off at random moments: nothing is lost.

use std::process::{Command, Stdio};

/// Plays a run that has to be good, and in which each of these has happened.
fn play(arguments: &[&str], words: &[&str]) {
    let mut torture = Command::new(env!("CARGO_BIN_EXE_paxos"));
    let torture = torture.args(["torture", "--clients", "4"]).args(arguments);
    let output = torture.stderr(Stdio::inherit()).output().expect("it is built");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let last = text.lines().next_back().unwrap_or_default();
    assert!(output.status.success() && last.starts_with("verified: "), "{text}");
    for word in words {
        let (before, _) = text.split_once(word).expect("it says what went wrong");
        let count = before.rsplit([' ', '\n']).next().unwrap_or_default();
        assert_ne!(count, "0", "{word}: draw another seed\n{text}");
    }
}

#[test]
fn nothing_is_lost_under_random_faults() {
    let words = [" kills, ", " stops, ", " cuts, ", " times all killed", " members are level"];
    play(&["--seconds", "10", "--seed", "41"], &words);
}

#[test]
fn nothing_is_lost_while_members_change_under_random_faults() {
    let words = [" kills, ", " stops, ", " cuts, ", " changes of the members in force"];
    play(&["--seconds", "8", "--seed", "7", "--members"], &words);
}
