//! `compare settle`: what calls that fail, are cancelled, stay open or lose their server do to all
//! others, and to the memory of servers.
//!
//! ```text
//!   for each system: one server process, 64 callers here
//!     calm ── not-found ── calm ── cancelled ── calm ── one-open ── calm ── restarted ── calm
//!        └─ rates ─┴─ compared with the calm phases before and after
//! ```
//!
//! Beside the callers a thread looks ten times a second at what the server holds: resident memory,
//! and for Convoke how many calls it remembers. By invariant I30 of the protocol that is at most
//! 64, or twice the calls that are not settled, and what comes within 5 ms and a round trip.

mod drive;
mod phase;
mod row;
mod subject;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::flavour::Flavour;

use drive::Load;
pub use phase::Phase;
pub use row::{Look, SettleRow, table};
use subject::{ConvokeSubject, Subject, TarpcSubject, TonicSubject};

/// How much to measure.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// How long each phase is, in seconds.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Only these systems. May be given several times.
    #[arg(long)]
    system: Vec<Who>,
    /// Only these phases, each between two calm ones. May be given several times.
    #[arg(long)]
    phase: Vec<Phase>,
    /// End each phase after so many calls, too.
    #[arg(long, hide = true, default_value_t = u64::MAX)]
    calls: u64,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Systems that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Convoke,
    Tonic,
    Tarpc,
}

/// Measures, prints the table, and writes the file.
///
/// # Errors
/// When a process fails, or the file cannot be written.
pub fn run(program: &Path, arguments: &Arguments) -> Result<()> {
    let seconds = arguments.seconds;
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.with_context(|| format!("{seconds} s are no time"))?;
    ensure!(!time.is_zero(), "a phase takes some time");
    let load = Load { time, calls: arguments.calls };
    let phases = match &arguments.phase[..] {
        [] => &Phase::TROUBLED[..],
        some => some,
    };
    let whos = match &arguments.system[..] {
        [] => Who::value_variants(),
        some => some,
    };
    let mut rows = Vec::new();
    for who in whos {
        rows.extend(Flavour::Ct.runtime()?.block_on(async {
            match who {
                Who::Convoke => measure(ConvokeSubject::start(program).await?, load, phases).await,
                Who::Tonic => measure(TonicSubject::start(program).await?, load, phases).await,
                Who::Tarpc => measure(TarpcSubject::start(program).await?, load, phases).await,
            }
        })?);
    }
    console::say(table(&rows).trim_end())?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&rows)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Every phase between two calm ones.
async fn measure(
    mut subject: impl Subject,
    load: Load,
    phases: &[Phase],
) -> Result<Vec<SettleRow>> {
    let mut rows = Vec::new();
    for &phase in phases {
        if !subject.can(phase) {
            continue;
        }
        if rows.is_empty() {
            drive::phase(&mut subject, Phase::Calm, load).await?; // to warm up
            rows.push(drive::phase(&mut subject, Phase::Calm, load).await?);
        }
        rows.push(drive::phase(&mut subject, phase, load).await?);
        rows.push(drive::phase(&mut subject, Phase::Calm, load).await?);
    }
    row::compare(&mut rows);
    Ok(rows)
}
