//! A test that programs share: nobody reads what they print.

use std::process::{Command, Stdio};

/// Runs a command whose reader is gone before it prints anything, as `| head -0` is. For tests of
/// programs.
///
/// # Panics
/// If the program fails, or complains of that.
pub fn assert_ends_quietly_unread(command: &mut Command) {
    // Closed before it starts: what it prints at once would find a reader otherwise.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("starts");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "nobody reads")]
    fn a_complaint_is_shown() {
        assert_ends_quietly_unread(Command::new("sh").args(["-c", "echo nobody reads >&2"]));
    }
}
