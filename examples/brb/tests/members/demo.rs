//! The demo does what it says, on loopback.

use std::process::Command;

use console::assert_ends_quietly_unread;

#[tokio::test]
async fn the_demo_keeps_its_word() {
    brb::demo::run().await.expect("correct members agree");
}

/// As `brb | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    assert_ends_quietly_unread(Command::new(env!("CARGO_BIN_EXE_brb")).arg("demo"));
}
