//! Lane `features`: every published crate that has features builds without any and with each alone.
//!
//! Those that need something of the system are among them where that is installed; where it is not,
//! the lane says so and goes on. Features of examples and benches are for each other: the lane
//! `clippy` turns them on all together.
//!
//! Clippy does the checking, not `cargo check`: it reports the compiler's warnings too, and can
//! deny them for the members alone. `RUSTFLAGS` would do so as well but rebuild every dependency.

use crate::lanes::Plan;
use crate::published::{Published, published};
use crate::step::Step;
use crate::workspace::Workspace;

/// Plans a check per feature, and says which features cannot be checked here.
///
/// # Errors
/// `cargo metadata` fails, or a manifest cannot be read.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    Ok(plan_for(&published(workspace)?, &crate::rdma::missing_to_build()))
}

fn plan_for(crates: &[Published], missing: &[&str]) -> Plan {
    let steps = steps(crates, missing.is_empty());
    if missing.is_empty() {
        return Plan::Run(steps);
    }
    let left_out = system_features(crates);
    Plan::Partly(steps, format!("without {left_out}: missing {}", missing.join(" ")))
}

/// These have features by design: were they to lose them unnoticed, the lane would check nothing.
const MUST_HAVE_FEATURES: [&str; 3] = ["convoke", "convoke-core", "convoke-proto"];

/// The features that need something of the system, for the eyes of a reader.
fn system_features(crates: &[Published]) -> String {
    let of = |one: &Published| {
        let names = one.system_features.iter();
        names.map(|feature| format!("{}/{feature}", one.name)).collect::<Vec<_>>()
    };
    crates.iter().flat_map(of).collect::<Vec<_>>().join(", ")
}

/// A check for each feature, those that need something of the system among them if that
/// `has_system`.
fn steps(crates: &[Published], has_system: bool) -> Vec<Step> {
    let is_checked = |one: &&Published| {
        !one.features.is_empty() || MUST_HAVE_FEATURES.contains(&one.name.as_str())
    };
    crates.iter().filter(is_checked).flat_map(|one| steps_of(one, has_system)).collect()
}

fn steps_of(one: &Published, has_system: bool) -> Vec<Step> {
    let system = one.system_features.iter().filter(|_| has_system);
    let alone = one.features.iter().chain(system).map(Some);
    std::iter::once(None).chain(alone).map(|feature| step(&one.name, feature)).collect()
}

fn step(package: &str, feature: Option<&String>) -> Step {
    let mut step = Step::cargo(["clippy", "-p", package, "--no-default-features"]);
    if let Some(feature) = feature {
        step = step.args(["--features", feature]);
    }
    step.args(["--", "-D", "warnings"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, features: &[&str]) -> Published {
        let features = features.iter().map(|&feature| feature.to_owned()).collect();
        Published { features, ..Published::example(name) }
    }

    #[test]
    fn each_feature_is_checked_alone() {
        let crates = [with("convoke", &["tcp"]), with("plain", &[])];
        let lines: Vec<_> = steps(&crates, true).iter().map(Step::to_string).collect();
        assert_eq!(
            lines,
            [
                "cargo clippy -p convoke --no-default-features -- -D warnings",
                "cargo clippy -p convoke --no-default-features --features tcp -- -D warnings",
            ]
        );
    }

    #[test]
    fn the_protocol_is_checked_without_features_whatever_it_declares() {
        assert_eq!(steps(&[with("convoke-proto", &[])], true).len(), 1);
    }

    #[test]
    fn what_needs_the_system_is_checked_where_that_has_it_and_named_where_it_has_not() {
        let system_features = vec!["verbs".to_owned()];
        let wired = Published { system_features, ..with("wired", &["mutants"]) };
        let crates = [wired, with("plain", &[])];
        let lines: Vec<_> = steps(&crates, true).iter().map(Step::to_string).collect();
        let verbs = "cargo clippy -p wired --no-default-features --features verbs -- -D warnings";
        assert_eq!((lines.len(), lines[2].as_str()), (3, verbs));
        assert_eq!(plan_for(&crates, &[]), Plan::Run(steps(&crates, true)));
        let reason = "without wired/verbs: missing libibverbs-dev".to_owned();
        let partly = Plan::Partly(steps(&crates, false), reason);
        assert_eq!(
            (plan_for(&crates, &["libibverbs-dev"]), steps(&crates, false).len()),
            (partly, 2)
        );
    }
}
