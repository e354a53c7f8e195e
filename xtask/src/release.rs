//! `cargo xtask release`: all that has to hold before the crates are published.
//!
//! It asks for tools that take minutes to compile, so `cargo xtask test` runs none of them on its
//! own account. It publishes nothing.

use std::process::ExitCode;

use anyhow::bail;

use crate::lanes::{self, Selection};
use crate::step::{CANNOT_RUN, Step};
use crate::workspace::Workspace;

/// Tools, by how each is asked for its version, and the package that installs it.
const TOOLS: [(&[&str], &str); 3] = [
    (&["cargo", "deny"], "cargo-deny"),
    (&["cargo", "semver-checks"], "cargo-semver-checks"),
    (&["mdbook"], "mdbook"),
];

/// Runs the lanes of a release and prints their table.
///
/// # Errors
/// A tool cannot be installed.
pub(crate) fn run(
    workspace: &Workspace,
    only: Vec<String>,
    with_install: bool,
) -> anyhow::Result<ExitCode> {
    let is_missing = |tool: &[&str]| {
        let question = [&tool[1..], &["--version"]].concat();
        workspace.output_of(tool[0], &question).is_err()
    };
    let missing = TOOLS.into_iter().filter(|(tool, _)| is_missing(tool));
    for step in missing.map(|(_, package)| install(package)) {
        if !with_install {
            println!("missing: `{step}`, or `cargo xtask release --install`");
            continue;
        }
        println!("$ {step}");
        if !step.run(workspace.root())? {
            bail!("`{step}` failed");
        }
    }
    let selection = Selection { only, ..Selection::default() };
    let report = lanes::run_lanes(workspace, lanes::RELEASE, &selection);
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

fn install(package: &str) -> Step {
    Step::cargo(["install", "--locked", package])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_installed_by_the_packages_that_bring_them() {
        let lines = TOOLS.map(|(_, package)| install(package).to_string());
        let expected = [
            "cargo install --locked cargo-deny",
            "cargo install --locked cargo-semver-checks",
            "cargo install --locked mdbook",
        ];
        assert_eq!(lines, expected);
    }
}
