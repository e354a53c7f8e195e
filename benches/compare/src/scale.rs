//! `compare scale`: what an idle connection and an open call of Convoke cost in memory, what so
//! many open calls do to a small one, and what chains of servers leave behind.
//!
//! ```text
//!  compare scale ──starts, for each count──▶ client ──starts──▶ server
//!        ◀────────a row, as a line─────────    │  ◀──what it holds, when asked
//!                                              └──connections or calls──▶
//! ```
//!
//! Each count has two new processes, so that none finds memory that an earlier one has left. A
//! tenth of each count is measured, too: what one costs should not depend on how many there are.

mod calls;
mod chains;
mod connections;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::control::end_with_input;
use crate::flavour::Flavour;
use crate::lab::Room;
use crate::output::{open, tell};
use crate::processes::output_of;

pub use calls::CallRow;
pub use chains::ChainRow;
pub use connections::ConnectionRow;

/// How much to open.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Connections to open, each by an endpoint of its own in one process.
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Calls to open over one connection.
    #[arg(long, default_value_t = 100_000)]
    calls: usize,
    /// Calls that go along a chain of five servers, at full rate.
    #[arg(long, default_value_t = 100_000)]
    chains: usize,
    /// Deadline of the open calls, in seconds. What is remembered of them once they are cancelled
    /// goes a third of this later.
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
    Connections,
    Calls,
    /// Chains of which the client knows all servers.
    Chains,
    /// Chains of which it knows the first server alone.
    BlindChains,
}

/// Results of all parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Idle connections, the fewest first.
    pub connections: Vec<ConnectionRow>,
    /// Open calls, the fewest first.
    pub calls: Vec<CallRow>,
    /// Chains whose servers the client knows, and chains of which it knows the first server alone.
    pub chains: Vec<ChainRow>,
}

/// Measures, prints the table, and writes the file.
///
/// # Errors
/// When a process fails, for example at the limit of open files, or the file cannot be written. The
/// rows that there are until then are printed and written.
pub fn run(program: &Path, arguments: &Arguments) -> Result<()> {
    let file = open(arguments.json.as_deref())?;
    let mut scale = Scale::default();
    let measured = measure(program, arguments, &mut scale);
    if scale == Scale::default() {
        return measured;
    }
    measured.and(tell(file, &scale, &table(&scale)))
}

fn measure(program: &Path, arguments: &Arguments, scale: &mut Scale) -> Result<()> {
    let deadline_s = arguments.deadline_s;
    for count in tenth_and_all(arguments.connections) {
        let part = Part { kind: Kind::Connections, count, deadline_s };
        scale.connections.push(row_of(program, &part)?);
    }
    for count in tenth_and_all(arguments.calls) {
        scale.calls.push(row_of(program, &Part { kind: Kind::Calls, count, deadline_s })?);
    }
    for kind in [Kind::Chains, Kind::BlindChains] {
        let part = Part { kind, count: arguments.chains, deadline_s };
        scale.chains.push(row_of(program, &part)?);
    }
    Ok(())
}

/// Is one of the processes, until its input ends at the latest.
///
/// # Errors
/// When the work cannot be done.
pub fn be_part(program: &Path, part: &Part) -> Result<()> {
    end_with_input();
    Flavour::Ct.runtime()?.block_on(async {
        match part.kind {
            Kind::Connections => say(&connections::measure(program, part).await?)?,
            Kind::Calls => say(&calls::measure(program, part).await?)?,
            Kind::Chains => say(&chains::measure(program, part, 5).await?)?,
            Kind::BlindChains => say(&chains::measure(program, part, 1).await?)?,
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
    let said = output_of(part.command(program)).context("measuring")?;
    serde_json::from_str(&said).context("the measuring process gives no row")
}

impl Part {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let kind = self.kind.to_possible_value().expect("no kind is skipped");
        command.args(["scale-part", kind.get_name()]);
        command.args([self.count.to_string(), self.deadline_s.to_string()]);
        command
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_s)
    }

    fn room(&self) -> Room {
        Room::new(self.count, self.deadline_s)
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
    text += "\nchains of five, known servers   per s   forgotten, ms   remembered + stubs; grown, KiB: of each server\n";
    for row in &scale.chains {
        let (count, known, per_second) = (row.count, row.connected, row.per_second);
        let _ = write!(text, "{count:14} {known:14} {per_second:9.0} {:15.1}  ", row.forgotten_ms);
        for held in &row.held {
            let _ = write!(text, " {}+{}", held.remembered, held.stubs);
        }
        let grown = row.resident_bytes_grown.iter().flatten();
        let grown: Vec<String> = grown.map(|bytes| (bytes / 1024).to_string()).collect();
        let _ = writeln!(text, "; {}", grown.join(" "));
    }
    text
}

fn kib(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| format!("{:>18}", "unknown"), |bytes| format!("{:18.2}", bytes / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::PerOne;

    #[test]
    fn a_tenth_comes_before_the_whole_where_there_is_one() {
        assert_eq!(tenth_and_all(1_000), [100, 1_000]);
        assert_eq!(tenth_and_all(9), [9]);
    }

    #[test]
    fn what_no_system_tells_is_unknown_in_the_table() {
        let each = PerOne { client: Some(2048.0), server: None };
        let connections = vec![ConnectionRow { count: 7, resident_bytes_each: each }];
        let text = table(&Scale { connections, calls: Vec::new(), chains: Vec::new() });
        assert!(text.contains("2.00") && text.contains("unknown"), "{text}");
    }
}
