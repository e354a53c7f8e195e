//! The replicated benchmark: `pbft bench` over the device and over TCP, of four replicas and one
//! client that makes empty requests. It judges itself: it fails where a frame was lost or a
//! receiver was not ready.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};
use cargo_metadata::Message;

use crate::step::Step;
use crate::workspace::Workspace;

/// The package and its program, with what lets it measure without flow control.
pub(crate) const PROGRAM: &str = "pbft";
const FEATURE: &str = "rdma-unlimited";

/// Builds the program; hands back its path.
///
/// # Errors
/// It does not compile.
pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let step = Step::cargo(["build", "--release", "-p", PROGRAM, "--bin", PROGRAM])
        .args(["--features", FEATURE])
        .args(["--message-format", "json-render-diagnostics"]);
    println!("$ {step}");
    let messages = step.output(workspace.root())?;
    let executable = |message| match message {
        Ok(Message::CompilerArtifact(artifact)) => artifact.executable.map(PathBuf::from),
        _ => None,
    };
    let built = Message::parse_stream(messages.as_bytes()).find_map(executable);
    built.with_context(|| format!("cargo built no {PROGRAM}"))
}

/// Runs of the program, each a name and arguments, of which the suite adds the address and places
/// for results.
///
/// The first is for stability: so many requests at each window. The others compare, in rounds:
/// what credits cost, and what the transport and signatures make of it.
pub(crate) fn cases(is_long: bool, is_quick: bool) -> Vec<String> {
    let requests = match (is_long, is_quick) {
        (true, _) => 100_000,
        (false, false) => 10_000,
        (false, true) => 1_000,
    };
    let (rounds, windows) = if is_quick { (1_u32, "32") } else { (5, "2,8,32") };
    let credit_rounds = rounds.max(3);
    let common = "--clients 1 --payload 0 --ledger ram";
    vec![
        format!(
            "stability bench {common} --transport rdma --auth none --window 2,8,32 --requests \
             {requests}"
        ),
        format!(
            "credits bench {common} --transport rdma --auth none --window 32 --credits \
             counted,unlimited --requests {CREDITS_REQUESTS} --rounds {credit_rounds}"
        ),
        format!(
            "transports bench {common} --transport rdma,tcp --auth none,signed --window {windows} \
             --requests {TRANSPORTS_REQUESTS} --rounds {rounds}"
        ),
    ]
}

/// Requests of a round that compares credits, and of one that compares transports: where
/// instructions are counted times repeat, and a cluster takes as long to start as some hundreds.
const CREDITS_REQUESTS: u32 = 200;
const TRANSPORTS_REQUESTS: u32 = 100;

/// Writes a file of results that a machine has handed out, below a folder.
///
/// # Errors
/// The name leads elsewhere, or the disk is full.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let is_below = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_below && !name.is_empty(), "a machine named a file {name:?}");
    let path = folder.join(PROGRAM).join(name);
    let parent = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stability_is_of_as_many_requests_at_each_window_as_was_asked_for() {
        let expected = [
            (false, false, "--requests 10000"),
            (true, false, "--requests 100000"),
            (false, true, "--requests 1000"),
        ];
        for (is_long, is_quick, requests) in expected {
            let cases = cases(is_long, is_quick);
            let stability = cases.iter().find(|case| case.starts_with("stability "));
            let stability = stability.expect("it is there");
            assert!(stability.ends_with(requests), "{stability}");
            assert!(stability.contains("--window 2,8,32"), "{stability}");
        }
    }

    #[test]
    fn a_machine_writes_nowhere_else() {
        let folder = std::env::temp_dir();
        for name in ["", "../out", "/etc/out", "a/../../out"] {
            let refused = write(&folder, name, "text").expect_err("it leads elsewhere");
            assert!(refused.to_string().contains("named a file"), "{refused}");
        }
    }
}
