//! `compare scale`: what an idle connection and an open call of Convoke cost in memory, and what so many open calls
//! do to a small one.
//!
//! ```text
//!  compare scale ──starts, for each count──▶ client ──starts──▶ server
//!        ◀────────a row, as a line─────────    │  ◀──what it holds, when asked
//!                                              └──connections or calls──▶
//! ```
//!
//! Each count has two new processes, so that none finds memory that an earlier one has left. A tenth of each count
//! is measured, too: what one costs should not depend on how many there are.

mod calls;
mod connections;
mod server;
mod state;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use convoke::transport::TcpTransport;
use convoke::{Endpoint, EndpointBuilder, Limits};
use serde::{Deserialize, Serialize};

use crate::flavour::Flavour;

pub use calls::CallRow;
pub use connections::ConnectionRow;
pub use state::{Held, HeldByBoth, PerOne};

/// How much to open.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Connections to open, each by an endpoint of its own in one process.
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Calls to open over one connection.
    #[arg(long, default_value_t = 100_000)]
    calls: usize,
    /// Deadline of the open calls, in seconds. What is remembered of them once they are cancelled goes a third of
    /// this later.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    deadline_s: u64,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One process of it: started by the others.
#[derive(Clone, Debug, Args)]
pub struct Part {
    kind: Kind,
    count: usize,
    deadline_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Server,
    Connections,
    Calls,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Idle connections, the fewest first.
    pub connections: Vec<ConnectionRow>,
    /// Open calls, the fewest first.
    pub calls: Vec<CallRow>,
}

/// Measures, prints the table, and writes the file.
///
/// # Errors
/// When a process fails, for example at the limit of open files, or the file cannot be written.
pub fn run(program: &Path, arguments: &Arguments) -> Result<()> {
    let deadline_s = arguments.deadline_s;
    let (mut connections, mut calls) = (Vec::new(), Vec::new());
    for count in tenth_and_all(arguments.connections) {
        let part = Part { kind: Kind::Connections, count, deadline_s };
        connections.push(row_of(program, &part)?);
    }
    for count in tenth_and_all(arguments.calls) {
        calls.push(row_of(program, &Part { kind: Kind::Calls, count, deadline_s })?);
    }
    let scale = Scale { connections, calls };
    print!("{}", table(&scale));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&scale)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Is one of the processes.
///
/// # Errors
/// When the work cannot be done.
pub fn be_part(program: &Path, part: &Part) -> Result<()> {
    Flavour::Ct.runtime()?.block_on(async {
        match part.kind {
            Kind::Server => server::serve(part).await?,
            Kind::Connections => say(&connections::measure(program, part).await?)?,
            Kind::Calls => say(&calls::measure(program, part).await?)?,
        }
        Ok(())
    })
}

fn say(row: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(row)?);
    Ok(())
}

/// Both in this order; one when there is nothing between.
fn tenth_and_all(count: usize) -> Vec<usize> {
    if count < 10 { vec![count] } else { vec![count / 10, count] }
}

fn row_of<Row: serde::de::DeserializeOwned>(program: &Path, part: &Part) -> Result<Row> {
    let output = part.command(program).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the measuring process failed: {}", output.status);
    serde_json::from_slice(&output.stdout).context("the measuring process gives no row")
}

impl Part {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let kind = self.kind.to_possible_value().expect("no kind is skipped");
        command.args(["scale-part", kind.get_name()]);
        command.args([self.count.to_string(), self.deadline_s.to_string()]);
        command
    }

    fn server(&self) -> Self {
        Self { kind: Kind::Server, ..self.clone() }
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_s)
    }

    /// An endpoint with room for all of it, and else the default limits.
    fn endpoint(&self) -> EndpointBuilder {
        // Besides them, the small calls.
        let room = self.count + 64;
        let mut limits = Limits::default();
        limits.calls_max = limits.calls_max.max(room);
        limits.tasks_max = limits.tasks_max.max(room);
        // Of a cancelled call a mark is remembered, and its task; and the small calls until then.
        limits.remembered_max = limits.remembered_max.max(4 * room);
        limits.deadline_default = self.deadline();
        limits.deadline_max = limits.deadline_max.max(self.deadline());
        limits.keep_alive_timeout = self.deadline() / 3;
        Endpoint::builder().limits(limits)
    }

    fn transport(&self) -> Result<TcpTransport> {
        let connections_max = self.count.saturating_add(64).max(4_096);
        Ok(TcpTransport::builder().connections_max(connections_max).build()?)
    }
}

/// The rows for people.
pub fn table(scale: &Scale) -> String {
    let mut text = String::from("idle connections         client, KiB each   server, KiB each\n");
    for row in &scale.connections {
        let each = row.resident_bytes_each;
        let _ = writeln!(text, "{:16} {} {}", row.count, kib(each.client), kib(each.server));
    }
    text += "\nopen calls on one connection    client, KiB each   server, KiB each\n";
    for row in &scale.calls {
        let (open, over) = (row.resident_bytes_each, row.resident_bytes_each_cancelled);
        let _ =
            writeln!(text, "{:10} open       {} {}", row.count, kib(open.client), kib(open.server));
        let _ = writeln!(text, "{:10} cancelled  {} {}", "", kib(over.client), kib(over.server));
    }
    text += "\nsmall calls, one at a time, per second       alone     beside the open ones\n";
    for row in &scale.calls {
        let (alone, beside) = (row.small_per_second_alone, row.small_per_second_beside);
        let _ = writeln!(text, "{:10} {alone:39.0} {beside:24.0}", row.count);
    }
    text += "\ncalls, tasks, remembered of client + server: open, cancelled, in the end\n";
    for row in &scale.calls {
        let _ = write!(text, "{:10}", row.count);
        for held in [&row.open, &row.cancelled, &row.settled] {
            let (client, server) = (held.client, held.server);
            let remembered = client.unsettled + server.remembered;
            let _ = write!(text, "   {} {} {remembered}", client.calls, server.tasks);
        }
        let _ = writeln!(text, "   (opened in {:.1} s)", row.open_seconds);
    }
    text
}

fn kib(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| format!("{:>18}", "unknown"), |bytes| format!("{:18.2}", bytes / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_comes_before_the_whole_where_there_is_one() {
        assert_eq!(tenth_and_all(1_000), [100, 1_000]);
        assert_eq!(tenth_and_all(9), [9]);
    }

    #[test]
    fn what_no_system_tells_is_unknown_in_the_table() {
        let each = PerOne { client: Some(2048.0), server: None };
        let connections = vec![ConnectionRow { count: 7, resident_bytes_each: each }];
        let text = table(&Scale { connections, calls: Vec::new() });
        assert!(text.contains("2.00") && text.contains("unknown"), "{text}");
    }
}
