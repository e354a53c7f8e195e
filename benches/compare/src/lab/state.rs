//! Holdings of a process: entries in its endpoint's tables, and memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use convoke::{Endpoint, Load};
use serde::{Deserialize, Serialize};

use crate::processes::Server;

use super::Host;

/// The tables of one endpoint, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Calls that are open or unread.
    pub calls: usize,
    /// Calls that have ended, of which something may still be on its way.
    pub unsettled: usize,
    /// Tasks that run.
    pub tasks: usize,
    /// Finished tasks and cancel marks.
    pub remembered: usize,
    /// Finished tasks of which only a stub is left.
    pub stubs: usize,
    /// Calls and tags that casts are about.
    pub mailboxes: usize,
    /// Those who are to be told something.
    pub waiting: usize,
    /// Connections that are open.
    pub connections: usize,
}

impl From<Load> for Held {
    fn from(load: Load) -> Self {
        let Load {
            calls,
            unsettled,
            tasks,
            remembered,
            stubs,
            mailboxes,
            waiting,
            connections,
            ..
        } = load;
        Self { calls, unsettled, tasks, remembered, stubs, mailboxes, waiting, connections }
    }
}

impl Held {
    /// The more of each.
    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            calls: self.calls.max(other.calls),
            unsettled: self.unsettled.max(other.unsettled),
            tasks: self.tasks.max(other.tasks),
            remembered: self.remembered.max(other.remembered),
            stubs: self.stubs.max(other.stubs),
            mailboxes: self.mailboxes.max(other.mailboxes),
            waiting: self.waiting.max(other.waiting),
            connections: self.connections.max(other.connections),
        }
    }

    /// True when nothing is left but connections.
    pub fn is_idle(&self) -> bool {
        *self == Self { connections: self.connections, ..Self::default() }
    }
}

/// A process at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) held: Held,
    /// Resident memory, where the system tells.
    pub(crate) resident_bytes: Option<u64>,
}

impl State {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        Self { held: endpoint.load().into(), resident_bytes: resident_bytes_of("self") }
    }
}

/// Client and server at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct States {
    pub(crate) client: State,
    pub(crate) server: State,
}

impl States {
    pub(crate) fn held(&self) -> HeldByBoth {
        HeldByBoth { client: self.client.held, server: self.server.held }
    }

    /// Cost of each of `count` things that came since `before`.
    pub(crate) fn each(&self, before: &Self, count: usize) -> PerOne {
        #[expect(clippy::cast_precision_loss, reason = "memory and counts are far below 2^52")]
        let each = |now: State, before: State| {
            let grown = now.resident_bytes? as f64 - before.resident_bytes? as f64;
            Some(grown / count.max(1) as f64)
        };
        PerOne {
            client: each(self.client, before.client),
            server: each(self.server, before.server),
        }
    }
}

/// The tables of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldByBoth {
    /// Of the process that opened.
    pub client: Held,
    /// Of the other.
    pub server: Held,
}

/// Resident memory for one of many, in bytes; `None` where the system does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerOne {
    /// Of the process that opened it.
    pub client: Option<f64>,
    /// Of the other.
    pub server: Option<f64>,
}

/// The other process.
#[derive(Debug)]
pub(crate) struct Remote {
    server: Server,
    /// How long to wait for what it is to hold.
    longest: Duration,
}

impl Remote {
    pub(crate) fn start(program: &Path, host: &Host) -> Result<Self> {
        let server = Server::start(host.command(program))?;
        Ok(Self { server, longest: host.room.longest() })
    }

    /// Makes the host at `next` the one to which this host hands on the requests of a chain.
    pub(crate) fn join(&mut self, next: &str) -> Result<()> {
        self.server.ask(&format!("next {next}"), "joined").map(|_| ())
    }

    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    pub(crate) fn state(&mut self) -> Result<State> {
        let text = self.server.ask("state", "state")?;
        serde_json::from_str(&text).context("the server's state cannot be read")
    }

    /// Both processes, now.
    pub(crate) fn states(&mut self, client: &Endpoint) -> Result<States> {
        Ok(States { client: State::of(client), server: self.state()? })
    }

    /// Waits until the server holds what is wanted, in words `what`.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Held) -> bool) -> Result<()> {
        until(self.longest, what, || Ok(is_so(&self.state()?.held))).await
    }
}

/// Asks every few milliseconds until it is so.
///
/// # Errors
/// When it is not for so long, or cannot be asked.
pub(crate) async fn until(
    longest: Duration,
    what: &str,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    let mut again = tokio::time::interval(Duration::from_millis(5));
    while !is_so()? {
        ensure!(begun.elapsed() < longest, "{what}: not within {longest:?}");
        again.tick().await;
    }
    Ok(())
}

/// Resident memory of a process, or of this one (`self`), by Linux's `VmRSS`, which unlike `statm`
/// needs no page size.
pub fn resident_bytes_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_for_what_never_comes_ends_and_says_for_what() {
        let waited = until(Duration::ZERO, "the server runs all calls", || Ok(false)).await;
        assert!(waited.unwrap_err().to_string().contains("the server runs all calls"));
        let mut looks = 0;
        until(Duration::MAX, "a third look", || {
            looks += 1;
            Ok(looks == 3)
        })
        .await
        .unwrap();
    }
}
