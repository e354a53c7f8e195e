//! The demo does what it says, on loopback.

use std::process::{Command, Stdio};

#[tokio::test]
async fn the_demo_keeps_its_word() {
    brb::demo::run().await.expect("correct members agree");
}

/// As `brb | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brb"));
    command.arg("demo").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}
