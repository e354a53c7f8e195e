//! Programs that lanes run as users do, optimised.
//!
//! One build makes them all. Were each built where it runs, by `cargo run -p`, it would have the
//! features that it alone needs, and most of what they share would be compiled once for each. Where
//! a library of verbs is installed, pbft has it here, too: the lane `rdma` runs the same program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use cargo_metadata::{Message, Target};

use crate::lanes::HANGS;
use crate::step::Step;
use crate::workspace::Workspace;

/// Packages whose programs these are.
const PACKAGES: [&str; 4] = ["convoke-sim", "graph", "paxos", "pbft"];

/// Feature of pbft that uses verbs, without flow control where it is told so. The others have none
/// of this name. It is not `pbft/rdma-unlimited`: cargo takes that for a feature of what the tests
/// of pbft depend on, which is pbft, and leaves it out where no test is built.
const WITH_VERBS: [&str; 2] = ["--features", "rdma-unlimited"];

/// Paths of the programs, by name.
#[derive(Clone, Debug)]
pub(crate) struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    /// Builds the programs of this repository.
    ///
    /// # Errors
    /// One of them does not compile.
    pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<Self> {
        let built = executables(workspace, Self::build_all())?.into_iter();
        Ok(Self(built.map(|(target, path)| (target.name, path)).collect()))
    }

    /// Builds them all.
    pub(crate) fn build_all() -> Step {
        build(crate::rdma::missing_to_build().is_empty()).args(["--bins"])
    }

    /// Runs the program of this name.
    ///
    /// # Errors
    /// There is no such program.
    pub(crate) fn run(&self, name: &str) -> anyhow::Result<Step> {
        let path = self.0.get(name).with_context(|| format!("cargo built no {name}"))?;
        Ok(Step::new(&path.display().to_string()))
    }
}

/// Builds by this command of cargo, and gives the programs that it has made, each with what it is
/// of. Cargo alone knows where they are: `CARGO_BUILD_TARGET` and its settings move them.
///
/// # Errors
/// Something does not compile.
pub(crate) fn executables(
    workspace: &Workspace,
    build: Step,
) -> anyhow::Result<Vec<(Target, PathBuf)>> {
    let step = build.args(["--message-format", "json-render-diagnostics"]);
    println!("$ {step}");
    let messages = step.output_within(HANGS, workspace.root())?;
    let messages = Message::parse_stream(messages.as_bytes());
    Ok(messages.filter_map(|message| executable(message.ok()?)).collect())
}

/// The program that a message of cargo speaks of, if it is of one.
fn executable(message: Message) -> Option<(Target, PathBuf)> {
    let Message::CompilerArtifact(built) = message else { return None };
    Some((built.target, built.executable?.into()))
}

/// Builds those that arguments behind it choose, with verbs or without.
pub(crate) fn build(has_verbs: bool) -> Step {
    let packages = PACKAGES.into_iter().flat_map(|package| ["-p", package]);
    let verbs = WITH_VERBS.into_iter().filter(|_| has_verbs);
    Step::cargo(["build", "--release"]).args(packages).args(verbs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_command_builds_what_others_run() {
        let line = build(false).args(["--bins"]).to_string();
        assert_eq!(line, "cargo build --release -p convoke-sim -p graph -p paxos -p pbft --bins");
        assert!(build(true).to_string().ends_with("-p pbft --features rdma-unlimited"));
    }

    #[test]
    fn a_program_runs_where_cargo_says_that_it_is() {
        let message = |executable: Option<&str>| {
            let target = json!({"kind": ["bin"], "name": "sim", "src_path": "/x.rs"});
            let profile = json!({
                "opt_level": "3", "debug_assertions": false, "overflow_checks": false,
                "test": false
            });
            let message = json!({
                "reason": "compiler-artifact", "package_id": "x", "profile": profile,
                "features": [], "filenames": [], "executable": executable, "fresh": true,
                "target": target
            });
            serde_json::from_value(message).expect("a message of cargo")
        };
        let path = "/target/x86_64-unknown-linux-musl/release/sim";
        let (target, found) = executable(message(Some(path))).expect("a program");
        let programs = Programs(BTreeMap::from([(target.name, found)]));
        let run = programs.run("sim").expect("it was built").args(["--seeds", "1"]);
        assert_eq!(run.to_string(), format!("{path} --seeds 1"));
        assert!(programs.run("graph").is_err());
        assert_eq!(executable(message(None)), None);
        assert_eq!(executable(Message::TextLine("warning: something".to_owned())), None);
    }
}
