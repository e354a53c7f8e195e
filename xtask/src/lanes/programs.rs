//! Programs that lanes run as users do, optimised.
//!
//! One build makes them all. Were each built where it runs, by `cargo run -p`, it would have the
//! features that it alone needs, and most of what they share would be compiled once for each.

use std::path::PathBuf;

use crate::step::Step;
use crate::workspace::Workspace;

/// Packages whose programs these are.
const PACKAGES: [&str; 4] = ["convoke-sim", "graph", "paxos", "pbft"];

/// Folder of the programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Programs of this repository, wherever cargo leaves them.
    ///
    /// # Errors
    /// `cargo metadata` fails.
    pub(super) fn of(workspace: &Workspace) -> anyhow::Result<Self> {
        Ok(Self { folder: workspace.target()?.join("release") })
    }

    /// Builds them all; comes before the first that runs.
    pub(super) fn build() -> Step {
        let packages = PACKAGES.into_iter().flat_map(|package| ["-p", package]);
        Step::cargo(["build", "--release", "--bins"]).args(packages)
    }

    /// Runs the program of this name.
    pub(super) fn run(&self, name: &str) -> Step {
        Step::new(&self.folder.join(name).display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_builds_what_others_run() {
        let line = Programs::build().to_string();
        assert_eq!(line, "cargo build --release --bins -p convoke-sim -p graph -p paxos -p pbft");
        let programs = Programs { folder: PathBuf::from("target/release") };
        let run = programs.run("sim").args(["--seeds", "1"]).to_string();
        assert_eq!(run.replace('\\', "/"), "target/release/sim --seeds 1");
    }
}
