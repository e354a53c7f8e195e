//! Builds the programs that use verbs and asks them which tests they have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::plan::{Kind, Program};
use super::replicated;
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

fn artifacts(workspace: &Workspace, kinds: &[Kind]) -> anyhow::Result<Vec<Artifact>> {
    let metadata =
        workspace.output_of("cargo", &["metadata", "--format-version", "1", "--no-deps"])?;
    let targets = targets(&metadata)?;
    let chosen: Vec<&Target> =
        targets.iter().filter(|target| kinds.contains(&target.kind)).collect();
    if chosen.is_empty() {
        return Ok(Vec::new()); // without a selection cargo would build them all
    }
    // Optimised, as emulation is slow enough: the ordinary tests run with the compiler's checks.
    let step = Step::cargo(["test", "--release", "--no-run", "-p", PACKAGE, "--all-features"])
        .args(chosen.into_iter().flat_map(Target::selection))
        .args(["--message-format", "json-render-diagnostics"]);
    println!("$ {step}");
    let messages = step.output(workspace.root())?;
    Ok(messages.lines().filter_map(artifact).collect())
}

impl Target {
    /// Reads it from the words of cargo, if it is one that uses verbs.
    fn read(target: &Value) -> Option<Self> {
        let is = |list: &Value, word: &str| {
            list.as_array().is_some_and(|words| words.iter().any(|one| one == word))
        };
        let name = target["name"].as_str()?;
        let kind = match name {
            _ if is(&target["kind"], "lib") => Kind::Unit,
            _ if !is(&target["required-features"], FEATURE) => return None,
            _ if is(&target["kind"], "bench") => Kind::Bench,
            _ if name.starts_with("fault") => Kind::Fault,
            _ if is(&target["kind"], "test") => Kind::Conformance,
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
fn targets(metadata: &[u8]) -> anyhow::Result<Vec<Target>> {
    let metadata: Value = serde_json::from_slice(metadata).context("reading cargo metadata")?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == PACKAGE);
    let package = package.with_context(|| format!("there is no package {PACKAGE}"))?;
    Ok(package["targets"].as_array().into_iter().flatten().filter_map(Target::read).collect())
}

/// The program that a message of cargo speaks of, if it is one that uses verbs.
fn artifact(message: &str) -> Option<Artifact> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    Some(Artifact { target: Target::read(&message["target"])?, path })
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
    use super::*;

    fn kind_of(kind: &str, name: &str, needs: &str) -> Option<(Kind, String)> {
        let message = format!(
            "{{\"executable\": \"/x\", \"target\": {{\"kind\": [\"{kind}\"], \"name\": \"{name}\", \
             \"required-features\": [\"{needs}\"]}}}}"
        );
        artifact(&message).map(|Artifact { target, .. }| (target.kind, target.name))
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
    fn programs_without_verbs_and_other_messages_are_left_out() {
        assert_eq!(kind_of("test", "conformance", "sim"), None);
        assert_eq!(kind_of("bench", "credits", ""), None);
        assert_eq!(artifact("{\"reason\": \"build-finished\", \"success\": true}"), None);
        assert_eq!(artifact("warning: something"), None);
    }

    #[test]
    fn what_uses_verbs_is_chosen_by_name() {
        let metadata = br#"{"packages": [{"name": "convoke-transport-rdma", "targets": [
            {"kind": ["lib"], "name": "convoke_transport_rdma"},
            {"kind": ["test"], "name": "simulated"},
            {"kind": ["test"], "name": "fault", "required-features": ["verbs"]},
            {"kind": ["bench"], "name": "rdma", "required-features": ["mutants", "verbs"]}
        ]}]}"#;
        let targets = targets(metadata).expect("well-formed");
        let selection: Vec<_> = targets.iter().flat_map(Target::selection).collect();
        assert_eq!(selection, ["--lib", "--test", "fault", "--bench", "rdma"]);
    }

    #[test]
    fn only_the_library_has_cases_without_verbs() {
        let list =
            "credit::keeps: test\nffi::verbs::fits: test\nffi::slab::lends: test\n\n3 tests\n";
        assert_eq!(cases_of(Kind::Unit, list), ["ffi::verbs::fits"]);
        assert_eq!(cases_of(Kind::Fault, list).len(), 3);
    }
}
