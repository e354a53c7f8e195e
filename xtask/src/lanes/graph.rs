//! Lane `graph`: the example answers every query of the benchmark's data set, with 1, 4, 7 shards.
//!
//! The data set lives beside the repository, not in it; `CONVOKE_SHARED` names another folder.

use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::lanes::Plan;
use crate::programs::Programs;
use crate::step::Step;
use crate::workspace::Workspace;

/// Builds the example, and plans a run per number of shards.
///
/// # Errors
/// `CONVOKE_SHARED` names a folder without the data set, or the example does not compile.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let named = std::env::var_os("CONVOKE_SHARED").map(PathBuf::from);
    plan_in(workspace.root(), named.as_deref(), || Programs::build(workspace)?.run("graph"))
}

fn plan_in(
    root: &Path,
    named: Option<&Path>,
    build: impl FnOnce() -> anyhow::Result<Step>,
) -> anyhow::Result<Plan> {
    let data = named.unwrap_or(Path::new("../shared")).join("data").join("ldbc-snb");
    if root.join(&data).is_dir() {
        let program = build()?;
        let steps = SHARD_COUNTS.iter().map(|shards| step(&program, &data, shards));
        return Ok(Plan::Run(steps.collect()));
    }
    // A folder someone named is one they count on: not a reason to skip.
    ensure!(named.is_none(), "CONVOKE_SHARED is set, but {} is no folder", data.display());
    let hint = "set CONVOKE_SHARED to the folder that holds data/ldbc-snb";
    Ok(Plan::Skip(format!("{} is no folder: {hint}", data.display())))
}

fn step(program: &Step, data: &Path, shards: &str) -> Step {
    let check = program.clone().args(["check"]);
    check
        .args(["--data".to_owned(), data.display().to_string()])
        .args(["--expected".to_owned(), data.join("expected.jsonl").display().to_string()])
        .args(["--shards", shards])
}

/// One shard knows all; 4 divides the work; 7, a prime, spreads ids unlike any other count.
const SHARD_COUNTS: [&str; 3] = ["1", "4", "7"];

#[cfg(test)]
mod tests {
    use super::*;

    fn unbuilt() -> anyhow::Result<Step> {
        panic!("without data nothing is built")
    }

    #[test]
    fn data_that_nobody_named_may_be_absent() {
        let plan = plan_in(Path::new("no/such/root"), None, unbuilt).expect("a plan");
        assert!(matches!(plan, Plan::Skip(reason) if reason.contains("CONVOKE_SHARED")));
    }

    #[test]
    fn data_that_somebody_named_must_be_there() {
        let error = plan_in(Path::new("no/such/root"), Some(Path::new("elsewhere")), unbuilt);
        assert!(error.expect_err("there is no data").to_string().contains("elsewhere"));
    }

    #[test]
    fn a_step_names_data_expectation_and_shards() {
        let line = step(&Step::new("graph"), Path::new("data"), "7").to_string();
        assert!(line.contains("--data data --expected data"), "{line}");
        assert!(line.ends_with("expected.jsonl --shards 7"), "{line}");
    }
}
