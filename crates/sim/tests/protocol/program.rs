//! The program `sim`, as a shell runs it.

use std::process::{Command, Stdio};

/// As `sim --seed 1 | head -1` does once `head` has ended.
#[test]
fn who_has_seen_enough_ends_it_quietly() {
    for arguments in [["--seed", "1"], ["--seeds", "1"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_sim"));
        let program = program.args(arguments).stdout(writer).stderr(Stdio::piped());
        let program = program.spawn().expect("it starts");
        let output = program.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    }
}
