//! Lane `rdma`: the RDMA transport with the feature that needs a verbs library, in a machine that
//! has a device.
//!
//! The steps of `cargo xtask rdma`, but for the second look at everything: one machine, shorter
//! programs, each bench once. The other lanes leave such features out; clippy and the documentation
//! see them here.

use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::{Package, Workspace};

/// Plans the checks where a machine can be booted, or already could with packages that CI installs.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    Ok(match crate::rdma::reason_to_skip(is_ci()) {
        Some(reason) => Plan::Skip(reason),
        None => Plan::Run(steps(&workspace.members()?)),
    })
}

/// Installs in CI what the lane would install there: programs that it shares with other lanes are
/// others with verbs, and would be built twice.
pub(super) fn install() {
    if is_ci() {
        crate::rdma::install();
    }
}

/// The programs that the lane builds first, where they can be built.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn builds(workspace: &Workspace) -> anyhow::Result<Vec<Step>> {
    let can_build = crate::rdma::missing_to_build().is_empty();
    let build = if can_build { crate::rdma::build_programs(workspace)? } else { None };
    Ok(build.into_iter().collect())
}

/// Plans what the lane checks and does not run, where that can be built.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan_checks(workspace: &Workspace) -> anyhow::Result<Plan> {
    let can_build = crate::rdma::missing_to_build().is_empty();
    Ok(Plan::Run(if can_build { checks(&workspace.members()?) } else { Vec::new() }))
}

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !["", "0", "false"].contains(&value.as_str()))
}

fn steps(members: &[Package]) -> Vec<Step> {
    // The machine first: it is what installs the packages that the others build with.
    let machine = Step::cargo(["xtask", "rdma", "--quick", "--minutes", "30"]);
    [vec![machine], checks(members)].concat()
}

fn checks(members: &[Package]) -> Vec<Step> {
    let packages = members.iter().filter(|package| !package.system_features.is_empty());
    let packages = packages.flat_map(|package| ["-p", package.name.as_str()]);
    // All at once: each for itself would build much of what they share again.
    let every = |command| Step::cargo([command]).args(packages.clone()).args(["--all-features"]);
    let doc = every("doc").args(["--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    vec![every("clippy").args(["--all-targets", "--", "-D", "warnings"]), doc]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_with_such_features_are_checked_with_all_of_them() {
        let package = |name: &str, system_features: &[&str]| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: None,
            features: vec!["tcp".to_owned()],
            system_features: system_features.iter().map(|&feature| feature.to_owned()).collect(),
        };
        let steps = steps(&[
            package("plain", &[]),
            package("node", &["rdma"]),
            package("wired", &["verbs"]),
        ]);
        let lines: Vec<_> = steps.iter().map(Step::to_string).collect();
        assert_eq!(
            lines,
            [
                "cargo xtask rdma --quick --minutes 30",
                "cargo clippy -p node -p wired --all-features --all-targets -- -D warnings",
                "RUSTDOCFLAGS=\"-D warnings\" cargo doc -p node -p wired --all-features --no-deps",
            ]
        );
    }
}
