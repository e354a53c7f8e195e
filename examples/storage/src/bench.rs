//! `storage bench`: throughput, latency and processor time of every write in every form.
//!
//! Runs are interleaved: one run of every case, then the next of every case, so that what else the
//! machine does falls on all alike, and ratios can be taken run by run.

mod case;
mod load;
mod row;

use std::time::Duration;

use anyhow::{Context as _, Result};
use console::Progress;

use crate::client::Client;
use crate::form::{Form, Phases};
use crate::processes::{Processes, Setup};

pub use case::{Case, Load, Only, Wanted, choices};
pub use load::Tally;
pub use row::{Row, Run, rows, sentence, table};

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Effort {
    /// How long each run of a case is.
    pub time: Duration,
    /// Runs of each case.
    pub runs: usize,
    /// Cases to measure.
    pub only: Only,
}

impl Effort {
    /// Time that it takes, as far as it can be known before.
    pub fn estimate(&self) -> Duration {
        // Where a load is a part of what is possible, that is found out by a run more.
        let runs = self.only.count().saturating_mul(self.runs.saturating_add(1));
        self.time.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX))
    }
}

/// A case and what its runs gave, in order.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// The writes a second that were asked for, where they do not wait for each other.
    pub offered: Option<f64>,
    /// One each.
    pub runs: Vec<Run>,
}

/// How long a write is warmed up: connections, caches, the paths of the code.
const WARM_UP: Duration = Duration::from_millis(200);

/// Measures all cases, those of one number of replicas with the same processes. Hands back all that
/// was measured, and beside it the reason why that is not all: processes cannot be started, or
/// replicas do not say what they used.
pub async fn bench(effort: &Effort) -> (Vec<Measured>, Result<()>) {
    let mut all = Vec::new();
    let done = bench_into(&mut all, effort).await;
    (all, done)
}

async fn bench_into(all: &mut Vec<Measured>, effort: &Effort) -> Result<()> {
    for members in Case::MEMBERS {
        let cases = Case::all(members).filter(|case| effort.only.includes(case));
        let mut measured: Vec<Measured> =
            cases.map(|case| Measured { case, offered: None, runs: Vec::new() }).collect();
        if measured.is_empty() {
            continue;
        }
        let processes = Processes::start(&Setup::new(members)?).await?;
        let done = measure(processes.client(), &mut measured, effort).await;
        all.extend(measured);
        done?;
        processes.stop().await?;
    }
    Ok(())
}

async fn measure(client: &Client, measured: &mut [Measured], effort: &Effort) -> Result<()> {
    prepare(client, measured, effort.time).await?;
    let (rounds, mut progress) = (effort.runs, Progress::new());
    for round in 0..effort.runs {
        // Each round begins elsewhere, so that nobody always comes after the same other.
        let cases = measured.len();
        for one in (0..cases).map(|index| (index + round) % cases) {
            let Measured { case, offered, runs } = &mut measured[one];
            progress.tell(format_args!("[{}/{rounds}] {case}", round + 1));
            let load = match (case.load, *offered) {
                (Load::Open { share, .. }, Some(per_second)) => Load::Open { share, per_second },
                (load, _) => load,
            };
            let run = load::run(client, Case { load, ..*case }, effort.time).await;
            runs.push(run.with_context(|| case.to_string())?);
        }
    }
    Ok(())
}

/// Warms every write in every form up, and finds what open loops are to offer: a part of what 32
/// callers reach that each wait for their answer.
async fn prepare(client: &Client, measured: &mut [Measured], time: Duration) -> Result<()> {
    let full = Load::Closed { in_flight: 32 };
    for phases in Phases::ALL {
        for form in Form::ALL {
            let is_meant = |one: &&mut Measured| (one.case.phases, one.case.form) == (phases, form);
            let mut meant: Vec<&mut Measured> = measured.iter_mut().filter(is_meant).collect();
            let Some(first) = meant.first() else { continue };
            let case = Case { load: full, ..first.case };
            load::run(client, case, WARM_UP).await?;
            if meant.iter().all(|one| matches!(one.case.load, Load::Closed { .. })) {
                continue;
            }
            let capacity = load::run(client, case, time).await?.per_second;
            for one in &mut meant {
                if let Load::Open { share, .. } = one.case.load {
                    one.offered = Some(share * capacity);
                }
            }
        }
    }
    Ok(())
}
