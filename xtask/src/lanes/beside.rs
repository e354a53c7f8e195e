//! A step of a later lane that runs beside the lanes before it: a virtual machine keeps one
//! processor busy, and most of those the other.

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use super::{Plan, rdma};
use crate::step::Step;
use crate::workspace::Workspace;

/// Lane at whose start it begins: the first behind the builds that it needs.
const BEGINS: &str = "features";

/// The step, on its way.
pub(super) struct Beside {
    step: Step,
    /// File of all that it prints.
    output: PathBuf,
    runner: JoinHandle<anyhow::Result<bool>>,
}

impl Beside {
    /// Starts the first step of the lane `rdma`, if that is selected and can run, and the time for
    /// it has come.
    pub(super) fn begin(
        lane: &str,
        workspace: &Workspace,
        is_selected: impl Fn(&str) -> bool,
        limit: Duration,
    ) -> Option<Self> {
        if lane != BEGINS || !is_selected("rdma") {
            return None;
        }
        // Where it cannot be planned or started, the lane says why in its turn.
        let Ok(Plan::Run(steps)) = rdma::plan(workspace) else { return None };
        let step = steps.into_iter().next()?;
        let output = workspace.target().ok()?.join("beside.log");
        let file = File::create(&output).ok()?;
        println!("$ {step} &");
        let (started, root) = (step.clone(), workspace.root().to_owned());
        let runner = std::thread::spawn(move || started.run_into(&file, limit, &root));
        Some(Self { step, output, runner })
    }

    /// True when this is the step.
    pub(super) fn is(&self, step: &Step) -> bool {
        self.step == *step
    }

    /// Waits for its end, and shows what it printed; true when it succeeded.
    ///
    /// # Errors
    /// As [`Step::run_within`].
    pub(super) fn end(self) -> anyhow::Result<bool> {
        let ended = self.runner.join().expect("it leaves errors alone");
        let printed = fs::read(&self.output).context("reading what it has printed")?;
        print!("{}", String::from_utf8_lossy(&printed));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(script: &str) -> Beside {
        let output = std::env::temp_dir().join(format!("beside-{}.log", std::process::id()));
        let step = Step::new("sh").args(["-c", script]);
        let file = File::create(&output).expect("there is room");
        let started = step.clone();
        let run = move || started.run_into(&file, Duration::MAX, &std::env::temp_dir());
        Beside { step, output, runner: std::thread::spawn(run) }
    }

    #[test]
    fn nothing_runs_beside_lanes_where_its_own_is_not_selected() {
        let workspace = Workspace::find().expect("this is in it");
        let begun = Beside::begin(BEGINS, &workspace, |lane| lane != "rdma", Duration::MAX);
        assert!(begun.is_none());
    }

    #[cfg(unix)]
    #[test]
    fn its_end_is_that_of_the_step_with_all_that_it_printed() {
        let running = beside("echo one; echo two >&2; exit 3");
        assert!(running.is(&Step::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])));
        assert!(!running.is(&Step::new("sh")));
        let output = running.output.clone();
        assert!(!running.end().expect("there is a shell"));
        let printed = fs::read_to_string(&output).expect("it is still there");
        assert_eq!(printed, "one\ntwo\n");
        fs::remove_file(output).expect("it is ours");
    }
}
