//! Lane `package`: each published crate can be packaged, and its package holds what it must and
//! nothing else.
//!
//! Nothing is compiled here. `cargo xtask release` builds every package from its own contents.

use anyhow::Context;

use crate::lanes::Plan;
use crate::published::{Published, published};
use crate::step::Step;
use crate::workspace::Workspace;

/// Looks at the contents of all packages, then plans to make them.
///
/// Cargo makes them in the order of their dependencies, and refuses a cycle.
///
/// # Errors
/// Cargo cannot list the files of a package, or a manifest or licence cannot be read.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let crates = published(workspace)?;
    let licences = LICENCES
        .map(|name| Ok((name, workspace.read(name)?)))
        .into_iter()
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut complaints = Vec::new();
    for one in &crates {
        let list = ["package", "--list", "--allow-dirty", "-p", &one.name];
        let files = workspace.output_of("cargo", &list)?;
        let files = String::from_utf8(files).context("a file name is no text")?;
        let files: Vec<_> = files.lines().map(|file| file.replace('\\', "/")).collect();
        let text = |name: &str| std::fs::read_to_string(one.folder.join(name)).unwrap_or_default();
        let found = one.complaints().into_iter().chain(of_files(one, &files, &licences, &text));
        complaints.extend(found.map(|complaint| format!("{}: {complaint}", one.name)));
    }
    if !complaints.is_empty() {
        return Ok(Plan::Found(complaints));
    }
    // Else the registry is asked about each package, which takes a minute where it is slow.
    let metadata = ["metadata", "--offline", "--format-version", "1"];
    let is_all_here = workspace.output_of("cargo", &metadata).is_ok();
    let offline = is_all_here.then_some("--offline");
    Ok(Plan::Run(vec![package(&crates).args(["--no-verify"]).args(offline)]))
}

/// Plans to make all packages and to build each from what is in it.
///
/// # Errors
/// `cargo metadata` fails.
pub(super) fn plan_with_verification(workspace: &Workspace) -> anyhow::Result<Plan> {
    Ok(Plan::Run(vec![package(&published(workspace)?)]))
}

fn package(crates: &[Published]) -> Step {
    let names = crates.iter().flat_map(|one| ["-p".to_owned(), one.name.clone()]);
    Step::cargo(["package", "--allow-dirty", "--quiet"]).args(names)
}

/// Complaints about the files of a package.
fn of_files(
    one: &Published,
    files: &[String],
    licences: &[(&str, String)],
    text: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let has = |name: &str| files.iter().any(|file| file == name);
    if !has("README.md") || text("README.md").trim().is_empty() {
        complaints.push("no README.md, or an empty one".to_owned());
    }
    for (name, expected) in licences {
        // A link that the system has checked out as a file holds a path, not a licence.
        if !has(name) || text(name).trim() != expected.trim() {
            complaints.push(format!("no {name} with the text of the repository's"));
        }
    }
    if one.include.is_empty() {
        complaints.push("its manifest has no `include` list".to_owned());
    }
    for file in files.iter().filter(|file| !MADE_BY_CARGO.contains(&file.as_str())) {
        if !one.include.iter().any(|pattern| covers(pattern, file)) {
            complaints.push(format!("{file} is packaged, and no pattern of `include` covers it"));
        }
    }
    for pattern in &one.include {
        if !files.iter().any(|file| covers(pattern, file)) {
            complaints.push(format!("`{pattern}` of `include` covers no file"));
        }
    }
    complaints
}

/// True when the pattern, of a manifest's `include`, names the file or a folder it is in.
///
/// Patterns are absolute within the package, and a `*` stands for part of one name: `include` lists
/// of this repository have no others, and one that had would be told of.
fn covers(pattern: &str, file: &str) -> bool {
    let Some(pattern) = pattern.strip_prefix('/') else { return false };
    let mut parts = file.split('/');
    pattern.split('/').all(|part| parts.next().is_some_and(|name| is_like(part, name)))
}

fn is_like(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
const MADE_BY_CARGO: [&str; 4] =
    [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig"];

#[cfg(test)]
mod tests {
    use super::*;

    fn example(include: &[&str]) -> Published {
        let include = include.iter().map(|&pattern| pattern.to_owned()).collect();
        Published { include, ..Published::example("convoke-x") }
    }

    /// Complaints about these files, of which each licence has the text of the repository's.
    fn complaints(include: &[&str], files: &[&str]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|&file| file.to_owned()).collect();
        let licences = LICENCES.map(|name| (name, format!("{name} text\n")));
        of_files(&example(include), &files, &licences, &|name| format!("{name} text"))
    }

    const INCLUDE: [&str; 3] = ["/LICENSE-*", "/README.md", "/src"];
    const FILES: [&str; 6] =
        ["Cargo.lock", "Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/a/b.rs"];

    #[test]
    fn a_package_with_all_that_it_needs_is_fine() {
        assert_eq!(complaints(&INCLUDE, &FILES), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_named() {
        for missing in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
            let files: Vec<_> = FILES.into_iter().filter(|file| *file != missing).collect();
            let found = complaints(&INCLUDE, &files);
            assert!(found.iter().any(|text| text.contains(missing)), "{missing}: {found:?}");
        }
    }

    #[test]
    fn a_licence_that_is_only_a_path_is_refused() {
        let files: Vec<_> = FILES.iter().map(|&file| file.to_owned()).collect();
        let licences = LICENCES.map(|name| (name, format!("{name} text")));
        let path = |name: &str| format!("../../{name}");
        assert_eq!(of_files(&example(&INCLUDE), &files, &licences, &path).len(), 2);
    }

    #[test]
    fn files_outside_the_list_are_refused_and_so_is_no_list() {
        let files = [&FILES[..], &["tests/a.rs"]].concat();
        assert_eq!(
            complaints(&INCLUDE, &files),
            ["tests/a.rs is packaged, and no pattern of `include` covers it"]
        );
        assert!(complaints(&[], &FILES)[0].contains("no `include` list"));
    }

    #[test]
    fn a_pattern_that_covers_nothing_is_refused() {
        let include = [&INCLUDE[..], &["/proto", "src"]].concat();
        let found = complaints(&include, &FILES);
        assert_eq!(
            found,
            ["`/proto` of `include` covers no file", "`src` of `include` covers no file"]
        );
    }

    #[test]
    fn patterns_cover_folders_and_parts_of_names() {
        assert!(covers("/src", "src/lib.rs") && covers("/examples/*.rs", "examples/tree.rs"));
        assert!(!covers("/src", "srcs/lib.rs") && !covers("/examples/*.rs", "examples/shop/a.rs"));
        assert!(!covers("/examples/*.rs", "examples") && !covers("/a*a", "a"));
    }

    #[test]
    fn all_packages_are_made_by_one_command() {
        let line = package(&[example(&[]), Published::example("convoke-y")]).to_string();
        assert_eq!(line, "cargo package --allow-dirty --quiet -p convoke-x -p convoke-y");
    }
}
