//! `compare settle`: what calls that fail, are cancelled, stay open or lose their server do to all
//! others, and to the memory of servers.
//!
//! ```text
//!   for each system: one server process, 64 callers here
//!     calm ── not-found ── calm ── rested ── calm ── cancelled ── calm
//!          ── one-open ── calm ── restarted ── calm
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

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::flavour::Flavour;
use crate::output::{open, tell};
use crate::program::seconds;

use drive::Load;
pub use phase::Phase;
pub use row::{Look, SettleRow, table};
use subject::{ConvokeSubject, Subject, TarpcSubject, TonicSubject};

/// How much to measure.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// How long each phase is, in seconds: 570 at most.
    #[arg(long, default_value = "60", value_parser = seconds_of_a_phase)]
    seconds: Duration,
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

/// A phase ends before the calls in it that are never answered do, by [`subject::LONG`].
fn seconds_of_a_phase(text: &str) -> Result<Duration, String> {
    let time = seconds(text)?;
    let is_short = time <= Duration::from_secs(570);
    is_short.then_some(time).ok_or_else(|| "a phase takes 570 s at most".to_owned())
}

/// Measures, prints the table, and writes the file.
///
/// # Errors
/// When a process fails, a phase has no call that ended as it should, or the file cannot be
/// written. The rows that there are until then are printed and written.
pub fn run(program: &Path, arguments: &Arguments) -> Result<()> {
    let file = open(arguments.json.as_deref())?;
    let mut rows = Vec::new();
    let measured = measure_all(program, arguments, &mut rows);
    if rows.is_empty() {
        return measured;
    }
    let told = tell(file, &rows, &table(&rows));
    measured.and(ensure_answered(&rows)).and(told)
}

fn ensure_answered(rows: &[SettleRow]) -> Result<()> {
    for SettleRow { system, phase, per_second, .. } in rows {
        ensure!(*per_second > 0.0, "nothing succeeded of {system} {}", phase.name());
    }
    Ok(())
}

fn measure_all(program: &Path, arguments: &Arguments, rows: &mut Vec<SettleRow>) -> Result<()> {
    let load = Load { time: arguments.seconds, calls: arguments.calls };
    let phases = match &arguments.phase[..] {
        [] => &Phase::TROUBLED[..],
        some => some,
    };
    let whos = match &arguments.system[..] {
        [] => Who::value_variants(),
        some => some,
    };
    for who in whos {
        let mut own = Vec::new();
        let measured = Flavour::Ct.runtime()?.block_on(async {
            let rows = &mut own;
            match who {
                Who::Convoke => {
                    measure(ConvokeSubject::start(program).await?, load, phases, rows).await
                }
                Who::Tonic => {
                    measure(TonicSubject::start(program).await?, load, phases, rows).await
                }
                Who::Tarpc => {
                    measure(TarpcSubject::start(program).await?, load, phases, rows).await
                }
            }
        });
        row::compare(&mut own);
        rows.extend(own);
        measured?;
    }
    Ok(())
}

/// Every phase between two calm ones.
async fn measure(
    mut subject: impl Subject,
    load: Load,
    phases: &[Phase],
    rows: &mut Vec<SettleRow>,
) -> Result<()> {
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
    Ok(())
}
