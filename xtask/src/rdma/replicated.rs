//! The replicated benchmark: `pbft bench` over the device and over TCP, of four replicas and one
//! client that makes empty requests. It judges itself: it fails where a frame was lost or a
//! receiver was not ready.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};

use crate::programs;
use crate::workspace::Workspace;

/// The program.
pub(crate) const PROGRAM: &str = "pbft";

/// Builds the program; hands back its path.
///
/// # Errors
/// It does not compile.
pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    // Of the packages that the lane `sim` builds together, so that it is there already.
    let build = programs::build(true).args(["--bin", PROGRAM]);
    let built = programs::executables(workspace, build)?.into_iter().next();
    built.map(|(_, path)| path).with_context(|| format!("cargo built no {PROGRAM}"))
}

/// Runs of the program, each a name and arguments, of which the suite adds the address and places
/// for results.
///
/// Races are real in the first, which is short and all of a quick run. Then each window has so many
/// requests for stability, and TCP has as many. The others compare, in rounds: what credits cost,
/// and what the transport and signatures make of it.
pub(crate) fn cases(is_long: bool, is_quick: bool) -> Vec<String> {
    let run = |name: &str, transport: &str, rest: &str| {
        format!("{name} bench --clients 1 --payload 0 --ledger ram --transport {transport} {rest}")
    };
    let races = format!("--auth none --window 2,8,32 --requests {RACES_REQUESTS}");
    let mut cases = vec![run(RACES, "rdma,tcp", &races)];
    if is_quick {
        return cases;
    }
    let requests = if is_long { 100_000 } else { 10_000 };
    cases.extend([2, 8, 32].map(|window| {
        let rest = format!("--auth none --window {window} --requests {requests}");
        run(&format!("stability-{window}"), "rdma", &rest)
    }));
    cases.push(run("stability-tcp", "tcp", &format!("--auth none --requests {requests}")));
    let credits = format!(
        "--auth none --window 32 --credits counted,unlimited --requests {CREDITS_REQUESTS} \
         --rounds {CREDITS_ROUNDS}"
    );
    cases.push(run("credits", "rdma", &credits));
    let transports = format!(
        "--auth none,signed --window 2,8,32 --requests {TRANSPORTS_REQUESTS} --rounds \
         {TRANSPORTS_ROUNDS}"
    );
    cases.push(run("transports", "rdma,tcp", &transports));
    cases
}

/// Name of the run in which races are real.
pub(crate) const RACES: &str = "races";

/// Requests at each window where races are real, which takes long: both processors are emulated,
/// and most of what they do is to wait for each other.
const RACES_REQUESTS: u32 = 300;

/// Requests of a round that compares credits, and of one that compares transports: where
/// instructions are counted times repeat, and a cluster takes as long to start as some hundreds.
const CREDITS_REQUESTS: u32 = 200;
const CREDITS_ROUNDS: u32 = 5;
const TRANSPORTS_REQUESTS: u32 = 100;
const TRANSPORTS_ROUNDS: u32 = 3;

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
        for (is_long, requests) in [(false, "--requests 10000"), (true, "--requests 100000")] {
            let cases = cases(is_long, false);
            for window in ["2", "8", "32"] {
                let name = format!("stability-{window} ");
                let stability = cases.iter().find(|case| case.starts_with(&name));
                let stability = stability.expect("it is there");
                let expected = format!("--window {window} {requests}");
                assert!(stability.ends_with(&expected), "{stability}");
            }
        }
    }

    #[test]
    fn a_quick_run_has_each_window_and_tcp_once() {
        let cases = cases(false, true);
        let [races] = &cases[..] else { panic!("{cases:?}") };
        assert!(races.contains("--transport rdma,tcp"), "{races}");
        assert!(races.ends_with("--window 2,8,32 --requests 300"), "{races}");
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
