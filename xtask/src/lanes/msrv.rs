//! Lane `msrv`: the oldest Rust that the manifest promises builds the workspace.

use anyhow::Context;

use crate::features::all_portable;
use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::Workspace;

/// Plans a check with that toolchain, if rustup has it.
///
/// # Errors
/// The root manifest names no `rust-version`, or `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let version = rust_version(&workspace.read("Cargo.toml")?)?;
    let Ok(installed) = workspace.output_of("rustup", &["toolchain", "list"]) else {
        return Ok(Plan::Skip(format!("rustup, which would run Rust {version}, is missing")));
    };
    let features = all_portable(workspace)?;
    Ok(plan_with(&version, &String::from_utf8_lossy(&installed), features))
}

fn plan_with(version: &str, installed: &str, features: [String; 2]) -> Plan {
    match toolchain(version, installed) {
        Some(toolchain) => {
            let check = Step::cargo([format!("+{toolchain}")]).args(["check", "--workspace"]);
            Plan::Run(vec![check.args(features)])
        }
        None => {
            let install = format!("rustup toolchain install {version} --profile minimal");
            Plan::Skip(format!("Rust {version} is missing: `{install}`"))
        }
    }
}

/// `workspace.package.rust-version` of the root manifest.
fn rust_version(manifest: &str) -> anyhow::Result<String> {
    let manifest: toml::Table = manifest.parse().context("reading Cargo.toml")?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")?.as_str());
    Ok(version.context("Cargo.toml has no `workspace.package.rust-version`")?.to_owned())
}

/// The name of the installed toolchain of this version: `1.88` is also served by `1.88.0`.
fn toolchain<'a>(version: &str, installed: &'a str) -> Option<&'a str> {
    let names = installed.lines().filter_map(|line| line.split(['-', ' ']).next());
    let is_patch = |rest: &str| rest.is_empty() || rest.starts_with('.');
    names.into_iter().find(|name| name.strip_prefix(version).is_some_and(is_patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALLED: &str = "\
stable-x86_64-unknown-linux-gnu (active, default)
nightly-2025-01-88-x86_64-unknown-linux-gnu
1.88.0-x86_64-unknown-linux-gnu
1.9-x86_64-pc-windows-msvc
";

    #[test]
    fn a_toolchain_is_found_by_version_and_by_patch() {
        assert_eq!(toolchain("1.88", INSTALLED), Some("1.88.0"));
        assert_eq!(toolchain("1.88.0", INSTALLED), Some("1.88.0"));
        assert_eq!(toolchain("1.9", INSTALLED), Some("1.9"));
        assert_eq!(toolchain("1.8", INSTALLED), None);
        assert_eq!(toolchain("1.90", INSTALLED), None);
    }

    #[test]
    fn an_installed_toolchain_checks_the_workspace() {
        let features = ["--features", "a/b"].map(str::to_owned);
        let expected = Step::cargo(["+1.9", "check", "--workspace", "--features", "a/b"]);
        assert_eq!(plan_with("1.9", INSTALLED, features), Plan::Run(vec![expected]));
    }

    #[test]
    fn a_missing_toolchain_is_skipped_with_the_command_that_installs_it() {
        let features = ["--features", "a/b"].map(str::to_owned);
        let Plan::Skip(reason) = plan_with("1.77", INSTALLED, features) else {
            panic!("not installed")
        };
        assert!(reason.contains("rustup toolchain install 1.77"), "{reason}");
    }

    #[test]
    fn the_version_is_read_from_the_manifest() {
        let manifest = "[workspace.package]\nrust-version = \"1.88\"";
        assert_eq!(rust_version(manifest).expect("a version"), "1.88");
        assert!(rust_version("[package]\nrust-version = \"1.88\"").is_err());
    }
}
