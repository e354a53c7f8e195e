//! Checks the planner against folders of vectors: inputs with what they must come to. The vectors
//! are described in `testdata/vectors/README.md`.
//!
//! ```text
//! cargo run --release -p convoke-overlay --example plan -- check crates/overlay/testdata/vectors
//! ```
//!
//! Prints what does not match and `X of Y instances match`; succeeds only if all do and there is at
//! least one. With `--features lp` the one-relay trees are checked, too.

mod vector;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};

use self::vector::{Outcome, check_text};

const USAGE: &str = "usage: plan check DIR";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let checked = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check", folder] => check(Path::new(folder)),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    match checked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Checks all instances of a folder; true when they match.
fn check(folder: &Path) -> anyhow::Result<bool> {
    let (mut instances, mut matching) = (0, 0);
    for path in vectors(folder)? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let outcomes = check_text(&text).unwrap_or_else(|error| {
            vec![Outcome { id: "the file".to_owned(), misses: vec![format!("{error:#}")] }]
        });
        for Outcome { id, misses } in outcomes {
            instances += 1;
            matching += usize::from(misses.is_empty());
            for miss in misses {
                println!("{}: {id}: {miss}", path.display());
            }
        }
    }
    println!("{matching} of {instances} instances match");
    ensure!(instances > 0, "{} has no instances: nothing was checked", folder.display());
    Ok(matching == instances)
}

/// The JSON files of a folder, in order.
fn vectors(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        paths.push(entry.with_context(cannot)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no .json files: nothing to check", folder.display());
    Ok(paths)
}
