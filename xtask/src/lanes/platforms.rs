//! Lane `platforms`: the default features build for Windows and macOS, as far as can be told from
//! here.
//!
//! `cargo check` links nothing, so it needs no more of the other system than its standard library,
//! and nothing in the default build is compiled by another compiler.

use std::path::Path;

use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::Workspace;

/// Plans a check for each system whose standard library is installed, and says which others are not
/// checked.
///
/// # Errors
/// None; a missing library is a reason to skip.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let is_installed = |target: &&str| {
        let folder = ["--print", "target-libdir", "--target", target];
        let folder = workspace.output_of("rustc", &folder).unwrap_or_default();
        Path::new(String::from_utf8_lossy(&folder).trim()).is_dir()
    };
    let (installed, missing): (Vec<_>, Vec<_>) = TARGETS.into_iter().partition(is_installed);
    Ok(plan_with(&installed, &missing))
}

fn plan_with(installed: &[&str], missing: &[&str]) -> Plan {
    let reason = format!(
        "no standard library of {}: `rustup target add {}`",
        missing.join(" nor "),
        missing.join(" ")
    );
    let check = |target: &&str| Step::cargo(["check", "-p", "convoke", "--target", target]);
    let checks = installed.iter().map(check).collect();
    match (installed, missing) {
        ([], _) => Plan::Skip(reason),
        (_, []) => Plan::Run(checks),
        _ => Plan::Partly(checks, reason),
    }
}

const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_at_hand_are_checked() {
        let Plan::Partly(steps, reason) = plan_with(&TARGETS[..1], &TARGETS[1..]) else {
            panic!("one of two is at hand")
        };
        let lines: Vec<_> = steps.iter().map(Step::to_string).collect();
        assert_eq!(lines, ["cargo check -p convoke --target x86_64-pc-windows-gnu"]);
        assert!(reason.ends_with("`rustup target add aarch64-apple-darwin`"), "{reason}");
        assert!(matches!(plan_with(&TARGETS, &[]), Plan::Run(steps) if steps.len() == 2));
    }

    #[test]
    fn none_at_hand_is_a_reason_to_skip_that_names_both() {
        let Plan::Skip(reason) = plan_with(&[], &TARGETS) else { panic!("none is at hand") };
        assert!(TARGETS.iter().all(|target| reason.contains(target)), "{reason}");
        assert!(reason.contains("rustup target add"), "{reason}");
    }
}
