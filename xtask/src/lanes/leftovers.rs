//! Lane `leftovers`: scans the files that git tracks, or would with the next `git add`.

use std::io::ErrorKind;

use anyhow::Context;

use crate::lanes::Plan;
use crate::leftovers::{Finding, scan};
use crate::workspace::Workspace;

/// Scans all files.
///
/// # Errors
/// A file cannot be read.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let Some(paths) = workspace.files() else {
        return Ok(Plan::Skip("git does not know this folder, so what to scan?".to_owned()));
    };
    let mut complaints = Vec::new();
    for path in paths {
        if let Some(text) = text_of(workspace, &path)? {
            complaints.extend(scan(&path, &text).iter().map(Finding::to_string));
        }
    }
    Ok(Plan::Found(complaints))
}

/// The text of a file; `None` when it holds no text or is deleted but not yet committed.
fn text_of(workspace: &Workspace, path: &str) -> anyhow::Result<Option<String>> {
    match std::fs::read(workspace.root().join(path)) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {path}")),
    }
}
