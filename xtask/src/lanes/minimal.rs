//! Lane `minimal`: the oldest versions that the manifests allow are enough.
//!
//! A resolution of its own, in a lock file of its own below the target folder: each dependency that
//! a manifest names is of the lowest version that it says. Cargo has that behind a flag of
//! nightly.

use crate::lanes::Plan;
use crate::published::{Published, published};
use crate::step::Step;
use crate::workspace::Workspace;

/// Plans a resolution and a check of the published crates with it.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    if workspace.output_of("cargo", &["+nightly", "--version"]).is_err() {
        let install = "rustup toolchain install nightly --profile minimal";
        return Ok(Plan::Skip(format!("a nightly toolchain is missing: `{install}`")));
    }
    let lock_file = workspace.target()?.join("minimal").join("Cargo.lock");
    let lock_file = lock_file.display().to_string().replace('\\', "/");
    Ok(Plan::Run(steps(&lock_file, &published(workspace)?)))
}

fn steps(lock_file: &str, crates: &[Published]) -> Vec<Step> {
    let with_lock_file = |command: &str| {
        let own = format!("resolver.lockfile-path='{lock_file}'");
        Step::cargo(["+nightly", command, "--config"]).args([own])
    };
    let features = crates.iter().flat_map(|one| {
        one.features.iter().map(|feature| format!("{}/{feature}", one.name)).collect::<Vec<_>>()
    });
    let check = crates
        .iter()
        .fold(with_lock_file("check"), |step, one| step.args(["-p", &one.name]))
        .args(["--locked", "--lib", "--bins", "--features"])
        .args([features.collect::<Vec<_>>().join(",")]);
    vec![
        with_lock_file("generate-lockfile").args(["-Z", "direct-minimal-versions", "--quiet"]),
        check,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_of_the_repository_is_left_alone() {
        let crates = [Published::example("x"), Published::example("y")];
        let lines: Vec<_> = steps("t/Cargo.lock", &crates).iter().map(Step::to_string).collect();
        let own = "--config \"resolver.lockfile-path='t/Cargo.lock'\"";
        assert_eq!(
            lines,
            [
                format!(
                    "cargo +nightly generate-lockfile {own} -Z direct-minimal-versions --quiet"
                ),
                format!(
                    "cargo +nightly check {own} -p x -p y --locked --lib --bins \
                     --features x/a,x/b,y/a,y/b"
                ),
            ]
        );
    }
}
