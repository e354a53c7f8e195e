//! `cargo xtask release`: all that has to hold before the crates are published.
//!
//! It asks for tools that take minutes to compile, so `cargo xtask test` runs none of them on its
//! own account. It publishes nothing.

use std::process::ExitCode;

use anyhow::bail;

use crate::lanes::{self, Selection};
use crate::step::{CANNOT_RUN, Step};
use crate::workspace::Workspace;

/// Tools as `cargo NAME`, which the package `cargo-NAME` installs.
const TOOLS: [&str; 2] = ["deny", "semver-checks"];

/// Runs the lanes of a release and prints their table.
///
/// # Errors
/// A tool cannot be installed.
pub(crate) fn run(workspace: &Workspace, with_install: bool) -> anyhow::Result<ExitCode> {
    let is_missing = |tool: &&str| workspace.output_of("cargo", &[tool, "--version"]).is_err();
    let missing: Vec<_> = TOOLS.into_iter().filter(is_missing).collect();
    for step in missing.into_iter().map(install) {
        if !with_install {
            println!("missing: `{step}`, or `cargo xtask release --install`");
            continue;
        }
        println!("$ {step}");
        if !step.run(workspace.root())? {
            bail!("`{step}` failed");
        }
    }
    let report = lanes::run_lanes(workspace, lanes::RELEASE, &Selection::default());
    print!("\n{report}");
    Ok(if report.has_failures() {
        ExitCode::FAILURE
    } else if report.has_skips() {
        println!("nothing failed, and not everything ran");
        ExitCode::from(CANNOT_RUN)
    } else {
        ExitCode::SUCCESS
    })
}

fn install(tool: &str) -> Step {
    Step::cargo(["install", "--locked"]).args([format!("cargo-{tool}")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_installed_by_the_packages_that_bring_them() {
        let lines = TOOLS.map(|tool| install(tool).to_string());
        let expected =
            ["cargo install --locked cargo-deny", "cargo install --locked cargo-semver-checks"];
        assert_eq!(lines, expected);
    }
}
