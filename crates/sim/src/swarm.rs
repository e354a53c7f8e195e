//! Many runs: seeds in, the first violation out.

use std::ops::AddAssign;

use crate::scenario::{Kind, Scenario};
use crate::trace::Trace;
use crate::world::{Report, Violation, World};

/// A run that broke a property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed} ({scenario}): {violation}", scenario = .kind.name())]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// The scenario it was.
    pub kind: Kind,
    /// Violation that was found.
    pub violation: Violation,
}

/// Sum of what runs came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Runs.
    pub runs: u64,
    /// Calls opened.
    pub calls: u64,
    /// Tasks that ran.
    pub tasks: u64,
    /// Frames sent between nodes.
    pub frames: u64,
    /// Events.
    pub events: u64,
}

/// Runs one seed, in the scenario it chooses or in this one.
///
/// # Errors
/// [`Failure`]; a panic in the run is one, too.
pub fn run(seed: u64, kind: Option<Kind>) -> Result<Report, Failure> {
    let scenario = scenario(seed, kind);
    let kind = scenario.kind;
    let (result, _) = World::new(scenario, Trace::hash_only()).run();
    result.map_err(|violation| Failure { seed, kind, violation })
}

/// The scenario of a seed, or this kind of it.
pub fn scenario(seed: u64, kind: Option<Kind>) -> Scenario {
    kind.map_or_else(|| Scenario::of(seed), |kind| Scenario::with_kind(kind, seed))
}

/// Runs all these seeds.
///
/// # Errors
/// The first [`Failure`].
pub fn run_all(seeds: impl IntoIterator<Item = u64>, kind: Option<Kind>) -> Result<Sum, Failure> {
    let mut sum = Sum::default();
    for seed in seeds {
        sum += &run(seed, kind)?;
    }
    Ok(sum)
}

impl AddAssign<&Report> for Sum {
    fn add_assign(&mut self, report: &Report) {
        self.runs += 1;
        self.calls += report.calls;
        self.tasks += report.tasks;
        self.frames += report.frames.values().sum::<u64>();
        self.events += report.events;
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.tasks += other.tasks;
        self.frames += other.frames;
        self.events += other.events;
    }
}
