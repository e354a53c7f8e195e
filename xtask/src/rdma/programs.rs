//! Builds the programs that use verbs and asks them which tests they have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use cargo_metadata::Metadata;

use super::plan::{Kind, Program};
use super::replicated;
use crate::programs::executables;
use crate::step::Step;
use crate::workspace::Workspace;

/// The package whose programs these are, and the feature that they need to use a device.
const PACKAGE: &str = "convoke-transport-rdma";
const FEATURE: &str = "verbs";

/// Builds the programs of these kinds and leaves them in `folder` under the names of the plan; the
/// replicated benchmark with these runs.
///
/// # Errors
/// Something does not compile, or a program does not say which tests it has.
pub(crate) fn build(
    workspace: &Workspace,
    kinds: &[Kind],
    runs: Vec<String>,
    folder: &Path,
) -> anyhow::Result<Vec<Program>> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let mut programs: Vec<Program> = Vec::new();
    for Artifact { target: Target { kind, name }, path } in artifacts(workspace, kinds)? {
        ensure!(programs.iter().all(|other| other.name != name), "two programs are called {name}");
        without_debug_information(&path, &folder.join(&name))?;
        let cases = if kind == Kind::Bench { Vec::new() } else { cases(kind, &path)? };
        programs.push(Program { kind, name, cases });
    }
    if kinds.contains(&Kind::Replicated) {
        let (kind, name) = (Kind::Replicated, replicated::PROGRAM.to_owned());
        without_debug_information(&replicated::build(workspace)?, &folder.join(&name))?;
        programs.push(Program { kind, name, cases: runs });
    }
    Ok(programs)
}

/// A program that uses verbs, to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    kind: Kind,
    name: String,
}

/// A program as cargo left it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Artifact {
    target: Target,
    path: PathBuf,
}

/// Builds the programs of these kinds that are of the package, if there are any.
///
/// # Errors
/// `cargo metadata` fails.
pub(crate) fn build_step(workspace: &Workspace, kinds: &[Kind]) -> anyhow::Result<Option<Step>> {
    let targets = targets(&workspace.metadata()?)?;
    let chosen: Vec<&Target> =
        targets.iter().filter(|target| kinds.contains(&target.kind)).collect();
    // Optimised, as emulation is slow enough: the ordinary tests run with the compiler's checks.
    let build = Step::cargo(["test", "--release", "--no-run", "-p", PACKAGE, "--all-features"]);
    // Without a selection cargo would build them all.
    Ok((!chosen.is_empty()).then(|| build.args(chosen.into_iter().flat_map(Target::selection))))
}

fn artifacts(workspace: &Workspace, kinds: &[Kind]) -> anyhow::Result<Vec<Artifact>> {
    let Some(step) = build_step(workspace, kinds)? else { return Ok(Vec::new()) };
    let built = executables(workspace, step)?.into_iter();
    let artifact = |(target, path)| Target::read(&target).map(|target| Artifact { target, path });
    Ok(built.filter_map(artifact).collect())
}

impl Target {
    /// Reads it from the words of cargo, if it is one that uses verbs.
    fn read(target: &cargo_metadata::Target) -> Option<Self> {
        let name = target.name.as_str();
        let kind = match name {
            _ if target.is_lib() => Kind::Unit,
            _ if !target.required_features.iter().any(|one| one == FEATURE) => return None,
            _ if target.is_bench() => Kind::Bench,
            _ if name.starts_with("fault") => Kind::Fault,
            _ if target.is_test() => Kind::Conformance,
            _ => return None,
        };
        let name = if kind == Kind::Unit { "lib" } else { name };
        Some(Self { kind, name: name.to_owned() })
    }

    /// The arguments of cargo that choose it.
    fn selection(&self) -> Vec<String> {
        let name = || self.name.clone();
        match self.kind {
            Kind::Unit => vec!["--lib".to_owned()],
            Kind::Conformance | Kind::Fault => vec!["--test".to_owned(), name()],
            Kind::Bench => vec!["--bench".to_owned(), name()],
            Kind::Replicated => Vec::new(), // of another package
        }
    }
}

/// The programs of the package that use verbs.
fn targets(metadata: &Metadata) -> anyhow::Result<Vec<Target>> {
    let package = metadata.packages.iter().find(|package| package.name == PACKAGE);
    let package = package.with_context(|| format!("there is no package {PACKAGE}"))?;
    Ok(package.targets.iter().filter_map(Target::read).collect())
}

/// Programs are mostly what debuggers want to know; a machine would have it all in memory.
fn without_debug_information(from: &Path, to: &Path) -> anyhow::Result<()> {
    let strip = Command::new("strip").arg("--strip-debug").arg("-o").args([to, from]).status();
    ensure!(strip.context("`strip` could not be started")?.success(), "`strip` failed");
    Ok(())
}

fn cases(kind: Kind, program: &Path) -> anyhow::Result<Vec<String>> {
    let list = ["--list", "--format", "terse", "--include-ignored"];
    let output = Command::new(program).args(list).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{} could not be started", program.display()))?;
    ensure!(output.status.success(), "{} does not list its tests", program.display());
    Ok(cases_of(kind, &String::from_utf8_lossy(&output.stdout)))
}

/// The cases in what a program lists. Of the library's only those of modules that use verbs: the
/// others are pure, and the ordinary tests run them.
fn cases_of(kind: Kind, list: &str) -> Vec<String> {
    let uses_verbs =
        |case: &&str| kind != Kind::Unit || case.split("::").any(|part| part.starts_with("verbs"));
    let cases = list.lines().filter_map(|line| line.strip_suffix(": test")).filter(uses_verbs);
    cases.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workspace::package_saying;

    fn target(kind: &str, name: &str, needs: &[&str]) -> Value {
        json!({"kind": [kind], "name": name, "src_path": "/x.rs", "required-features": needs})
    }

    fn kind_of(kind: &str, name: &str, needs: &str) -> Option<(Kind, String)> {
        let target = serde_json::from_value(target(kind, name, &[needs])).expect("a target");
        Target::read(&target).map(|target| (target.kind, target.name))
    }

    #[test]
    fn programs_are_sorted_by_target_and_name() {
        let some = |kind, name: &str| Some((kind, name.to_owned()));
        assert_eq!(kind_of("lib", "convoke_x", ""), some(Kind::Unit, "lib"));
        assert_eq!(kind_of("test", "verbs", FEATURE), some(Kind::Conformance, "verbs"));
        assert_eq!(kind_of("test", "fault", FEATURE), some(Kind::Fault, "fault"));
        assert_eq!(kind_of("bench", "stream", FEATURE), some(Kind::Bench, "stream"));
    }

    #[test]
    fn programs_without_verbs_are_left_out() {
        assert_eq!(kind_of("test", "conformance", "sim"), None);
        assert_eq!(kind_of("bench", "credits", ""), None);
    }

    #[test]
    fn what_uses_verbs_is_chosen_by_name() {
        let package = package_saying(&json!({"name": PACKAGE, "targets": [
            target("lib", "convoke_transport_rdma", &[]),
            target("test", "simulated", &[]),
            target("test", "fault", &[FEATURE]),
            target("bench", "rdma", &["mutants", FEATURE]),
        ]}));
        let metadata = json!({
            "packages": [package], "workspace_members": [], "workspace_root": "/",
            "target_directory": "/target", "version": 1
        });
        let targets = targets(&serde_json::from_value(metadata).expect("metadata"));
        let targets = targets.expect("the package is there");
        let selection: Vec<_> = targets.iter().flat_map(Target::selection).collect();
        assert_eq!(selection, ["--lib", "--test", "fault", "--bench", "rdma"]);
    }

    #[test]
    fn where_nothing_of_the_package_is_chosen_nothing_is_built() {
        let workspace = Workspace::find().expect("this is in it");
        let line = |kind| {
            let step = build_step(&workspace, &[kind]).expect("cargo knows the package");
            step.map(|step| step.to_string())
        };
        assert_eq!(line(Kind::Replicated), None);
        let built = "cargo test --release --no-run -p convoke-transport-rdma --all-features --lib";
        assert_eq!(line(Kind::Unit).as_deref(), Some(built));
    }

    #[test]
    fn only_the_library_has_cases_without_verbs() {
        let list =
            "credit::keeps: test\nffi::verbs::fits: test\nffi::slab::lends: test\n\n3 tests\n";
        assert_eq!(cases_of(Kind::Unit, list), ["ffi::verbs::fits"]);
        assert_eq!(cases_of(Kind::Fault, list).len(), 3);
    }
}
