//! A limit of time for a command: one that hangs ends, with all it has started.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Period between two looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Characters that are told of the command of a process: those of a compiler are pages.
const COMMAND_MAX: usize = 160;

/// Waits for the end of a command.
///
/// # Errors
/// It had not ended after `limit`, and was killed: with what it had started that still ran. Or the
/// system does not tell its end.
pub(super) fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("waiting for its end")? {
            return Ok(status);
        }
        if start.elapsed() >= limit {
            let running = kill(child);
            bail!("it hung: no end after {} minutes{running}", limit.as_secs() / 60);
        }
        thread::sleep(LOOK);
    }
}

/// Kills the command and, where the system lists processes, those it has started, in whatever
/// process groups they are: a test that hangs would keep our outputs open. Says which those were,
/// as text that goes on.
pub(crate) fn kill(child: &mut Child) -> String {
    // All are stopped first: any of them would start the next as soon as one is gone. Where there
    // are no signals, nothing stops them.
    signal("-STOP", [child.id()]);
    let (mut doomed, mut stopped) = (descendants(child.id()), BTreeSet::new());
    while doomed.iter().any(|process| !stopped.contains(&process.id)) {
        let running = doomed.iter().map(|process| process.id);
        let running: Vec<u32> = running.filter(|id| stopped.insert(*id)).collect();
        signal("-STOP", running);
        doomed = descendants(child.id());
    }
    doomed.reverse();
    signal("-9", doomed.iter().map(|process| process.id));
    // It may have ended, too.
    let _ = child.kill();
    let _ = child.wait();
    doomed.iter().rev().map(|process| format!("\n  while {} ran", process.command)).collect()
}

/// Sends a signal to processes, of which some may have ended meanwhile.
fn signal(signal: &str, processes: impl IntoIterator<Item = u32>) {
    let ids: Vec<String> = processes.into_iter().map(|id| id.to_string()).collect();
    if !ids.is_empty() {
        let _ = Command::new("kill").arg(signal).args(ids).status();
    }
}

/// A process, and the command that it is.
#[derive(Debug)]
struct Process {
    id: u32,
    command: String,
}

/// Processes that this one has started, and those that they have; none where `ps` is unknown.
fn descendants(of: u32) -> Vec<Process> {
    let listed = Command::new("ps").args(["-A", "-ww", "-o", "pid=,ppid=,args="]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for line in listed.unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let mut id = || words.next().and_then(|word| word.parse().ok());
        if let (Some(id), Some(parent)) = (id(), id()) {
            let command = words.collect::<Vec<_>>().join(" ").chars().take(COMMAND_MAX).collect();
            children.entry(parent).or_default().push(Process { id, command });
        }
    }
    let mut found = children.remove(&of).unwrap_or_default();
    let mut next = 0;
    while let Some(Process { id, .. }) = found.get(next) {
        found.extend(children.remove(id).unwrap_or_default());
        next += 1;
    }
    found
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

    /// One of them in a process group of its own, as `timeout` makes one; and each followed by
    /// another command.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_that_hangs_ends_with_those_it_started() {
        let mut child =
            shell("timeout 600 sh -c 'sleep 600; sleep 600' & sleep 600; sleep 600; sleep 600");
        let sleeps = |process: &Process| process.command == "sleep 600";
        while descendants(child.id()).into_iter().filter(sleeps).count() < 2 {
            thread::sleep(LOOK);
        }
        let error = wait(&mut child, Duration::ZERO).expect_err("it sleeps for longer");
        let error = error.to_string();
        assert!(error.contains("it hung") && error.contains("\n  while sleep 600 ran"), "{error}");
        // Its output ends with the last that holds it.
        let mut output = child.stdout.take().expect("it is piped");
        assert_eq!(output.read_to_end(&mut Vec::new()).expect("it is read"), 0);
    }
}
