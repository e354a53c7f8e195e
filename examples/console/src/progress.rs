//! A line about work that lasts.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines where nobody watches them come.
const EVERY: Duration = Duration::from_secs(60);

/// True while a line of progress stands on the terminal, which all threads share.
static STANDS: AtomicBool = AtomicBool::new(false);

/// The characters that take a line from a terminal.
const ERASE: &str = "\r\x1b[2K";

/// Takes the line of progress away, if there is one.
pub(crate) fn erase(out: &mut impl io::Write) {
    if STANDS.swap(false, Ordering::Relaxed) {
        // A terminal that is gone shows nothing any more.
        let _ = write!(out, "{ERASE}").and_then(|()| out.flush());
    }
}

/// How far something is, on the standard error: on a terminal as one line that changes, elsewhere
/// as a line a minute. The line on a terminal goes with this.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    told: Instant,
}

impl Progress {
    /// Begins, and says nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), told: Instant::now() }
    }

    /// Says how far it is, unless a line is not due.
    pub fn tell(&mut self, line: impl Display) {
        self.tell_at(Instant::now(), line, &mut io::stderr().lock());
    }

    fn tell_at(&mut self, now: Instant, line: impl Display, out: &mut impl io::Write) {
        // Nobody may be there to read it, which is no reason to end the work.
        let _ = if self.is_terminal {
            STANDS.store(true, Ordering::Relaxed);
            write!(out, "{ERASE}{line}").and_then(|()| out.flush())
        } else if now.saturating_duration_since(self.told) >= EVERY {
            self.told = now;
            writeln!(out, "{line}")
        } else {
            Ok(())
        };
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        erase(&mut io::stderr().lock());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// The terminal, which all threads share, and tests do not.
    static TERMINAL: Mutex<()> = Mutex::new(());

    fn told(is_terminal: bool, seconds: &[u64]) -> String {
        let _alone = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, mut out) = (Instant::now(), Vec::new());
        let mut progress = Progress { is_terminal, told };
        for second in seconds {
            progress.tell_at(told + Duration::from_secs(*second), second, &mut out);
        }
        erase(&mut out);
        erase(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_line_a_minute_is_told_where_nobody_watches() {
        assert_eq!(told(false, &[1, 30, 59, 61, 62, 120, 122, 500]), "61\n122\n500\n");
    }

    #[test]
    fn a_terminal_has_one_line_that_changes_and_goes_once() {
        assert_eq!(told(true, &[1, 2]), format!("{ERASE}1{ERASE}2{ERASE}"));
    }
}
