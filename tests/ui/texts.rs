//! Texts of the compiler about mistakes: each names the remedy.

use std::process::Command;

/// The compiler whose texts the `.stderr` files have. Another one words its own part differently.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn mistakes_are_explained() {
    let asked = Command::new("rustc").arg("--version").output();
    let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !version.as_ref().is_ok_and(|version| version.starts_with(COMPILER)) {
        eprintln!(
            "\n!!! SKIPPED, NOTHING WAS TESTED: the texts are those of {COMPILER}x, and this is {version:?}\n"
        );
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("core/*.rs");
    cases.compile_fail("quorum/*.rs");
}
