//! The program `sim`, as a shell runs it.

use std::process::{Command, Stdio};

/// As `sim --seed 1 | head -1` does once `head` has ended.
#[test]
fn who_has_seen_enough_ends_it_quietly() {
    for arguments in [["--seed", "1"], ["--seeds", "1"]] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_sim"));
        let program = program.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = program.spawn().expect("it starts");
        drop(program.stdout.take());
        let output = program.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    }
}
