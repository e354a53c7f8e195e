//! Programs that lanes run as users do, optimised.
//!
//! One build makes them all. Were each built where it runs, by `cargo run -p`, it would have the
//! features that it alone needs, and most of what they share would be compiled once for each. Where
//! a library of verbs is installed, pbft has it here, too: the lane `rdma` runs the same program.

use std::path::PathBuf;

use crate::step::Step;
use crate::workspace::Workspace;

/// Packages whose programs these are.
const PACKAGES: [&str; 4] = ["convoke-sim", "graph", "paxos", "pbft"];

/// Feature of pbft that uses verbs, without flow control where it is told so. The others have none
/// of this name. It is not `pbft/rdma-unlimited`: cargo takes that for a feature of what the tests
/// of pbft depend on, which is pbft, and leaves it out where no test is built.
const WITH_VERBS: [&str; 2] = ["--features", "rdma-unlimited"];

/// Folder of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Programs of this repository, wherever cargo leaves them.
    ///
    /// # Errors
    /// `cargo metadata` fails.
    pub(crate) fn of(workspace: &Workspace) -> anyhow::Result<Self> {
        Ok(Self { folder: workspace.target()?.join("release") })
    }

    /// Builds them all; comes before the first that runs.
    pub(crate) fn build_all() -> Step {
        build(crate::rdma::missing_to_build().is_empty()).args(["--bins"])
    }

    /// Runs the program of this name.
    pub(crate) fn run(&self, name: &str) -> Step {
        Step::new(&self.folder.join(name).display().to_string())
    }
}

/// Builds those that arguments behind it choose, with verbs or without.
pub(crate) fn build(has_verbs: bool) -> Step {
    let packages = PACKAGES.into_iter().flat_map(|package| ["-p", package]);
    let verbs = WITH_VERBS.into_iter().filter(|_| has_verbs);
    Step::cargo(["build", "--release"]).args(packages).args(verbs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_builds_what_others_run() {
        let line = build(false).args(["--bins"]).to_string();
        assert_eq!(line, "cargo build --release -p convoke-sim -p graph -p paxos -p pbft --bins");
        assert!(build(true).to_string().ends_with("-p pbft --features rdma-unlimited"));
        let programs = Programs { folder: PathBuf::from("target/release") };
        let run = programs.run("sim").args(["--seeds", "1"]).to_string();
        assert_eq!(run.replace('\\', "/"), "target/release/sim --seeds 1");
    }
}
