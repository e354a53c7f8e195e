//! Builds that later lanes begin with or consist of, made while the tests of the lane `test` run.
//!
//! Tests wait for timers and for each other: half of two processors is idle meanwhile. The builds
//! yield to them. Optimised ones come first, since they share no folder of cargo with the tests;
//! the others begin once the tests are built. The lanes themselves build again, find it done, and
//! say what is wrong if it is not.

use std::thread::JoinHandle;
use std::time::Duration;

use super::{Plan, features, rdma};
use crate::counts;
use crate::programs::Programs;
use crate::step::Step;
use crate::workspace::Workspace;

/// Lane that leaves processors idle.
const IDLES: &str = "test";

/// The builds, on their way.
pub(super) struct Ahead {
    builder: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts what the selected lanes begin with, if `lane` leaves processors idle. Packages that
    /// the builds need are fetched beside the lane, too.
    pub(super) fn begin(
        lane: &str,
        workspace: &Workspace,
        is_selected: impl Fn(&str) -> bool + Send + 'static,
        limit: Duration,
    ) -> Self {
        let workspace = workspace.clone();
        let build = move || {
            for step in steps(&workspace, &is_selected).iter().filter_map(Step::yielding) {
                println!("$ {step} &");
                // Its lane says what has become of it.
                let _ = step.run_unheard(limit, workspace.root());
            }
        };
        Self { builder: (lane == IDLES).then(|| std::thread::spawn(build)) }
    }

    /// Waits for their end.
    pub(super) fn end(self) {
        if let Some(builder) = self.builder {
            builder.join().expect("it leaves errors alone");
        }
    }
}

/// All that these lanes begin with or consist of, the optimised builds first.
fn steps(workspace: &Workspace, is_selected: impl Fn(&str) -> bool) -> Vec<Step> {
    let mut of_rdma = Vec::new();
    if is_selected("rdma") {
        rdma::install();
        of_rdma = rdma::builds(workspace).unwrap_or_default(); // or the lane says why not
    }
    [builds(&is_selected), of_rdma, checks(workspace, &is_selected)].concat()
}

/// The optimised builds of these lanes, in the order of the lanes.
fn builds(is_selected: impl Fn(&str) -> bool) -> Vec<Step> {
    let mut builds = Vec::new();
    if ["sim", "graph", "rdma"].into_iter().any(&is_selected) {
        builds.push(Programs::build_all());
    }
    if is_selected("counts") {
        builds.extend(counts::builds());
    }
    if is_selected("fuzz") {
        builds.push(super::fuzz_test().args(["--no-run"]));
    }
    builds
}

/// Plans a lane.
type Planner = fn(&Workspace) -> anyhow::Result<Plan>;

/// The steps of those of these lanes that compile and run nothing, in the order of the lanes. Lanes
/// that cannot be planned say so themselves.
fn checks(workspace: &Workspace, is_selected: impl Fn(&str) -> bool) -> Vec<Step> {
    let lanes: [(&str, Planner); 3] =
        [("features", features::plan), ("docs", super::docs), ("rdma", rdma::plan_checks)];
    let steps = |plan| match plan {
        Ok(Plan::Run(steps) | Plan::Partly(steps, _)) => steps,
        _ => Vec::new(),
    };
    let selected = lanes.into_iter().filter(|(name, _)| is_selected(name));
    selected.flat_map(|(_, plan)| steps(plan(workspace))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_ahead_is_what_the_selected_lanes_build() {
        let of = |selected: &[&str]| builds(|lane| selected.contains(&lane));
        assert_eq!(of(&["test", "fmt", "docs"]), []);
        assert_eq!(of(&["graph"]), of(&["sim", "rdma"]));
        let lines: Vec<_> = of(&["counts", "fuzz"]).iter().map(Step::to_string).collect();
        let counted = "cargo build --release -p profile";
        let with_all = "cargo build --release -p profile --features everything";
        let fuzz = "cargo test --release -p convoke-proto --test fuzz_decoders --no-run";
        assert_eq!(lines, [counted, with_all, fuzz]);
    }

    #[test]
    fn what_only_compiles_is_compiled_ahead_where_its_lane_is_selected() {
        let workspace = Workspace::find().expect("this is in it");
        assert_eq!(checks(&workspace, |lane| lane == "test"), []);
        let docs = checks(&workspace, |lane| lane == "docs");
        assert_eq!(Plan::Run(docs), crate::lanes::docs(&workspace).expect("it has members"));
        let lines = checks(&workspace, |lane| lane == "features");
        let first = "cargo clippy -p convoke --no-default-features -- -D warnings";
        assert!(lines.iter().any(|step| step.to_string() == first), "{lines:?}");
        let can_build = crate::rdma::missing_to_build().is_empty();
        assert_eq!(checks(&workspace, |lane| lane == "rdma").is_empty(), !can_build);
    }
}
