//! Lines for whoever reads the standard output, for as long as they read it.

use std::error::Error;
use std::fmt::{self, Display};
use std::io::{self, Write as _};

/// The reader of the output has gone, as `head` does when it has seen enough. No failure.
#[derive(Clone, Copy, Debug)]
pub struct Closed;

impl Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl Error for Closed {}

/// Prints a line.
///
/// # Errors
/// [`Closed`] when nobody reads any more, which ends a program quietly; others of the system.
pub fn say(line: impl Display) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        written => Ok(written?),
    }
}
