//! Lane `book` of a release: the pages of `docs` as a book of mdBook.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::guide::summary;
use crate::lanes::{Plan, links};
use crate::markdown::without_links_out;
use crate::step::Step;
use crate::workspace::Workspace;

/// Folder of the book, below that of what is built.
const FOLDER: &str = "guide";

/// Settings of mdBook. Its pages are copies, since chapters and links differ from those of `docs`.
const SETTINGS: &str = "[book]\ntitle = \"Convoke\"\nlanguage = \"en\"\nsrc = \"pages\"\n\n\
                        [build]\nbuild-dir = \"html\"\ncreate-missing = false\n";

/// Copies the pages and plans a book of them.
///
/// # Errors
/// A page cannot be copied.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    if workspace.output_of("mdbook", &["--version"]).is_err() {
        return Ok(Plan::Skip("mdbook is missing: `cargo install --locked mdbook`".to_owned()));
    }
    let (Some(pages), Some(files)) = (links::pages(workspace)?, workspace.files()) else {
        return Ok(Plan::Skip("git does not know this folder, so which pages?".to_owned()));
    };
    let folder = workspace.target()?.join(FOLDER);
    // Of the book before nothing may be left.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)?,
        _ => {}
    }
    let write = |path: &Path, bytes: &[u8]| {
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        parent.and_then(|()| fs::write(path, bytes)).with_context(|| path.display().to_string())
    };
    write(&folder.join("book.toml"), SETTINGS.as_bytes())?;
    write(&folder.join("pages/SUMMARY.md"), summary(&pages).as_bytes())?;
    for path in files.iter().filter(|path| workspace.root().join(path).is_file()) {
        let Some(name) = path.strip_prefix("docs/") else { continue };
        let to = folder.join("pages").join(name);
        match pages.get(path) {
            Some(text) => write(&to, without_links_out(text).as_bytes())?,
            None => write(&to, &fs::read(workspace.root().join(path))?)?,
        }
    }
    Ok(Plan::Run(vec![
        Step::new("mdbook").args(["build".to_owned(), folder.display().to_string()]),
    ]))
}
