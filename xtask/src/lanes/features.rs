//! Lane `features`: every member that has features builds without any and with each alone.
//!
//! Those that need something of the system are among them where that is installed; where it is not,
//! the lane says so and goes on.
//!
//! Clippy does the checking, not `cargo check`: it reports the compiler's warnings too, and can
//! deny them for the members alone. `RUSTFLAGS` would do so as well but rebuild every dependency.

use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::{Package, Workspace};

/// Plans a check per feature.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let (members, missing) = (workspace.members()?, crate::rdma::missing_to_build());
    if !missing.is_empty() {
        println!("SKIPPED: {}: missing {}", system_features(&members), missing.join(" "));
    }
    Ok(Plan::Run(steps(&members, missing.is_empty())))
}

/// These have features by design: were they to lose them unnoticed, the lane would check nothing.
const MUST_HAVE_FEATURES: [&str; 3] = ["convoke", "convoke-core", "convoke-proto"];

/// The features that need something of the system, for the eyes of a reader.
fn system_features(members: &[Package]) -> String {
    let of = |package: &Package| {
        let names = package.system_features.iter();
        names.map(|feature| format!("{}/{feature}", package.name)).collect::<Vec<_>>()
    };
    members.iter().flat_map(of).collect::<Vec<_>>().join(", ")
}

/// A check for each feature, those that need something of the system among them if that
/// `has_system`.
fn steps(members: &[Package], has_system: bool) -> Vec<Step> {
    let is_checked = |package: &&Package| {
        !package.features.is_empty() || MUST_HAVE_FEATURES.contains(&package.name.as_str())
    };
    let steps_of = |package| steps_of(package, has_system);
    members.iter().filter(is_checked).flat_map(steps_of).collect()
}

fn steps_of(package: &Package, has_system: bool) -> Vec<Step> {
    let alone = package.features.iter().filter(|feature| *feature != "default");
    let system = package.system_features.iter().filter(|_| has_system);
    let alone = alone.chain(system).map(Some);
    std::iter::once(None).chain(alone).map(|feature| step(&package.name, feature)).collect()
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

    fn package(name: &str, features: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: None,
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
            system_features: Vec::new(),
        }
    }

    #[test]
    fn each_feature_is_checked_alone_and_default_is_not_one() {
        let members = [package("convoke", &["default", "tcp"]), package("graph", &[])];
        let lines: Vec<_> = steps(&members, true).iter().map(Step::to_string).collect();
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
        assert_eq!(steps(&[package("convoke-proto", &[])], true).len(), 1);
    }

    #[test]
    fn what_needs_the_system_is_checked_where_that_has_it_and_named_where_it_has_not() {
        let wired =
            Package { system_features: vec!["verbs".to_owned()], ..package("wired", &["mutants"]) };
        let members = [wired, package("graph", &[])];
        let lines: Vec<_> = steps(&members, true).iter().map(Step::to_string).collect();
        let verbs = "cargo clippy -p wired --no-default-features --features verbs -- -D warnings";
        assert_eq!((lines.len(), lines[2].as_str()), (3, verbs));
        assert_eq!(steps(&members, false).len(), 2);
        assert_eq!(system_features(&members), "wired/verbs");
    }
}
