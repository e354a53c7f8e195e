//! Manners of a program: lines for whoever reads its standard output, how long something will take,
//! how far it is, files for its results, and how it ends.

#![forbid(unsafe_code)]

mod output;
mod progress;
mod unread;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

pub use self::output::Output;
pub use self::progress::Progress;
pub use self::unread::assert_ends_quietly_unread;

/// The reader of the output has gone, as `head` does when it has seen enough. No failure.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
pub struct Closed;

/// Prints a line, in the place of the line of a [`Progress`] if there is one.
///
/// # Errors
/// [`Closed`] when nobody reads any more, which ends a program quietly; others of the system.
pub fn say(line: impl Display) -> Result<()> {
    let mut terminal = io::stderr().lock();
    progress::erase(&mut terminal);
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        written => Ok(written?),
    }
}

/// The exit code of a program of this name: 0 where all is well or nobody reads any more, 1 where
/// it has found something wrong, 2 where it could not do its work, which it says.
pub fn end(program: &str, result: Result<bool>) -> ExitCode {
    match result {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A time that something will take, as one says it: in steps that promise no more than is known.
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0..2.0 => "a second or two".to_owned(),
        2.0..10.0 => "a few seconds".to_owned(),
        10.0..90.0 => format!("about {:.0} s", (seconds / 5.0).round() * 5.0),
        _ => format!("about {:.0} minutes", (seconds / 60.0).round()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_round_figures() {
        for (seconds, expected) in [
            (0.0, "a second or two"),
            (5.0, "a few seconds"),
            (12.0, "about 10 s"),
            (22.4, "about 20 s"),
            (89.0, "about 90 s"),
            (130.0, "about 2 minutes"),
        ] {
            assert_eq!(about(Duration::from_secs_f64(seconds)), expected);
        }
    }

    #[test]
    fn a_reader_who_has_gone_is_no_failure() {
        let quiet = format!("{:?}", end("program", Err(Closed.into())));
        assert_eq!(quiet, format!("{:?}", ExitCode::SUCCESS));
        let found = format!("{:?}", end("program", Ok(false)));
        assert_eq!(found, format!("{:?}", ExitCode::from(1)));
    }
}
