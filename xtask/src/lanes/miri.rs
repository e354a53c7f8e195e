//! Lane `miri`: the tests of the code that is `unsafe`, run by an interpreter that knows what is
//! undefined.
//!
//! Only those that need neither a device nor a runtime of threads: they take a minute or two behind
//! the build. Under both models of what a reference may alias, since neither has been decided on.

use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::Workspace;

const COMPONENTS: [&str; 2] = ["miri", "rust-src"];
const MODELS: [&str; 2] =
    ["-Zmiri-disable-isolation", "-Zmiri-disable-isolation -Zmiri-tree-borrows"];
/// The slab, the simulated devices that work on it, and what reads a peer's bytes.
const TESTS: [&str; 3] = ["ffi::slab::tests", "provider::simulated::tests", "framing::"];
/// Of each property. A case takes about a second.
const CASES: &str = "2";

/// Plans the run, if the nightly toolchain has Miri.
///
/// # Errors
/// None; a missing toolchain is a reason to skip.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let list = ["component", "list", "--toolchain", "nightly", "--installed"];
    let installed = workspace.output_of("rustup", &list).unwrap_or_default();
    Ok(plan_with(&String::from_utf8_lossy(&installed)))
}

fn plan_with(installed: &str) -> Plan {
    let has = |component: &str| installed.lines().any(|line| line.starts_with(component));
    if !COMPONENTS.into_iter().all(has) {
        let install = "rustup toolchain install nightly --profile minimal -c miri,rust-src";
        return Plan::Skip(format!("Miri is missing: `{install}`"));
    }
    Plan::Run(MODELS.map(run).into())
}

fn run(flags: &str) -> Step {
    let test = ["+nightly", "miri", "test", "-p", "convoke-transport-rdma", "--lib", "--"];
    Step::cargo(test).args(TESTS).env("MIRIFLAGS", flags).env("PROPTEST_CASES", CASES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_miri_runs_the_tests_under_both_models() {
        let Plan::Run(steps) = plan_with("cargo-x86\nmiri-x86_64-unknown-linux-gnu\nrust-src\n")
        else {
            panic!("it is installed")
        };
        let lines: Vec<_> = steps.iter().map(Step::to_string).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with("ffi::slab::tests provider::simulated::tests framing::"));
        assert!(lines[1].contains("-Zmiri-tree-borrows\" PROPTEST_CASES=2 cargo +nightly miri"));
    }

    #[test]
    fn a_missing_component_is_skipped_with_the_command_that_installs_it() {
        for installed in ["", "miri-x86_64-unknown-linux-gnu\n", "rust-src\n"] {
            let Plan::Skip(reason) = plan_with(installed) else { panic!("one is missing") };
            assert!(reason.contains("-c miri,rust-src"), "{reason}");
        }
    }
}
