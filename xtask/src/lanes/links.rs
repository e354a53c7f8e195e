//! Lane `links`: no link of a page leads nowhere, and the book has all pages of `docs`.

use crate::guide::{Pages, complaints};
use crate::lanes::Plan;
use crate::workspace::Workspace;

/// Looks at all pages that git tracks.
///
/// # Errors
/// A page cannot be read.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let Some(pages) = pages(workspace)? else {
        return Ok(Plan::Skip("git does not know this folder, so which pages?".to_owned()));
    };
    Ok(Plan::Found(complaints(&pages, |path| workspace.root().join(path).exists())))
}

/// All pages of the repository; `None` when git does not know it.
///
/// # Errors
/// A page cannot be read.
pub(super) fn pages(workspace: &Workspace) -> anyhow::Result<Option<Pages>> {
    let Some(paths) = workspace.files() else { return Ok(None) };
    let is_page = |path: &String| path.ends_with(".md") && workspace.root().join(path).exists();
    let page = |path: String| Ok((path.clone(), workspace.read(&path)?));
    paths.into_iter().filter(is_page).map(page).collect::<anyhow::Result<_>>().map(Some)
}
