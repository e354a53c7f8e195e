//! A limit of time for a command: one that hangs ends, with all it has started.

use std::collections::BTreeMap;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Period between two looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for the end of a command.
///
/// # Errors
/// It had not ended after `limit`, and was killed; or the system does not tell its end.
pub(super) fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("waiting for its end")? {
            return Ok(status);
        }
        if start.elapsed() >= limit {
            kill(child);
            bail!("it hung: no end after {} minutes", limit.as_secs() / 60);
        }
        thread::sleep(LOOK);
    }
}

/// Kills the command and, where the system lists processes, those it has started: a test that hangs
/// would keep our outputs open.
fn kill(child: &mut Child) {
    let mut doomed = descendants(child.id());
    doomed.reverse();
    if !doomed.is_empty() {
        // Some may have ended meanwhile.
        let _ = Command::new("kill").arg("-9").args(doomed.iter().map(u32::to_string)).status();
    }
    // It may have ended, too.
    let _ = child.kill();
    let _ = child.wait();
}

/// Processes that this one has started, and those that they have; none where `ps` is unknown.
fn descendants(of: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for line in listed.unwrap_or_default().lines() {
        let mut ids = line.split_whitespace().filter_map(|id| id.parse().ok());
        if let (Some(id), Some(parent)) = (ids.next(), ids.next()) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    found.split_off(1)
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read as _;
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdout(Stdio::piped()).spawn().expect("there is a shell")
    }

    #[test]
    fn a_command_that_ends_says_how() {
        let status = wait(&mut shell("exit 3"), Duration::MAX).expect("it ends");
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn a_command_that_hangs_ends_with_those_it_started() {
        let mut child = shell("sleep 600 & sleep 600; true");
        while descendants(child.id()).len() < 2 {
            thread::sleep(LOOK);
        }
        let error = wait(&mut child, Duration::ZERO).expect_err("it sleeps for longer");
        assert!(error.to_string().contains("it hung"), "{error}");
        // Its output ends with the last that holds it.
        let mut output = child.stdout.take().expect("it is piped");
        assert_eq!(output.read_to_end(&mut Vec::new()).expect("it is read"), 0);
    }
}
