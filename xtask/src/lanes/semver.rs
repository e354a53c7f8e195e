//! Lane `semver`: no published crate breaks what its last release promised.

use crate::lanes::Plan;
use crate::published::{Published, published};
use crate::step::Step;
use crate::workspace::Workspace;

/// Plans a comparison with the last tag, by cargo-semver-checks.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let tags = ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"];
    let tag = workspace.output_of("git", &tags).unwrap_or_default();
    let has_tool = workspace.output_of("cargo", &["semver-checks", "--version"]).is_ok();
    Ok(plan_with(String::from_utf8_lossy(&tag).trim(), has_tool, &published(workspace)?))
}

fn plan_with(tag: &str, has_tool: bool, crates: &[Published]) -> Plan {
    let mut reasons = Vec::new();
    if tag.is_empty() {
        reasons.push("no tag `v...` to compare with: nothing is released yet");
    }
    if !has_tool {
        reasons
            .push("cargo-semver-checks is missing: `cargo install --locked cargo-semver-checks`");
    }
    if !reasons.is_empty() {
        return Plan::Skip(reasons.join("; "));
    }
    Plan::Run(crates.iter().map(|one| step(one, tag)).collect())
}

/// Features are named, since all of them would need something of the system.
fn step(one: &Published, tag: &str) -> Step {
    let check = Step::cargo(["semver-checks", "-p", &one.name, "--baseline-rev", tag])
        .args(["--only-explicit-features"]);
    match &one.features[..] {
        [] => check,
        features => check.args(["--features".to_owned(), features.join(",")]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_is_compared_with_the_tag() {
        let Plan::Run(steps) = plan_with("v0.1.0", true, &[Published::example("x")]) else {
            panic!("there are a tag and a tool")
        };
        let lines: Vec<_> = steps.iter().map(Step::to_string).collect();
        let expected = "cargo semver-checks -p x --baseline-rev v0.1.0 --only-explicit-features \
                        --features a,b";
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn every_reason_to_skip_is_named() {
        let reason = |tag, has_tool| match plan_with(tag, has_tool, &[]) {
            Plan::Skip(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason("", true).contains("nothing is released yet"));
        assert!(reason("v1", false).contains("cargo install --locked cargo-semver-checks"));
        assert!(reason("", false).contains("released yet; cargo-semver-checks is missing"));
    }
}
