//! Lane `lean`: the default build of the facade stays small, and needs no compiler but Rust's.

use anyhow::Context;

use crate::lanes::Plan;
use crate::workspace::Workspace;

/// Looks at what `convoke` depends on with its default features.
///
/// # Errors
/// `cargo tree` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let tree = |more: &[&str]| {
        let always = ["tree", "-p", "convoke", "--prefix", "none", "--format", "{p}"];
        let output = workspace.output_of("cargo", &[&always, more].concat())?;
        String::from_utf8(output).context("reading what `cargo tree` printed")
    };
    // On any system, since a compiler that only one of them asks for is missing there.
    let built = tree(&["--edges", "normal,build", "--target", "all"])?;
    let linked = tree(&["--edges", "normal"])?;
    Ok(Plan::Found(complaints(&built, &linked)))
}

/// Complaints about the crates of these two lists of `cargo tree`.
fn complaints(built: &str, linked: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in names(built).into_iter().filter(|name| NEED_A_COMPILER.contains(name)) {
        let shown = format!("cargo tree -p convoke -e normal,build --target all -i {name}");
        complaints.push(format!("{name} is in the default build: `{shown}`"));
    }
    let count = crates(linked).filter(|(name, _)| !is_ours(name)).count();
    if count > CRATES_MAX {
        let shown = "cargo tree -p convoke -e normal";
        complaints.push(format!("{count} crates, of {CRATES_MAX} at most: `{shown}`"));
    }
    if !names(linked).contains(&"convoke-core") {
        complaints.push("`cargo tree` printed something else than the crates".to_owned());
    }
    complaints
}

/// Each crate once, as name and version, in the order of names.
fn crates(tree: &str) -> impl Iterator<Item = (&str, &str)> {
    let crates = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        Some((name, rest.split(' ').next().unwrap_or_default()))
    });
    crates.collect::<std::collections::BTreeSet<_>>().into_iter()
}

fn names(tree: &str) -> Vec<&str> {
    let mut names: Vec<_> = crates(tree).map(|(name, _)| name).collect();
    names.dedup();
    names
}

fn is_ours(name: &str) -> bool {
    name == "convoke" || name.starts_with("convoke-")
}

/// Crates that run a compiler or a linker of the system, or look for its libraries.
const NEED_A_COMPILER: [&str; 8] =
    ["autocfg", "autotools", "bindgen", "cc", "cmake", "nasm-rs", "pkg-config", "vcpkg"];

/// Crates beside ours on the system that this runs on. To be lowered whenever it can be; raising it
/// is a decision about what everybody has to build.
const CRATES_MAX: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    const LINKED: &str = "\
convoke v0.1.0 (/somewhere)
convoke-core v0.1.0 (/somewhere/core)
syn v2.0.1
syn v3.0.0
syn v2.0.1 (*)
thiserror-impl v2.0.1 (proc-macro)
";

    /// As many crates as this, and ours.
    fn linked(count: usize) -> String {
        (0..count).fold(String::from("convoke-core v0.1.0\n"), |tree, index| {
            tree + &format!("crate{index} v1.0.0\ncrate{index} v1.0.0 (*)\n")
        })
    }

    #[test]
    fn a_small_build_without_a_compiler_is_fine() {
        assert_eq!(complaints(LINKED, LINKED), [""; 0]);
        assert_eq!(complaints("", &linked(CRATES_MAX)), [""; 0]);
    }

    #[test]
    fn versions_count_and_repetitions_do_not() {
        assert_eq!(crates(LINKED).filter(|(name, _)| !is_ours(name)).count(), 3);
        assert_eq!(names(LINKED), ["convoke", "convoke-core", "syn", "thiserror-impl"]);
    }

    #[test]
    fn a_compiler_is_named_with_the_command_that_shows_who_brought_it() {
        let found = complaints(&format!("{LINKED}cc v1.2.3\n"), LINKED);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("cc is in the default build"), "{found:?}");
        assert!(found[0].ends_with("-i cc`"), "{found:?}");
    }

    #[test]
    fn too_many_crates_are_counted() {
        let found = complaints("", &linked(CRATES_MAX + 1));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("{} crates", CRATES_MAX + 1)), "{found:?}");
    }

    #[test]
    fn output_that_is_no_tree_is_refused() {
        assert!(!complaints("", "").is_empty());
    }
}
