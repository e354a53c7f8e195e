//! Lane `features`: every member that has features builds without any and with each alone.
//!
//! Those that need something of the system are the lane `rdma`'s. Clippy does the checking, not `cargo check`: it reports the compiler's warnings too, and can deny
//! them for the members alone. `RUSTFLAGS` would do so as well but rebuild every dependency.

use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::{Package, Workspace};

/// Plans a check per feature.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    Ok(Plan::Run(steps(&workspace.members()?)))
}

/// These have features by design: were they to lose them unnoticed, the lane would check nothing.
const MUST_HAVE_FEATURES: [&str; 3] = ["convoke", "convoke-core", "convoke-proto"];

fn steps(members: &[Package]) -> Vec<Step> {
    let is_checked = |package: &&Package| {
        !package.features.is_empty() || MUST_HAVE_FEATURES.contains(&package.name.as_str())
    };
    members.iter().filter(is_checked).flat_map(steps_of).collect()
}

fn steps_of(package: &Package) -> Vec<Step> {
    let alone = package.features.iter().filter(|feature| *feature != "default").map(Some);
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
        let lines: Vec<_> = steps(&members).iter().map(Step::to_string).collect();
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
        assert_eq!(steps(&[package("convoke-proto", &[])]).len(), 1);
    }
}
